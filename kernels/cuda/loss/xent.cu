/* The sums of cross-entropy over a vocabulary that may be split over ranks. A block reads a row of
 * logits; if the row is narrow, the block is a single warp. Padding beyond the real vocabulary
 * never counts. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

enum { XENT_THREADS = 512, XENT_AHEAD = 2, SUMEXP_GRAD_THREADS = 256, SUMEXP_GRAD_AHEAD = 4 };

typedef enum XentSum { XENT_max, XENT_sumexp, XENT_smooth } XentSum;

typedef struct XentArgs {
    Array z, top, out; /* [rows, width]; [rows] */
    const int32_t *labels;
    int64_t width, valid, start, all; /* width, valid, start: this rank's part of the vocabulary;
                                         all: the whole vocabulary */
    float keep, each;                 /* keep: 1 - smoothing; each: smoothing / size of the whole
                                         vocabulary */
    int32_t what;
    uint32_t *fault, fault_code;
} XentArgs;

/* Returns the maximum, or the sum, over this thread's elements of the row. */
DEVICE float xent_part(const XentArgs *a, int64_t row, float top)
{
    float total = a->what == XENT_max ? -INFINITY : 0;
    for (int64_t at = threadIdx.x * EIGHT; at < a->valid;
         at += (int64_t)blockDim.x * EIGHT * XENT_AHEAD) {
        Raw raw[XENT_AHEAD];
        UNROLL for (int u = 0; u < XENT_AHEAD; u++)
        {
            int64_t v = at + u * (int64_t)blockDim.x * EIGHT;
            raw[u] = fetch(a->z, row * a->width + v, eight_of(v, a->valid));
        }
        UNROLL for (int u = 0; u < XENT_AHEAD; u++)
        {
            int n = eight_of(at + u * (int64_t)blockDim.x * EIGHT, a->valid);
            float z[EIGHT];
            widen_all(a->z, &raw[u], z);
            UNROLL for (int k = 0; k < EIGHT; k++)
            {
                if (k >= n) continue;
                if (a->what == XENT_max)
                    total = z[k] > total ? z[k] : total;
                else
                    total += a->what == XENT_sumexp ? device_exp(z[k] - top) : z[k];
            }
        }
    }
    return total;
}

KERNEL(xent_rows, XentArgs, XENT_THREADS, 2)
{
    SHARED(float, held);
    int64_t row = blockIdx.x;
    float top = a.what == XENT_sumexp ? read_one(a.top, row) : 0;
    float total = xent_part(&a, row, top);
    total = a.what == XENT_max ? block_max(total, held) : block_sum(total, held);
    if (threadIdx.x > 0) return;
    if (a.what == XENT_smooth) {
        int64_t label = a.labels[row], v = label - a.start;
        if (label >= a.all) atomicMax(a.fault, a.fault_code);
        float picked = v >= 0 && v < a.valid ? a.keep * read_one(a.z, row * a.width + v) : 0;
        total = label < 0 ? 0 : picked + a.each * total;
    }
    write_one(a.out, row, total);
}

static XentArgs xent_args(const KernelArgs *args, XentSum what, const CudaContext *cuda)
{
    XentArgs p;
    memset(&p, 0, sizeof p);
    p.z = array_of(args, 0, args->size['v']);
    p.out = array_of(args, args->n_in, 1);
    p.width = args->size['v'], p.valid = args->valid['v'];
    p.start = args->start['v'], p.all = args->binding->size['v'];
    p.keep = (float)(1 - args->attrs.smoothing);
    p.each = (float)(args->attrs.smoothing / (double)p.all);
    p.what = what;
    p.fault = cuda->fault, p.fault_code = fault_code(CUDA_FAULT_label, cuda);
    return p;
}

/* Returns how many threads process a row, so that each of them has at least one group of eight
 * elements. */
static int64_t xent_threads(int64_t width, int64_t most)
{
    int64_t threads = most;
    while (threads > WARP && threads * EIGHT >= 2 * width) threads /= 2;
    return threads;
}

static bool xent_launch(const KernelArgs *args, XentArgs p, const CudaContext *cuda,
                        CudaError *error)
{
    return LAUNCH(xent_rows, args->size['b'] * args->size['s'], xent_threads(p.width, XENT_THREADS),
                  MAX_WARPS * sizeof(float), p, cuda, error);
}

/* logits [b,s,v] -> max [b,s]; -infinity if this rank's part of the vocabulary is only padding */
bool cuda_xent_max(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return xent_launch(args, xent_args(args, XENT_max, cuda), cuda, error);
}

