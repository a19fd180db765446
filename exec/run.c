/* A training run. It opens the backend, compares versions and plans with the other processes, and
 * initialises parameters in the backend's memory. Then it runs steps, and reads the loss and the
 * gradient norm from buffers of the plan. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/exec.h"
#include "exec/flat.h"
#include "exec/ready.h"
#include "exec/settings.h"
#include "kernels/kernel.h"
#include "kernels/number.h"
#include "planner/base/clock.h"
#include "planner/ir/text/text.h"

double exec_lr(const ExecOptions *o, int64_t step)
{
    const double pi = 3.14159265358979323846;
    if (step < o->warmup_steps) return o->lr * (double)(step + 1) / (double)o->warmup_steps;
    if (o->total_steps <= o->warmup_steps) return o->lr;
    double done = (double)(step - o->warmup_steps) / (double)(o->total_steps - o->warmup_steps);
    if (done > 1) done = 1;
    double low = o->lr * o->min_lr_ratio;
    return low + (o->lr - low) * 0.5 * (1 + cos(pi * done));
}

/* The state of a run. */
typedef struct ExecRun {
    const Plan *plan;
    const ExecOptions *options;
    Arena *arena;
    Backend *backend;
    ExecResult *result;
    Diag *d;
    Rank first_rank;
    uint32_t n_ranks, process, n_processes;
    uint32_t trace_step;
    CheckpointOptions checkpoint; /* with the settings of this plan */
    CheckpointRun saves;
    BufferId norm; /* buffer with {norm, coefficient} on the first local rank; 0: the plan has no
                      norm */
    BufferId loss;
    double norm_value, loss_value;
    struct StepVerdict *verdicts; /* [n_processes] */
} ExecRun;

typedef struct StepVerdict {
    Ps time_ps;
    uint32_t not_finite, reserved;
} StepVerdict;

/* ---- before the first step ---- */

typedef struct RunIdentity {
    char version[32];
    Hash128 plan;
} RunIdentity;

static bool agree(ExecRun *run)
{
    RunIdentity mine = {{0}, text_plan_id(run->plan, run->arena)};
    const char *version = run->options->version ? run->options->version : "";
    strncpy(mine.version, version, sizeof mine.version - 1);
    RunIdentity *all = arena_array(run->arena, run->n_processes, sizeof *all);
    if (!run->backend->exchange(run->backend, &mine, sizeof mine, all, run->d)) return false;
    Loc none = {NULL, 0};
    for (uint32_t i = 0; i < run->n_processes; i++) {
        if (strcmp(all[i].version, mine.version) != 0) {
            diag_error(run->d, FAULT_run, "version-mismatch", none,
                       "process %u has version %s, but process %u has version %s", i,
                       all[i].version, run->process, mine.version);
            diag_hint(run->d, "install the same version on every machine");
            return false;
        }
        if (all[i].plan.hi != mine.plan.hi || all[i].plan.lo != mine.plan.lo) {
            diag_error(run->d, FAULT_run, "plan-mismatch", none,
                       "process %u has plan %s, but process %u has plan %s", i,
                       hash_hex(run->arena, all[i].plan), run->process,
                       hash_hex(run->arena, mine.plan));
            diag_hint(run->d, "use the same script and the same modules on all machines");
            return false;
        }
    }
    return true;
}

/* Initialises state other than weights. Every rank has all of it, and it starts equal on all
 * ranks. */
static bool init_state(const ExecRun *run, Rank rank, BufferId b, Arena *scratch)
{
    const Buffer *buffer = &plan_program(run->plan, rank)->buffers.at[b];
    const Graph *g = &run->plan->graph;
    const Tensor *t = &g->tensors.at[buffer->tensor];
    void *values = arena_alloc(scratch, buffer->bytes);
    for (uint64_t i = 0; i < buffer->bytes / dtype_bytes(buffer->dtype); i++)
        number_write(buffer->dtype, values, i,
                     kernel_init_value(run->plan->step.seed, t->init_stream,
                                       graph_original(g, buffer->tensor, i), (int)t->init.kind,
                                       t->init.a, t->init.b));
    return backend_write(run->backend, run->plan, rank, b, values, run->d);
}

/* Initialises a buffer of optimizer states or of weights. The weights are those that stay between
 * steps, or a gathered copy of them. */
