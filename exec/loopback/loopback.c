/* Runs all ranks in this process. At each moment the plan allows several events: an instruction may
 * start, or a communication may end. A seed chooses the next event. The bytes of a communication
 * are moved at any time between its start and its end. So if a result depends on the order of
 * events, different seeds give different results. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/loopback/private.h"
#include "planner/base/clock.h"
#include "planner/base/rng.h"

static void push(Loopback *l, LegalStep e)
{
    assert(l->n_ready < l->room);
    l->ready[l->n_ready++] = e;
}

static LegalStep take(Loopback *l)
{
    assert(l->n_ready > 0);
    uint32_t i = 0;
    if (l->options.order_seed)
        i = (uint32_t)rng_below(l->options.order_seed, l->n_steps, l->n_draws++, l->n_ready);
    LegalStep e = l->ready[i];
    l->ready[i] = l->ready[--l->n_ready];
    return e;
}

static void record(Loopback *l, Rank rank, Pc pc, Ps start, Ps end)
{
    Trace *t = l->trace;
    if (t == NULL) return;
    assert(t->rows.n < t->rows.room);
    t->rows.at[t->rows.n++] = (TraceRow){rank,
                                         (uint32_t)l->control.step,
                                         pc,
                                         start - l->step_start,
                                         end - l->step_start,
                                         l->ranks[rank].info->bytes[pc]};
}

/* Notes that an instruction may start now. If it is a communication, its rank counts as arrived. */
static void may_start(Loopback *l, Rank rank, Pc pc)
{
    RankState *r = &l->ranks[rank];
    if (r->at[pc].comm == NULL) {
        push(l, (LegalStep){rank, pc, 0});
        return;
    }
    LoopbackMeeting *m = &l->meetings[l->meeting_of[rank][pc]];
    assert(m->n_arrived < m->n_members);
    if (++m->n_arrived < m->n_expected || m->n_members != m->n_expected) return;
    m->start = clock_ps();
    push(l, (LegalStep){0, 0, l->meeting_of[rank][pc]});
}

static void finish(Loopback *l, Rank rank, Pc pc)
{
    uint32_t n = rank_finish(&l->ranks[rank], pc, l->next);
    l->finished[rank][pc] = true;
    l->n_left--;
    for (uint32_t i = 0; i < n; i++) may_start(l, rank, l->next[i]);
}

static bool look_for_bad(Loopback *l, Rank rank, Pc pc)
{
    return l->bad != NULL && l->bad->pc == 0 && rank_find_bad(&l->ranks[rank], pc, l->bad);
}

static void run_compute(Loopback *l, LegalStep e)
{
    Ps start = clock_ps();
    rank_compute(&l->ranks[e.rank], e.pc);
    record(l, e.rank, e.pc, start, clock_ps());
    look_for_bad(l, e.rank, e.pc);
    finish(l, e.rank, e.pc);
}

/* Checks that every member of an uneven exchange has memory for its rows. Reports the first member
 * that has not, and returns false. */
static bool rows_fit(Loopback *l, const Member *member, const Comm *const *comm, uint32_t n,
                     Diag *d)
{
    for (uint32_t i = 0; i < n && comm[0]->op == OP_exchange_uneven; i++) {
        if (uneven_rows_to(comm[i]) <= uneven_room(comm[i])) continue;
        const RankState *r = &l->ranks[member[i].rank];
        const Pc pc = member[i].pc;
        return diag_error(
            d, FAULT_run, "rows-over-bound", instr_loc(l->plan, program_instr(r->info->p, pc)),
            "%s", uneven_overflow(l->plan, r->info->p, pc, comm[i], member[i].rank, l->arena));
    }
    return true;
}

