/* Makes the report of a simulated step. Exposed communication is the time during which the slowest
 * rank's compute stream is idle because its next instruction waits for a communication. Each wait
 * is followed from effect to cause, and its time is assigned to the communication that caused
 * it. */
#include "sim/report.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "sim/compute/even_rows.h"
#include "sim/compute/imbalance.h"
#include "sim/memory/torch_memory.h"
#include "sim/utilisation.h"

typedef struct Reporter {
    const Plan *plan;
    const Program *program;
    const Timeline *line;
    Arena *arena;
    SimReport *report;
    const Repeats *repeats; /* NULL: each instruction counts once */
    uint32_t *row_of;       /* [pc]: 1 + index of its row in report->collectives */
} Reporter;

/* Returns how many times the reported step runs this instruction. */
static uint32_t times_of(const Reporter *r, Pc pc)
{
    const Repeats *of = r->repeats;
    const Ps reached = moment_of(r->line, pc)->reached;
    return of && reached >= of->from && reached < of->to ? of->times : 1;
}

static bool is_comm(const Instr *in)
{
    return op_info(in->op)->class_ == OP_CLASS_comm;
}

static AxisTime *axis_row(Reporter *r, const Instr *in)
{
    for (uint32_t i = 0; i < r->report->axes.n; i++) {
        AxisTime *row = &r->report->axes.at[i];
        if (row->axes == in->axes && row->stream == in->stream) return row;
    }
    uint32_t i =
        list_push(r->arena, &r->report->axes, ((AxisTime){.axes = in->axes, .stream = in->stream}));
    return &r->report->axes.at[i];
}

static uint32_t collective_row(Reporter *r, const Instr *in, uint64_t bytes)
{
    const char *axes = mesh_axes_text(r->arena, &r->plan->mesh, in->axes);
    const char *stream = stream_name(in->stream);
    for (uint32_t i = 0; i < r->report->collectives.n; i++) {
        const CollectiveRow *row = &r->report->collectives.at[i];
        if (row->op == in->op && row->bytes == bytes && strcmp(row->axes, axes) == 0 &&
            strcmp(row->stream, stream) == 0) {
            return i;
        }
    }
    return list_push(
        r->arena, &r->report->collectives,
        ((CollectiveRow){.op = in->op, .axes = axes, .stream = stream, .bytes = bytes}));
}

/* A kind of communication and its row. Later communications of this kind get the row without
 * another search by names. */
typedef struct KnownRow {
    OpKind op;
    AxisSet axes;
    Stream stream;
    uint64_t bytes;
    uint32_t row;
} KnownRow;

static void count_communications(Reporter *r)
{
    LIST(KnownRow) known = {0};
    for (Pc pc = 1; pc < r->program->code.n; pc++) {
        const Instr *in = program_instr(r->program, pc);
        if (!is_comm(in)) continue;
        uint64_t bytes = plan_comm_bytes(r->plan, r->program, in);
        uint32_t i = 0;
        for (; i < known.n; i++) {
            const KnownRow *a = &known.at[i];
            if (a->op == in->op && a->axes == in->axes && a->stream == in->stream &&
                a->bytes == bytes) {
                break;
            }
        }
        if (i == known.n) {
            uint32_t row = collective_row(r, in, bytes);
            list_push(r->arena, &known, ((KnownRow){in->op, in->axes, in->stream, bytes, row}));
        }
        const uint32_t times = times_of(r, pc);
        const Moment *at = moment_of(r->line, pc);
        Ps time = (at->end - at->start) * times;
        CollectiveRow *row = &r->report->collectives.at[known.at[i].row];
        row->n += times;
        row->total_ps += time;
        r->row_of[pc] = known.at[i].row + 1;
        AxisTime *axis = axis_row(r, in);
        axis->n += times;
        axis->bytes += bytes * times;
        axis->total_ps += time;
    }
}

