/* Parts of a state-space layer: step sizes, convolutions over the last tokens, and a norm after a
 * gate. kernels/cpu/state_layer.c defines these ops. A thread computes one element; a warp computes
 * one row of the norm, or one sum over tokens. Sums are in fp32 and have a fixed order. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise/pointwise.cuh"
#include "kernels/cuda/reduce.cuh"

enum { LAYER_THREADS = 256, LAYER_WARPS = LAYER_THREADS / WARP };

static int64_t layer_blocks(int64_t n, int64_t each)
{
    return ceil_div(n, each);
}

DEVICE void layer_write(Array to, int64_t at, float x, uint32_t accumulates)
{
    write_one(to, at, accumulates ? read_one(to, at) + x : x);
}

/* ---- step sizes of n tokens and m heads */

typedef struct StepArgs {
    Array dy, x, bias, y, dbias;
    int64_t n, m;
    uint32_t accumulate;
} StepArgs;

KERNEL(step_forward, StepArgs, LAYER_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * LAYER_THREADS + threadIdx.x;
    if (i >= a.n * a.m) return;
    const float z = read_one(a.x, i) + read_one(a.bias, i % a.m);
    write_one(a.y, i, z > 0 ? z + log1pf(device_exp(-z)) : log1pf(device_exp(z)));
}

DEVICE float step_slope(const StepArgs *a, int64_t i)
{
    return read_one(a->dy, i) * point_sigmoid(read_one(a->x, i) + read_one(a->bias, i % a->m));
}

KERNEL(step_backward, StepArgs, LAYER_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * LAYER_THREADS + threadIdx.x;
    if (i < a.n * a.m) layer_write(a.y, i, step_slope(&a, i), a.accumulate & 1);
}

KERNEL(step_bias, StepArgs, LAYER_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * LAYER_WARPS + threadIdx.x / WARP;
    if (i >= a.m) return;
    float sum = 0;
    for (int64_t t = threadIdx.x % WARP; t < a.n; t += WARP) sum += step_slope(&a, t * a.m + i);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) layer_write(a.dbias, i, sum, a.accumulate & 2);
}

bool cuda_step_size(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    StepArgs a;
    memset(&a, 0, sizeof a);
    a.x = array_of(args, 0, 1), a.bias = array_of(args, 1, 1), a.y = array_of(args, 2, 1);
    a.m = args->elements[1], a.n = args->elements[0] / a.m;
    return LAUNCH(step_forward, layer_blocks(a.n * a.m, LAYER_THREADS), LAYER_THREADS, 0, a, cuda,
                  error);
}

bool cuda_step_size_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    StepArgs a;
    memset(&a, 0, sizeof a);
    a.dy = array_of(args, 0, 1), a.x = array_of(args, 1, 1), a.bias = array_of(args, 2, 1);
    a.y = array_of(args, 3, 1), a.dbias = array_of(args, 4, 1);
    a.m = args->elements[2], a.n = args->elements[0] / a.m;
    a.accumulate = (uint32_t)args->attrs.accumulate;
    return LAUNCH(step_backward, layer_blocks(a.n * a.m, LAYER_THREADS), LAYER_THREADS, 0, a, cuda,
                  error) &&
           LAUNCH(step_bias, layer_blocks(a.m, LAYER_WARPS), LAYER_THREADS, 0, a, cuda, error);
}

/* ---- convolutions of f features over S tokens of b samples, with windows of K tokens */

typedef struct ConvArgs {
    Array dy, x, w, bias, y, dx, dw, dbias;
    int64_t b, S, f, K;
    uint32_t accumulate;
} ConvArgs;

/* Returns the convolution at element i, before the activation function. */
DEVICE float conv_at(const ConvArgs *a, int64_t i)
{
    const int64_t at = i % a->f, t = i / a->f % a->S;
    float u = read_one(a->bias, at);
    for (int64_t j = 0; j < a->K; j++) {
        const int64_t back = a->K - 1 - j;
        if (t >= back) u = fmaf(read_one(a->w, at * a->K + j), read_one(a->x, i - back * a->f), u);
    }
    return u;
}

