/* Computes the times of the slowest rank from the rows of a measured step. */
#include <stdlib.h>
#include <string.h>

#include "cli/run/run.h"

typedef struct Busy {
    Ps start_ps, end_ps;
} Busy;
typedef LIST(Busy) BusyList;

static int by_start(const void *a, const void *b)
{
    const Busy *x = a, *y = b;
    return (x->start_ps > y->start_ps) - (x->start_ps < y->start_ps);
}

static bool is_comm(const Plan *plan, const TraceRow *row)
{
    const Program *p = plan_program(plan, row->rank);
    return op_info(program_instr(p, row->pc)->op)->class_ == OP_CLASS_comm;
}

static Rank slowest(const Trace *trace)
{
    Rank rank = 0;
    Ps last = -1;
    for (uint32_t i = 0; i < trace->rows.n; i++)
        if (trace->rows.at[i].end_ps > last) {
            last = trace->rows.at[i].end_ps;
            rank = trace->rows.at[i].rank;
        }
    return rank;
}

/* Returns the time between `from` and `to` during which no kernel ran. */
static Ps idle_in(const BusyList *busy, Ps from, Ps to)
{
    Ps idle = 0;
    for (uint32_t i = 0; i < busy->n && from < to; i++) {
        const Busy *one = &busy->at[i];
        if (one->end_ps <= from) continue;
        if (one->start_ps >= to) break;
        if (one->start_ps > from) idle += one->start_ps - from;
        from = one->end_ps;
    }
    return from < to ? idle + to - from : idle;
}

static CollectiveRow *find_row(Arena *arena, const Plan *plan, const Instr *in, uint64_t bytes,
                               RunRecord *record)
{
    const char *axes = mesh_axes_text(arena, &plan->mesh, in->axes);
    const char *stream = stream_name(in->stream);
    for (uint32_t i = 0; i < record->collectives.n; i++) {
        CollectiveRow *row = &record->collectives.at[i];
        if (row->op == in->op && row->bytes == bytes && strcmp(row->axes, axes) == 0 &&
            strcmp(row->stream, stream) == 0)
            return row;
    }
    CollectiveRow row = {.op = in->op, .axes = axes, .stream = stream, .bytes = bytes};
    uint32_t at = list_push(arena, &record->collectives, row);
    return &record->collectives.at[at];
}

/* Returns the time during which any communication ran, but no kernel. Communications at the same
 * time count once. */
static Ps exposed_union(BusyList *comm, const BusyList *busy)
{
    Ps sum = 0, reached = INT64_MIN;
    if (comm->n > 0) qsort(comm->at, comm->n, sizeof *comm->at, by_start);
    for (uint32_t i = 0; i < comm->n; i++) {
        Ps from = comm->at[i].start_ps > reached ? comm->at[i].start_ps : reached;
        if (comm->at[i].end_ps <= from) continue;
        sum += idle_in(busy, from, comm->at[i].end_ps);
        reached = comm->at[i].end_ps;
    }
    return sum;
}

void measured_times(Arena *arena, const Plan *plan, const Trace *trace, RunRecord *record)
{
    Rank rank = slowest(trace);
    BusyList busy = {NULL, 0, 0}, comm = {NULL, 0, 0};
    for (uint32_t i = 0; i < trace->rows.n; i++) {
        const TraceRow *row = &trace->rows.at[i];
        if (row->rank != rank) continue;
        Busy one = {row->start_ps, row->end_ps};
        if (is_comm(plan, row)) {
            list_push(arena, &comm, one);
        } else {
            list_push(arena, &busy, one);
            record->compute_ps += row->end_ps - row->start_ps;
        }
    }
    if (busy.n > 0) qsort(busy.at, busy.n, sizeof *busy.at, by_start);
    for (uint32_t i = 0; i < trace->rows.n; i++) {
        const TraceRow *row = &trace->rows.at[i];
        if (row->rank != rank || !is_comm(plan, row)) continue;
        const Instr *in = program_instr(plan_program(plan, rank), row->pc);
        CollectiveRow *sum = find_row(arena, plan, in, row->bytes, record);
        sum->n++;
        sum->total_ps += row->end_ps - row->start_ps;
        sum->exposed_ps += idle_in(&busy, row->start_ps, row->end_ps);
    }
    record->exposed_ps = exposed_union(&comm, &busy);
}