/* Assigns the interval [from, to), in which the compute stream waited for the end of `cause`, to
 * the communications that caused this wait. The interval occurs `times` times. Time in which a
 * communication moves data counts as exposed. Time in which it waits for peers does not, because
 * such a wait is a bubble of a pipeline or comes from uneven work. */
static void blame(Reporter *r, Ps from, Ps to, Pc cause, uint32_t times)
{
    while (cause != 0 && to > from) {
        const Instr *in = program_instr(r->program, cause);
        const Moment *at = moment_of(r->line, cause);
        if (at->end < to) to = at->end; /* after at->end, the stream waited for the host */
        Ps since = at->reached > from ? at->reached : from;
        Ps wire = at->start > since ? at->start : since;
        if (is_comm(in) && to > wire) {
            const Ps exposed = (to - wire) * times;
            axis_row(r, in)->exposed_ps += exposed;
            r->report->collectives.at[r->row_of[cause] - 1].exposed_ps += exposed;
            r->report->exposed_ps += exposed;
        }
        if (since < to) to = since;
        cause = at->by;
    }
}

/* Goes through the compute stream and assigns its gaps. The last gap reaches to the end of the
 * program. */
static void find_exposed(Reporter *r, Ps end)
{
    Ps busy_until = 0;
    Pc last = 0;
    for (Pc pc = 1; pc < r->program->code.n; pc++) {
        const Instr *in = program_instr(r->program, pc);
        const Moment *at = moment_of(r->line, pc);
        if (last == 0 || at->end > moment_of(r->line, last)->end) last = pc;
        if (in->stream != STREAM_compute || is_comm(in)) continue;
        if (at->start > busy_until) blame(r, busy_until, at->start, at->by, times_of(r, pc));
        if (at->end > busy_until) busy_until = at->end;
        r->report->compute_ps += (at->end - at->start) * times_of(r, pc);
    }
    blame(r, busy_until, end, last, 1);
}

static uint32_t slowest_class(const Fold *fold, const EngineResult *result)
{
    uint32_t slowest = 0;
    for (uint32_t c = 1; c < fold->n_classes; c++) {
        if (result->end_ps[c] > result->end_ps[slowest]) slowest = c;
    }
    return slowest;
}

static void report_repeated(const Plan *plan, const Fold *fold, const EngineResult *result,
                            const Repeats *repeats, uint32_t class_, Arena *arena,
                            SimReport *report)
{
    Reporter r = {.plan = plan, .arena = arena, .report = report, .repeats = repeats};
    r.program = plan_program(plan, fold->rank_of[class_]);
    r.line = &result->line[class_];
    r.row_of = arena_array(arena, (size_t)r.program->code.n + 1, sizeof *r.row_of);
    count_communications(&r);
    find_exposed(&r, result->end_ps[class_]);
    double n = 0; /* number of launches */
    for (Pc pc = 1; pc < r.program->code.n; pc++)
        if (plan_begins_kernel(r.program, &r.program->code.at[pc])) n += times_of(&r, pc);
    report->n_launches = n;
}

void report_class(const Plan *plan, const Fold *fold, const EngineResult *result, uint32_t class_,
                  Arena *arena, SimReport *report)
{
    report_repeated(plan, fold, result, NULL, class_, arena, report);
}

/* Counts the instructions that simulated ranks have finished, summed over these ranks. */
static uint64_t count_events(const Plan *plan, const Fold *fold, const EngineResult *result,
                             const Repeats *repeats)
{
    uint64_t n = result->n_events;
    for (uint32_t c = 0; c < fold->n_classes && repeats != NULL; c++) {
        const uint32_t end = plan_program(plan, fold->rank_of[c])->code.n;
        for (Pc pc = 1; pc < end; pc++) {
            const Ps reached = moment_of(&result->line[c], pc)->reached;
            if (reached >= repeats->from && reached < repeats->to) n += repeats->times - 1;
        }
    }
    return n;
}

