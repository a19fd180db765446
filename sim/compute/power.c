/* Computes clocks under a power limit. A device draws
 *
 *     still + W * x * f^3
 *
 * at a clock of f times the clock of its peak. `still` is the power that idle cores and memory draw
 * at any clock. The rest is switching power, C V^2 f, and the voltage V rises with f. The kernel's
 * cores take x times the power that they take in large products. x is `light` without products, 1
 * at the rate of large products, and linear between. The device lowers f until the sum is within
 * its limit P, so
 *
 *     f = cbrt((P - still) / (W * x)), at most 1.
 *
 * Large products run at f = sustained, so another kernel runs at f = sustained / cbrt(x). W is not
 * needed. scripts/tandem/gpus.lua computes `sustained` for other limits from the same formula.
 * Every kernel is assumed to run long enough to have a clock of its own. */
#include <math.h>

#include "sim/compute/kernels.h"

Device kernel_sustained(const Device *device)
{
    Device lasting = *device;
    for (int t = 0; t < DT_COUNT; t++)
        if (device->sustained > 0 && t != DT_f32) lasting.peak_flops[t] *= device->sustained;
    return lasting;
}

double kernel_lasting_s(const Device *lasting, DType dtype, double flops, double s)
{
    const double held = lasting->sustained, light = lasting->light_power;
    if (held <= 0 || light <= 0 || s <= 0 || dtype == DT_f32) return s;
    if (kernel_on_processor(lasting)) return s;
    const double rate = fmin(1, flops / s / kernel_gemm_most(lasting, dtype, NULL));
    const double clock = fmin(1, held / cbrt(light + (1 - light) * rate));
    return s * held / clock;
}

double cost_lasting_product_s(const Device *lasting, const GemmWork *w, const GemmFit *fit)
{
    const double whole = cost_product_s(lasting, w, fit), floor = lasting->kernel_floor_s,
                 plain = kernel_product_s(lasting, w, fit);
    if (whole > floor + plain)
        return whole; /* the product is limited by memory, so its clock does
                         not matter */
    return floor + kernel_lasting_s(lasting, w->dtype, 2 * w->batch * w->m * w->n * w->k, plain);
}

double cost_lasting_gemm_s(const Device *lasting, DType dtype, double m, double n, double k,
                           const GemmFit *timed)
{
    if (timed != NULL) return cost_gemm_s(lasting, dtype, 1, m, n, k, timed);
    const GemmWork work = kernel_product(dtype, 1, m, n, k);
    return cost_lasting_product_s(lasting, &work, NULL);
}

double kernel_lasting_attention_s(const Device *lasting, const AttentionWork *w)
{
    const double s = kernel_attention_s(lasting, w, NULL);
    if (w->kernel == ATTENTION_tandem) return s; /* these constants were measured in long runs */
    return kernel_lasting_s(lasting, w->dtype, kernel_attention_flops(w), s);
}
