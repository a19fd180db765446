/* The update of the parameters at the end of a step: norm of the gradients, clipping coefficient,
 * AdamW and SGD. The elements are those of a flat unit or of a whole tensor. Scalars are fp64. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/update.c"
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/draw.h"

/* Rounds p [n] stochastically to numbers that bf16 can represent, so that a later conversion to
 * bf16 changes nothing. The first element has index a->start['x'] in its unit. */
static void round_by_draw(const KernelArgs *a, float *p, int64_t n)
{
    uint64_t stream = draw_stream(DRAW_ROUNDING, a->control->step, 0, a->attrs.site);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &p[i], sizeof bits);
        bits = draw_round_bf16_bits(
            bits, draw_word(a->control->seed, stream, (uint64_t)(a->start['x'] + i)));
        memcpy(&p[i], &bits, sizeof bits);
    }
}

#include "kernels/cpu/real.h"

BOTH(sumsq)
BOTH(adamw)
BOTH(sgd)
BOTH(sign_step)

/* loss, count [] f64 of a step -> loss, factor [] f64: divides sums by the number of counted
 * tokens. If no token was counted, loss and factor are 0 instead of 0 / 0. */
void cpu_step_mean(const KernelArgs *a)
{
    const double *loss = a->ptr[0], *count = a->ptr[1];
    double *mean = a->ptr[2], *factor = a->ptr[3];
    *factor = *count > 0 ? a->attrs.scale / *count : 0;
    *mean = *loss * *factor;
}

/* table [N] f64 of sums of squares, factor [] f64 -> out [2] f64 = {norm, coefficient}, where norm
 * = factor sqrt(sum of the table) and coefficient = factor min(1, clip / (norm + 1e-6)). If the
 * norm is NaN, the coefficient is NaN, too, and the run reports it. */
void cpu_clip_coef(const KernelArgs *a)
{
    const double *table = a->ptr[0], *factor = a->ptr[1];
    double *out = a->ptr[2], total = 0;
    for (int64_t i = 0; i < a->elements[0]; i++) total += table[i];
    double norm = *factor * sqrt(total), coefficient = a->attrs.clip / (norm + 1e-6);
    out[0] = norm;
    out[1] = *factor * (a->attrs.clip == 0 || coefficient > 1 ? 1 : coefficient);
}

#else

/* x [x] -> sum [1] f64, which is set or added to. Only elements whose global index lies in
 * [attrs.lo, attrs.hi) contribute. */
static void F(sumsq)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    double *sum = a->ptr[1], lane[LANES] = {0}, total = 0;
    int64_t from = a->attrs.lo - a->start['x'], to = a->attrs.hi - a->start['x'];
    if (from < 0) from = 0;
    if (to > a->size['x']) to = a->size['x'];
    int64_t i = from;
    for (; i + LANES <= to; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < to; i++, j++) lane[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < LANES; j++) total += lane[j];
    *sum = cpu_accumulates(a, 0) ? *sum + total : total;
}

/* param, m, v, grad [x], {norm, coefficient} f64 -> param, m, v [x], in the memory of the inputs.
 * p -= lr (wd p + mhat / (sqrt(vhat) + eps)) with mhat = m / (1 - beta1^t), vhat = v / (1 -
 * beta2^t), and t the number of the step from 1 (Loshchilov and Hutter, Decoupled Weight Decay
 * Regularization, algorithm 2). With attrs.stochastic, p is rounded stochastically to bf16
 * (kernels/draw.h). An update smaller than half a unit in the last place then still has an effect
 * on average. */
static void F(adamw)(const KernelArgs *a)
{
    const REAL *p = a->ptr[0], *m = a->ptr[1], *v = a->ptr[2], *grad = a->ptr[3];
    const double *clip = a->ptr[4];
    REAL *new_p = a->ptr[5], *new_m = a->ptr[6], *new_v = a->ptr[7];
    double lr = a->control->lr, t = (double)a->control->step + 1;
    double correction1 = 1 - pow(a->attrs.beta1, t), correction2 = 1 - pow(a->attrs.beta2, t);
    REAL b1 = (REAL)a->attrs.beta1, b2 = (REAL)a->attrs.beta2, eps = (REAL)a->attrs.eps;
    REAL c1 = (REAL)(1 - a->attrs.beta1), c2 = (REAL)(1 - a->attrs.beta2), by = (REAL)clip[1];
    REAL rate = (REAL)(lr / correction1), root = (REAL)(1 / sqrt(correction2));
    REAL keep = (REAL)(1 - lr * a->attrs.weight_decay);
    int64_t n = a->size['x'];
    SAME_OR_APART
    for (int64_t i = 0; i < n; i++) {
        REAL g = grad[i] * by, mi = b1 * m[i] + c1 * g, vi = b2 * v[i] + c2 * g * g;
        new_m[i] = mi;
        new_v[i] = vi;
        new_p[i] = keep * p[i] - rate * mi / (sqrt(vi) * root + eps);
    }
    if (!a->attrs.stochastic) return;
    assert(sizeof(REAL) == sizeof(float)); /* the parameters are bf16 numbers, widened to fp32 */
    round_by_draw(a, a->ptr[5], n);
}

/* param, count [x] -> param [x] */
static void F(sign_step)(const KernelArgs *a)
{
    const REAL *p = a->ptr[0], *count = a->ptr[1], by = (REAL)a->attrs.scale;
    const REAL mean = (REAL)a->attrs.mean;
    REAL *new_p = a->ptr[2];
    for (int64_t i = 0; i < a->size['x']; i++)
        new_p[i] = p[i] + by * (REAL)((count[i] < mean) - (count[i] > mean));
}

/* param, grad [x], {norm, coefficient} f64 -> param [x]: p -= lr (coefficient g + wd p) */
static void F(sgd)(const KernelArgs *a)
{
    const REAL *p = a->ptr[0], *grad = a->ptr[1];
    const double *clip = a->ptr[2];
    REAL *new_p = a->ptr[3], by = (REAL)(a->control->lr * clip[1]);
    REAL keep = (REAL)(1 - a->control->lr * a->attrs.weight_decay);
    int64_t n = a->size['x'];
    SAME_OR_APART
    for (int64_t i = 0; i < n; i++) new_p[i] = keep * p[i] - by * grad[i];
}

#endif