DEVICE float conv_slope(const ConvArgs *a, int64_t i)
{
    return read_one(a->dy, i) * point_silu_slope(conv_at(a, i));
}

KERNEL(conv_tokens, ConvArgs, LAYER_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * LAYER_THREADS + threadIdx.x;
    if (i >= a.b * a.S * a.f) return;
    const float u = conv_at(&a, i);
    write_one(a.y, i, u * point_sigmoid(u));
}

KERNEL(conv_tokens_dx, ConvArgs, LAYER_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * LAYER_THREADS + threadIdx.x;
    if (i >= a.b * a.S * a.f) return;
    const int64_t at = i % a.f, t = i / a.f % a.S;
    float dx = 0;
    for (int64_t j = 0; j < a.K; j++) {
        const int64_t ahead = a.K - 1 - j;
        if (t + ahead < a.S)
            dx = fmaf(conv_slope(&a, i + ahead * a.f), read_one(a.w, at * a.K + j), dx);
    }
    layer_write(a.dx, i, dx, a.accumulate & 1);
}

/* One warp for each of the K numbers of a feature's window, and one for its bias. */
KERNEL(conv_tokens_dw, ConvArgs, LAYER_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * LAYER_WARPS + threadIdx.x / WARP;
    if (i >= a.f * (a.K + 1)) return;
    const int64_t at = i / (a.K + 1), j = i % (a.K + 1), back = j < a.K ? a.K - 1 - j : 0;
    float sum = 0;
    for (int64_t row = threadIdx.x % WARP; row < a.b * a.S; row += WARP) {
        if (row % a.S < back) continue;
        const float du = conv_slope(&a, row * a.f + at);
        sum = j < a.K ? fmaf(du, read_one(a.x, (row - back) * a.f + at), sum) : sum + du;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP != 0) return;
    if (j < a.K)
        layer_write(a.dw, at * a.K + j, sum, a.accumulate & 2);
    else
        layer_write(a.dbias, at, sum, a.accumulate & 4);
}

static ConvArgs conv_args(const KernelArgs *args, uint32_t first)
{
    ConvArgs a;
    memset(&a, 0, sizeof a);
    a.x = array_of(args, first, 1), a.w = array_of(args, first + 1, 1);
    a.bias = array_of(args, first + 2, 1);
    a.b = args->size['b'], a.S = args->size['S'], a.K = args->size['K'];
    a.f = args->elements[first + 2];
    a.accumulate = (uint32_t)args->attrs.accumulate;
    return a;
}

bool cuda_conv_heads(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ConvArgs a = conv_args(args, 0);
    a.y = array_of(args, 3, 1);
    return LAUNCH(conv_tokens, layer_blocks(a.b * a.S * a.f, LAYER_THREADS), LAYER_THREADS, 0, a,
                  cuda, error);
}

bool cuda_conv_groups(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return cuda_conv_heads(args, cuda, error);
}

bool cuda_conv_heads_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ConvArgs a = conv_args(args, 1);
    a.dy = array_of(args, 0, 1), a.dx = array_of(args, 4, 1);
    a.dw = array_of(args, 5, 1), a.dbias = array_of(args, 6, 1);
    return LAUNCH(conv_tokens_dx, layer_blocks(a.b * a.S * a.f, LAYER_THREADS), LAYER_THREADS, 0, a,
                  cuda, error) &&
           LAUNCH(conv_tokens_dw, layer_blocks(a.f * (a.K + 1), LAYER_WARPS), LAYER_THREADS, 0, a,
                  cuda, error);
}

bool cuda_conv_groups_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return cuda_conv_heads_grad(args, cuda, error);
}

/* ---- the norm: n rows of D features, one row for each token and group; each of G groups has
 * weights */

typedef struct GatedArgs {
    Array dout, y, z, weight, out, r, dy, dz, dweight;
    int64_t n, G, D;
    float eps;
    uint32_t accumulate;
} GatedArgs;

DEVICE float gated_one(const GatedArgs *a, int64_t i)
{
    const float z = read_one(a->z, i);
    return read_one(a->y, i) * (z * point_sigmoid(z));
}

