/* Initial values of parameters. A value depends only on the element's index in the whole tensor, so
 * each thread draws its own values. Sums and products have the order of the CPU's code, in fp64. */
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/init.h"
#include "kernels/cuda/launch.cuh"
#define NORMAL_FUNCTION DEVICE
#include "planner/base/normal.h"
#include "planner/ir/graph.h"

typedef struct InitArgs {
    Array x;
    int64_t at, n;
    uint64_t global, seed, stream;
    int32_t kind, rest;
    double a, b;
} InitArgs;

enum { INIT_THREADS = 256, INIT_BLOCKS = 4096 };

DEVICE double init_value(const InitArgs *a, uint64_t element)
{
    if (a->kind == INIT_ones) return 1;
    if (a->kind != INIT_normal && a->kind != INIT_uniform) return 0;
    Words w = draw_philox(a->seed, a->stream, element);
    uint64_t low = w.at[0] | (uint64_t)w.at[1] << 32, high = w.at[2] | (uint64_t)w.at[3] << 32;
    if (a->kind == INIT_normal) return a->a + a->b * normal_from(low, high);
    return a->a + (a->b - a->a) * normal_fraction(low);
}

/* Rounds x toward zero to a float, and sets the float's last bit if it differs from x. Rounding the
 * result to a narrower dtype then gives the same number as rounding x once. */
DEVICE float init_round_to_odd(double x)
{
    float near = (float)x;
    double back = (double)near;
    uint32_t u = BITS_OF_FLOAT(near);
    if (back == x) return near;
    if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) u--;
    return FLOAT_OF_BITS(u | 1);
}

KERNEL(init_values, InitArgs, INIT_THREADS, 2)
{
    int64_t step = (int64_t)gridDim.x * INIT_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * INIT_THREADS + threadIdx.x; i < a.n; i += step) {
        double x = init_value(&a, a.global + (uint64_t)i);
        float v[EIGHT];
        UNROLL for (int k = 0; k < EIGHT; k++) v[k] = 0;
        v[0] = a.rest == DT_f32 ? (float)x : init_round_to_odd(x);
        round_all(a.rest, v);
        write_one(a.x, a.at + i, v[0]);
    }
}

bool cuda_init_takes(DType dtype)
{
    return dtype == DT_f32 || dtype == DT_bf16 || dtype == DT_f16;
}

bool cuda_init(const CudaInit *init, const CudaContext *cuda, CudaError *error)
{
    InitArgs args;
    assert(cuda_init_takes(init->dtype) && cuda_init_takes(init->rest));
    if (init->n == 0) return true;
    args.x.at = (char *)init->buffer;
    args.x.dtype = (int32_t)init->dtype;
    args.x.wide = false;
    args.at = (int64_t)init->at;
    args.n = (int64_t)init->n;
    args.global = init->global;
    args.seed = init->seed;
    args.stream = init->stream;
    args.kind = (int32_t)init->kind;
    args.rest = (int32_t)init->rest;
    args.a = init->a;
    args.b = init->b;
    return LAUNCH(init_values, blocks_for(args.n, INIT_THREADS, INIT_BLOCKS), INIT_THREADS, 0, args,
                  cuda, error);
}
