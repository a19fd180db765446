/* The loss of a micro-batch from the sums of its rows, and the gradient of the loss. The rows are
 * added in fp64 in two stages. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"

enum { LOSS_THREADS = 256, LOSS_PARTS = 128 };

typedef struct LossArgs {
    Array top, total, picked;        /* [b,s] */
    const int32_t *labels;           /* [b,s], or [b,T] if tokens are weighted by group */
    int64_t rows, seq, whole, start; /* rows: number of rows; seq: s; whole: T; start: position in T
                                        of this rank's first token */
    int64_t half, second;            /* tokens from local index `half` on begin at position `second`
                                        in T */
    int64_t group;                   /* number of sequences that together have weight 1; 0: each
                                        token has weight 1 */
    double z_loss, scale;
    bool count_all;
    double *weights; /* [groups]: weight of a token in each group */
    double *parts;   /* [LOSS_PARTS, 2] */
    void *loss, *count;
    int32_t loss_dtype, count_dtype;
    bool adds_loss, adds_count;
    Array dtotal, dpicked;
    bool adds_dtotal, adds_dpicked;
} LossArgs;

/* Computes the weight of each token of a group: 1 / (number of tokens with a label >= 0). A block
 * computes one group. */
KERNEL(loss_weights, LossArgs, LOSS_THREADS, 4)
{
    SHARED(double, held);
    const int32_t *labels = a.labels + blockIdx.x * a.group * a.whole;
    double kept = 0;
    for (int64_t i = threadIdx.x; i < a.group * a.whole; i += blockDim.x) kept += labels[i] >= 0;
    kept = block_sum_double(kept, held);
    if (threadIdx.x == 0) a.weights[blockIdx.x] = kept > 0 ? 1.0 / kept : 0;
}

DEVICE int32_t loss_label(const LossArgs *a, int64_t row, double *weight)
{
    if (a->group == 0) {
        *weight = 1;
        return a->labels[row];
    }
    int64_t b = row / a->seq, s = row - b * a->seq;
    *weight = a->weights[b / a->group];
    s = s < a->half ? a->start + s : a->second + s - a->half;
    return a->labels[b * a->whole + s];
}

KERNEL(loss_parts, LossArgs, LOSS_THREADS, 4)
{
    SHARED(double, held);
    double loss = 0, count = 0;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < a.rows;
         row += (int64_t)gridDim.x * blockDim.x) {
        double weight, lse;
        if (loss_label(&a, row, &weight) < 0) continue;
        lse = (double)read_one(a.top, row) + log((double)read_one(a.total, row));
        loss += weight * (lse - (double)read_one(a.picked, row) + a.z_loss * lse * lse);
        count += weight;
    }
    loss = block_sum_double(loss, held);
    __syncthreads();
    count = block_sum_double(count, held);
    if (threadIdx.x > 0) return;
    a.parts[2 * blockIdx.x] = loss;
    a.parts[2 * blockIdx.x + 1] = count;
}

DEVICE void loss_put(void *out, int32_t dtype, bool adds, double x)
{
    Array y;
    y.at = (char *)out, y.dtype = dtype, y.wide = false;
    if (dtype == DT_f64) {
        double *at = (double *)out;
        *at = adds ? *at + x : x;
    } else {
        write_one(y, 0, adds ? read_one(y, 0) + (float)x : (float)x);
    }
}

/* One block adds the sums of all parts in order. */
KERNEL(loss_end, LossArgs, WARP, 1)
{
    double loss = 0, count = 0;
    int64_t n = (a.rows + LOSS_THREADS - 1) / LOSS_THREADS;
    if (threadIdx.x > 0) return;
    for (int64_t part = 0; part < n && part < LOSS_PARTS; part++) {
        loss += a.parts[2 * part];
        count += a.parts[2 * part + 1];
    }
    loss_put(a.loss, a.loss_dtype, a.adds_loss, a.scale * loss);
    loss_put(a.count, a.count_dtype, a.adds_count, a.count_all ? (double)a.rows : count);
}

