/* Reports that a simulated plan cannot continue: which ranks have not ended, which instruction each
 * of them has reached, and which members are missing there. */
#include "sim/engine_private.h"

enum { MAX_TOLD = 6 };

static bool is_pair(const Instr *in)
{
    return in->op == OP_send || in->op == OP_recv;
}

static bool has_come(const Stuck *s, uint32_t list, uint32_t class_)
{
    for (uint32_t i = list; i != 0; i = s->arrivals[i].next) {
        if (s->arrivals[i].class_ == class_) return true;
    }
    return false;
}

static void tell_missing(const Stuck *s, uint32_t list, uint32_t class_, const Instr *in, Str *text)
{
    const Fold *fold = s->fold;
    if (is_pair(in)) {
        Rank peer = 0;
        fold_peer(&s->plan->mesh, fold->rank_of[class_], in->axes, in->hop, &peer);
        str_print(text, " for rank %u to %s", peer, in->op == OP_send ? "receive" : "send");
        return;
    }
    const FoldAxes *axes = &fold->axes.at[fold_axes(fold, in->axes)];
    const FoldGroup *group = &axes->groups[axes->group_of[class_]];
    uint32_t told = 0;
    str_add(text, " for rank");
    for (uint32_t k = 0; k < group->n_ranks; k++) {
        Rank m = mesh_member(&s->plan->mesh, fold->rank_of[class_], in->axes, k);
        if (has_come(s, list, fold->class_of[m])) continue;
        if (told == MAX_TOLD) str_add(text, ", ...");
        if (told < MAX_TOLD) str_print(text, "%s %u", told == 0 ? "" : ",", m);
        told++;
    }
}

/* Reports the first instruction that a class cannot begin, and how many instructions it waits
 * for. */
static void tell_unreached(const Stuck *s, uint32_t class_, Str *text)
{
    uint32_t program = s->plan->program_of[s->fold->rank_of[class_]];
    const Code *code = &s->codes[program];
    const Program *p = &s->plan->programs.at[program];
    for (Pc pc = 1; pc < code->n; pc++) {
        Pc leader = code->step[pc].leader;
        const uint32_t awaited = code->need[leader] - moment_of(&s->line[class_], leader)->met;
        if (awaited == 0) continue;
        str_print(text, "rank %u cannot begin instruction %u (%s %s), which waits for %u others",
                  s->fold->rank_of[class_], pc, stream_name(p->code.at[pc].stream),
                  op_info(p->code.at[pc].op)->name, awaited);
        return;
    }
}

static Loc loc_of(const Stuck *s, const Instr *in)
{
    return in->origin < s->plan->graph.nodes.n ? s->plan->graph.nodes.at[in->origin].loc : (Loc){0};
}

void engine_report_stuck(const Stuck *s, Diag *d)
{
    Str text = str_in(d->arena);
    Arena *scratch = arena_new();
    uint32_t told = 0, n = 0;
    Loc loc = {0};
    for (uint32_t slot = 0; slot < s->n_slots; slot++) {
        for (uint32_t i = s->slots[slot]; i != 0; i = s->arrivals[i].next) {
            const Arrival *a = &s->arrivals[i];
            const Instr *in =
                program_instr(plan_program(s->plan, s->fold->rank_of[a->class_]), a->pc);
            n++;
            if (told == MAX_TOLD) continue;
            if (told++ == 0) loc = loc_of(s, in);
            str_print(&text, "%srank %u waits at instruction %u (%s %s along %s, match %u)",
                      told > 1 ? "; " : "", s->fold->rank_of[a->class_], a->pc,
                      stream_name(in->stream), op_info(in->op)->name,
                      mesh_axes_text(scratch, &s->plan->mesh, in->axes), in->match);
            tell_missing(s, s->slots[slot], a->class_, in, &text);
        }
    }
    if (n > told) str_print(&text, "; and %u more wait", n - told);
    if (n == 0) {
        for (uint32_t c = 0; c < s->fold->n_classes && text.n == 0; c++) {
            tell_unreached(s, c, &text);
        }
    }
    diag_error(d, FAULT_input, "sim-deadlock", loc, "the step cannot end: %s", str_text(&text));
    diag_hint(d, "all ranks of a group must issue the same communications in the same order");
    arena_free(scratch);
}
