/* Turns the engine's timelines into a report: step time, utilisation, exposed communication,
 * memory. */
#ifndef TANDEM_SIM_REPORT_H
#define TANDEM_SIM_REPORT_H

#include "sim/sim.h"

/* The repetitions of one part of a step. In a longer step, the instructions reached in [from, to)
 * run `times` times, and the step ends later by `later`. */
typedef struct Repeats {
    Ps from, to, later;
    uint32_t times, microbatches; /* microbatches: their number in the longer step; 0: the plan's
                                   * own number */
} Repeats;

/* Writes the step's times and utilisation. repeats: if not NULL, the report describes the longer
 * step. runtime: if not NULL, the step takes at least the time of its loader. */
void report_time(const Plan *plan, const Fold *fold, const EngineResult *result,
                 const Repeats *repeats, const Cluster *cluster, const Runtime *runtime,
                 Arena *arena, SimReport *report);
/* Writes the compute, exposed and communication times of one class. Needs report->step_ps. */
void report_class(const Plan *plan, const Fold *fold, const EngineResult *result, uint32_t class_,
                  Arena *arena, SimReport *report);
/* Adds critical path, stages and kinds (critical.c) for a simulation run with `cost`. Call after
 * report_time. */
void report_explain(const Plan *plan, const Fold *fold, const EngineResult *result,
                    const Cluster *cluster, const CostModel *cost, Arena *arena, SimReport *report);
void report_memory(const Plan *plan, const Cluster *cluster, const SimOptions *options,
                   Arena *arena, SimReport *report);
/* Writes the trace rows of all simulated ranks, in order of rank and pc. */
void report_trace(const Plan *plan, const Fold *fold, const EngineResult *result, Arena *arena,
                  Trace *trace);

#endif
