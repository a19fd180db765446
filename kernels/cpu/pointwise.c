/* Element-wise ops: sums, products, multiples, SiLU, GELU (tanh form), sigmoid, ReLU, squared ReLU,
 * soft cap, the gate of gpt-oss, and their gradients. The output may lie in the memory of the first
 * input. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/pointwise.c"
#include "kernels/cpu/real.h"

BOTH(add)
BOTH(mul)
BOTH(scale)
BOTH(silu)
BOTH(silu_grad)
BOTH(gelu)
BOTH(gelu_grad)
BOTH(sigmoid)
BOTH(sigmoid_grad)
BOTH(relu)
BOTH(relu_grad)
BOTH(relu2)
BOTH(relu2_grad)
BOTH(soft_cap)
BOTH(soft_cap_grad)
BOTH(clamp_gate)
BOTH(clamp_gate_grad)
BOTH(clamp_up_grad)
BOTH(pass)

#else

/* Evaluates `expression` for each element i, and writes it to the output or adds it there. */
#define EACH(expression)                                                                           \
    do {                                                                                           \
        REAL *y = a->ptr[a->n_in];                                                                 \
        int64_t n = a->rows;                                                                       \
        if (cpu_accumulates(a, 0)) {                                                               \
            SAME_OR_APART                                                                          \
            for (int64_t i = 0; i < n; i++) y[i] += (expression);                                  \
        } else {                                                                                   \
            SAME_OR_APART                                                                          \
            for (int64_t i = 0; i < n; i++) y[i] = (expression);                                   \
        }                                                                                          \
    } while (0)

static void F(add)(const KernelArgs *a)
{
    const REAL *x0 = a->ptr[0], *x1 = a->ptr[1];
    EACH(x0[i] + x1[i]);
}

static void F(mul)(const KernelArgs *a)
{
    const REAL *x0 = a->ptr[0], *x1 = a->ptr[1];
    EACH(x0[i] * x1[i]);
}

static void F(scale)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], factor = (REAL)a->attrs.scale;
    EACH(factor * x[i]);
}

static void F(pass)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    EACH(x[i]);
}

static inline REAL F(logistic)(REAL x)
{
    return (REAL)1 / ((REAL)1 + F(exponential)(-x));
}

static void F(sigmoid)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    EACH(F(logistic)(x[i]));
}

static void F(sigmoid_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *y1 = a->ptr[1];
    EACH(dy[i] * y1[i] * ((REAL)1 - y1[i]));
}

static void F(relu)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    EACH(x[i] > 0 ? x[i] : 0);
}

static void F(relu_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *y1 = a->ptr[1];
    EACH(y1[i] > 0 ? dy[i] : 0);
}

static void F(relu2)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    EACH(x[i] > 0 ? x[i] * x[i] : 0);
}

static void F(relu2_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1];
    EACH(x[i] > 0 ? 2 * x[i] * dy[i] : 0);
}

static void F(soft_cap)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], cap = (REAL)a->attrs.scale;
    EACH(cap * tanh(x[i] / cap));
}

static void F(soft_cap_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *y1 = a->ptr[1], cap = (REAL)a->attrs.scale;
    EACH(dy[i] * ((REAL)1 - y1[i] / cap * (y1[i] / cap)));
}

static inline REAL F(clamped)(REAL x, REAL limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* Returns g sigmoid(1.702 g), where g is the smaller of x and the limit. */
static inline REAL F(gate)(REAL x, REAL limit)
{
    const REAL g = x > limit ? limit : x;
    return g * F(logistic)((REAL)1.702 * g);
}

static inline REAL F(gate_slope)(REAL x, REAL limit)
{
    const REAL s = F(logistic)((REAL)1.702 * x);
    return x > limit ? 0 : s * ((REAL)1 + (REAL)1.702 * x * ((REAL)1 - s));
}

static void F(clamp_gate)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *up = a->ptr[1], limit = (REAL)a->attrs.scale;
    EACH(F(gate)(x[i], limit) * (F(clamped)(up[i], limit) + (REAL)1));
}

static void F(clamp_gate_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *up = a->ptr[2], limit = (REAL)a->attrs.scale;
    EACH(dy[i] * F(gate_slope)(x[i], limit) * (F(clamped)(up[i], limit) + (REAL)1));
}

static void F(clamp_up_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *up = a->ptr[2], limit = (REAL)a->attrs.scale;
    EACH(up[i] > limit || up[i] < -limit ? 0 : dy[i] * F(gate)(x[i], limit));
}

static void F(silu)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    EACH(x[i] * F(logistic)(x[i]));
}

static inline REAL F(silu_slope)(REAL x)
{
    REAL s = F(logistic)(x);
    return s * ((REAL)1 + x * ((REAL)1 - s));
}

static void F(silu_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1];
    EACH(dy[i] * F(silu_slope)(x[i]));
}

/* Returns tanh(k (x + c x^3)) with k = sqrt(2 / pi). Callers only add the result to 1 or subtract
 * it from 1, so a rounding error near 0 does not matter. */
static inline REAL F(gelu_tanh)(REAL x)
{
    const REAL k = (REAL)0.79788456080286535588, c = (REAL)0.044715;
    return (REAL)1 - (REAL)2 / ((REAL)1 + F(exponential)((REAL)2 * k * (x + c * x * x * x)));
}

static void F(gelu)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    EACH((REAL)0.5 * x[i] * ((REAL)1 + F(gelu_tanh)(x[i])));
}

static inline REAL F(gelu_slope)(REAL x)
{
    const REAL k = (REAL)0.79788456080286535588, c = (REAL)0.044715, half = (REAL)0.5;
    REAL t = F(gelu_tanh)(x);
    return half * (1 + t) + half * x * (1 - t * t) * k * (1 + 3 * c * x * x);
}

static void F(gelu_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *x = a->ptr[1];
    EACH(dy[i] * F(gelu_slope)(x[i]));
}

#undef EACH

#endif
