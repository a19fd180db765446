/* A record of execution in virtual or real time: sim and exec produce the same rows. */
#ifndef TANDEM_IR_TRACE_H
#define TANDEM_IR_TRACE_H

#include <math.h>

#include "planner/ir/plan.h"

typedef int64_t Ps; /* picoseconds */
#define PS_PER_S INT64_C(1000000000000)
/* The longest time that is reported, 11.6 days. A Ps can hold the sum of nine of them. */
#define PS_MOST INT64_C(1000000000000000000)
/* Rounds `picoseconds` to the nearest whole number. Returns PS_MOST if they are more or infinite, 0
 * if they are negative or not a number. Every division by a rate goes through here. */
static inline Ps ps_of(double picoseconds)
{
    if (!(picoseconds > 0)) return 0;
    return picoseconds < (double)PS_MOST ? llround(picoseconds) : PS_MOST;
}

typedef struct TraceRow {
    Rank rank;
    uint32_t step;
    Pc pc;
    Ps start_ps, end_ps; /* time since the start of the step */
    uint64_t bytes;      /* moved by a communication, or touched by a kernel */
} TraceRow;

typedef struct StepRow { /* one training step, for people */
    uint32_t step;
    double loss, grad_norm;
    Ps time_ps;
} StepRow;

typedef struct Trace {
    LIST(TraceRow) rows; /* the rows of one chosen steady step */
    LIST(StepRow) steps;
    uint32_t step; /* the step of `rows` */
} Trace;

/* Writes Chrome trace JSON: one track for each rank and stream, with names escaped. ranks: NULL for
 * all. */
void trace_chrome(const Plan *plan, const Trace *trace, const Rank *ranks, uint32_t n_ranks,
                  Str *out);

#endif
