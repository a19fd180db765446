/* Attention and its gradient with a part of the keys, by calls of attention. Each call has queries
 * that are neighbours in the whole sequence, and such keys. Queries and keys of two chunks make one
 * call where no key is hidden from some of the queries only, or where both are the same tokens.
 *   forward   a call that is not the first for its queries writes to scratch, and is then merged
 *   gradient  a call that is not the first for its rows adds to them */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_part.h"
#include "kernels/cuda/reduce.cuh"

enum { MERGE_THREADS = 256, MERGE_ROWS = MERGE_THREADS / WARP, ALL = 2 };

/* ---- the calls ---- */

typedef struct Chunk {
    int64_t first, n, start; /* index of the first token here, number, index in the whole */
} Chunk;

/* Returns chunk i of the tokens; ALL: all of them. */
static Chunk chunk_of(const KernelArgs *args, char letter, uint32_t i)
{
    const unsigned char l = (unsigned char)letter;
    const int64_t n = args->size[l], half = n / 2;
    Chunk c;
    c.first = i == 1 ? half : 0;
    c.n = i == ALL ? n : i == 1 ? n - half : half;
    c.start = i == 1 ? args->second[l] : args->start[l];
    return c;
}

static uint32_t n_chunks(const KernelArgs *args, char letter)
{
    const unsigned char l = (unsigned char)letter;
    return args->second[l] == args->start[l] + args->size[l] / 2 ? 1 : 2;
}

static bool same_tokens(const KernelArgs *args)
{
    return args->size['s'] == args->size['T'] && args->start['s'] == args->start['T'] &&
           args->second['s'] == args->second['T'];
}

/* Arguments of attention and of its gradient without scratch. */
static uint32_t n_arguments(OpKind op)
{
    return op == OP_attention ? 5 : 9;
}

/* True if the rows of argument i are queries; those of the others are keys. */
static bool is_of_queries(OpKind op, uint32_t i)
{
    const uint32_t keys = op == OP_attention ? 1 << 1 | 1 << 2 : 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8;
    return !(keys >> i & 1);
}

/* Moves argument i to the rows from `first` on of sequence b. */
static void move_to(KernelArgs *to, uint32_t i, int64_t b, int64_t n, int64_t first, int64_t part)
{
    const int64_t row = to->elements[i] / (to->size['b'] * n);
    to->ptr[i] = (char *)to->ptr[i] + (b * n + first) * row * dtype_bytes(to->dtype[i]);
    to->elements[i] = part * row;
}

/* Takes these queries and keys of sequence b. */
static KernelArgs take(OpKind op, const KernelArgs *args, int64_t b, Chunk q, Chunk k)
{
    KernelArgs call = *args;
    for (uint32_t i = 0; i < n_arguments(op); i++) {
        const bool of_queries = is_of_queries(op, i);
        move_to(&call, i, b, args->size[of_queries ? 's' : 'T'], of_queries ? q.first : k.first,
                of_queries ? q.n : k.n);
    }
    call.size['b'] = 1, call.start['b'] += b;
    call.size['s'] = q.n, call.start['s'] = q.start, call.second['s'] = q.start + q.n / 2;
    call.size['T'] = k.n, call.start['T'] = k.start, call.second['T'] = k.start + k.n / 2;
    if (args->attrs.drop == 0 && q.start >= k.start + k.n) { /* equal calls have equal names */
        call.attrs.causal = 0;
        call.start['s'] = call.start['T'] = 0;
        call.second['s'] = q.n / 2, call.second['T'] = k.n / 2;
    }
    return call;
}

/* True if every query of chunk q sees all keys of chunk k. */
static bool sees_all(const KernelArgs *args, Chunk q, Chunk k)
{
    return !args->attrs.causal || q.start >= k.start + k.n;
}

/* True if no query of chunk q sees any key of chunk k. */
static bool sees_none(const KernelArgs *args, Chunk q, Chunk k)
{
    return args->attrs.causal && q.start + q.n <= k.start;
}

/* Without dropout, chunks make one call if all queries see the same keys. Returns their numbers. */
static bool is_one_call(const KernelArgs *args, uint32_t *q, uint32_t *k)
{
    const Chunk q0 = chunk_of(args, 's', 0), q1 = chunk_of(args, 's', 1);
    const Chunk k0 = chunk_of(args, 'T', 0), k1 = chunk_of(args, 'T', 1);
    if (args->attrs.drop > 0 || n_chunks(args, 's') != 2 || n_chunks(args, 'T') != 2) return false;
    *q = sees_none(args, q0, k0) && sees_none(args, q0, k1) ? 1 : ALL;
    *k = sees_none(args, q0, k1) && sees_none(args, q1, k1) ? 0 : ALL;
    return (*q == 1 || (sees_all(args, q0, k0) && (*k == 0 || sees_all(args, q0, k1)))) &&
           sees_all(args, q1, k0) && (*k == 0 || sees_all(args, q1, k1));
}

/* True if one call does everything. */
static bool is_whole(const KernelArgs *args)
{
    return args->attrs.drop == 0 && (same_tokens(args) || !args->attrs.causal);
}

bool attention_part_next(PartCalls *at)
{
    const KernelArgs *args = at->args;
    uint32_t q = ALL, k = ALL;
    const uint32_t nq = n_chunks(args, 's'), nk = n_chunks(args, 'T');
    if (is_whole(args)) {
        at->call = *args;
        at->call.start['s'] = at->call.start['T'] = 0;
        at->call.second['s'] = args->size['s'] / 2, at->call.second['T'] = args->size['T'] / 2;
        at->call.n_args = n_arguments(at->op);
        return at->i++ == 0;
    }
    const bool one = is_one_call(args, &q, &k);
    for (; at->i < args->size['b'] * 4; at->i++) {
        const int64_t pair = at->i % 4;
        if (!one) {
            q = nq == 1 ? ALL : (uint32_t)(pair / 2);
            k = nk == 1 ? ALL : (uint32_t)(pair % 2);
        }
        /* each combination comes once */
        if ((q == ALL && pair / 2 > 0) || (k == ALL && pair % 2 > 0) || (one && pair > 0)) continue;
        const Chunk of_q = chunk_of(args, 's', q), of_k = chunk_of(args, 'T', k);
        if (of_q.n == 0 || of_k.n == 0 || sees_none(args, of_q, of_k)) continue;
        at->call = take(at->op, args, at->i / 4, of_q, of_k);
        at->call.n_args = n_arguments(at->op);
        at->i++;
        return true;
    }
    return false;
}

/* ---- rows: cleared, merged ---- */

typedef struct MergeArgs {
    Array out, part;
    float *lse;
    const float *part_lse;
    int64_t rows, E;
} MergeArgs;

/* A warp merges a row of a part's output with the row before. */
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

/* Merges the output of `call`, which it wrote to scratch, with that of the calls before. */
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
    const bool merges = args->attrs.accumulate != 0 || !is_whole(args);
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
    for (uint32_t j = 0; j < 3 && !is_whole(args); j++) { /* rows that no call writes are zero */
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

/* The forward pass keeps a call's output, the gradient delta. */
uint64_t cuda_attention_part_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                       uint32_t n_args)
{
    assert(n_args >= 5);
    (void)n_args;
    if (op == OP_attention_part_grad) return (uint64_t)elements[5] * sizeof(float);
    return aligned((uint64_t)elements[3] * dtype_bytes(dtype[3])) +
           (uint64_t)elements[4] * sizeof(float);
}
