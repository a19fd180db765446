/* Kernels of Tandem's executor that mostly move memory, on devices where they were measured
 * (kernels_own.def). Their rates are given as fractions of the rate of large copies. */
#ifndef TANDEM_SIM_COMPUTE_OWN_H
#define TANDEM_SIM_COMPUTE_OWN_H

#include "sim/sim.h"

/* Constants of such a kernel; see OWN in kernels_own.def. */
typedef struct OwnFit {
    double more_us, part, row_us, hidden, apart;
} OwnFit;

/* Returns the constants of the kernel for `op`. Returns NULL if another framework runs the op, or
 * if nothing was measured on the device. */
const OwnFit *own_fit(const Runtime *runtime, const Device *device, OpKind op);
/* Returns the time in seconds to move `bytes` bytes in `rows` rows, without the start of the
 * kernel. */
double own_memory_s(const Device *device, const OwnFit *fit, double rows, double bytes);

#endif
