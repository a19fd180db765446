/* Opens the loopback backend: prepares the ranks, and finds out which instructions form a
 * communication. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/loopback/private.h"

/* An entry for each communication instruction. After sorting, the instructions of one communication
 * are neighbours, because they have equal match, leader and peer. */
typedef struct MeetingKey {
    uint32_t match, leader, peer, part;
    Member member;
} MeetingKey;

static int by_key(const void *a, const void *b)
{
    const MeetingKey *x = a, *y = b;
    if (x->match != y->match) return x->match < y->match ? -1 : 1;
    if (x->leader != y->leader) return x->leader < y->leader ? -1 : 1;
    if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    if (x->member.rank != y->member.rank) return x->member.rank < y->member.rank ? -1 : 1;
    return x->member.pc < y->member.pc ? -1 : x->member.pc > y->member.pc;
}

static const Comm *comm_of(const Loopback *l, Member m)
{
    return l->ranks[m.rank].at[m.pc].comm;
}

static bool agrees(const Comm *a, const Comm *b)
{
    if (a->op == OP_send)
        return b->op == OP_recv && a->in_bytes == b->out_bytes && a->dtype == b->dtype;
    return a->op == b->op && a->axes == b->axes && a->reduce == b->reduce && a->dtype == b->dtype &&
           a->in_bytes == b->in_bytes && a->out_bytes == b->out_bytes;
}

/* Checks that all members of a communication issue the same operation, and that no part occurs
 * twice. */
static bool check_meeting(Loopback *l, const LoopbackMeeting *m, Diag *d)
{
    const Member *first = &l->members[m->first];
    const Comm *a = comm_of(l, first[0]);
    for (uint32_t i = 1; i < m->n_members; i++) {
        const Comm *b = comm_of(l, first[i]);
        bool twice = b->part == comm_of(l, first[i - 1])->part;
        if (!twice && agrees(a, b)) continue;
        const Program *p = plan_program(l->plan, first[i].rank);
        return diag_error(
            d, FAULT_internal, "exec-program", instr_loc(l->plan, program_instr(p, first[i].pc)),
            "rank %u, %s: match %u %s rank %u", first[i].rank,
            instr_text(l->plan, p, first[i].pc, l->arena), a->match,
            twice ? "is used twice by" : "is something else on", first[twice ? i - 1 : 0].rank);
    }
    return true;
}

static MeetingKey *collect_keys(Loopback *l, Arena *scratch, uint32_t *n)
{
    LIST(MeetingKey) keys = {0};
    for (Rank r = 0; r < l->n_ranks; r++)
        for (Pc pc = 1; pc <= l->ranks[r].info->n_instr; pc++) {
            const Comm *c = l->ranks[r].at[pc].comm;
            if (c == NULL) continue;
            MeetingKey key = {c->match, c->leader, c->peer, c->part, {r, pc}};
            list_push(scratch, &keys, key);
        }
    if (keys.n > 0) qsort(keys.at, keys.n, sizeof *keys.at, by_key);
    *n = keys.n;
    return keys.at;
}

static bool find_meetings(Loopback *l, Arena *scratch, Diag *d)
{
    uint32_t n;
    const MeetingKey *keys = collect_keys(l, scratch, &n);
    l->members = arena_array(l->arena, n, sizeof *l->members);
    l->meetings = arena_array(l->arena, (size_t)n + 1, sizeof *l->meetings);
    l->n_meetings = 1;
    for (uint32_t i = 0; i < n; i++) {
        const MeetingKey *a = &keys[i], *b = i > 0 ? &keys[i - 1] : NULL;
        l->members[i] = a->member;
        if (b == NULL || a->match != b->match || a->leader != b->leader || a->peer != b->peer) {
            uint32_t n_members = comm_of(l, a->member)->n_members;
            l->meetings[l->n_meetings++] = (LoopbackMeeting){.first = i, .n_expected = n_members};
        }
        l->meetings[l->n_meetings - 1].n_members++;
        l->meeting_of[a->member.rank][a->member.pc] = l->n_meetings - 1;
    }
    for (uint32_t i = 1; i < l->n_meetings; i++)
        if (!check_meeting(l, &l->meetings[i], d)) return false;
    return true;
}

static bool open_ranks(Loopback *l, const Plan *plan, Diag *d)
{
    const ProgramInfo **info = arena_array(l->arena, plan->programs.n, sizeof(const ProgramInfo *));
    uint32_t most = 0;
    for (Rank r = 0; r < l->n_ranks; r++) {
        uint32_t p = plan->program_of[r];
        if (info[p] == NULL) info[p] = program_info(plan, &plan->programs.at[p], l->arena);
        l->room += info[p]->n_instr;
        if (info[p]->n_instr > most) most = info[p]->n_instr;
        l->meeting_of[r] = arena_array(l->arena, (size_t)info[p]->n_instr + 1, sizeof(uint32_t));
        l->finished[r] = arena_array(l->arena, (size_t)info[p]->n_instr + 1, sizeof(bool));
        if (!rank_open(&l->ranks[r], plan, info[p], r, &l->control, &l->options, l->arena, d))
            return false;
    }
    l->ready = arena_array(l->arena, l->room, sizeof *l->ready);
    l->next = arena_array(l->arena, most, sizeof *l->next);
    return true;
}

bool loopback_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d)
{
    Loopback *l = self->state;
    l->plan = plan;
    l->options = *options;
    l->n_ranks = plan->mesh.n_ranks;
    l->ranks = arena_array(l->arena, l->n_ranks, sizeof *l->ranks);
    l->meeting_of = arena_array(l->arena, l->n_ranks, sizeof *l->meeting_of);
    l->finished = arena_array(l->arena, l->n_ranks, sizeof *l->finished);
    if (!open_ranks(l, plan, d)) return false;
    Arena *scratch = arena_new();
    bool fine = find_meetings(l, scratch, d);
    arena_free(scratch);
    return fine;
}
