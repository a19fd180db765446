/* The biases of experts, and their gradient (defined in kernels/cpu/experts.c). A thread computes
 * one element of the result. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { BIAS_THREADS = 256 };

typedef struct ExpertBiasArgs {
    Array x, bias, y;
    int64_t experts, rows, n; /* rows: rows of one expert; n: features */
    bool accumulate;
} ExpertBiasArgs;

KERNEL(expert_bias_add, ExpertBiasArgs, BIAS_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * BIAS_THREADS + threadIdx.x;
    if (i >= a.experts * a.rows * a.n) return;
    const int64_t of = i / (a.rows * a.n) * a.n + i % a.n;
    write_one(a.y, i, read_one(a.x, i) + read_one(a.bias, of));
}

KERNEL(expert_bias_sum, ExpertBiasArgs, BIAS_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * BIAS_THREADS + threadIdx.x;
    if (i >= a.experts * a.n) return;
    float sum = a.accumulate ? read_one(a.y, i) : 0;
    for (int64_t r = 0; r < a.rows; r++)
        sum += read_one(a.x, (i / a.n * a.rows + r) * a.n + i % a.n);
    write_one(a.y, i, sum);
}

static ExpertBiasArgs bias_args(const KernelArgs *args)
{
    ExpertBiasArgs a;
    memset(&a, 0, sizeof a);
    a.experts = args->size['e'], a.rows = args->size['b'] * args->size['m'], a.n = args->size['f'];
    a.x = array_of(args, 0, 1);
    a.y = array_of(args, args->n_in, 1);
    a.accumulate = accumulates(args, 0);
    return a;
}

/* x [e,b,m,f], bias [e,f] -> y [e,b,m,f] */
bool cuda_expert_bias(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ExpertBiasArgs a = bias_args(args);
    a.bias = array_of(args, 1, 1);
    return LAUNCH(expert_bias_add, ceil_div(a.experts * a.rows * a.n, BIAS_THREADS), BIAS_THREADS,
                  0, a, cuda, error);
}

/* dy [e,b,m,f] -> dbias [e,f] */
bool cuda_expert_bias_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ExpertBiasArgs a = bias_args(args);
    return LAUNCH(expert_bias_sum, ceil_div(a.experts * a.n, BIAS_THREADS), BIAS_THREADS, 0, a,
                  cuda, error);
}
