/* Attention to a part of the keys, and its gradient, by several calls of plain attention
 * (see attention_part.h).
 *   forward   If there is one call, it writes the output. If there are several, each one writes its
 *             result to scratch memory, and a kernel then merges the result into the output.
 *   gradient  The first call writes the gradients of its rows; later calls add to them. */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_part.h"
#include "kernels/cuda/reduce.cuh"

enum { MERGE_THREADS = 256, MERGE_ROWS = MERGE_THREADS / WARP };

/* ---- kernels that clear rows and merge rows ---- */

typedef struct MergeArgs {
    Array out, part;
    float *lse;
    const float *part_lse;
    int64_t rows, E;
} MergeArgs;

/* Merges two partial results of attention for the same query, one row for each warp: `part` with
 * its log-sum-exp part_lse, and the result so far in `out` and `lse`. */
KERNEL(attention_merge, MergeArgs, MERGE_THREADS, 4)
{
    const int64_t row = (int64_t)blockIdx.x * MERGE_ROWS + threadIdx.x / WARP;
    if (row >= a.rows) return;
    const float was = a.lse[row], now = a.part_lse[row], top = fmaxf(was, now);
    const float of_was = top == -INFINITY ? 0 : device_exp(was - top);
    const float of_now = top == -INFINITY ? 0 : device_exp(now - top);
    const float sum = of_was + of_now, inverse = sum > 0 ? 1 / sum : 0;
    for (int64_t e = threadIdx.x % WARP; e < a.E; e += WARP) {
        const float x = of_was * read_one(a.out, row * a.E + e);
        write_one(a.out, row * a.E + e, fmaf(of_now, read_one(a.part, row * a.E + e), x) * inverse);
    }
    __syncwarp();
    if (threadIdx.x % WARP == 0) a.lse[row] = sum > 0 ? top + logf(sum) : -INFINITY;
}

typedef struct ClearArgs {
    Array x;
    int64_t n;
    float with;
} ClearArgs;

KERNEL(attention_clear, ClearArgs, MERGE_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * MERGE_THREADS + threadIdx.x;
    if (i < a.n) write_one(a.x, i, a.with);
}

static bool clear(const KernelArgs *args, uint32_t i, float with, const CudaContext *cuda,
                  CudaError *error)
{
    ClearArgs c;
    c.x = array_of(args, i, 1);
    c.n = args->elements[i];
    c.with = with;
    return LAUNCH(attention_clear, ceil_div(c.n, MERGE_THREADS), MERGE_THREADS, 0, c, cuda, error);
}

/* ---- forward ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Merges the result of `call`, which lies in scratch memory, into the output, which holds the
 * result of the earlier calls. */
static bool merge(const KernelArgs *to, const KernelArgs *call, const CudaContext *cuda,
                  CudaError *error)
{
    MergeArgs m;
    m.E = to->size['E'];
    m.out = array_of(to, 3, m.E), m.part = array_of(call, 3, m.E);
    m.lse = (float *)to->ptr[4], m.part_lse = (const float *)call->ptr[4];
    m.rows = to->elements[4];
    return LAUNCH(attention_merge, ceil_div(m.rows, MERGE_ROWS), MERGE_THREADS, 0, m, cuda, error);
}

bool cuda_attention_part(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const uint64_t out_bytes = (uint64_t)args->elements[3] * dtype_bytes(args->dtype[3]);
    const bool merges = args->attrs.accumulate != 0 || !part_is_whole(args);
    char *const scratch = (char *)args->ptr[5];
    PartCalls at;
    attention_part_calls(&at, OP_attention, args);
    assert(args->n_args == 6 && args->dtype[4] == DT_f32 && args->dtype[5] == DT_u8);
    if (merges && !args->attrs.accumulate &&
        !(clear(args, 3, 0, cuda, error) && clear(args, 4, -INFINITY, cuda, error)))
        return false;
    while (attention_part_next(&at)) {
        KernelArgs call = at.call;
        call.attrs.accumulate = 0;
        if (merges) call.ptr[3] = scratch, call.ptr[4] = scratch + aligned(out_bytes);
        if (!cuda_attention(&call, cuda, error)) return false;
        if (merges && !merge(&at.call, &call, cuda, error)) return false;
    }
    return true;
}

/* ---- gradient ---- */

bool cuda_attention_part_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PartCalls at;
    KernelArgs sums = *args;
    attention_part_calls(&at, OP_attention_grad, args);
    assert(args->n_args == 10 && args->dtype[9] == DT_u8);
    for (uint32_t j = 0; j < 3 && !part_is_whole(args);
         j++) { /* clear the gradients, because some rows may be written by no call */
        if (!accumulates(args, j) && !clear(args, 6 + j, 0, cuda, error)) return false;
        sums.attrs.accumulate |= 1 << j;
    }
    while (attention_part_next(&at)) {
        KernelArgs call = at.call;
        call.attrs.accumulate = sums.attrs.accumulate;
        call.n_args = 10;
        if (!cuda_attention_grad(&call, cuda, error)) return false;
    }
    return true;
}

/* Returns the bytes of scratch memory. For attention, the result of one call lies there; for the
 * gradient, delta. */
uint64_t cuda_attention_part_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                       uint32_t n_args)
{
    assert(n_args >= 5);
    (void)n_args;
    if (op == OP_attention_part_grad) return (uint64_t)elements[5] * sizeof(float);
    return aligned((uint64_t)elements[3] * dtype_bytes(dtype[3])) +
           (uint64_t)elements[4] * sizeof(float);
}
