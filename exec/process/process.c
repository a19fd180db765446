/* Runs one rank in this process. It starts each communication as soon as the plan allows it, and
 * runs local instructions. After each kernel it polls the communications in progress. MPI only
 * transports data. */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/process/private.h"
#include "exec/process/process.h"
#include "planner/base/clock.h"

/* A rank that has nothing to compute polls this many times in a row; after that it sleeps SLEEP_NS
 * nanoseconds between two polls. If ranks share cores, it sleeps at once, because each poll would
 * take time from the rank for which it waits. */
enum { POLLS_BEFORE_SLEEP = 500, SLEEP_NS = 20000 };

static void wait_a_little(Process *p, uint32_t *polls)
{
    double waited = (double)(clock_ps() - p->last_event) / (double)PS_PER_S;
    if (waited > p->options.timeout_s + p->more_s) {
        Ending e = process_ending(p);
        const PreparedTransfer *w = p->n_active > 0 ? p->active[0] : NULL;
        ending_timeout(&e, w ? w->comm : NULL, w ? w->pc : 0, waited);
    }
    if (!p->shares_cores && ++*polls < POLLS_BEFORE_SLEEP) {
        sched_yield();
        return;
    }
    struct timespec t = {0, SLEEP_NS};
    nanosleep(&t, NULL);
}

static void record(Process *p, Pc pc, Ps start, Ps end)
{
    Trace *t = p->trace;
    if (t == NULL) return;
    assert(t->rows.n < t->rows.room);
    t->rows.at[t->rows.n++] = (TraceRow){p->rank,
                                         (uint32_t)p->control.step,
                                         pc,
                                         start - p->step_start,
                                         end - p->step_start,
                                         p->state.info->bytes[pc]};
}

static void may_start(Process *p, Pc pc)
{
    PreparedTransfer *w = p->transfer[pc];
    if (w == NULL) {
        p->local[p->n_local++] = pc;
        return;
    }
    transfer_post(p, w);
    p->active[p->n_active++] = w;
}

static void finish(Process *p, Pc pc)
{
    uint32_t n = rank_finish(&p->state, pc, p->next);
    Stream s = program_instr(p->state.info->p, pc)->stream;
    p->finished[pc] = true;
    Pc unfinished = atomic_load_explicit(&p->slot->unfinished[s], memory_order_relaxed);
    while (unfinished && p->finished[unfinished]) unfinished = p->next_on_stream[unfinished];
    atomic_store_explicit(&p->slot->unfinished[s], unfinished, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->slot->count, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) may_start(p, p->next[i]);
}

static void look_for_bad(Process *p, Pc pc)
{
    if (p->bad != NULL && p->bad->pc == 0) rank_find_bad(&p->state, pc, p->bad);
}

/* Polls the transfers in progress. Returns true if one of them has finished. */
static bool poll_transfers(Process *p)
{
    for (uint32_t i = 0; i < p->n_active; i++) {
        PreparedTransfer *w = p->active[i];
        if (!transfer_poll(p, w, transfer_may_continue(p, i))) continue;
        record(p, w->pc, w->start, clock_ps());
        look_for_bad(p, w->pc);
        p->n_active--;
        memmove(p->active + i, p->active + i + 1, (p->n_active - i) * sizeof *p->active);
        finish(p, w->pc);
        return true;
    }
    return false;
}

/* Runs one local instruction: the first one, in program order, that may start. Returns false if
 * there is none. */
static bool compute(Process *p)
{
    if (p->n_local == 0) return false;
    uint32_t best = 0;
    for (uint32_t i = 1; i < p->n_local; i++)
        if (p->local[i] < p->local[best]) best = i;
    Pc pc = p->local[best];
    p->local[best] = p->local[--p->n_local];
    Ps start = clock_ps();
    rank_compute(&p->state, pc);
    record(p, pc, start, clock_ps());
    look_for_bad(p, pc);
    finish(p, pc);
    return true;
}

static void begin(Process *p)
{
    rank_begin(&p->state);
    p->n_active = p->n_local = 0;
    memset(p->finished, 0, (p->state.info->n_instr + 1) * sizeof(bool));
    for (int s = 0; s < STREAM_COUNT; s++)
        atomic_store(&p->slot->unfinished[s], p->first_on_stream[s]);
    atomic_store(&p->slot->step, (uint32_t)p->control.step);
    atomic_store(&p->slot->state, STATUS_stepping);
    p->step_start = p->last_event = clock_ps();
    uint32_t n = rank_starters(&p->state, p->next);
    for (uint32_t i = 0; i < n; i++) may_start(p, p->next[i]);
}

