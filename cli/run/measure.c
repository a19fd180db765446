/* Measures this machine under the conditions of the plan. Kernels are measured by running the plan
 * itself on loopback, and collectives by running a plan that contains only them. Both take the
 * times from the rows that backends record for traces. */
#include "cli/run/measure.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

enum { KERNEL_STEPS = 4, REPEATS = 15 };

static int by_value(const void *a, const void *b)
{
    Ps x = *(const Ps *)a, y = *(const Ps *)b;
    return (x > y) - (x < y);
}

static Ps median_of(Ps *values, uint32_t n)
{
    assert(n > 0);
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

/* Returns half the distance between the quartiles, relative to the median. `values` are sorted. */
static double spread_of(const Ps *values, uint32_t n)
{
    Ps middle = values[n / 2];
    if (n < 4 || middle <= 0) return 0;
    return (double)(values[3 * n / 4] - values[n / 4]) / 2 / (double)middle;
}

/* Returns, for each instruction of each program, the index of its kernel in needs->kernels, or
 * UINT32_MAX if it is no kernel. */
static uint32_t **index_keys(const Plan *plan, const Needs *needs, Arena *arena)
{
    uint32_t **index = arena_array(arena, plan->programs.n, sizeof *index);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        index[i] = arena_array(arena, p->code.n, sizeof **index);
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = program_instr(p, pc);
            index[i][pc] = UINT32_MAX;
            if (op_info(in->op)->class_ == OP_CLASS_comm) continue;
            const char *key = cost_key(plan, p, in, arena);
            uint32_t lo = 0, hi = needs->kernels.n;
            while (lo < hi) {
                uint32_t middle = (lo + hi) / 2;
                if (strcmp(needs->kernels.at[middle].key, key) < 0)
                    lo = middle + 1;
                else
                    hi = middle;
            }
            if (lo < needs->kernels.n && strcmp(needs->kernels.at[lo].key, key) == 0)
                index[i][pc] = lo;
        }
    }
    return index;
}

typedef struct MeasuredTimes {
    LIST(Ps) times;
} MeasuredTimes;

static bool store_kernels(const Needs *needs, const MeasuredTimes *samples, Store *store,
                          const char *machine, Diag *d)
{
    for (uint32_t k = 0; k < needs->kernels.n; k++) {
        uint32_t n = samples[k].times.n;
        if (needs->kernels.at[k].known_ps >= 0 || n == 0) continue;
        Ps median = median_of(samples[k].times.at, n);
        double spread = spread_of(samples[k].times.at, n);
        if (!store_put_kernel(store, machine, needs->kernels.at[k].key, median, spread, n, d))
            return false;
    }
    return true;
}

bool measure_kernels(const Plan *plan, const Needs *needs, Store *store, const MeasureOn *on,
                     const DataSource *data, Arena *arena, Diag *d)
{
    if (needs->missing_kernels == 0) return true;
    uint32_t **index = index_keys(plan, needs, arena);
    MeasuredTimes *samples = arena_array(arena, needs->kernels.n, sizeof *samples);
    /* the first step only warms up; each other step is a run of its own, because only the rows of
     * one step are kept */
    for (uint32_t step = 2; step < KERNEL_STEPS; step++) {
        ExecOptions options = {.backend = on->backend,
                               .steps = step + 1,
                               .lr = 1e-4,
                               .data = data,
                               .trace_step = step,
                               .backend_options = on->options};
        /* kernels run one at a time, because the store contains costs of single kernels */
        options.backend_options.alone = true;
        ExecResult result;
        memset(&result, 0, sizeof result);
        if (!exec_run(plan, &options, arena, &result, d)) return false;
        for (uint32_t i = 0; i < result.trace.rows.n; i++) {
            const TraceRow *row = &result.trace.rows.at[i];
            uint32_t k = index[plan->program_of[row->rank]][row->pc];
            if (k != UINT32_MAX) list_push(arena, &samples[k].times, row->end_ps - row->start_ps);
        }
    }
    return store == NULL || store_kernels(needs, samples, store, on->machine, d);
}

/* Adds a copy of the buffer `arg` to program `to`. The copy has its own memory, even if `arg` lies
 * in another buffer. */
static BufferId add_buffer(Arena *arena, const Program *from, BufferId arg, Program *to)
{
    Buffer b = from->buffers.at[arg];
    b.parent = 0;
    b.offset = to->bytes;
    b.persistent = true; /* the first collective must find values in it */
    b.category = CATEGORY_communication;
    to->bytes += (b.bytes + 255) & ~UINT64_C(255);
    return list_push(arena, &to->buffers, b);
}

static void add_collective(Arena *arena, const Program *from, const Instr *in, uint32_t *match,
                           Program *to)
{
    Span args = {to->args.n, in->args.n};
    for (uint32_t i = 0; i < in->args.n; i++) {
        BufferId arg = program_arg(from, in, i);
        BufferId copy = 0;
        /* if a collective writes over its input, its copy does so, too */
        for (uint32_t k = 0; k < i; k++)
            if (program_arg(from, in, k) == arg) copy = to->args.at[args.first + k];
        if (copy == 0) copy = add_buffer(arena, from, arg, to);
        list_push(arena, &to->args, copy);
    }
    for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
        Instr one = *in;
        one.args = args;
        one.launch = 0;
        one.unit = 0;
        one.match = (*match)++;
        one.after = (Span){to->after.n, 0};
        if (to->code.n > 1) {
            list_push(arena, &to->after, to->code.n - 1);
            one.after.n = 1;
        }
        Pc pc = list_push(arena, &to->code, one);
        for (uint32_t i = 0; i < args.n; i++) {
            Buffer *b = &to->buffers.at[to->args.at[args.first + i]];
            if (b->first == 0 || repeat == 0) b->first = pc;
            b->last = pc;
        }
    }
}

