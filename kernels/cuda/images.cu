/* Tokens in front of others (kernels/cpu/images.c). A thread handles one element of the result. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { FRONT_THREADS = 256 };

/* n, m: elements of a sample in front, and behind. same: all samples have the same in front. */
typedef struct FrontArgs {
    Array x, behind, y;
    int64_t b, n, m;
    bool same, accumulate;
} FrontArgs;

KERNEL(front_put, FrontArgs, FRONT_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * FRONT_THREADS + threadIdx.x, all = a.n + a.m;
    if (i >= a.b * all) return;
    const int64_t sample = i / all, e = i % all;
    write_one(a.y, i,
              e < a.n ? read_one(a.x, a.same ? e : sample * a.n + e)
                      : read_one(a.behind, sample * a.m + e - a.n));
}

KERNEL(front_first, FrontArgs, FRONT_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * FRONT_THREADS + threadIdx.x;
    if (i >= a.b * a.n) return;
    const float x = read_one(a.x, i / a.n * (a.n + a.m) + i % a.n);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + x : x);
}

KERNEL(front_last, FrontArgs, FRONT_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * FRONT_THREADS + threadIdx.x;
    if (i >= a.b * a.m) return;
    const float x = read_one(a.x, i / a.m * (a.n + a.m) + a.n + i % a.m);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + x : x);
}

KERNEL(front_sum, FrontArgs, FRONT_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * FRONT_THREADS + threadIdx.x;
    if (i >= a.n) return;
    float sum = 0;
    for (int64_t b = 0; b < a.b; b++) sum += read_one(a.x, b * (a.n + a.m) + i);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + sum : sum);
}

static FrontArgs front_args(const KernelArgs *args)
{
    FrontArgs a;
    memset(&a, 0, sizeof a);
    const int64_t k = args->size['k'], all = args->size['Z'] * k;
    a.b = args->size['b'];
    a.n = args->size['X'] * k, a.m = args->size['U'] * k;
    if (a.n == 0) a.n = all - a.m;
    if (a.m == 0) a.m = all - a.n;
    a.x = array_of(args, 0, 1);
    a.y = array_of(args, args->n_in, 1);
    a.accumulate = accumulates(args, 0);
    return a;
}

/* x [b,X,k], y [b,U,k] -> z [b,Z,k] */
bool cuda_join_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FrontArgs a = front_args(args);
    a.behind = array_of(args, 1, 1);
    return LAUNCH(front_put, ceil_div(a.b * (a.n + a.m), FRONT_THREADS), FRONT_THREADS, 0, a, cuda,
                  error);
}

/* x [X,k], y [b,U,k] -> z [b,Z,k] */
bool cuda_lead_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FrontArgs a = front_args(args);
    a.behind = array_of(args, 1, 1);
    a.same = true;
    return LAUNCH(front_put, ceil_div(a.b * (a.n + a.m), FRONT_THREADS), FRONT_THREADS, 0, a, cuda,
                  error);
}

/* dz [b,Z,k] -> dx [b,X,k] */
bool cuda_join_tokens_first(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FrontArgs a = front_args(args);
    return LAUNCH(front_first, ceil_div(a.b * a.n, FRONT_THREADS), FRONT_THREADS, 0, a, cuda,
                  error);
}

/* dz [b,Z,k] -> dy [b,U,k] */
bool cuda_join_tokens_last(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FrontArgs a = front_args(args);
    return LAUNCH(front_last, ceil_div(a.b * a.m, FRONT_THREADS), FRONT_THREADS, 0, a, cuda, error);
}

/* dz [b,Z,k] -> dx [X,k] */
bool cuda_lead_tokens_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FrontArgs a = front_args(args);
    return LAUNCH(front_sum, ceil_div(a.n, FRONT_THREADS), FRONT_THREADS, 0, a, cuda, error);
}

bool cuda_image(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    (void)args, (void)cuda;
    snprintf(error->text, sizeof error->text, "image: data comes from the host, by a copy");
    return false;
}
