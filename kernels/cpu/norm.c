/* RMSNorm and LayerNorm over the last dimension (D, or E of each head), and their gradients, which
 * use saved statistics. Let xh be the normalised input and g = dy * weight:
 *   rmsnorm    dx = r (g - xh mean(g xh))            dweight = sum dy xh
 *   layernorm  dx = r (g - mean(g) - xh mean(g xh))  dweight = sum dy xh, dbias = sum dy */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/norm.c"
#include "kernels/cpu/real.h"

BOTH(rmsnorm)
BOTH(rmsnorm_grad)
BOTH(rmsnorm_heads)
BOTH(rmsnorm_heads_grad)
BOTH(layernorm)
BOTH(layernorm_grad)

#else

/* x [n,D], weight [D] -> y [n,D], r [n] = 1 / sqrt(mean x^2 + eps) */
static void F(rms_rows)(const KernelArgs *a, int64_t n, int64_t D)
{
    const REAL *x = a->ptr[0], *weight = a->ptr[1];
    REAL *y = a->ptr[2], *r = a->ptr[3];
    for (int64_t i = 0; i < n; i++, x += D, y += D) {
        r[i] = (REAL)1 / sqrt(F(dot)(x, x, D) / (REAL)D + (REAL)a->attrs.eps);
        for (int64_t d = 0; d < D; d++) y[d] = x[d] * r[i] * weight[d];
    }
}

/* dy [n,D], x [n,D], weight [D], r [n] -> dx [n,D], dweight [D] */
static void F(rms_rows_grad)(const KernelArgs *a, int64_t n, int64_t D)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *weight = a->ptr[2], *saved = a->ptr[3];
    REAL *restrict dx = F(summed)(a, 0, n * D), *restrict dweight = F(summed)(a, 1, D);
    for (int64_t i = 0; i < n; i++, dy += D, x += D, dx += D) {
        REAL r = saved[i], lane[LANES] = {0};
        int64_t d = 0;
        for (; d + LANES <= D; d += LANES)
            for (int j = 0; j < LANES; j++) lane[j] += dy[d + j] * weight[d + j] * x[d + j];
        for (int j = 0; d < D; d++, j++) lane[j] += dy[d] * weight[d] * x[d];
        REAL mean = F(fold)(lane) * r / (REAL)D; /* mean of g xh */
        for (d = 0; d < D; d++) {
            REAL xh = x[d] * r;
            dx[d] += r * (dy[d] * weight[d] - xh * mean);
            dweight[d] += dy[d] * xh;
        }
    }
}

/* x [b,s,D] */
static void F(rmsnorm)(const KernelArgs *a)
{
    F(rms_rows)(a, a->size['b'] * a->size['s'], a->size['D']);
}

static void F(rmsnorm_grad)(const KernelArgs *a)
{
    F(rms_rows_grad)(a, a->size['b'] * a->size['s'], a->size['D']);
}

/* x [b,s,...,E]: each head is a row */
static void F(rmsnorm_heads)(const KernelArgs *a)
{
    F(rms_rows)(a, a->size['b'] * a->size['s'] * a->rows, a->size['E']);
}

static void F(rmsnorm_heads_grad)(const KernelArgs *a)
{
    F(rms_rows_grad)(a, a->size['b'] * a->size['s'] * a->rows, a->size['E']);
}

/* x [b,s,D], weight [D], bias [D] -> y [b,s,D], mean [b,s], r [b,s] = 1 / sqrt(variance + eps) */
static void F(layernorm)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *weight = a->ptr[1], *bias = a->ptr[2];
    REAL *y = a->ptr[3], *mean = a->ptr[4], *r = a->ptr[5];
    int64_t n = a->size['b'] * a->size['s'], D = a->size['D'];
    for (int64_t i = 0; i < n; i++, x += D, y += D) {
        mean[i] = F(sum)(x, D) / (REAL)D;
        for (int64_t d = 0; d < D; d++) y[d] = x[d] - mean[i];
        r[i] = (REAL)1 / sqrt(F(dot)(y, y, D) / (REAL)D + (REAL)a->attrs.eps);
        for (int64_t d = 0; d < D; d++) y[d] = y[d] * r[i] * weight[d] + bias[d];
    }
}

/* dy [b,s,D], x [b,s,D], weight [D], mean [b,s], r [b,s] -> dx [b,s,D], dweight [D], dbias [D] */
static void F(layernorm_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *weight = a->ptr[2];
    const REAL *saved_mean = a->ptr[3], *saved_r = a->ptr[4];
    int64_t n = a->size['b'] * a->size['s'], D = a->size['D'];
    REAL *restrict dx = F(summed)(a, 0, n * D), *restrict dweight = F(summed)(a, 1, D);
    REAL *restrict dbias = F(summed)(a, 2, D);
    for (int64_t i = 0; i < n; i++, dy += D, x += D, dx += D) {
        REAL mean = saved_mean[i], r = saved_r[i], lane_g[LANES] = {0}, lane_gx[LANES] = {0};
        int64_t d = 0;
        for (; d + LANES <= D; d += LANES)
            for (int j = 0; j < LANES; j++) {
                REAL g = dy[d + j] * weight[d + j];
                lane_g[j] += g;
                lane_gx[j] += g * (x[d + j] - mean);
            }
        for (int j = 0; d < D; d++, j++) {
            REAL g = dy[d] * weight[d];
            lane_g[j] += g;
            lane_gx[j] += g * (x[d] - mean);
        }
        REAL mean_g = F(fold)(lane_g) / (REAL)D, mean_gx = F(fold)(lane_gx) * r / (REAL)D;
        for (d = 0; d < D; d++)
            dx[d] += r * (dy[d] * weight[d] - mean_g - (x[d] - mean) * r * mean_gx);
        for (d = 0; d < D; d++) dweight[d] += dy[d] * ((x[d] - mean) * r);
        for (d = 0; d < D; d++) dbias[d] += dy[d];
    }
}

#endif