KERNEL(gated_rows, GatedArgs, LAYER_THREADS, 4)
{
    const int64_t row = (int64_t)blockIdx.x * LAYER_WARPS + threadIdx.x / WARP;
    const int64_t lane = threadIdx.x % WARP;
    if (row >= a.n) return;
    float sum = 0;
    for (int64_t d = lane; d < a.D; d += WARP) {
        const float u = gated_one(&a, row * a.D + d);
        sum = fmaf(u, u, sum);
    }
    const float r = 1.0f / sqrtf(warp_sum(sum) / (float)a.D + a.eps);
    for (int64_t d = lane; d < a.D; d += WARP)
        write_one(a.out, row * a.D + d,
                  gated_one(&a, row * a.D + d) * r * read_one(a.weight, row % a.G * a.D + d));
    if (lane == 0) write_one(a.r, row, r);
}

KERNEL(gated_rows_grad, GatedArgs, LAYER_THREADS, 4)
{
    const int64_t row = (int64_t)blockIdx.x * LAYER_WARPS + threadIdx.x / WARP;
    const int64_t lane = threadIdx.x % WARP, first = row % a.G * a.D;
    if (row >= a.n) return;
    const float r = read_one(a.r, row);
    float mean = 0;
    for (int64_t d = lane; d < a.D; d += WARP) {
        const int64_t i = row * a.D + d;
        mean =
            fmaf(read_one(a.dout, i) * read_one(a.weight, first + d), gated_one(&a, i) * r, mean);
    }
    mean = warp_sum(mean) / (float)a.D;
    for (int64_t d = lane; d < a.D; d += WARP) {
        const int64_t i = row * a.D + d;
        const float z = read_one(a.z, i), y = read_one(a.y, i), gate = z * point_sigmoid(z);
        const float g = read_one(a.dout, i) * read_one(a.weight, first + d);
        const float du = r * (g - y * gate * r * mean);
        layer_write(a.dy, i, du * gate, a.accumulate & 1);
        layer_write(a.dz, i, du * y * point_silu_slope(z), a.accumulate & 2);
    }
}

/* One warp for each number of the weight. */
KERNEL(gated_weight, GatedArgs, LAYER_THREADS, 4)
{
    const int64_t at = (int64_t)blockIdx.x * LAYER_WARPS + threadIdx.x / WARP;
    if (at >= a.G * a.D) return;
    const int64_t g = at / a.D, d = at % a.D;
    float sum = 0;
    for (int64_t t = threadIdx.x % WARP; t < a.n / a.G; t += WARP) {
        const int64_t row = t * a.G + g, i = row * a.D + d;
        sum = fmaf(read_one(a.dout, i), gated_one(&a, i) * read_one(a.r, row), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) layer_write(a.dweight, at, sum, a.accumulate & 4);
}

static GatedArgs gated_args(const KernelArgs *args, uint32_t first)
{
    GatedArgs a;
    memset(&a, 0, sizeof a);
    a.y = array_of(args, first, 1), a.z = array_of(args, first + 1, 1);
    a.weight = array_of(args, first + 2, 1);
    a.G = args->size['g'], a.D = args->size['R'] * args->size['E'];
    a.n = args->elements[first] / a.D;
    a.eps = (float)args->attrs.eps;
    a.accumulate = (uint32_t)args->attrs.accumulate;
    return a;
}

bool cuda_gated_norm(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    GatedArgs a = gated_args(args, 0);
    a.out = array_of(args, 3, 1), a.r = array_of(args, 4, 1);
    return LAUNCH(gated_rows, layer_blocks(a.n, LAYER_WARPS), LAYER_THREADS, 0, a, cuda, error);
}

bool cuda_gated_norm_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    GatedArgs a = gated_args(args, 1);
    a.dout = array_of(args, 0, 1), a.r = array_of(args, 4, 1);
    a.dy = array_of(args, 5, 1), a.dz = array_of(args, 6, 1), a.dweight = array_of(args, 7, 1);
    return LAUNCH(gated_rows_grad, layer_blocks(a.n, LAYER_WARPS), LAYER_THREADS, 0, a, cuda,
                  error) &&
           LAUNCH(gated_weight, layer_blocks(a.G * a.D, LAYER_WARPS), LAYER_THREADS, 0, a, cuda,
                  error);
}
