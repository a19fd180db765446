/* Turns the engine's timelines into a report: step time, utilisation, exposed communication,
 * memory. */
#ifndef TANDEM_SIM_REPORT_H
#define TANDEM_SIM_REPORT_H

#include "sim/sim.h"

void report_time(const Plan *plan, const Fold *fold, const EngineResult *result,
                 const Cluster *cluster, Arena *arena, SimReport *report);
/* Compute, exposed and communication times of one class; report->step_ps is set already. */
void report_class(const Plan *plan, const Fold *fold, const EngineResult *result, uint32_t class_,
                  Arena *arena, SimReport *report);
/* Adds critical path, stages and kinds (critical.c) for a simulation run with `cost`. Call after
 * report_time. */
void report_explain(const Plan *plan, const Fold *fold, const EngineResult *result,
                    const Cluster *cluster, const CostModel *cost, Arena *arena, SimReport *report);
void report_memory(const Plan *plan, const Cluster *cluster, const SimOptions *options,
                   Arena *arena, SimReport *report);
/* Rows of all simulated ranks, in order of rank and pc. */
void report_trace(const Plan *plan, const Fold *fold, const EngineResult *result, Arena *arena,
                  Trace *trace);

#endif
