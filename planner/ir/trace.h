/* What happened, in virtual or in real time: the same rows from sim and exec. */
#ifndef TANDEM_IR_TRACE_H
#define TANDEM_IR_TRACE_H

#include "planner/ir/plan.h"

typedef int64_t Ps; /* picoseconds */
#define PS_PER_S INT64_C(1000000000000)

typedef struct TraceRow {
    Rank rank;
    uint32_t step;
    Pc pc;
    Ps start_ps, end_ps; /* from the start of the step */
    uint64_t bytes;      /* moved by a communication, touched by a kernel */
} TraceRow;

typedef struct StepRow { /* one training step as people read it */
    uint32_t step;
    double loss, grad_norm;
    Ps time_ps;
} StepRow;

typedef struct Trace {
    LIST(TraceRow) rows; /* of one chosen steady step */
    LIST(StepRow) steps;
    uint32_t step; /* which step the rows are of */
} Trace;

/* Chrome trace JSON: one track a rank x stream; names escaped. ranks: NULL for all. */
void trace_chrome(const Plan *plan, const Trace *trace, const Rank *ranks, uint32_t n_ranks,
                  Str *out);

#endif