/* Makes a plan that consists of collectives. Instruction 1 + REPEATS * k + r is run r of missing
 * collective k. */
static Plan *collectives_plan(const Plan *plan, const Needs *needs, Arena *arena)
{
    Plan *m = arena_alloc(arena, sizeof *m);
    *m = *plan;
    m->arena = arena;
    memset(&m->programs, 0, sizeof m->programs);
    m->program_of = arena_array(arena, plan->mesh.n_ranks, sizeof *m->program_of);
    m->n_match = 1;
    Program p;
    memset(&p, 0, sizeof p);
    p.purpose = PURPOSE_train;
    list_reserve_none(arena, &p.code);
    list_reserve_none(arena, &p.buffers);
    for (uint32_t i = 0; i < needs->collectives.n; i++) {
        const CollectiveNeed *need = &needs->collectives.at[i];
        if (need->known_ps >= 0) continue;
        const Program *from = &plan->programs.at[need->program];
        add_collective(arena, from, program_instr(from, need->pc), &m->n_match, &p);
    }
    list_push(arena, &m->programs, p);
    return m;
}

typedef struct Durations {
    uint32_t n, n_processes;
    Ps *mine, *all; /* mine: [n]; all: [n_processes][n]; -1: the process has no such row */
} Durations;

static bool run_collectives(const Plan *m, Backend *backend, Arena *arena, Durations *out, Diag *d)
{
    Rank first = 0;
    uint32_t n_local = 0;
    backend->ranks(backend, &first, &n_local);
    assert(n_local > 0);
    out->n = m->programs.at[0].code.n * n_local;
    uint32_t own = 0;
    out->n_processes = backend->processes(backend, &own);
    out->mine = arena_array(arena, out->n, sizeof *out->mine);
    out->all = arena_array(arena, (size_t)out->n * out->n_processes, sizeof *out->all);
    Control control = {.step = 0};
    for (uint32_t i = 0; i < out->n; i++) out->mine[i] = -1;
    for (int step = 0; step < 2; step++) { /* the first step only warms up */
        Trace trace;
        memset(&trace, 0, sizeof trace);
        trace.rows.at = list_grow(arena, NULL, 0, &trace.rows.room, out->n, sizeof *trace.rows.at);
        if (!backend->step(backend, &control, &trace, NULL, d)) return false;
        for (uint32_t i = 0; i < trace.rows.n; i++) {
            const TraceRow *row = &trace.rows.at[i];
            uint32_t at = row->pc * n_local + (row->rank - first);
            if (row->rank >= first && at < out->n) out->mine[at] = row->end_ps - row->start_ps;
        }
    }
    return backend->exchange(backend, out->mine, out->n * sizeof *out->mine, out->all, d);
}

/* Returns the time of a collective on the rank that came last, because the times of the other ranks
 * include waiting. */
static Ps last_comer(const Durations *durations, uint32_t n_local, Pc pc)
{
    Ps least = INT64_MAX;
    for (uint32_t process = 0; process < durations->n_processes; process++)
        for (uint32_t k = 0; k < n_local; k++) {
            Ps one = durations->all[(size_t)process * durations->n + pc * n_local + k];
            if (one >= 0 && one < least) least = one;
        }
    return least == INT64_MAX ? -1 : least;
}

static bool store_durations(const Plan *m, const Needs *needs, const Durations *durations,
                            const char *backend, Store *store, const char *machine, Diag *d)
{
    uint32_t n_local = durations->n / m->programs.at[0].code.n;
    Pc pc = 1;
    for (uint32_t i = 0; i < needs->collectives.n; i++) {
        const CollectiveNeed *need = &needs->collectives.at[i];
        if (need->known_ps >= 0) continue;
        Ps times[REPEATS];
        uint32_t n = 0;
        for (uint32_t repeat = 0; repeat < REPEATS; repeat++, pc++) {
            Ps one = last_comer(durations, n_local, pc);
            if (one >= 0) times[n++] = one;
        }
        if (n == 0) continue;
        if (!store_put_collective(store, machine, backend, need->op, need->n_ranks, need->bytes,
                                  median_of(times, n), d))
            return false;
    }
    return true;
}

bool measure_collectives(const Plan *plan, const Needs *needs, Backend *backend,
                         const BackendOptions *options, Store *store, const char *machine,
                         Arena *arena, Diag *d)
{
    if (needs->missing_collectives == 0) return true;
    Plan *m = collectives_plan(plan, needs, arena);
    if (m->programs.at[0].code.n <= 1) return true;
    if (!backend->open(backend, m, options, d)) return false;
    Durations durations;
    memset(&durations, 0, sizeof durations);
    bool fine = run_collectives(m, backend, arena, &durations, d);
    if (fine && store != NULL)
        fine = store_durations(m, needs, &durations, backend->name, store, machine, d);
    backend->close(backend);
    return fine;
}
