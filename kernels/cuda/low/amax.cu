/* Finds the largest magnitude of a tensor, of its rows or of its columns. Two magnitudes are
 * compared as the bits of fp32 numbers. The bits of a NaN are larger than those of any number, so a
 * NaN is kept. */
#include "kernels/cuda/low/amax.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"

enum { AMAX_THREADS = 256, AMAX_PARTS = 528, AMAX_AHEAD = 4 };

typedef struct AmaxArgs {
    Array x, out; /* out: [rows] or [columns]; it is written only if `parts` is NULL */
    /* largest magnitudes of parts, as bits: [rows, split] or [split, columns]; NULL: a row (or
     * column) is not divided */
    uint32_t *parts;
    int64_t rows, columns; /* sizes of x */
    int64_t split, each;   /* split: into how many parts a row (or the list of rows) is divided;
                              each: elements (or rows) of one part */
} AmaxArgs;

DEVICE uint32_t amax_eight(Array x, const Raw *raw, uint32_t most)
{
    float v[EIGHT];
    widen_any(KINDS_all, x.dtype, raw, v);
    return amax_of_eight(v, EIGHT, most);
}

/* A block computes one part of one row. */
KERNEL(amax_of_rows, AmaxArgs, AMAX_THREADS, 4)
{
    SHARED(uint32_t, held);
    int64_t row = blockIdx.x / a.split, part = blockIdx.x % a.split;
    int64_t first = part * a.each, end = first + a.each;
    uint32_t most = 0;
    if (end > a.columns) end = a.columns;
    for (int64_t at = first + threadIdx.x * EIGHT; at < end;
         at += (int64_t)blockDim.x * EIGHT * AMAX_AHEAD) {
        Raw raw[AMAX_AHEAD];
        UNROLL for (int u = 0; u < AMAX_AHEAD; u++)
        {
            int64_t column = at + u * (int64_t)blockDim.x * EIGHT;
            raw[u] = fetch_any(KINDS_all, a.x, row * a.columns + column, eight_of(column, end));
        }
        UNROLL for (int u = 0; u < AMAX_AHEAD; u++) most = amax_eight(a.x, &raw[u], most);
    }
    most = block_largest(most, held);
    if (threadIdx.x > 0) return;
    if (a.parts != NULL)
        a.parts[blockIdx.x] = most;
    else
        write_one(a.out, row, FLOAT_OF_BITS(most));
}

/* A thread computes eight columns over one part of the rows. */
KERNEL(amax_of_columns, AmaxArgs, AMAX_THREADS, 4)
{
    int64_t per_row = (a.columns + EIGHT - 1) / EIGHT;
    int64_t t = (int64_t)blockIdx.x * AMAX_THREADS + threadIdx.x, n_all = per_row * a.split;
    int64_t part = split_row(t, per_row, n_all), column = (t - part * per_row) * EIGHT;
    int64_t first = part * a.each, end = first + a.each;
    int n = t < n_all ? eight_of(column, a.columns) : 0;
    uint32_t most[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) most[k] = 0;
    if (end > a.rows) end = a.rows;
    for (int64_t row = first; row < end; row++) {
        float v[EIGHT];
        load_any(KINDS_all, a.x, row * a.columns + column, n, v);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            uint32_t bits = magnitude_bits(v[k]);
            most[k] = bits > most[k] ? bits : most[k];
        }
    }
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        if (k >= n) continue;
        if (a.parts != NULL)
            a.parts[part * a.columns + column + k] = most[k];
        else
            write_one(a.out, column + k, FLOAT_OF_BITS(most[k]));
    }
}

typedef struct AmaxEndArgs {
    const uint32_t *parts; /* [n, split] if x was divided by rows, [split, n] if by columns */
    Array out;
    int64_t n, split;
    bool by_rows;
} AmaxEndArgs;

/* A warp computes one output from its parts. */
KERNEL(amax_end, AmaxEndArgs, AMAX_THREADS, 4)
{
    int64_t i = ((int64_t)blockIdx.x * AMAX_THREADS + threadIdx.x) / WARP;
    uint32_t most = 0;
    for (int64_t part = threadIdx.x % WARP; part < a.split && i < a.n; part += WARP) {
        uint32_t bits = a.parts[a.by_rows ? i * a.split + part : part * a.n + i];
        most = bits > most ? bits : most;
    }
    most = warp_largest(most);
    if (threadIdx.x % WARP == 0 && i < a.n) write_one(a.out, i, FLOAT_OF_BITS(most));
}

