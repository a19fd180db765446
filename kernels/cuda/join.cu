/* Joins the features that all heads share with the features of each head. Splits the gradient into
 * both again (kernels/cpu/join.c). A thread handles one element of the result. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { JOIN_THREADS = 256 };

typedef struct JoinArgs {
    Array x, own, y;
    int64_t rows, G, X, U; /* rows: of [b,s] */
    bool accumulate;
} JoinArgs;

KERNEL(join_forward, JoinArgs, JOIN_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x, Z = a.X + a.U;
    if (i >= a.rows * a.G * Z) return;
    const int64_t head = i / Z, e = i % Z;
    write_one(a.y, i,
              e < a.X ? read_one(a.x, head / a.G * a.X + e)
                      : read_one(a.own, head * a.U + e - a.X));
}

KERNEL(join_shared, JoinArgs, JOIN_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x, Z = a.X + a.U;
    if (i >= a.rows * a.X) return;
    float sum = 0;
    for (int64_t g = 0; g < a.G; g++) sum += read_one(a.x, (i / a.X * a.G + g) * Z + i % a.X);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + sum : sum);
}

KERNEL(join_own, JoinArgs, JOIN_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x;
    if (i >= a.rows * a.G * a.U) return;
    const float x = read_one(a.x, i / a.U * (a.X + a.U) + a.X + i % a.U);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + x : x);
}

static JoinArgs join_args(const KernelArgs *args)
{
    JoinArgs a;
    memset(&a, 0, sizeof a);
    a.rows = args->size['b'] * args->size['s'], a.G = args->size['g'];
    a.X = args->size['X'], a.U = args->size['U'];
    if (a.X == 0) a.X = args->size['Z'] - a.U;
    if (a.U == 0) a.U = args->size['Z'] - a.X;
    a.x = array_of(args, 0, 1);
    a.y = array_of(args, args->n_in, 1);
    a.accumulate = accumulates(args, 0);
    return a;
}

/* shared [b,s,X], own [b,s,g,U] -> y [b,s,g,X+U] */
bool cuda_join_heads(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    JoinArgs a = join_args(args);
    a.own = array_of(args, 1, 1);
    return LAUNCH(join_forward, ceil_div(a.rows * a.G * (a.X + a.U), JOIN_THREADS), JOIN_THREADS, 0,
                  a, cuda, error);
}

/* dy [b,s,g,Z] -> dshared [b,s,X] */
bool cuda_join_heads_shared(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    JoinArgs a = join_args(args);
    return LAUNCH(join_shared, ceil_div(a.rows * a.X, JOIN_THREADS), JOIN_THREADS, 0, a, cuda,
                  error);
}

/* dy [b,s,g,Z] -> down [b,s,g,U] */
bool cuda_join_heads_own(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    JoinArgs a = join_args(args);
    return LAUNCH(join_own, ceil_div(a.rows * a.G * a.U, JOIN_THREADS), JOIN_THREADS, 0, a, cuda,
                  error);
}
