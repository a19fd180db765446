/* A trace: when each instruction started and ended. The simulator (virtual time) and the executor
 * (real time) produce the same kind of rows. */
#ifndef TANDEM_IR_TRACE_H
#define TANDEM_IR_TRACE_H

#include <math.h>

#include "planner/ir/plan.h"

typedef int64_t Ps; /* picoseconds */
#define PS_PER_S INT64_C(1000000000000)
/* The longest time that is reported, 11.6 days. Nine such times can be added without overflow. */
#define PS_MOST INT64_C(1000000000000000000)
/* Rounds a time in picoseconds to an integer. Returns PS_MOST if it is longer or infinite, 0 if it
 * is negative or not a number. Every division of bytes or FLOPs by a rate goes through here. */
static inline Ps ps_of(double picoseconds)
{
    if (!(picoseconds > 0)) return 0;
    return picoseconds < (double)PS_MOST ? llround(picoseconds) : PS_MOST;
}

typedef struct TraceRow {
    Rank rank;
    uint32_t step;
    Pc pc;
    Ps start_ps, end_ps; /* since the start of the step */
    uint64_t bytes; /* size of a communication, or device memory that a kernel reads and writes */
} TraceRow;

typedef struct StepRow { /* the results of one training step, for people */
    uint32_t step;
    double loss, grad_norm;
    Ps time_ps;
} StepRow;

typedef struct Trace {
    LIST(TraceRow) rows; /* the instructions of one typical step, after the slower first ones */
    LIST(StepRow) steps;
    uint32_t step; /* which step `rows` describes */
} Trace;

/* Appends the trace to `out` as JSON for Perfetto or chrome://tracing, with one track for each rank
 * and stream. `ranks`: only these `n_ranks` ranks; NULL: all ranks. */
void trace_chrome(const Plan *plan, const Trace *trace, const Rank *ranks, uint32_t n_ranks,
                  Str *out);

#endif
