/* Computes the sums of cross-entropy over a row of logits in a single pass: the maximum, the sum of
 * exp(logit - maximum), and the logit of the label. A thread keeps the largest logit so far and the
 * sum of exponentials relative to it. When a larger logit comes, the thread rescales this sum. At
 * the end, the threads' sums are rescaled to the maximum of the row and added in order. The bits
 * differ from those of two passes, but they are the same in each run. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/pointwise/fused.h"
#include "kernels/cuda/reduce.cuh"

enum { ONLINE_THREADS = 256, ONLINE_AHEAD = 4 };

typedef enum OnlinePick { ONLINE_nothing, ONLINE_label, ONLINE_smooth } OnlinePick;

typedef struct OnlineArgs {
    Array z, top, total, picked; /* [rows, width]; [rows] */
    const int32_t *labels;
    int64_t width, valid, start, all; /* width, valid, start: this rank's part of the vocabulary;
                                         all: the whole vocabulary */
    float keep, each;                 /* keep: 1 - smoothing; each: smoothing / size of the whole
                                         vocabulary */
    int32_t pick;
    bool sums; /* true: the sum of exponentials is written to `total` */
    uint32_t *fault, fault_code;
} OnlineArgs;

typedef struct Online {
    float top, below, plain; /* largest logit z; sum of exp(z - top); sum of z */
} Online;

/* Adds the first n numbers of z. If there is no maximum yet, all numbers so far were minus infinity
 * or NaN. A NaN is kept in the sum, although the maximum alone would lose it. */
DEVICE void online_add(Online *o, const float z[EIGHT], const int n, bool plain)
{
    float top = o->top;
    UNROLL for (int k = 0; k < EIGHT; k++) if (k < n) top = fmaxf(top, z[k]);
    if (top > o->top && o->top != -INFINITY) o->below *= device_exp(o->top - top);
    o->top = top;
    if (top == -INFINITY) {
        UNROLL for (int k = 0; k < EIGHT; k++) if (k < n && z[k] != z[k]) o->below = z[k];
    } else {
        UNROLL for (int k = 0; k < EIGHT; k++) if (k < n) o->below += device_exp(z[k] - top);
    }
    if (plain) UNROLL for (int k = 0; k < EIGHT; k++) if (k < n) o->plain += z[k];
}

/* Returns the largest number of ONLINE_AHEAD groups of eight bf16 numbers. */
DEVICE float online_largest(const Raw raw[ONLINE_AHEAD])
{
    uint32_t most = raw[0].word[0];
    UNROLL for (int u = 0; u < ONLINE_AHEAD; u++) UNROLL for (int k = 0; k < EIGHT / 2; k++) most =
        largest_bf16_pair(most, raw[u].word[k]);
    return fmaxf(FLOAT_OF_BITS(most << 16), FLOAT_OF_BITS(most & 0xffff0000u));
}

#define LOG2_E 1.44269504088896341f

/* Adds ONLINE_AHEAD whole groups of bf16 numbers. This takes a third of the instructions of
 * online_add, because the sum is rescaled at most once for all of them. The terms are 2^(z log2(e)
 * - c), where c is top * log2(e), rounded. online_from_half corrects this rounding. Returns false
 * and adds nothing if no maximum has been found so far. */
DEVICE bool online_add_all(Online *o, const Raw raw[ONLINE_AHEAD])
{
    const float top = fmaxf(o->top, online_largest(raw)), c = top * LOG2_E;
    if (top == -INFINITY) return false;
    if (top > o->top && o->top != -INFINITY) o->below *= device_exp2(o->top * LOG2_E - c);
    o->top = top;
    UNROLL for (int u = 0; u < ONLINE_AHEAD; u++)
    {
        float z[EIGHT];
        widen_any(KINDS_real, DT_bf16, &raw[u], z);
        UNROLL for (int k = 0; k < EIGHT; k++) o->below += device_exp2(fmaf(z[k], LOG2_E, -c));
    }
    return true;
}