static bool init_home(const ExecRun *run, Rank rank, BufferId b, Arena *scratch)
{
    const Program *p = plan_program(run->plan, rank);
    const Buffer *buffer = &p->buffers.at[b];
    Backend *backend = run->backend;
    bool is_state = buffer->category == CATEGORY_optimizer;
    bool is_weight =
        buffer->category == CATEGORY_parameter || buffer->category == CATEGORY_gathered;
    bool done = false;
    if (!is_state && !is_weight) return true;
    if (backend->init != NULL && !backend->init(backend, rank, b, &done, run->d)) return false;
    if (done) return true;
    bool here = backend->memory != NULL;
    void *at = here ? backend->memory(backend, rank, b) : arena_alloc(scratch, buffer->bytes);
    memset(at, 0, buffer->bytes); /* for padding, and for moments, which start at zero */
    if (!is_state) flat_init(run->plan, p, b, rank, scratch, at);
    return here || backend_write(backend, run->plan, rank, b, at, run->d);
}

static bool initialise(const ExecRun *run)
{
    Arena *scratch = arena_new();
    bool fine = true;
    for (Rank r = run->first_rank; r < run->first_rank + run->n_ranks; r++) {
        const Program *p = plan_program(run->plan, r);
        for (BufferId b = 1; fine && b < p->buffers.n; b++) {
            const Buffer *buffer = &p->buffers.at[b];
            if (plan_is_state(run->plan, buffer)) fine = init_state(run, r, b, scratch);
            if (fine && flat_is_home(buffer)) fine = init_home(run, r, b, scratch);
            arena_reset(scratch);
        }
    }
    arena_free(scratch);
    return fine;
}

/* Replaces the initial weights by those of a checkpoint, if the user has named one. */
static bool load(ExecRun *run)
{
    const CheckpointOptions *checkpoint = &run->checkpoint;
    CheckpointInfo *from = &run->result->loaded;
    if (checkpoint->load == NULL) return true;
    if (!checkpoint_load(checkpoint, run->plan, run->backend, run->arena, from, run->d))
        return false;
    return checkpoint_has_steps(from, run->options->steps, checkpoint->save != NULL, run->d);
}

/* Chooses the step whose trace rows are kept. This is done after loading, because the number of
 * remaining steps is not known earlier. */
static void choose_traced(ExecRun *run)
{
    const uint32_t steps = run->options->steps, first = (uint32_t)run->result->loaded.step;
    run->trace_step = run->options->trace_step;
    if (run->trace_step == EXEC_TRACE_MIDDLE)
        run->trace_step = steps - first > 4 ? first + (steps - first) / 2 : steps - 1;
}

static void find_reports(ExecRun *run)
{
    const Program *p = plan_program(run->plan, run->first_rank);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *buffer = &p->buffers.at[b];
        if (buffer->parent || !buffer->persistent || buffer->tensor == 0) continue;
        if (buffer->tensor == run->plan->graph.loss) run->loss = b;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        if (in->op != OP_clip_coef) continue;
        run->norm = program_arg(p, in, 2);
    }
}

/* Reads the first number of a small buffer. */
static bool read_first(ExecRun *run, BufferId b, double *value)
{
    const Program *p = plan_program(run->plan, run->first_rank);
    double room[8];
    *value = 0;
    if (b == 0) return true;
    assert(p->buffers.at[b].bytes <= sizeof room);
    if (!backend_read(run->backend, run->plan, run->first_rank, b, room, run->d)) return false;
    *value = number_read(p->buffers.at[b].dtype, room, 0);
    return true;
}

static bool read_reports(ExecRun *run)
{
    return read_first(run, run->loss, &run->loss_value) &&
           read_first(run, run->norm, &run->norm_value);
}

static void reserve_rows(ExecRun *run)
{
    uint64_t n = 0;
    for (Rank r = run->first_rank; r < run->first_rank + run->n_ranks; r++)
        n += plan_program(run->plan, r)->code.n;
    Trace *t = &run->result->trace;
    assert(n < UINT32_MAX);
    t->rows.at =
        list_grow(run->arena, t->rows.at, 0, &t->rows.room, (uint32_t)n, sizeof *t->rows.at);
    t->steps.at = list_grow(run->arena, t->steps.at, 0, &t->steps.room, run->options->steps + 1,
                            sizeof *t->steps.at);
    t->step = run->trace_step;
}

/* ---- steps ---- */

/* Finds out why the norm of the gradients was not finite. No weight was updated, so the step runs
 * again, with a check of every number. */