KERNEL(loss_grad_rows, LossArgs, LOSS_THREADS, 4)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double weight;
    if (row >= a.rows) return;
    bool kept = loss_label(&a, row, &weight) >= 0;
    float scale = (float)(a.scale * weight), z = (float)(2 * a.z_loss), slope = 1;
    float total = read_one(a.total, row);
    if (kept && z != 0) slope = 1.0f + z * (read_one(a.top, row) + logf(total));
    float dtotal = kept ? scale * slope / total : 0, dpicked = kept ? -scale : 0;
    if (a.adds_dtotal) dtotal = read_one(a.dtotal, row) + dtotal;
    if (a.adds_dpicked) dpicked = read_one(a.dpicked, row) + dpicked;
    write_one(a.dtotal, row, dtotal);
    write_one(a.dpicked, row, dpicked);
}

/* Returns the bytes of scratch memory: {weights [groups], parts}. The number of groups is not known
 * here, but there are at least as many labels. */
uint64_t cuda_loss_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                             uint32_t n_args)
{
    uint64_t parts = op == OP_xent_loss || op == OP_xent_loss_mean ? 2 * LOSS_PARTS : 0;
    uint64_t weights = op == OP_xent_loss_mean || op == OP_xent_loss_mean_grad
                           ? (uint64_t)elements[op == OP_xent_loss_mean ? 3 : 2]
                           : 0;
    (void)dtype, (void)n_args;
    return (parts + weights) * sizeof(double);
}

static bool loss_args(const KernelArgs *args, uint32_t labels, bool mean, LossArgs *p,
                      const CudaContext *cuda, CudaError *error)
{
    memset(p, 0, sizeof *p);
    p->top = array_of(args, 0, 1), p->total = array_of(args, 1, 1);
    p->labels = (const int32_t *)args->ptr[labels];
    p->rows = args->size['b'] * args->size['s'], p->seq = args->size['s'];
    p->z_loss = args->attrs.z_loss, p->scale = args->attrs.scale;
    p->count_all = args->attrs.count_all != 0;
    if (args->n_args > args->n_in + 2) p->parts = (double *)args->ptr[args->n_in + 2];
    if (!mean) return true;
    p->whole = args->size['T'], p->start = args->attrs.first + args->start['s'];
    p->half = p->seq / 2, p->second = args->attrs.first + args->second['s'];
    p->group = args->attrs.group;
    p->weights = p->parts;
    assert(p->group > 0 && args->size['b'] % p->group == 0);
    return LAUNCH(loss_weights, args->size['b'] / p->group, LOSS_THREADS,
                  MAX_WARPS * sizeof(double), *p, cuda, error);
}

/* max, sum, picked [b,s], labels i32 -> loss [], count [] */
static bool any_loss(const KernelArgs *args, bool mean, const CudaContext *cuda, CudaError *error)
{
    LossArgs p;
    if (!loss_args(args, 3, mean, &p, cuda, error)) return false;
    if (mean) p.parts = p.weights + args->size['b'] / p.group;
    p.picked = array_of(args, 2, 1);
    p.loss = args->ptr[4], p.count = args->ptr[5];
    p.loss_dtype = (int32_t)args->dtype[4], p.count_dtype = (int32_t)args->dtype[5];
    p.adds_loss = accumulates(args, 0), p.adds_count = accumulates(args, 1);
    return LAUNCH(loss_parts, blocks_for(p.rows, LOSS_THREADS, LOSS_PARTS), LOSS_THREADS,
                  MAX_WARPS * sizeof(double), p, cuda, error) &&
           LAUNCH(loss_end, 1, WARP, 0, p, cuda, error);
}

bool cuda_xent_loss(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return any_loss(args, false, cuda, error);
}

bool cuda_xent_loss_mean(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return any_loss(args, true, cuda, error);
}

/* max, sum [b,s], labels i32 -> dsum, dpicked [b,s] */
static bool any_loss_grad(const KernelArgs *args, bool mean, const CudaContext *cuda,
                          CudaError *error)
{
    LossArgs p;
    if (!loss_args(args, 2, mean, &p, cuda, error)) return false;
    p.dtotal = array_of(args, 3, 1), p.dpicked = array_of(args, 4, 1);
    p.adds_dtotal = accumulates(args, 0), p.adds_dpicked = accumulates(args, 1);
    return LAUNCH(loss_grad_rows, ceil_div(p.rows, LOSS_THREADS), LOSS_THREADS, 0, p, cuda, error);
}

bool cuda_xent_loss_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return any_loss_grad(args, false, cuda, error);
}

bool cuda_xent_loss_mean_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return any_loss_grad(args, true, cuda, error);
}