/* Returns the sum of exp(z - top) from the sum that online_add_all made. `top` is the largest logit
 * of the row. */
DEVICE float online_from_half(const Online *o, float top)
{
    return o->below * device_exp2(fmaf(-top, LOG2_E, o->top * LOG2_E));
}

/* Loads eight bf16 logits of a row, of which only the first n count; the others become minus
 * infinity. The whole group lies in the row's memory if n > 0. */
DEVICE Raw online_fetch(const OnlineArgs *a, int64_t at, int n)
{
    const uint32_t nothing = 0xff80ff80u;
    Raw raw = raw_zero();
    if (n > 0) raw = fetch(array_as_bf16(a->z), at, EIGHT);
    if (n == EIGHT) return raw;
    UNROLL for (int k = 0; k < EIGHT / 2; k++)
    {
        if (2 * k + 1 == n) raw.word[k] = (raw.word[k] & 0xffffu) | (nothing & 0xffff0000u);
        if (2 * k >= n) raw.word[k] = nothing;
    }
    return raw;
}

/* Adds this thread's logits of a row of aligned bf16 numbers. */
DEVICE Online online_half(const OnlineArgs *a, int64_t row)
{
    const int each = (int)blockDim.x * EIGHT, valid = (int)a->valid;
    Online o;
    o.top = -INFINITY, o.below = 0, o.plain = 0;
    for (int at = (int)threadIdx.x * EIGHT; at < valid; at += each * ONLINE_AHEAD) {
        Raw raw[ONLINE_AHEAD];
        UNROLL for (int u = 0; u < ONLINE_AHEAD; u++)
        {
            const int v = at + u * each;
            raw[u] = online_fetch(a, row * a->width + v, (int)eight_of(v, valid));
        }
        if (online_add_all(&o, raw)) continue;
        UNROLL for (int u = 0; u < ONLINE_AHEAD; u++)
        {
            float z[EIGHT];
            widen_any(KINDS_real, DT_bf16, &raw[u], z);
            online_add(&o, z, EIGHT, false);
        }
    }
    return o;
}

/* Adds this thread's logits of any row. */
DEVICE Online online_any(const OnlineArgs *a, int64_t row)
{
    const bool plain = a->pick == ONLINE_smooth;
    Online o;
    o.top = -INFINITY, o.below = 0, o.plain = 0;
    for (int64_t at = threadIdx.x * EIGHT; at < a->valid;
         at += (int64_t)blockDim.x * EIGHT * ONLINE_AHEAD) {
        Raw raw[ONLINE_AHEAD];
        UNROLL for (int u = 0; u < ONLINE_AHEAD; u++)
        {
            int64_t v = at + u * (int64_t)blockDim.x * EIGHT;
            raw[u] = fetch(a->z, row * a->width + v, eight_of(v, a->valid));
        }
        UNROLL for (int u = 0; u < ONLINE_AHEAD; u++)
        {
            int n = eight_of(at + u * (int64_t)blockDim.x * EIGHT, a->valid);
            float z[EIGHT];
            widen_all(a->z, &raw[u], z);
            if (n == EIGHT)
                online_add(&o, z, EIGHT, plain);
            else
                online_add(&o, z, n, plain);
        }
    }
    return o;
}

/* Returns the logit of the row's label; 0 if the label lies in another rank's part of the
 * vocabulary. */
DEVICE float online_logit(const OnlineArgs *a, int64_t row)
{
    int64_t label = a->labels[row], v = label - a->start;
    if (label >= a->all) atomicMax(a->fault, a->fault_code);
    return label >= 0 && v >= 0 && v < a->valid ? read_one(a->z, row * a->width + v) : 0;
}

/* Computes the sums of a row. If `half` is true, the logits are aligned bf16 numbers, and no label
 * is smoothed. The label's logit is loaded first, so that the block does not wait for it at the
 * end. */
