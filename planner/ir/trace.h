/* A record of execution in virtual or real time: sim and exec produce the same rows. */
#ifndef TANDEM_IR_TRACE_H
#define TANDEM_IR_TRACE_H

#include <math.h>

#include "planner/ir/plan.h"

typedef int64_t Ps; /* picoseconds */
#define PS_PER_S INT64_C(1000000000000)
/* The longest time that is told, 11.6 days: nine of them still fit into a Ps. */
#define PS_MOST INT64_C(1000000000000000000)
/* `picoseconds` rounded to the nearest; PS_MOST where it is larger or infinite, 0 where it is
 * negative or no number. Whatever is divided by a rate goes through here. */
static inline Ps ps_of(double picoseconds)
{
    if (!(picoseconds > 0)) return 0;
    return picoseconds < (double)PS_MOST ? llround(picoseconds) : PS_MOST;
}

typedef struct TraceRow {
    Rank rank;
    uint32_t step;
    Pc pc;
    Ps start_ps, end_ps; /* from the start of the step */
    uint64_t bytes;      /* moved by a communication, or touched by a kernel */
} TraceRow;

typedef struct StepRow { /* one training step as people read it */
    uint32_t step;
    double loss, grad_norm;
    Ps time_ps;
} StepRow;

typedef struct Trace {
    LIST(TraceRow) rows; /* of one chosen steady step */
    LIST(StepRow) steps;
    uint32_t step; /* the step of `rows` */
} Trace;

/* Chrome trace JSON: one track a rank x stream; names escaped. ranks: NULL for all. */
void trace_chrome(const Plan *plan, const Trace *trace, const Rank *ranks, uint32_t n_ranks,
                  Str *out);

#endif
