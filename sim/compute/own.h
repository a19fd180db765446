/* Kernels of Tandem's own executor that mostly move memory, on devices where they were measured
 * (kernels_own.def). Their rates are parts of the rate of large copies. */
#ifndef TANDEM_SIM_COMPUTE_OWN_H
#define TANDEM_SIM_COMPUTE_OWN_H

#include "sim/sim.h"

/* See OWN in kernels_own.def. */
typedef struct OwnFit {
    double more_us, part, row_us, hidden, apart;
} OwnFit;

/* Returns NULL if another framework runs the op, or if the device was not measured. */
const OwnFit *own_fit(const Runtime *runtime, const Device *device, OpKind op);
/* Returns the time of `bytes` in `rows` rows [seconds], without the kernel's start. */
double own_memory_s(const Device *device, const OwnFit *fit, double rows, double bytes);

#endif