static bool run_step(Process *p, Diag *d)
{
    uint32_t polls = 0;
    begin(p);
    while (p->state.n_left > 0) {
        bool any = false;
        while (poll_transfers(p)) any = true;
        if (compute(p)) any = true;
        if (any) {
            polls = 0;
            p->last_event = clock_ps();
        } else {
            /* no communication is in progress and no instruction can start, but the program has not
             * ended */
            if (p->n_active == 0)
                process_end(p, "deadlock",
                            "the program waits for an instruction that cannot start");
            wait_a_little(p, &polls);
        }
    }
    atomic_store(&p->slot->state, STATUS_open);
    if (rank_inspect(&p->state, d)) return true;
    /* only this rank knows of the error, so the other ranks would wait for it */
    process_end(p, d->items.at[d->items.n - 1].rule, d->items.at[d->items.n - 1].text);
}

static bool step(Backend *self, const Control *control, Trace *trace, BadNumber *bad, Diag *d)
{
    Process *p = self->state;
    p->control = *control;
    p->trace = trace;
    p->bad = bad;
    if (bad != NULL) *bad = (BadNumber){.pc = 0};
    return run_step(p, d);
}

static void local_ranks(const Backend *self, Rank *first, uint32_t *n)
{
    const Process *p = self->state;
    *first = p->rank;
    *n = 1;
}

static void *memory(Backend *self, Rank rank, BufferId root)
{
    Process *p = self->state;
    assert(rank == p->rank);
    return rank_memory(&p->state, root);
}

static uint64_t highest_touched(Backend *self, Rank rank, Space space)
{
    (void)rank;
    return rank_highest(&((Process *)self->state)->state, space);
}

static const LoadCounts *loads(Backend *self, Rank rank)
{
    (void)rank;
    return ((Process *)self->state)->state.loads;
}

static uint64_t outside_bytes(Backend *self)
{
    return ((Process *)self->state)->staging_bytes;
}

static bool exchange(Backend *self, const void *mine, size_t bytes, void *all, Diag *d)
{
    Process *p = self->state;
    TransportRequest request;
    bool is_done = false;
    uint32_t polls = 0;
    (void)d;
    assert(bytes <= INT32_MAX / (size_t)p->n_ranks);
    p->n_active = 0;
    p->last_event = clock_ps();
    if (!p->transport->all_gather(p->mpi, 0, mine, (int)bytes, all, NULL, NULL, 1, &request))
        process_end(p, "mpi", p->transport->error(p->mpi));
    for (;;) {
        if (!p->transport->test(p->mpi, &request, &is_done))
            process_end(p, "mpi", p->transport->error(p->mpi));
        if (is_done) return true;
        wait_a_little(p, &polls);
    }
}

static void patience(Backend *self, double more_s)
{
    ((Process *)self->state)->more_s = more_s;
}

static uint32_t processes(const Backend *self, uint32_t *mine)
{
    const Process *p = self->state;
    *mine = p->rank;
    return p->n_ranks;
}

static void close_process(Backend *self)
{
    Process *p = self->state;
    rank_close(&p->state);
    free(p->staging);
    p->staging = NULL;
    if (p->slot) atomic_store(&p->slot->state, STATUS_absent);
    if (p->mpi) p->transport->close(p->mpi);
    p->mpi = NULL;
    status_unmap(p->status);
    p->status = NULL;
    p->slot = NULL;
}

Backend *backend_process(Arena *arena, const Transport *transport)
{
    Backend *b = arena_alloc(arena, sizeof *b);
    Process *p = arena_alloc(arena, sizeof *p);
    p->arena = arena;
    p->transport = transport;
    *b = (Backend){.name = "mpi",
                   .open = process_open,
                   .ranks = local_ranks,
                   .step = step,
                   .memory = memory,
                   .highest_touched = highest_touched,
                   .loads = loads,
                   .outside_bytes = outside_bytes,
                   .exchange = exchange,
                   .patience = patience,
                   .processes = processes,
                   .close = close_process,
                   .state = p};
    return b;
}
