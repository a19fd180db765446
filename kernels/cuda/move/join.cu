/* Joins the features that all members of a group share with the features of each member, and splits
 * the gradient into the two again. kernels/cpu/move/join.c defines groups and members. A thread
 * computes one element of the result. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { JOIN_THREADS = 256 };

typedef struct JoinArgs {
    Array x, own, y;
    int64_t groups, G, X, U; /* G: members of a group; X, U: number of common features, and of
                                features of a member */
    bool accumulate;
} JoinArgs;

KERNEL(join_forward, JoinArgs, JOIN_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x, Z = a.X + a.U;
    if (i >= a.groups * a.G * Z) return;
    const int64_t head = i / Z, e = i % Z;
    write_one(a.y, i,
              e < a.X ? read_one(a.x, head / a.G * a.X + e)
                      : read_one(a.own, head * a.U + e - a.X));
}

KERNEL(join_shared, JoinArgs, JOIN_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x, Z = a.X + a.U;
    if (i >= a.groups * a.X) return;
    float sum = 0;
    for (int64_t g = 0; g < a.G; g++) sum += read_one(a.x, (i / a.X * a.G + g) * Z + i % a.X);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + sum : sum);
}

KERNEL(join_own, JoinArgs, JOIN_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x;
    if (i >= a.groups * a.G * a.U) return;
    const float x = read_one(a.x, i / a.U * (a.X + a.U) + a.X + i % a.U);
    write_one(a.y, i, a.accumulate ? read_one(a.y, i) + x : x);
}

/* Returns the arguments; X and U count pieces of `w` elements. */
static JoinArgs join_args(const KernelArgs *args, int64_t groups, int64_t G, int64_t w)
{
    JoinArgs a;
    memset(&a, 0, sizeof a);
    a.groups = groups, a.G = G;
    a.X = args->size['X'] * w, a.U = args->size['U'] * w;
    if (a.X == 0) a.X = args->size['Z'] * w - a.U;
    if (a.U == 0) a.U = args->size['Z'] * w - a.X;
    a.x = array_of(args, 0, 1);
    a.y = array_of(args, args->n_in, 1);
    a.accumulate = accumulates(args, 0);
    return a;
}

static JoinArgs of_heads(const KernelArgs *args)
{
    return join_args(args, args->size['b'] * args->size['s'], args->size['g'], 1);
}

static JoinArgs of_tokens(const KernelArgs *args)
{
    return join_args(args, args->size['b'], 1, args->size['k']);
}

static JoinArgs of_leading(const KernelArgs *args)
{
    return join_args(args, 1, args->size['b'], args->size['k']);
}

static bool join(JoinArgs a, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    a.own = array_of(args, 1, 1);
    return LAUNCH(join_forward, ceil_div(a.groups * a.G * (a.X + a.U), JOIN_THREADS), JOIN_THREADS,
                  0, a, cuda, error);
}

static bool split_shared(JoinArgs a, const CudaContext *cuda, CudaError *error)
{
    return LAUNCH(join_shared, ceil_div(a.groups * a.X, JOIN_THREADS), JOIN_THREADS, 0, a, cuda,
                  error);
}

static bool split_own(JoinArgs a, const CudaContext *cuda, CudaError *error)
{
    return LAUNCH(join_own, ceil_div(a.groups * a.G * a.U, JOIN_THREADS), JOIN_THREADS, 0, a, cuda,
                  error);
}

/* shared [b,s,X], own [b,s,g,U] -> y [b,s,g,Z] */
bool cuda_join_heads(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return join(of_heads(args), args, cuda, error);
}

/* dy [b,s,g,Z] -> dshared [b,s,X] */
bool cuda_join_heads_shared(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_shared(of_heads(args), cuda, error);
}

/* dy [b,s,g,Z] -> down [b,s,g,U] */
bool cuda_join_heads_own(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_own(of_heads(args), cuda, error);
}

/* x [b,X,k], y [b,U,k] -> z [b,Z,k] */
bool cuda_join_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return join(of_tokens(args), args, cuda, error);
}

/* dz [b,Z,k] -> dx [b,X,k] */
bool cuda_join_tokens_first(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_shared(of_tokens(args), cuda, error);
}

/* dz [b,Z,k] -> dy [b,U,k] */
bool cuda_join_tokens_last(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_own(of_tokens(args), cuda, error);
}

/* x [X,k], y [b,U,k] -> z [b,Z,k] */
bool cuda_lead_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return join(of_leading(args), args, cuda, error);
}

/* dz [b,Z,k] -> dx [X,k] */
bool cuda_lead_tokens_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_shared(of_leading(args), cuda, error);
}

/* merge_tokens and its gradient do not change the order in memory, so both only copy. They use the
 * kernels above with one member, which has no common features. */
static JoinArgs of_merged(const KernelArgs *args)
{
    const int64_t *size = args->size;
    JoinArgs a = join_args(args, 1, 1, 1);
    a.X = 0, a.U = size['b'] * size['s'] * size['I'] * size['D'];
    return a;
}

/* x [b,s I,D] -> y [b,s,I D] */
bool cuda_merge_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_own(of_merged(args), cuda, error);
}

/* dy [b,s,I D] -> dx [b,s I,D] */
bool cuda_merge_tokens_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return split_own(of_merged(args), cuda, error);
}