Ps sim_input_ps(const Plan *plan, const StepInfo *step, const Runtime *runtime)
{
    if (runtime == NULL || runtime->input_s <= 0) return 0;
    const AxisSet data = mesh_axes_of(&plan->mesh, axes_cutting(INDEX_samples));
    const double own = (double)step->global_batch / mesh_size(&plan->mesh, data);
    return ps_of(own * runtime->input_s * (double)PS_PER_S);
}

void report_time(const Plan *plan, const Fold *fold, const EngineResult *result,
                 const Repeats *repeats, const Cluster *cluster, const Runtime *runtime,
                 Arena *arena, SimReport *report)
{
    assert(result->line != NULL);
    uint32_t slowest = slowest_class(fold, result);
    StepInfo step = plan->step;
    report->slowest = fold->rank_of[slowest];
    report->step_ps = result->step_ps;
    report->n_events = count_events(plan, fold, result, repeats);
    report->n_classes = fold->n_classes;
    if (repeats != NULL) {
        report->step_ps += repeats->later;
        step.global_batch = step.micro_batch * repeats->microbatches;
        step.n_microbatches = repeats->microbatches;
    }
    /* the loader reads while the previous step computes */
    const Ps input = sim_input_ps(plan, &step, runtime);
    report->input_ps = input > report->step_ps ? input - report->step_ps : 0;
    report->step_ps += report->input_ps;
    report_repeated(plan, fold, result, repeats, slowest, arena, report);
    report->idle_ps = report->step_ps - report->compute_ps;
    report->host_ps = ps_of(report->n_launches * cluster->device.launch_s * (double)PS_PER_S);
    report->host_bound = report->host_ps > report->step_ps;
    report_utilisation(plan, &step, cluster, arena, report);
}

/* The memory that a rank of one program takes. */
typedef struct ProgramHeld {
    uint64_t outside; /* bytes outside of the allocator */
    TorchStats stats;
} ProgramHeld;
typedef struct HeldQuestion {
    const Plan *plan;
    const Cluster *cluster;
    const Runtime *runtime;
    ProgramHeld *of; /* [program] */
} HeldQuestion;

static void program_held(void *self, uint32_t i)
{
    const HeldQuestion *q = self;
    const Device *device = &q->cluster->device;
    const uint64_t all = device->memory_bytes;
    Arena *scratch = arena_new();
    CommMemories communicators;
    const uint64_t outside =
        device->reserved_bytes +
        comm_memory(q->plan, i, q->cluster, q->runtime, scratch, &communicators);
    arena_free(scratch);
    const uint64_t limit = all > outside ? all - outside : 0;
    q->of[i] = (ProgramHeld){
        outside, torch_memory(q->plan, &q->plan->programs.at[i], q->runtime, device, limit)};
}

/* Returns the memory under a profile. `rows`: rows of experts on the busiest rank, relative to the
 * mean. */
static Held held_with(const Plan *plan, const Cluster *cluster, const Runtime *runtime, double rows)
{
    Held held = {.fits = true};
    Arena *scratch = arena_new();
    plan = uneven_rows_plan(plan, rows, scratch);
    HeldQuestion question = {plan, cluster, runtime, NULL};
    question.of = arena_array(scratch, plan->programs.n, sizeof *question.of);
    parallel_for(plan->programs.n, program_held, &question);
    const uint32_t of_rank = runtime->reports_rank == MEMORY_RANK_last ? plan->mesh.n_ranks - 1 : 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const uint64_t outside = question.of[i].outside;
        const TorchStats s = question.of[i].stats;
        if (runtime->reports_rank != MEMORY_RANK_most && i == plan->program_of[of_rank]) {
            held.logged[MEMORY_allocated] = s.peak_allocated;
            held.logged[MEMORY_reserved] = s.peak_reserved;
            held.logged[MEMORY_process] = s.peak_reserved + outside;
        }
        if (s.peak_allocated > held.allocated_bytes) held.allocated_bytes = s.peak_allocated;
        if (s.peak_reserved > held.reserved_bytes) held.reserved_bytes = s.peak_reserved;
        if (s.peak_reserved + outside > held.process_bytes)
            held.process_bytes = s.peak_reserved + outside;
        held.n_retries += s.n_retries;
        if (s.failed) held.fits = false;
    }
    arena_free(scratch);
    if (runtime->reports_rank == MEMORY_RANK_most) {
        held.logged[MEMORY_allocated] = held.allocated_bytes;
        held.logged[MEMORY_reserved] = held.reserved_bytes;
        held.logged[MEMORY_process] = held.process_bytes;
    }
    return held;
}

