/* The parts of a state-space layer besides the scan (see ops.def): step sizes, convolutions over
 * the last tokens, and a norm after a gate. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/state_layer.c"
#include "kernels/cpu/real.h"

BOTH(step_size)
BOTH(step_size_grad)
BOTH(conv_heads)
BOTH(conv_heads_grad)
BOTH(conv_groups)
BOTH(conv_groups_grad)
BOTH(gated_norm)
BOTH(gated_norm_grad)

#else

static inline REAL F(sigma)(REAL x)
{
    return (REAL)1 / ((REAL)1 + exp(-x));
}

/* x [b,s,...], bias [...] -> y [b,s,...] = softplus(x + bias) */
static void F(step_size)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *bias = a->ptr[1];
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < a->elements[2]; i++) {
        const REAL z = x[i] + bias[i % a->elements[1]];
        y[i] = z > 0 ? z + log1p(exp(-z)) : log1p(exp(z)); /* neither form overflows */
    }
}

/* dy, x [b,s,...], bias [...] -> dx, dbias */
static void F(step_size_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *bias = a->ptr[2];
    const int64_t n = a->elements[2];
    REAL *dx = F(summed)(a, 0, a->elements[0]), *dbias = F(summed)(a, 1, n);
    for (int64_t i = 0; i < a->elements[0]; i++) {
        const REAL d = dy[i] * F(sigma)(x[i] + bias[i % n]);
        dx[i] += d;
        dbias[i % n] += d;
    }
}

/* Returns the convolution of one feature at token t, before the activation function. x points to
 * the first token of this feature; neighbouring tokens are `row` elements apart. */
static REAL F(convolved)(const REAL *x, const REAL *w, REAL bias, int64_t t, int64_t K, int64_t row)
{
    REAL u = bias;
    for (int64_t j = 0; j < K; j++)
        if (t - K + 1 + j >= 0) u += w[j] * x[(t - K + 1 + j) * row];
    return u;
}

/* x [b,S,f], w [f,K], bias [f] -> y [b,S,f] */
static void F(conv_forward)(const KernelArgs *a)
{
    const int64_t S = a->size['S'], K = a->size['K'], f = a->elements[2];
    const REAL *x = a->ptr[0], *w = a->ptr[1], *bias = a->ptr[2];
    REAL *y = a->ptr[3];
    for (int64_t b = 0; b < a->size['b']; b++, x += S * f, y += S * f)
        for (int64_t i = 0; i < S * f; i++) {
            const REAL u = F(convolved)(x + i % f, w + i % f * K, bias[i % f], i / f, K, f);
            y[i] = u * F(sigma)(u);
        }
}

/* dy, x [b,S,f], w [f,K], bias [f] -> dx, dw, dbias */
static void F(conv_backward)(const KernelArgs *a)
{
    const int64_t S = a->size['S'], K = a->size['K'], f = a->elements[3], n = S * f;
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *w = a->ptr[2], *bias = a->ptr[3];
    REAL *dx = F(summed)(a, 0, a->elements[1]), *dw = F(summed)(a, 1, f * K);
    REAL *dbias = F(summed)(a, 2, f);
    for (int64_t b = 0; b < a->size['b']; b++, dy += n, x += n, dx += n)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = i % f, t = i / f;
            const REAL u = F(convolved)(x + at, w + at * K, bias[at], t, K, f), s = F(sigma)(u);
            const REAL du = dy[i] * s * ((REAL)1 + u * ((REAL)1 - s));
            dbias[at] += du;
            for (int64_t j = 0; j < K; j++) {
                const int64_t from = t - K + 1 + j;
                if (from < 0) continue;
                dw[at * K + j] += du * x[from * f + at];
                dx[from * f + at] += du * w[at * K + j];
            }
        }
}

static void F(conv_heads)(const KernelArgs *a)
{
    F(conv_forward)(a);
}

static void F(conv_groups)(const KernelArgs *a)
{
    F(conv_forward)(a);
}

static void F(conv_heads_grad)(const KernelArgs *a)
{
    F(conv_backward)(a);
}

static void F(conv_groups_grad)(const KernelArgs *a)
{
    F(conv_backward)(a);
}

/* y, z [b,s,g,R,E], weight [g,R,E] -> out, r [b,s,g] = 1 / sqrt(mean u^2 + eps), u = y silu(z) */
static void F(gated_norm)(const KernelArgs *a)
{
    const int64_t G = a->size['g'], D = a->size['R'] * a->size['E'];
    const REAL *y = a->ptr[0], *z = a->ptr[1], *weight = a->ptr[2];
    REAL *out = a->ptr[3], *r = a->ptr[4];
    for (int64_t i = 0; i < a->elements[4]; i++, y += D, z += D, out += D) {
        const REAL *w = weight + i % G * D;
        for (int64_t d = 0; d < D; d++) out[d] = y[d] * (z[d] * F(sigma)(z[d]));
        r[i] = (REAL)1 / sqrt(F(dot)(out, out, D) / (REAL)D + (REAL)a->attrs.eps);
        for (int64_t d = 0; d < D; d++) out[d] *= r[i] * w[d];
    }
}

/* dout, y, z [b,s,g,R,E], weight [g,R,E], r [b,s,g] -> dy, dz, dweight */
static void F(gated_norm_grad)(const KernelArgs *a)
{
    const int64_t G = a->size['g'], D = a->size['R'] * a->size['E'];
    const REAL *dout = a->ptr[0], *y = a->ptr[1], *z = a->ptr[2], *weight = a->ptr[3];
    const REAL *saved = a->ptr[4];
    REAL *dy = F(summed)(a, 0, a->elements[1]), *dz = F(summed)(a, 1, a->elements[2]);
    REAL *dweight = F(summed)(a, 2, G * D);
    for (int64_t i = 0; i < a->elements[4]; i++) {
        const REAL *w = weight + i % G * D, r = saved[i];
        REAL mean = 0; /* mean of g xh, where xh is the normalised u, and g is the gradient of xh */
        for (int64_t d = 0; d < D; d++)
            mean += dout[d] * w[d] * y[d] * (z[d] * F(sigma)(z[d])) * r / (REAL)D;
        for (int64_t d = 0; d < D; d++) {
            const REAL s = F(sigma)(z[d]), gate = z[d] * s, xh = y[d] * gate * r;
            const REAL du = r * (dout[d] * w[d] - xh * mean);
            dweight[i % G * D + d] += dout[d] * xh;
            dy[d] += du * gate;
            dz[d] += du * y[d] * s * ((REAL)1 + z[d] * ((REAL)1 - s));
        }
        dout += D, y += D, z += D, dy += D, dz += D;
    }
}

#endif
