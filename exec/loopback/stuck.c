/* Reports a deadlock of the loopback backend: no event is possible, but some rank has not finished.
 * The report names the ranks, the instruction that each of them has reached, and the reason why
 * that instruction waits. */
#include "exec/loopback/private.h"

enum { MAX_NAMED = 8 };

/* Of the rank's instructions that pc must wait for, returns one that has not finished; 0: all have
 * finished. */
static Pc unfinished_before(const Loopback *l, Rank rank, Pc pc)
{
    const ProgramInfo *info = l->ranks[rank].info;
    for (Pc from = 1; from <= info->n_instr; from++) {
        if (l->finished[rank][from]) continue;
        for (uint32_t i = info->first[from]; i < info->first[from + 1]; i++)
            if (info->then[i] == pc) return from;
    }
    return 0;
}

static void absent_members(const Loopback *l, const LoopbackMeeting *m, Rank rank, Pc pc, Str *out)
{
    const Comm *c = l->ranks[rank].at[pc].comm;
    const char *sep = "";
    for (Rank other = 0; other < l->n_ranks; other++) {
        bool wanted =
            c->op == OP_send || c->op == OP_recv
                ? other == (c->part ? c->leader : c->peer)
                : other != rank && mesh_group(&l->plan->mesh, other, c->axes) == c->leader;
        const Member *at = NULL;
        for (uint32_t i = 0; i < m->n_members; i++)
            if (l->members[m->first + i].rank == other) at = &l->members[m->first + i];
        if (!wanted || (at && l->ranks[other].n_before[at->pc] == 0)) continue;
        str_print(out, "%srank %u", sep, other);
        if (at == NULL)
            str_add(out, " (whose program has none)");
        else
            str_print(out, " (not yet at its instruction %u)", at->pc);
        sep = ", ";
    }
}

static void describe(const Loopback *l, Rank rank, Pc pc, Str *out)
{
    const Program *p = plan_program(l->plan, rank);
    Arena *arena = out->arena;
    str_print(out, "rank %u is at %s", rank, instr_text(l->plan, p, pc, arena));
    const Comm *c = l->ranks[rank].at[pc].comm;
    if (c != NULL && l->ranks[rank].n_before[pc] == 0) {
        str_print(out, ", and waits at match %u for ", c->match);
        absent_members(l, &l->meetings[l->meeting_of[rank][pc]], rank, pc, out);
    } else {
        Pc before = unfinished_before(l, rank, pc);
        str_print(out, ", and waits for %s", instr_text(l->plan, p, before, arena));
    }
}

/* Returns where a rank has stopped: at the first communication that it has reached, or else at its
 * first unfinished instruction. */
static Pc stuck_at(const Loopback *l, Rank rank)
{
    const RankState *r = &l->ranks[rank];
    Pc first = 0;
    for (Pc pc = 1; pc <= r->info->n_instr; pc++) {
        if (l->finished[rank][pc]) continue;
        if (first == 0) first = pc;
        if (r->n_before[pc] == 0) return pc;
    }
    return first;
}

bool loopback_report_stuck(const Loopback *l, Diag *d)
{
    uint32_t named = 0;
    for (Rank rank = 0; rank < l->n_ranks && named < MAX_NAMED; rank++) {
        Pc pc = stuck_at(l, rank);
        if (pc == 0) continue;
        named++;
        Str s = str_in(l->arena);
        describe(l, rank, pc, &s);
        diag_error(d, FAULT_run, "deadlock",
                   instr_loc(l->plan, program_instr(plan_program(l->plan, rank), pc)), "%s",
                   str_text(&s));
    }
    return false;
}
