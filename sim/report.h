/* Makes a report from the engine's times: step time, utilisation, exposed communication, memory. */
#ifndef TANDEM_SIM_REPORT_H
#define TANDEM_SIM_REPORT_H

#include "sim/sim.h"

/* How a longer step differs from the simulated one. Instructions that were reached in [from, to)
 * run `times` times, and the step ends later by `later`. */
typedef struct Repeats {
    Ps from, to, later;
    uint32_t times, microbatches; /* microbatches: number of micro-batches in the longer step */
} Repeats;

/* Writes the times and the utilisation of the step. If `repeats` is not NULL, the report describes
 * the longer step. If `runtime` is not NULL, the step takes at least as long as its loader of
 * data. */
void report_time(const Plan *plan, const Fold *fold, const EngineResult *result,
                 const Repeats *repeats, const Cluster *cluster, const Runtime *runtime,
                 Arena *arena, SimReport *report);
/* Writes the times of one class: computing, exposed, communicating. report->step_ps must be
 * known. */
void report_class(const Plan *plan, const Fold *fold, const EngineResult *result, uint32_t class_,
                  Arena *arena, SimReport *report);
/* Adds critical path, stages and kinds of ops (critical.c), for a simulation with the costs `cost`.
 * Must be called after report_time. */
void report_explain(const Plan *plan, const Fold *fold, const EngineResult *result,
                    const Cluster *cluster, const CostModel *cost, Arena *arena, SimReport *report);
void report_memory(const Plan *plan, const Cluster *cluster, const SimOptions *options,
                   Arena *arena, SimReport *report);
/* Writes the trace rows of all simulated ranks, ordered by rank and instruction. */
void report_trace(const Plan *plan, const Fold *fold, const EngineResult *result, Arena *arena,
                  Trace *trace);

#endif
