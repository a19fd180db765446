/* From the engine's timelines to what people ask: step time, utilisation, exposed communication,
 * memory. */
#ifndef TANDEM_SIM_REPORT_H
#define TANDEM_SIM_REPORT_H

#include "sim/sim.h"

void report_time(const Plan *plan, const Fold *fold, const EngineResult *result,
                 const Cluster *cluster, Arena *arena, SimReport *report);
void report_memory(const Plan *plan, const Cluster *cluster, Arena *arena, SimReport *report);
/* Rows of all simulated ranks, in order of rank and pc. */
void report_trace(const Plan *plan, const Fold *fold, const EngineResult *result, Arena *arena,
                  Trace *trace);

#endif
