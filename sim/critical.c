/* Finds the critical path of a step: the chain of instructions that determines its time. The chain
 * is followed from the end of the step back to its beginning. An instruction began when another
 * instruction of its rank ended (Moment.by). A communication began when its last member arrived. So
 * each interval of the step has exactly one cause, and the intervals add up to the step. If an
 * instruction had to wait until the host issued it, the host caused this wait. The host's interval
 * reaches back to the end of the instruction for which the host itself waited last, or to the
 * beginning of the step. The file also reports how each pipeline stage uses its time, and the rates
 * that each kind of op reaches relative to the device's limits. */
#include "sim/report.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct PathWalk {
    const Plan *plan;
    const Fold *fold;
    const EngineResult *result;
    const Cluster *cluster;
    const CostModel *cost;
    Arena *arena;
    SimReport *report;
} PathWalk;

static bool is_comm(const Instr *in)
{
    return op_info(in->op)->class_ == OP_CLASS_comm;
}

static const Program *program_of(const PathWalk *w, uint32_t class_)
{
    return plan_program(w->plan, w->fold->rank_of[class_]);
}

static Pc last_to_end(const PathWalk *w, uint32_t class_)
{
    const Program *p = program_of(w, class_);
    const Timeline *line = &w->result->line[class_];
    Pc last = 1;
    for (Pc pc = 2; pc < p->code.n; pc++)
        if (moment_of(line, pc)->end > moment_of(line, last)->end) last = pc;
    return last;
}

/* Returns the instruction with which `class_` took part in the communication `in`, if the class
 * reached that instruction at time `at`. Returns 0 if it did not. */
static Pc takes_part(const PathWalk *w, uint32_t class_, const Instr *in, Ps at)
{
    const Program *p = program_of(w, class_);
    const Timeline *line = &w->result->line[class_];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *other = &p->code.at[pc];
        if (!is_comm(other) || other->match != in->match) continue;
        if (moment_of(line, pc)->start == at && moment_of(line, pc)->reached == at) return pc;
    }
    return 0;
}

/* Finds the member of communication *pc that arrived last, so that class *class_ had to wait. Sets
 * *class_ and *pc to this member and its instruction. */
static bool find_last(const PathWalk *w, uint32_t *class_, Pc *pc)
{
    const Instr *in = program_instr(program_of(w, *class_), *pc);
    Ps at = moment_of(&w->result->line[*class_], *pc)->start;
    bool pair = in->op == OP_send || in->op == OP_recv;
    uint32_t n = 1, peer = 0;
    const FoldGroup *group = NULL;
    if (pair) {
        Rank rank = 0;
        if (!fold_peer(&w->plan->mesh, w->fold->rank_of[*class_], in->axes, in->hop, &rank))
            return false;
        peer = w->fold->class_of[rank];
    } else {
        const FoldAxes *axes = &w->fold->axes.at[fold_axes(w->fold, in->axes)];
        group = &axes->groups[axes->group_of[*class_]];
        n = group->n_members;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = pair ? peer : group->members[i].class_;
        Pc found = takes_part(w, other, in, at);
        if (found == 0) continue;
        *class_ = other;
        *pc = found;
        return true;
    }
    return false;
}

static void add_part(const PathWalk *w, uint32_t class_, Pc pc, bool host, Ps from, Ps to)
{
    if (to <= from) return;
    PathPart part = {
        .rank = w->fold->rank_of[class_], .pc = pc, .host = host, .from_ps = from, .to_ps = to};
    list_push(w->arena, &w->report->path, part);
}

/* Finds why an instruction was issued only at *at. Returns the instruction for which the host
 * waited last before it, and moves *at back to the end of that wait. Returns 0 if the host has not
 * waited in this step. */
static Pc follow_host(const PathWalk *w, uint32_t class_, Pc pc, Ps *at)
{
    const HostLine *host = &w->result->host[class_];
    uint32_t part = host->n - 1;
    while (part > 0 && (host->at[part].first > pc || host->at[part].from > *at)) part--;
    while (part > 0 && host->at[part].by == 0) part--;
    add_part(w, class_, pc, true, host->at[part].from, *at);
    *at = host->at[part].from;
    return host->at[part].by;
}

static void follow(const PathWalk *w, uint32_t class_, Pc pc)
{
    Ps at = moment_of(&w->result->line[class_], pc)->end;
    while (pc != 0) {
        const Moment *moment = moment_of(&w->result->line[class_], pc);
        add_part(w, class_, pc, false, moment->start, at);
        at = moment->start;
        if (moment->reached < at && !find_last(w, &class_, &pc)) break;
        const Timeline *line = &w->result->line[class_];
        Pc by = moment_of(line, pc)->by;
        const bool late = at > 0 && (by == 0 || moment_of(line, by)->end < at);
        pc = late ? follow_host(w, class_, pc, &at) : by;
    }
    /* nothing else takes time, so the chain reaches the beginning of the step */
    assert(at == 0);
}

/* Adds the interval at the end of the step in which the step waits for the loader of data. */
static void add_input(const PathWalk *w, Pc last)
{
    SimReport *report = w->report;
    const Ps from = report->step_ps - report->input_ps;
    const PathPart part = {.rank = report->slowest,
                           .pc = last,
                           .data = true,
                           .from_ps = from,
                           .to_ps = report->step_ps};
    if (report->input_ps > 0) list_push(w->arena, &report->path, part);
}