static bool report_not_finite(ExecRun *run, const Control *control)
{
    BadNumber mine, *all = arena_array(run->arena, run->n_processes, sizeof *all);
    const BadNumber *worst = NULL;
    if (!run->backend->step(run->backend, control, NULL, &mine, run->d)) return false;
    if (!run->backend->exchange(run->backend, &mine, sizeof mine, all, run->d)) return false;
    for (uint32_t i = 0; i < run->n_processes; i++)
        if (all[i].pc && (worst == NULL || all[i].pc < worst->pc)) worst = &all[i];
    Loc none = {NULL, 0};
    if (worst == NULL)
        return diag_error(run->d, FAULT_run, "not-finite", none,
                          "step %lld: all numbers are finite, but the gradient norm is too large "
                          "to be represented",
                          (long long)control->step);
    const Program *p = plan_program(run->plan, worst->rank);
    const Instr *in = program_instr(p, worst->pc);
    BufferId b = program_arg(p, in, in->n_in + worst->output);
    TensorId t = p->buffers.at[b].tensor;
    diag_error(run->d, FAULT_run, "not-finite", instr_loc(run->plan, in),
               "step %lld: the first bad number is %g, element %llu of %s on rank %u, made by %s",
               (long long)control->step, worst->value, (unsigned long long)worst->element,
               t ? run->plan->graph.tensors.at[t].name : "a buffer", worst->rank,
               instr_text(run->plan, p, worst->pc, run->arena));
    diag_hint(run->d, "the weights were not changed in this step; try a smaller learning rate");
    return false;
}

static bool one_step(ExecRun *run, uint32_t index)
{
    Control control = {index, exec_lr(run->options, index), run->options->data,
                       run->plan->step.seed};
    bool traced = index == run->trace_step;
    Ps start = clock_ps();
    Trace *trace = traced ? &run->result->trace : NULL;
    if (!run->backend->step(run->backend, &control, trace, NULL, run->d)) return false;
    Ps time = clock_ps() - start;
    if (!read_reports(run)) return false;
    StepRow row = {.step = index, .loss = run->loss_value, .grad_norm = run->norm_value};
    const bool is_bad = !isfinite(run->norm_value);
    StepVerdict mine = {time, is_bad, 0};
    if (!run->backend->exchange(run->backend, &mine, sizeof mine, run->verdicts, run->d))
        return false;
    bool not_finite = false;
    for (uint32_t i = 0; i < run->n_processes; i++) {
        if (run->verdicts[i].time_ps > row.time_ps) row.time_ps = run->verdicts[i].time_ps;
        not_finite = not_finite || run->verdicts[i].not_finite;
    }
    if (not_finite) return report_not_finite(run, &control);
    run->result->trace.steps.at[run->result->trace.steps.n++] = row;
    const StepInfo *info = &run->plan->step;
    if (run->process == 0 && run->options->on_step)
        run->options->on_step(run->options->self, &row, (uint64_t)(info->global_batch * info->seq));
    Loc none = {NULL, 0};
    return isfinite(row.loss) ||
           diag_error(run->d, FAULT_run, "not-finite", none,
                      "step %u: the loss is %g, but the gradient is finite", index, row.loss);
}

static bool gather_cores(ExecRun *run, CoreShare mine)
{
    CoreShare *all = arena_array(run->arena, run->n_processes, sizeof *all);
    if (!run->backend->exchange(run->backend, &mine, sizeof mine, all, run->d)) return false;
    run->result->cores = cores_use(all, run->n_processes);
    return true;
}

/* Saves a checkpoint if one is due after `done` steps. */
static bool save(ExecRun *run, uint32_t done)
{
    const CheckpointOptions *checkpoint = &run->checkpoint;
    ExecResult *result = run->result;
    const bool due = checkpoint->every > 0 && done % checkpoint->every == 0;
    if (checkpoint->save == NULL || (!due && done < run->options->steps)) return true;
    const Ps start = clock_ps();
    if (!checkpoint_save(&run->saves, run->plan, run->backend, done, run->arena, &result->saved,
                         run->d))
        return false;
    result->n_saves++;
    result->save_ps += clock_ps() - start;
    return true;
}

static bool train(ExecRun *run)
{
    const uint32_t first = (uint32_t)run->result->loaded.step, steps = run->options->steps;
    CoreTime before, after;
    const bool counted = cores_now(&before);
    for (uint32_t i = first; i < steps; i++)
        if (!one_step(run, i) || !save(run, i + 1)) return false;
    /* no step is left: write the state again, divided over files as this plan divides it */
    if (first == steps && !save(run, steps)) return false;
    CoreShare share = {.cores = 0};
    if (cores_now(&after) && counted) share = cores_share(&before, &after);
    return gather_cores(run, share);
}

/* ---- after the last step ---- */

