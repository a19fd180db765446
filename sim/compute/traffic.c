/* Computes the times of kernels that mostly move memory. The time consists of a start, and of the
 * bytes at a fraction of the memory's rate. If a block processes one row at a time, each row adds a
 * time. The previous kernel has left a part of the data in the cache. The fewer bytes there are,
 * the larger this part is. The model counts each byte only once. If a kernel reads some bytes
 * repeatedly, the fitted fraction `part` includes the effect. */
#include <math.h>

#include "sim/compute/kernels.h"

const TrafficFit *kernel_traffic_fit(const Device *device, TrafficKernel kernel)
{
    static const TrafficFit fits[ARCH_COUNT][TRAFFIC_KERNEL_COUNT] = {
#define GEMM(...)
#define ATTENTION(...)
#define TRAFFIC(arch, kernel, ...) [ARCH_##arch][TRAFFIC_##kernel] = {__VA_ARGS__},
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
    };
    uint32_t arch = kernel_fitted_arch(device);
    if (fits[arch][kernel].part <= 0)
        arch = ARCH_Hopper; /* this kernel was fitted only on Hopper */
    return &fits[arch][kernel];
}

/* Returns half the size of the last-level cache, in bytes. The cache has 40 MB on an A100 and 50 MB
 * on Hopper. */
static double near_bytes(const Device *device)
{
    return kernel_is_young(device) ? 25e6 : 20e6;
}

double kernel_traffic_s(const Device *device, const TrafficWork *w, const TrafficFit *fit)
{
    if (kernel_on_processor(device)) return kernel_memory_s(device, w->bytes);
    if (fit == NULL) fit = kernel_traffic_fit(device, w->kernel);
    double near = fit->near * fmin(near_bytes(device) / fmax(w->bytes, 1), 1);
    double memory_s = w->bytes * (1 - near) / (fmax(device->hbm_bytes_per_s, 1) * fit->part);
    return fit->start_us * 1e-6 + w->rows * fit->row_us * 1e-6 / fmax(device->sms, 1) + memory_s;
}