/* logits [b,s,v], max [b,s] -> sum [b,s] of exp(logit - max) */
bool cuda_xent_sumexp(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    XentArgs p = xent_args(args, XENT_sumexp, cuda);
    p.top = array_of(args, 1, 1);
    return xent_launch(args, p, cuda, error);
}

/* logits [b,s,v], labels [b,s] i32 -> this rank's contribution to (1 - a) z_label + a / V (sum of
 * all z), where z are the logits, a the smoothing and V the vocabulary */
bool cuda_xent_smooth(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    XentArgs p = xent_args(args, XENT_smooth, cuda);
    p.labels = (const int32_t *)args->ptr[1];
    return xent_launch(args, p, cuda, error);
}

/* ---- the gradient of the sum of exponentials ---- */

typedef struct SumexpGradArgs {
    Array z, top, dsum, out; /* [rows, width]; [rows]; [rows, width] */
    int64_t width, valid;
    bool accumulate;
} SumexpGradArgs;

/* Computes the gradient of up to eight logits of a row. If `half` is true, logits and gradients are
 * aligned bf16 numbers, for which the faster exponential is exact enough. If the row's loss does
 * not count (dsum is 0), the gradient is 0 whatever the logits are. Gradients of padding beyond the
 * vocabulary are 0 as well. */
DEVICE void sumexp_grad_eight(const SumexpGradArgs *a, const bool half, const Raw *raw, float top,
                              float dsum, int64_t at, int64_t v)
{
    const int n = half ? EIGHT : eight_of(v, a->width), real = eight_of(v, a->valid);
    float z[EIGHT], y[EIGHT], old[EIGHT];
    widen_all(half ? array_as_bf16(a->z) : a->z, raw, z);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        const float e = half ? device_exp_below(z[k] - top) : device_exp(z[k] - top);
        y[k] = dsum == 0 ? 0 : dsum * e;
    }
    if (real < EIGHT) UNROLL for (int k = 0; k < EIGHT; k++) y[k] = k < real ? y[k] : 0;
    if (a->accumulate) {
        load(a->out, at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    store(half ? array_as_bf16(a->out) : a->out, at, n, y);
}

/* Computes the gradients of a row. They may overwrite the logits, because a thread writes only
 * elements that it alone has read. */
DEVICE void sumexp_grad_block(const SumexpGradArgs *a, const bool half, const int ahead)
{
    const int64_t row = blockIdx.x, each = (int64_t)blockDim.x * EIGHT;
    const float top = read_one(a->top, row), dsum = read_one(a->dsum, row);
    for (int64_t v = threadIdx.x * EIGHT; v < a->width; v += each * ahead) {
        Raw raw[SUMEXP_GRAD_AHEAD];
        UNROLL for (int u = 0; u < ahead; u++)
        {
            const int64_t at = v + u * each;
            const int n = !half ? eight_of(at, a->width) : at < a->width ? EIGHT : 0;
            raw[u] = fetch(half ? array_as_bf16(a->z) : a->z, row * a->width + at, n);
        }
        UNROLL for (int u = 0; u < ahead; u++)
        {
            const int64_t at = v + u * each;
            if (at >= a->width) continue;
            sumexp_grad_eight(a, half, &raw[u], top, dsum, row * a->width + at, at);
        }
    }
}

KERNEL(sumexp_grad_rows, SumexpGradArgs, XENT_THREADS, 2)
{
    sumexp_grad_block(&a, false, XENT_AHEAD);
}

KERNEL(sumexp_grad_rows_half, SumexpGradArgs, SUMEXP_GRAD_THREADS, 4)
{
    sumexp_grad_block(&a, true, SUMEXP_GRAD_AHEAD);
}

/* logits [b,s,v], dsum [b,s], max [b,s] -> dlogits [b,s,v] = dsum exp(logit - max) */
bool cuda_xent_sumexp_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    SumexpGradArgs p;
    memset(&p, 0, sizeof p);
    p.width = args->size['v'], p.valid = args->valid['v'];
    p.z = array_of(args, 0, p.width), p.out = array_of(args, 3, p.width);
    p.dsum = array_of(args, 1, 1), p.top = array_of(args, 2, 1);
    p.accumulate = accumulates(args, 0);
    const int64_t rows = args->size['b'] * args->size['s'];
    if (array_is_bf16(p.z) && array_is_bf16(p.out))
        return LAUNCH(sumexp_grad_rows_half, rows, xent_threads(p.width, SUMEXP_GRAD_THREADS), 0, p,
                      cuda, error);
    return LAUNCH(sumexp_grad_rows, rows, xent_threads(p.width, XENT_THREADS), 0, p, cuda, error);
}