DEVICE void online_row(const OnlineArgs *a, const bool half, float *held)
{
    const int64_t row = blockIdx.x;
    const bool picks = a->pick != ONLINE_nothing && threadIdx.x == 0;
    float picked = picks ? online_logit(a, row) : 0;
    Online o = half ? online_half(a, row) : online_any(a, row);
    float top = block_max(o.top, held), plain = o.plain;
    float total = o.below;
    if (o.top > -INFINITY)
        total = half ? online_from_half(&o, top) : o.below * device_exp(o.top - top);
    __syncthreads();
    block_sum_two(&total, &plain, held);
    if (threadIdx.x > 0) return;
    if (top == -INFINITY && a->valid > 0)
        total = NAN; /* in two passes, this would be exp(-infinity
                        + infinity), which is NaN */
    write_one(a->top, row, top);
    if (a->sums) write_one(a->total, row, total);
    if (a->pick == ONLINE_smooth)
        picked = a->labels[row] < 0 ? 0 : a->keep * picked + a->each * plain;
    if (picks) write_one(a->picked, row, picked);
}

KERNEL(xent_online, OnlineArgs, ONLINE_THREADS, 4)
{
    SHARED(float, held); /* two numbers for each warp */
    online_row(&a, false, held);
}

KERNEL(xent_online_half, OnlineArgs, ONLINE_THREADS, 6)
{
    SHARED(float, held);
    online_row(&a, true, held);
}

static bool is_pick(OpKind op)
{
    return op == OP_xent_pick || op == OP_xent_smooth;
}

uint32_t cuda_xent_length(const CudaChainPart *part, uint32_t n)
{
    bool sums = false, picks = false;
    uint32_t length = 1;
    if (n < 2 || part[0].op != OP_xent_max) return 0;
    const KernelArgs *max = part[0].args;
    for (; length < n; length++) {
        const KernelArgs *args = part[length].args;
        bool sum = part[length].op == OP_xent_sumexp && !sums && args->ptr[1] == max->ptr[1];
        bool pick = is_pick(part[length].op) && !picks;
        if ((!sum && !pick) || args->ptr[0] != max->ptr[0] || args->dtype[0] != max->dtype[0] ||
            args->elements[0] != max->elements[0])
            break;
        sums = sums || sum, picks = picks || pick;
    }
    return length > 1 ? length : 0;
}

bool cuda_xent_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda, CudaError *error)
{
    const KernelArgs *max = part[0].args;
    OnlineArgs p;
    memset(&p, 0, sizeof p);
    p.z = array_of(max, 0, max->size['v']);
    p.top = array_of(max, 1, 1);
    p.width = max->size['v'], p.valid = max->valid['v'];
    p.start = max->start['v'], p.all = max->binding->size['v'];
    p.fault = cuda->fault;
    for (uint32_t i = 1; i < n; i++) {
        const KernelArgs *args = part[i].args;
        if (part[i].op == OP_xent_sumexp) {
            p.sums = true;
            p.total = array_of(args, 2, 1);
            continue;
        }
        p.pick = part[i].op == OP_xent_smooth ? ONLINE_smooth : ONLINE_label;
        p.labels = (const int32_t *)args->ptr[1];
        p.picked = array_of(args, 2, 1);
        p.keep = (float)(1 - args->attrs.smoothing);
        p.each = (float)(args->attrs.smoothing / (double)p.all);
        p.fault_code = fault_code(CUDA_FAULT_label, cuda);
    }
    int64_t threads = ONLINE_THREADS;
    while (threads > WARP && threads * EIGHT >= 2 * p.width) threads /= 2;
    const int64_t rows = max->size['b'] * max->size['s'];
    const size_t held = 2 * MAX_WARPS * sizeof(float);
    if (array_is_bf16(p.z) && p.pick != ONLINE_smooth)
        return LAUNCH(xent_online_half, rows, threads, held, p, cuda, error);
    return LAUNCH(xent_online, rows, threads, held, p, cuda, error);
}