/* Moves the bytes of a communication, or ends it. Returns false if the step cannot go on. */
static bool run_meeting(Loopback *l, uint32_t id, Diag *d)
{
    LoopbackMeeting *m = &l->meetings[id];
    const Member *member = &l->members[m->first];
    if (!m->is_moved) {
        const Comm *comm[MAX_GROUP];
        assert(m->n_members <= MAX_GROUP);
        for (uint32_t i = 0; i < m->n_members; i++)
            comm[i] = l->ranks[member[i].rank].at[member[i].pc].comm;
        if (!rows_fit(l, member, comm, m->n_members, d)) return false;
        collective_move(comm, m->n_members);
        m->is_moved = true;
        /* move the bytes some time before the communication ends, so that other instructions may
         * run in between */
        uint64_t seed = l->options.order_seed;
        if (seed && rng_below(seed, l->n_steps, l->n_draws++, 2) == 0) {
            push(l, (LegalStep){0, 0, id});
            return true;
        }
    }
    Ps end = clock_ps();
    for (uint32_t i = 0; i < m->n_members; i++) {
        record(l, member[i].rank, member[i].pc, m->start, end);
        look_for_bad(l, member[i].rank, member[i].pc);
    }
    for (uint32_t i = 0; i < m->n_members; i++) finish(l, member[i].rank, member[i].pc);
    return true;
}

static void begin(Loopback *l)
{
    l->n_ready = 0;
    l->n_draws = 0;
    l->n_steps++;
    l->n_left = 0;
    for (uint32_t i = 1; i < l->n_meetings; i++) {
        l->meetings[i].n_arrived = 0;
        l->meetings[i].is_moved = false;
    }
    for (Rank r = 0; r < l->n_ranks; r++) {
        rank_begin(&l->ranks[r]);
        memset(l->finished[r], 0, (l->ranks[r].info->n_instr + 1) * sizeof(bool));
        l->n_left += l->ranks[r].info->n_instr;
    }
    l->step_start = clock_ps();
    for (Rank r = 0; r < l->n_ranks; r++) {
        uint32_t n = rank_starters(&l->ranks[r], l->next);
        for (uint32_t i = 0; i < n; i++) may_start(l, r, l->next[i]);
    }
}

static bool run_step(Loopback *l, Diag *d)
{
    begin(l);
    while (l->n_ready > 0) {
        LegalStep e = take(l);
        if (!e.meeting)
            run_compute(l, e);
        else if (!run_meeting(l, e.meeting, d))
            return false;
    }
    if (l->n_left > 0) return loopback_report_stuck(l, d);
    bool fine = true;
    for (Rank r = 0; r < l->n_ranks; r++) fine = rank_inspect(&l->ranks[r], d) && fine;
    return fine;
}

static bool step(Backend *self, const Control *control, Trace *trace, BadNumber *bad, Diag *d)
{
    Loopback *l = self->state;
    l->control = *control;
    l->trace = trace;
    l->bad = bad;
    if (bad != NULL) *bad = (BadNumber){.pc = 0};
    return run_step(l, d);
}

static void local_ranks(const Backend *self, Rank *first, uint32_t *n)
{
    const Loopback *l = self->state;
    *first = 0;
    *n = l->n_ranks;
}

static void *memory(Backend *self, Rank rank, BufferId root)
{
    Loopback *l = self->state;
    assert(rank < l->n_ranks);
    return rank_memory(&l->ranks[rank], root);
}

static uint64_t highest_touched(Backend *self, Rank rank, Space space)
{
    Loopback *l = self->state;
    return rank_highest(&l->ranks[rank], space);
}

static const LoadCounts *loads(Backend *self, Rank rank)
{
    return ((Loopback *)self->state)->ranks[rank].loads;
}

static uint64_t outside_bytes(Backend *self)
{
    (void)self;
    return 0;
}

static bool exchange(Backend *self, const void *mine, size_t bytes, void *all, Diag *d)
{
    (void)self, (void)d;
    if (bytes > 0) memcpy(all, mine, bytes);
    return true;
}

static uint32_t processes(const Backend *self, uint32_t *mine)
{
    (void)self;
    *mine = 0;
    return 1;
}

static void close_ranks(Backend *self)
{
    Loopback *l = self->state;
    for (Rank r = 0; l->ranks != NULL && r < l->n_ranks; r++) rank_close(&l->ranks[r]);
    l->n_ranks = 0;
}

Backend *backend_loopback(Arena *arena)
{
    Backend *b = arena_alloc(arena, sizeof *b);
    Loopback *l = arena_alloc(arena, sizeof *l);
    l->arena = arena;
    *b = (Backend){.name = "loopback",
                   .open = loopback_open,
                   .ranks = local_ranks,
                   .step = step,
                   .memory = memory,
                   .highest_touched = highest_touched,
                   .loads = loads,
                   .outside_bytes = outside_bytes,
                   .exchange = exchange,
                   .processes = processes,
                   .close = close_ranks,
                   .state = l};
    return b;
}
