/* Model FLOPs utilisation by the conventions in common use. */
#ifndef TANDEM_SIM_UTILISATION_H
#define TANDEM_SIM_UTILISATION_H

#include "sim/sim.h"

/* The conventions of --mfu, each with a description of the FLOPs that it counts for a token. */
#define MFU_CONVENTIONS(X)                                                                         \
    X(model, "attention under its mask, no input embedding; the default")                          \
    X(square, "attention without its mask")                                                        \
    X(all_parameters, "as square, with the input embedding")                                       \
    X(parameters, "6 x all parameters alone")                                                      \
    X(hardware, "all that runs, with recomputation: HFU")

typedef enum MfuConvention {
#define X(name, help) MFU_##name,
    MFU_CONVENTIONS(X)
#undef X
        MFU_CONVENTION_COUNT
} MfuConvention;

const char *mfu_convention_name(MfuConvention convention);
bool mfu_convention_find(const char *name, MfuConvention *convention);
/* Returns the FLOPs of a token (or of a point of the grid), and sets *formula to their formula.
 * Returns 0 if the convention does not apply to a model of grids. */
double mfu_convention_flops(const Plan *plan, MfuConvention convention, const char **formula);

/* Writes throughput and the default MFU into the report. report->step_ps must be known. `step` is
 * the plan's own step, or the longer step that the report describes. */
void report_utilisation(const Plan *plan, const StepInfo *step, const Cluster *cluster,
                        Arena *arena, SimReport *report);

#endif