static int by_rank(const void *a, const void *b)
{
    const TraceRow *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->pc < y->pc ? -1 : x->pc > y->pc;
}

/* Collects the trace rows of all processes on the first process. */
static bool gather_rows(ExecRun *run)
{
    Trace *t = &run->result->trace;
    uint32_t most = 0, *n = arena_array(run->arena, run->n_processes, sizeof *n);
    if (!run->backend->exchange(run->backend, &t->rows.n, sizeof t->rows.n, n, run->d))
        return false;
    for (uint32_t i = 0; i < run->n_processes; i++)
        if (n[i] > most) most = n[i];
    if (most > 0 && run->n_processes > 1) {
        TraceRow *mine = arena_array(run->arena, most, sizeof *mine);
        TraceRow *all = arena_array(run->arena, (size_t)most * run->n_processes, sizeof *all);
        if (t->rows.n > 0) memcpy(mine, t->rows.at, t->rows.n * sizeof *mine);
        if (!run->backend->exchange(run->backend, mine, most * sizeof *mine, all, run->d))
            return false;
        t->rows.n = 0;
        for (uint32_t i = 0; run->process == 0 && i < run->n_processes; i++)
            for (uint32_t k = 0; k < n[i]; k++)
                list_push(run->arena, &t->rows, all[(size_t)i * most + k]);
    }
    if (t->rows.n > 0) qsort(t->rows.at, t->rows.n, sizeof *t->rows.at, by_rank);
    return true;
}

static bool gather_memory(ExecRun *run)
{
    uint32_t errors = run->d->n_errors;
    uint64_t mine[3] = {0, 0, run->backend->outside_bytes(run->backend)};
    for (Rank r = run->first_rank; r < run->first_rank + run->n_ranks; r++)
        for (int space = SPACE_device; space <= SPACE_host; space++) {
            uint64_t highest = run->backend->highest_touched(run->backend, r, (Space)space);
            if (highest > mine[space]) mine[space] = highest;
        }
    if (run->d->n_errors > errors) return false; /* the memory of a device could not be inspected */
    uint64_t *all = arena_array(run->arena, (size_t)3 * run->n_processes, sizeof *all);
    if (!run->backend->exchange(run->backend, mine, sizeof mine, all, run->d)) return false;
    for (uint32_t i = 0; i < run->n_processes; i++) {
        ExecResult *result = run->result;
        const uint64_t *of = &all[(size_t)3 * i];
        if (of[SPACE_device] > result->highest_touched) result->highest_touched = of[SPACE_device];
        if (of[SPACE_host] > result->host_touched) result->host_touched = of[SPACE_host];
        if (of[2] > result->outside_bytes) result->outside_bytes = of[2];
    }
    return true;
}

static bool run_all(ExecRun *run)
{
    const ExecOptions *options = run->options;
    if (!run->backend->open(run->backend, run->plan, &options->backend_options, run->d))
        return false;
    run->backend->ranks(run->backend, &run->first_rank, &run->n_ranks);
    run->n_processes = run->backend->processes(run->backend, &run->process);
    run->result->is_first = run->process == 0;
    run->verdicts = arena_array(run->arena, run->n_processes, sizeof *run->verdicts);
    if (!agree(run) || !initialise(run) || !load(run)) return false;
    if (options->checkpoint.save != NULL &&
        !checkpoint_begin(&run->checkpoint, run->plan, run->backend, &run->result->loaded,
                          run->arena, &run->saves, run->d))
        return false;
    choose_traced(run);
    find_reports(run);
    reserve_rows(run);
    if (!train(run)) return false;
    if (options->at_end && !options->at_end(options->self, run->backend, run->d)) return false;
    return gather_rows(run) && gather_memory(run) &&
           loads_gather(run->backend, run->plan, run->arena, &run->result->experts, run->d);
}

bool exec_run(const Plan *plan, const ExecOptions *options, Arena *arena, ExecResult *result,
              Diag *d)
{
    *result = (ExecResult){.is_first = true};
    assert(options->data != NULL);
    Backend *backend = options->made;
    if (backend == NULL)
        backend = backend_named(options->backend, arena, options->backend_options.module_dir, d);
    if (backend == NULL) return false;
    ExecRun run = {.plan = plan,
                   .options = options,
                   .arena = arena,
                   .backend = backend,
                   .result = result,
                   .checkpoint = options->checkpoint,
                   .d = d};
    run.checkpoint.settings = exec_settings(options, plan, arena);
    bool fine = run_all(&run);
    checkpoint_end(&run.saves);
    backend->close(backend);
    return fine;
}