Held sim_held(const Plan *plan, const Cluster *cluster, const Runtime *runtime)
{
    return held_with(plan, cluster, runtime, 1);
}

Held sim_held_uneven(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                     const RowLoads *loads, double imbalance)
{
    const double rows = imbalance_held(loads_fit(loads, plan) ? loads : NULL, imbalance);
    return held_with(plan, cluster, runtime, rows);
}

void report_memory(const Plan *simulated, const Cluster *cluster, const SimOptions *options,
                   Arena *arena, SimReport *report)
{
    const Plan *plan = options->placed != NULL ? options->placed : simulated;
    uint32_t worst = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        if (p->bytes > plan->programs.at[worst].bytes) worst = i;
        Arena *scratch = arena_new();
        MemoryPeak peak;
        memory_peak(p, scratch, &peak);
        uint64_t *at = peak.at, live = 0;
        for (Category c = 1; c < CATEGORY_COUNT; c++) live += at[c];
        const uint64_t free = p->bytes > live ? p->bytes - live : 0;
        at[CATEGORY_waiting] = peak.waiting < free ? peak.waiting : free;
        for (Category c = 1; c < CATEGORY_COUNT; c++) {
            const uint64_t bytes = at[c];
            if (bytes > 0) list_push(arena, &report->memory_rows, ((MemoryRow){i, c, bytes}));
        }
        if (i == worst) {
            live += at[CATEGORY_waiting];
            memcpy(report->memory, at, sizeof report->memory);
            report->memory_holes = p->bytes > live ? p->bytes - live : 0;
        }
        arena_free(scratch);
    }
    report->peak_bytes = plan->programs.at[worst].bytes;
    report->peak_rank = 0;
    while (report->peak_rank + 1 < plan->mesh.n_ranks &&
           plan->program_of[report->peak_rank] != worst) {
        report->peak_rank++;
    }
    CommMemories communicators;
    report->total_bytes = report->peak_bytes + cluster->device.reserved_bytes +
                          comm_memory_most(plan, cluster, NULL, arena, &communicators);
    uint32_t node;
    const uint64_t host = plan_host_bytes(plan, cluster->devices_per_node, &node);
    const bool host_fits = !cluster->host_memory_bytes || host <= cluster->host_memory_bytes;
    report->fits = host_fits && report->total_bytes <= cluster->device.memory_bytes;
    if (runtime_is_own(options->runtime)) return;
    const bool even = options->loads == NULL && !(options->imbalance > 1);
    report->held = even && options->held != NULL
                       ? *options->held
                       : sim_held_uneven(simulated, cluster, options->runtime, options->loads,
                                         options->imbalance);
    report->total_bytes = report->held.process_bytes;
    report->fits = host_fits && report->held.fits;
}

void report_trace(const Plan *plan, const Fold *fold, const EngineResult *result, Arena *arena,
                  Trace *trace)
{
    for (uint32_t c = 0; c < fold->n_classes; c++) {
        const Program *p = plan_program(plan, fold->rank_of[c]);
        const Timeline *line = &result->line[c];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = program_instr(p, pc);
            TraceRow row = {.rank = fold->rank_of[c],
                            .pc = pc,
                            .start_ps = moment_of(line, pc)->start,
                            .end_ps = moment_of(line, pc)->end};
            row.bytes = is_comm(in) ? plan_comm_bytes(plan, p, in) : plan_hbm_bytes(plan, p, in);
            list_push(arena, &trace->rows, row);
        }
    }
    list_push(arena, &trace->steps, ((StepRow){.time_ps = result->step_ps}));
}