/* Returns into how many parts n elements (or rows) are divided. There are enough parts to keep the
 * device busy, and each part has at least `least` elements. `others` is the number of rows (or
 * column blocks) that are divided in this way. */
static int64_t amax_split(int64_t others, int64_t n, int64_t least)
{
    int64_t split = ceil_div(AMAX_PARTS, others > 0 ? others : 1), most = ceil_div(n, least);
    if (split > most) split = most;
    return split > 1 ? split : 1;
}

static bool amax_launch(const KernelArgs *args, Array x, int64_t rows, int64_t columns,
                        bool by_rows, const CudaContext *cuda, CudaError *error)
{
    AmaxArgs p;
    AmaxEndArgs end;
    int64_t n = by_rows ? rows : columns, per_row = ceil_div(columns, EIGHT);
    memset(&p, 0, sizeof p);
    memset(&end, 0, sizeof end);
    p.x = x, p.out = array_of(args, 1, 1);
    p.rows = rows, p.columns = columns;
    p.split = by_rows ? amax_split(rows, columns, AMAX_THREADS * EIGHT)
                      : amax_split(ceil_div(per_row, AMAX_THREADS), rows, 32);
    p.each = ceil_div(ceil_div(by_rows ? columns : rows, p.split), EIGHT) * EIGHT;
    if (p.split > 1) p.parts = (uint32_t *)args->ptr[2];
    int64_t blocks = by_rows ? rows * p.split : ceil_div(per_row * p.split, AMAX_THREADS);
    bool fine = by_rows ? LAUNCH(amax_of_rows, blocks, AMAX_THREADS, MAX_WARPS * sizeof(uint32_t),
                                 p, cuda, error)
                        : LAUNCH(amax_of_columns, blocks, AMAX_THREADS, 0, p, cuda, error);
    if (!fine || p.split == 1) return fine;
    end.parts = p.parts, end.out = p.out;
    end.n = n, end.split = p.split, end.by_rows = by_rows;
    return LAUNCH(amax_end, ceil_div(n, AMAX_THREADS / WARP), AMAX_THREADS, 0, end, cuda, error);
}

/* Returns true if the op finds the largest magnitude of each row, and false if it finds that of
 * each column. The op alone decides, because cuda_amax_workspace does not know the sizes by
 * letter. */
static bool amax_by_rows(OpKind op)
{
    return op == OP_amax || op == OP_amax_range || op == OP_amax_of_tokens ||
           op == OP_amax_of_first || op == OP_amax_over_last;
}

uint64_t cuda_amax_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                             uint32_t n_args)
{
    int64_t n = elements[1] > 0 ? elements[1] : 1, each = elements[0] / n, split;
    (void)dtype, (void)n_args;
    split = amax_by_rows(op) ? amax_split(n, each, AMAX_THREADS * EIGHT)
                             : amax_split(ceil_div(ceil_div(n, EIGHT), AMAX_THREADS), each, 32);
    return split > 1 ? (uint64_t)(split * n) * sizeof(uint32_t) : 0;
}

/* Each function finds the largest magnitude of each row or of each column of x [rows, columns]. */
#define TOKENS (args->size['b'] * args->size['s'])
#define AMAX(name, rows, columns)                                                                  \
    bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)            \
    {                                                                                              \
        return amax_launch(args, array_of(args, 0, columns), rows, columns,                        \
                           amax_by_rows(OP_##name), cuda, error);                                  \
    }
AMAX(amax, 1, args->rows)
AMAX(amax_of_tokens, TOKENS, args->rows)
AMAX(amax_over_tokens, TOKENS, args->rows)
AMAX(amax_of_first, args->size['k'], args->rows)
AMAX(amax_over_first, args->size['k'], args->rows)
AMAX(amax_of_last, args->rows, args->size['n'])
AMAX(amax_over_last, args->rows, args->size['n'])

/* x [x] -> out []: largest magnitude of elements lo to hi - 1; 0 if this rank has none of them */
bool cuda_amax_range(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    Range range = local_range(args);
    KernelArgs part = *args;
    if (range.n == 0) return device_zero(args->ptr[1], dtype_bytes(args->dtype[1]), cuda, error);
    part.ptr[0] = (char *)args->ptr[0] + (uint64_t)range.from * dtype_bytes(args->dtype[0]);
    return amax_launch(args, array_of(&part, 0, 0), 1, range.n, true, cuda, error);
}
