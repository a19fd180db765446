/* Computes one output element of an element-wise op from its inputs. Kernels of a single op and
 * kernels of chains both use these functions. They compute in fp32, in the order of operations that
 * the CPU's definition has. */
#ifndef TANDEM_KERNELS_CUDA_POINTWISE_CUH
#define TANDEM_KERNELS_CUDA_POINTWISE_CUH

#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/number.cuh"

/* The fully element-wise ops of the table of ops. Each is a kernel of its own and can be a step of
 * a chain. The expression computes element k of the result from the inputs x0 and x1. */
#define POINT_OPS(X)                                                                               \
    X(pass, x0[k])                                                                                 \
    X(add, x0[k] + x1[k])                                                                          \
    X(mul, x0[k] * x1[k])                                                                          \
    X(scale, scale *x0[k])                                                                         \
    X(silu, x0[k] * device_sigmoid(x0[k]))                                                         \
    X(silu_grad, x0[k] * point_slope(x1[k], device_sigmoid(x1[k])))                                \
    X(sigmoid, point_sigmoid(x0[k]))                                                               \
    X(sigmoid_grad, x0[k] * x1[k] * (1.0f - x1[k]))                                                \
    X(relu, x0[k] > 0 ? x0[k] : 0)                                                                 \
    X(relu_grad, x1[k] > 0 ? x0[k] : 0)                                                            \
    X(relu2, x0[k] > 0 ? x0[k] * x0[k] : 0)                                                        \
    X(relu2_grad, x1[k] > 0 ? 2.0f * x1[k] * x0[k] : 0)                                            \
    X(soft_cap, scale *tanhf(x0[k] / scale))                                                       \
    X(soft_cap_grad, x0[k] * (1.0f - x1[k] / scale * (x1[k] / scale)))                             \
    X(clamp_gate, point_gate(x0[k], scale) * (point_clamped(x1[k], scale) + 1.0f))                 \
    X(clamp_gate_grad,                                                                             \
      x0[k] * point_gate_slope(x1[k], scale) * (point_clamped(x2[k], scale) + 1.0f))               \
    X(clamp_up_grad, x2[k] > scale || x2[k] < -scale ? 0 : x0[k] * point_gate(x1[k], scale))       \
    X(gelu, 0.5f * x0[k] * (1.0f + point_gelu_tanh(x0[k])))                                        \
    X(gelu_grad, x0[k] * point_gelu_slope(x1[k]))

typedef enum Point {
#define X(name, expression) POINT_##name,
    POINT_OPS(X)
#undef X
    /* steps from which other ops are made */
    POINT_fill, /* the result is `scale` everywhere */
    POINT_subtract,
    POINT_divide,
    POINT_quantise /* inputs: x, and its factor; `scale` is the largest number of the format */
} Point;

DEVICE float point_sigmoid(float x)
{
    return device_divide(1.0f, 1.0f + device_exp(-x));
}

/* Returns the slope of silu at x, where its sigmoid is s. */
DEVICE float point_slope(float x, float s)
{
    return s * (1.0f + x * (1.0f - s));
}

DEVICE float point_silu_slope(float x)
{
    return point_slope(x, point_sigmoid(x));
}

DEVICE float point_clamped(float x, float limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

DEVICE float point_gate(float x, float limit)
{
    float g = x > limit ? limit : x;
    return g * point_sigmoid(1.702f * g);
}

DEVICE float point_gate_slope(float x, float limit)
{
    float s = point_sigmoid(1.702f * x);
    return x > limit ? 0 : s * (1.0f + 1.702f * x * (1.0f - s));
}

#define GELU_K 0.79788456080286535588f /* sqrt(2 / pi) */
#define GELU_C 0.044715f

DEVICE float point_gelu_tanh(float x)
{
    return 1.0f - device_divide(2.0f, 1.0f + device_exp(2.0f * GELU_K * (x + GELU_C * x * x * x)));
}

DEVICE float point_gelu_slope(float x)
{
    float t = point_gelu_tanh(x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_K * (1.0f + 3.0f * GELU_C * x * x);
}

/* Returns the factor that scales a tensor with largest magnitude `amax` to the largest number of
 * the format. A tensor of zeros counts as one with a tiny amax. NaN stays NaN. */
DEVICE float point_quantise_factor(float amax, float largest)
{
    return largest / (amax < 1e-12f ? 1e-12f : amax);
}

/* Returns x * factor. Rounding can carry this product past the largest number of the format; the
 * result is then that number. */
DEVICE float point_quantise(float x, float factor, float largest)
{
    float y = x * factor;
    return y > largest ? largest : y < -largest ? -largest : y;
}

#define POINT_EACH(expression)                                                                     \
    UNROLL for (int k = 0; k < EIGHT; k++) y[k] = (expression);                                    \
    break

/* Computes eight elements of the op's result y from eight elements of each input x0, x1, x2. An op
 * reads only the inputs that it has. */
DEVICE void point_apply(int op, float scale, const float x0[EIGHT], const float x1[EIGHT],
                        const float x2[EIGHT], float y[EIGHT])
{
    switch ((Point)op) {
#define X(name, expression)                                                                        \
    case POINT_##name: POINT_EACH(expression);
        POINT_OPS(X)
#undef X
    case POINT_fill: POINT_EACH(scale);
    case POINT_subtract: POINT_EACH(x0[k] - x1[k]);
    case POINT_divide: POINT_EACH(x0[k] / x1[k]);
    case POINT_quantise: POINT_EACH(point_quantise(x0[k], x1[k], scale));
    }
}
#undef POINT_EACH

#endif