/* ---- the logit of each row's label ---- */

typedef struct PickArgs {
    Array z, picked; /* logits, or their gradient, [rows, width]; [rows] */
    const int32_t *labels;
    int64_t rows, width, valid, start, all;
    /* each: added to every element of a row's gradient; keep: added to the label's element */
    float each, keep;
    bool back;
    bool accumulate;
    uint32_t *fault, fault_code;
} PickArgs;

KERNEL(pick_rows, PickArgs, 256, 4)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    int64_t label = a.labels[row], v = label - a.start;
    bool mine = label >= 0 && v >= 0 && v < a.valid;
    if (label >= a.all) atomicMax(a.fault, a.fault_code);
    if (!a.back)
        write_one(a.picked, row, mine ? read_one(a.z, row * a.width + v) : 0);
    else if (mine) {
        int64_t at = row * a.width + v;
        float old = a.accumulate ? read_one(a.z, at) : 0;
        write_one(a.z, at, old + read_one(a.picked, row) * a.keep);
    }
}

static PickArgs pick_args(const KernelArgs *args, uint32_t z, uint32_t picked,
                          const CudaContext *cuda)
{
    PickArgs p;
    memset(&p, 0, sizeof p);
    p.z = array_of(args, z, args->size['v']), p.picked = array_of(args, picked, 1);
    p.labels = (const int32_t *)args->ptr[1];
    p.rows = args->size['b'] * args->size['s'], p.width = args->size['v'];
    p.valid = args->valid['v'], p.start = args->start['v'], p.all = args->binding->size['v'];
    p.keep = 1;
    p.accumulate = accumulates(args, 0);
    p.fault = cuda->fault, p.fault_code = fault_code(CUDA_FAULT_label, cuda);
    return p;
}

/* logits [b,s,v], labels [b,s] i32 -> picked [b,s]; 0 if the label lies in another rank's part */
bool cuda_xent_pick(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PickArgs p = pick_args(args, 0, 2, cuda);
    return LAUNCH(pick_rows, ceil_div(p.rows, 256), 256, 0, p, cuda, error);
}

/* dpicked [b,s], labels [b,s] i32 -> dlogits [b,s,v] */
bool cuda_xent_pick_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PickArgs p = pick_args(args, 2, 0, cuda);
    uint64_t bytes = (uint64_t)(p.rows * p.width) * dtype_bytes(args->dtype[2]);
    p.back = true;
    if (!p.accumulate && !device_zero(args->ptr[2], bytes, cuda, error)) return false;
    return LAUNCH(pick_rows, ceil_div(p.rows, 256), 256, 0, p, cuda, error);
}

/* Each element of a row gets `each`. The element of the label gets `keep` in addition. */
KERNEL(smooth_rows, PickArgs, 256, 4)
{
    int64_t per_row = (a.width + EIGHT - 1) / EIGHT, n_all = a.rows * per_row;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < n_all; t += step) {
        int64_t row = split_row(t, per_row, n_all), column = (t - row * per_row) * EIGHT;
        int64_t label = a.labels[row], v = label - a.start, at = row * a.width + column;
        int n = eight_of(column, a.width);
        float y[EIGHT], old[EIGHT], d = label < 0 ? 0 : read_one(a.picked, row);
        if (label >= a.all && column == 0) atomicMax(a.fault, a.fault_code);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            bool real = column + k < a.valid;
            y[k] = real ? d * a.each : 0;
            if (real && column + k == v) y[k] += d * a.keep;
        }
        if (a.accumulate) {
            load(a.z, at, n, old);
            UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
        }
        store(a.z, at, n, y);
    }
}

/* dpicked [b,s], labels [b,s] i32 -> dlogits [b,s,v] */
bool cuda_xent_smooth_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PickArgs p = pick_args(args, 2, 0, cuda);
    p.keep = (float)(1 - args->attrs.smoothing);
    p.each = (float)(args->attrs.smoothing / (double)p.all);
    int64_t blocks = blocks_for(p.rows * ceil_div(p.width, EIGHT), 256, (int64_t)cuda->n_sms * 8);
    return LAUNCH(smooth_rows, blocks, 256, 0, p, cuda, error);
}
