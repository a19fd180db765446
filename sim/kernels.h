/* Costs of kernels by their sizes, alone on a device. */
#ifndef TANDEM_SIM_KERNELS_H
#define TANDEM_SIM_KERNELS_H

#include "sim/sim.h"

bool kernel_on_processor(const Device *device);        /* the arch is "cpu" */
double kernel_peak(const Device *device, DType dtype); /* FLOP/s, dense */
double kernel_memory_s(const Device *device, double bytes);
/* Seconds of the arithmetic of a product alone: no launch, no memory. */
double kernel_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k);

#endif