/* Reverses the chain, so that it starts at the beginning of the step. */
static void turn_round(SimReport *report)
{
    for (uint32_t i = 0, k = report->path.n; i + 1 < k; i++, k--) {
        PathPart swap = report->path.at[i];
        report->path.at[i] = report->path.at[k - 1];
        report->path.at[k - 1] = swap;
    }
}

static PathSum *sum_row(const PathWalk *w, const Instr *in, const PathPart *part)
{
    SimReport *report = w->report;
    const bool works = !part->host && !part->data;
    PathSum row = {.host = part->host, .data = part->data, .op = works ? in->op : OP_none};
    row.comm = works && is_comm(in);
    if (row.comm) row.axes = in->axes;
    for (uint32_t i = 0; i < report->path_sums.n; i++) {
        PathSum *have = &report->path_sums.at[i];
        if (have->op == row.op && have->axes == row.axes && have->data == row.data) return have;
    }
    uint32_t i = list_push(w->arena, &report->path_sums, row);
    return &report->path_sums.at[i];
}

static void sum_path(const PathWalk *w)
{
    for (uint32_t i = 0; i < w->report->path.n; i++) {
        const PathPart *part = &w->report->path.at[i];
        const Program *p = plan_program(w->plan, part->rank);
        PathSum *row = sum_row(w, program_instr(p, part->pc), part);
        row->n++;
        row->time_ps += part->to_ps - part->from_ps;
    }
    PathSum *at = w->report->path_sums.at;
    /* sort by time, the longest first; sums of equal time keep the order of their first
     * occurrence */
    for (uint32_t i = 1; i < w->report->path_sums.n; i++) {
        for (uint32_t k = i; k > 0 && at[k - 1].time_ps < at[k].time_ps; k--) {
            PathSum swap = at[k];
            at[k] = at[k - 1];
            at[k - 1] = swap;
        }
    }
}

/* Adds a row for each role (program), with the times of its slowest class, if the plan has several
 * roles. */
static void add_stages(const PathWalk *w)
{
    for (uint32_t i = 0; i < w->plan->programs.n; i++) {
        uint32_t slowest = UINT32_MAX;
        for (uint32_t c = 0; c < w->fold->n_classes; c++) {
            if (w->plan->program_of[w->fold->rank_of[c]] != i) continue;
            if (slowest == UINT32_MAX || w->result->end_ps[c] > w->result->end_ps[slowest])
                slowest = c;
        }
        if (slowest == UINT32_MAX) continue;
        SimReport own = {.step_ps = w->report->step_ps};
        report_class(w->plan, w->fold, w->result, slowest, w->arena, &own);
        StageRow row = {.program = i, .rank = w->fold->rank_of[slowest]};
        row.compute_ps = own.compute_ps;
        row.exposed_ps = own.exposed_ps;
        row.bubble_ps = w->report->step_ps - own.compute_ps - own.exposed_ps;
        row.bytes = w->plan->programs.at[i].bytes;
        list_push(w->arena, &w->report->stages, row);
    }
}

static KindRow *kind_row(const PathWalk *w, OpKind op)
{
    for (uint32_t i = 0; i < w->report->kinds.n; i++)
        if (w->report->kinds.at[i].op == op) return &w->report->kinds.at[i];
    uint32_t i = list_push(w->arena, &w->report->kinds, ((KindRow){.op = op}));
    return &w->report->kinds.at[i];
}

/* Adds a row for each kind of op among the kernels of the slowest rank: FLOPs, bytes and time. */
static void add_kinds(const PathWalk *w)
{
    const Program *p = plan_program(w->plan, w->report->slowest);
    const Timeline *line = &w->result->line[w->fold->class_of[w->report->slowest]];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        const Ps time = moment_of(line, pc)->end - moment_of(line, pc)->start;
        if (is_comm(in) || time == 0) continue;
        KindRow *row = kind_row(w, in->op);
        row->n++;
        row->time_ps += time;
        row->flops += plan_flops(w->plan, p, in);
        row->bytes += w->cost->bytes != NULL ? w->cost->bytes(w->cost->self, w->plan, p, in)
                                             : (double)plan_hbm_bytes(w->plan, p, in);
        row->dtype = p->buffers.at[program_arg(p, in, 0)].dtype;
    }
    for (uint32_t i = 0; i < w->report->kinds.n; i++) {
        KindRow *row = &w->report->kinds.at[i];
        double seconds = (double)row->time_ps / (double)PS_PER_S;
        double peak = w->cluster->device.peak_flops[row->dtype];
        row->of_peak = peak > 0 ? row->flops / seconds / peak : 0;
        row->of_memory = row->bytes / seconds / fmax(w->cluster->device.hbm_bytes_per_s, 1);
    }
}

void report_explain(const Plan *plan, const Fold *fold, const EngineResult *result,
                    const Cluster *cluster, const CostModel *cost, Arena *arena, SimReport *report)
{
    PathWalk w = {plan, fold, result, cluster, cost, arena, report};
    uint32_t slowest = fold->class_of[report->slowest];
    const Pc last = last_to_end(&w, slowest);
    follow(&w, slowest, last);
    turn_round(report);
    add_input(&w, last);
    sum_path(&w);
    add_stages(&w);
    add_kinds(&w);
}
