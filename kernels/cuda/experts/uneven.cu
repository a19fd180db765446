/* Mixture of experts without a fixed number of slots for each expert (see
 * planner/ir/layout/rows.h). Kernels copy tokens to rows and back, multiply uneven groups of rows,
 * and add biases. Rows are ordered by expert, and within an expert by sequence. A count says how
 * many rows an expert has from one sequence. So the index of their first row is the sum of all
 * earlier counts. Memory after the last row is set to zero.
 *
 * A choice is an expert to which a token goes; each token has K choices. The slot of a choice is
 * the number expert * O + place. The place counts the earlier choices of this expert in the same
 * sequence; it is less than O. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

enum {
    UNEVEN_THREADS = 256,
    UNEVEN_WARPS = UNEVEN_THREADS / WARP,
    UNEVEN_TILE = 64,  /* rows, and columns, of the part of a product that a block
                          computes */
    UNEVEN_CHUNK = 16, /* values of the summed index that are in shared memory at a time */
    UNEVEN_SIDE = UNEVEN_TILE / 16, /* rows, and columns, that a thread computes */
    UNEVEN_BLOCKS = 4096
};

typedef struct UnevenArgs {
    /* b, S, k and so on are the sizes below. Without `weights`, all weights are 1. */
    Array tokens, rows, weights;                     /* [b,S,k], [number of rows, k], [b,S,K] */
    const int32_t *slots, *counts;                   /* [b,S,K], [e,b] */
    int32_t *made;                                   /* the counts that a kernel writes */
    int64_t sequences, per_sequence, choices, width; /* b, S, K, k */
    int64_t experts, start, rooms;                   /* this rank's number of experts; its first
                                                        expert; slots that an expert has for each
                                                        sequence (O) */
    int64_t elements;                                /* elements of the whole memory for rows */
    bool weighted, accumulate;
} UnevenArgs;

/* Returns the sum of a whole number over all lanes. */
DEVICE int64_t warp_count(int64_t own)
{
    uint32_t x = (uint32_t)own;
    UNROLL for (int lanes = WARP / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(FULL, x, lanes);
    return (int64_t)x;
}

/* Returns the sum of the first n counts. A warp computes it. */
DEVICE int64_t rows_before(const int32_t *counts, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) sum += counts[i];
    return warp_count(sum);
}

/* Returns the row of a choice, given its slot. A warp computes it. Returns -1 if the choice was
 * dropped or the row belongs to another rank. */
DEVICE int64_t uneven_row(const UnevenArgs *a, int64_t sequence, int32_t slot)
{
    if (slot < 0) return -1;
    const int64_t own = slot / a->rooms, e = own - a->start;
    if (e < 0 || e >= a->experts) return -1;
    return rows_before(a->counts, e * a->sequences + sequence) + slot - own * a->rooms;
}

/* Computes the counts from the slots. A warp computes the count of one expert and sequence. */
KERNEL(uneven_count, UnevenArgs, UNEVEN_THREADS, 4)
{
    const int64_t at = (int64_t)blockIdx.x * UNEVEN_WARPS + threadIdx.x / WARP;
    if (at >= a.experts * a.sequences) return;
    const int64_t e = at / a.sequences, b = at - e * a.sequences, n = a.per_sequence * a.choices;
    int64_t sum = 0;
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
        const int32_t slot = a.slots[b * n + i];
        if (slot >= 0 && slot / a.rooms == e + a.start) sum++;
    }
    sum = warp_count(sum);
    if (threadIdx.x % WARP == 0) a.made[at] = (int32_t)sum;
}

/* Finds the rows of the block's token and stores them in shared memory, held [choices]. All threads
 * of the block must call this function. */
DEVICE void uneven_find(const UnevenArgs *a, int64_t *held)
{
    const int64_t sequence = blockIdx.x / a->per_sequence;
    for (int64_t j = threadIdx.x / WARP; j < a->choices; j += blockDim.x / WARP) {
        const int32_t slot = a->slots[blockIdx.x * a->choices + j];
        const int64_t row = uneven_row(a, sequence, slot);
        if (threadIdx.x % WARP == 0) held[j] = row;
    }
    __syncthreads();
}

DEVICE float uneven_weight(const UnevenArgs *a, int64_t j)
{
    return a->weighted ? read_one(a->weights, blockIdx.x * a->choices + j) : 1;
}

/* Copies tokens to rows; one block for each token. */
KERNEL(uneven_spread, UnevenArgs, UNEVEN_THREADS, 4)
{
    SHARED(int64_t, held);
    uneven_find(&a, held);
    for (int64_t j = 0; j < a.choices; j++) {
        if (held[j] < 0) continue;
        const float w = uneven_weight(&a, j);
        for (int64_t d = threadIdx.x; d < a.width; d += blockDim.x) {
            const int64_t at = held[j] * a.width + d;
            const float x = w * read_one(a.tokens, blockIdx.x * a.width + d);
            write_one(a.rows, at, a.accumulate ? read_one(a.rows, at) + x : x);
        }
    }
}

/* Computes each token as the sum of its rows, in the order of its choices. */
KERNEL(uneven_collect, UnevenArgs, UNEVEN_THREADS, 4)
{
    SHARED(int64_t, held);
    uneven_find(&a, held);
    for (int64_t d = threadIdx.x; d < a.width; d += blockDim.x) {
        const int64_t at = blockIdx.x * a.width + d;
        float sum = 0;
        for (int64_t j = 0; j < a.choices; j++)
            if (held[j] >= 0) sum += uneven_weight(&a, j) * read_one(a.rows, held[j] * a.width + d);
        write_one(a.tokens, at, a.accumulate ? read_one(a.tokens, at) + sum : sum);
    }
}

/* Computes the gradients of weights from tokens and rows; one warp for each choice. */
KERNEL(uneven_weights, UnevenArgs, UNEVEN_THREADS, 4)
{
    const int64_t sequence = blockIdx.x / a.per_sequence;
    for (int64_t j = threadIdx.x / WARP; j < a.choices; j += blockDim.x / WARP) {
        const int64_t at = blockIdx.x * a.choices + j, row = uneven_row(&a, sequence, a.slots[at]);
        float sum = 0;
        for (int64_t d = threadIdx.x % WARP; row >= 0 && d < a.width; d += WARP)
            sum +=
                read_one(a.tokens, blockIdx.x * a.width + d) * read_one(a.rows, row * a.width + d);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0)
            write_one(a.weights, at, a.accumulate ? read_one(a.weights, at) + sum : sum);
    }
}

/* Sets the memory after the last row to zero. */
KERNEL(uneven_end, UnevenArgs, UNEVEN_THREADS, 4)
{
    const int64_t first = rows_before(a.counts, a.experts * a.sequences) * a.width;
    const int64_t step = (int64_t)gridDim.x * UNEVEN_THREADS;
    for (int64_t i = first + (int64_t)blockIdx.x * UNEVEN_THREADS + threadIdx.x; i < a.elements;
         i += step)
        write_one(a.rows, i, 0);
}

/* ---- products ---- */

/* Computes out = A B for each expert. If `sums_rows` is false, A has the rows of the expert, k
 * numbers each, and B [k,n] is the matrix of the expert. If it is true, out [m,n] is a sum over the
 * rows of the expert, where a row has m numbers in A and n numbers in B. */
typedef struct UnevenProduct {
    Array x, y, z;
    const int32_t *counts;
    int64_t experts, sequences;
    int64_t m, n, k;         /* m: used only with `sums_rows` */
    int64_t y_row, y_column; /* strides of an expert's matrix B [k,n] */
    bool sums_rows, accumulate;
} UnevenProduct;

/* The part of a product that a block computes: tile `tile` of the rows of one expert. `first` is
 * the expert's first row, `rows` its number of rows. */
typedef struct UnevenPart {
    int64_t expert, first, rows, tile;
} UnevenPart;

/* Returns the number of rows of expert e. Each lane computes it for itself. */
DEVICE int64_t rows_of_expert(const UnevenProduct *a, int64_t e)
{
    int64_t n = 0;
    for (int64_t b = 0; b < a->sequences && e < a->experts; b++)
        n += a->counts[e * a->sequences + b];
    return n;
}

/* Finds the expert that has tile `tile` of the rows of all experts. Sets part.expert to -1 if there
 * are fewer tiles. A warp checks 32 experts at a time. */
DEVICE UnevenPart find_tile(const UnevenProduct *a, int64_t tile)
{
    UnevenPart part = {-1, 0, 0, 0};
    int64_t tiles = 0, rows = 0;
    for (int64_t from = 0; from < a->experts; from += WARP) {
        const uint32_t mine = (uint32_t)rows_of_expert(a, from + threadIdx.x % WARP);
        for (int lane = 0; lane < WARP; lane++) {
            const int64_t n = (int64_t)__shfl_sync(FULL, mine, lane);
            const int64_t here = (n + UNEVEN_TILE - 1) / UNEVEN_TILE;
            if (part.expert < 0 && tile < tiles + here) {
                part.expert = from + lane, part.first = rows, part.rows = n;
                part.tile = tile - tiles;
            }
            tiles += here, rows += n;
        }
    }
    return part;
}

DEVICE float uneven_a(const UnevenProduct *a, const UnevenPart *p, int64_t i, int64_t kk)
{
    if (a->sums_rows)
        return i < a->m && kk < p->rows ? read_one(a->x, (p->first + kk) * a->m + i) : 0;
    return i < p->rows && kk < a->k ? read_one(a->x, (p->first + i) * a->k + kk) : 0;
}

DEVICE float uneven_b(const UnevenProduct *a, const UnevenPart *p, int64_t kk, int64_t j)
{
    if (j >= a->n) return 0;
    if (a->sums_rows) return kk < p->rows ? read_one(a->y, (p->first + kk) * a->n + j) : 0;
    if (kk >= a->k) return 0;
    return read_one(a->y, p->expert * a->k * a->n + kk * a->y_row + j * a->y_column);
}

DEVICE void uneven_store(const UnevenProduct *a, const UnevenPart *p, int64_t i, int64_t j, float x)
{
    const int64_t rows = a->sums_rows ? a->m : p->rows,
                  first = a->sums_rows ? p->expert * a->m : p->first;
    if (i >= rows || j >= a->n) return;
    const int64_t at = (first + i) * a->n + j;
    write_one(a->z, at, a->accumulate ? read_one(a->z, at) + x : x);
}

KERNEL(uneven_product, UnevenProduct, UNEVEN_THREADS, 2)
{
    SHARED(float, held);
    float *left = held, *right = held + UNEVEN_TILE * UNEVEN_CHUNK;
    float sum[UNEVEN_SIDE][UNEVEN_SIDE];
    const int64_t across = (a.n + UNEVEN_TILE - 1) / UNEVEN_TILE,
                  down = a.sums_rows ? (a.m + UNEVEN_TILE - 1) / UNEVEN_TILE : 1;
    const int64_t column = blockIdx.x % across, tile = blockIdx.x / across;
    UnevenPart p = {tile / down, 0, 0, tile % down};
    if (a.sums_rows) {
        p.first = rows_before(a.counts, p.expert * a.sequences);
        p.rows = rows_of_expert(&a, p.expert);
    } else {
        p = find_tile(&a, tile);
    }
    if (p.expert < 0) return; /* this is the same for all threads of the block */
    const int64_t depth = a.sums_rows ? p.rows : a.k;
    const int own_row = (int)threadIdx.x / 16, own_column = (int)threadIdx.x % 16;
    for (int r = 0; r < UNEVEN_SIDE; r++)
        for (int c = 0; c < UNEVEN_SIDE; c++) sum[r][c] = 0;
    for (int64_t from = 0; from < depth; from += UNEVEN_CHUNK) {
        for (int t = (int)threadIdx.x; t < UNEVEN_TILE * UNEVEN_CHUNK; t += UNEVEN_THREADS) {
            left[t] =
                uneven_a(&a, &p, p.tile * UNEVEN_TILE + t / UNEVEN_CHUNK, from + t % UNEVEN_CHUNK);
            right[t] =
                uneven_b(&a, &p, from + t / UNEVEN_TILE, column * UNEVEN_TILE + t % UNEVEN_TILE);
        }
        __syncthreads();
        for (int k = 0; k < UNEVEN_CHUNK; k++)
            for (int r = 0; r < UNEVEN_SIDE; r++)
                for (int c = 0; c < UNEVEN_SIDE; c++)
                    sum[r][c] = fmaf(left[(own_row + 16 * r) * UNEVEN_CHUNK + k],
                                     right[k * UNEVEN_TILE + own_column + 16 * c], sum[r][c]);
        __syncthreads();
    }
    for (int r = 0; r < UNEVEN_SIDE; r++)
        for (int c = 0; c < UNEVEN_SIDE; c++)
            uneven_store(&a, &p, p.tile * UNEVEN_TILE + own_row + 16 * r,
                         column * UNEVEN_TILE + own_column + 16 * c, sum[r][c]);
}

/* ---- biases ---- */

/* Computes z = x + bias. One block for each tile of rows. */
KERNEL(uneven_bias, UnevenProduct, UNEVEN_THREADS, 4)
{
    const UnevenPart p = find_tile(&a, blockIdx.x);
    if (p.expert < 0) return;
    const int64_t first = p.tile * UNEVEN_TILE, left = p.rows - first,
                  n = (left < UNEVEN_TILE ? left : UNEVEN_TILE) * a.n;
    for (int64_t i = threadIdx.x; i < n; i += UNEVEN_THREADS) {
        const int64_t at = (p.first + first) * a.n + i;
        write_one(a.z, at, read_one(a.x, at) + read_one(a.y, p.expert * a.n + i % a.n));
    }
}

/* Computes the gradient of the bias. One warp for each element; each lane adds its rows in
 * order. */
KERNEL(uneven_bias_sum, UnevenProduct, UNEVEN_THREADS, 4)
{
    const int64_t at = (int64_t)blockIdx.x * UNEVEN_WARPS + threadIdx.x / WARP;
    if (at >= a.experts * a.n) return;
    const int64_t e = at / a.n, first = rows_before(a.counts, e * a.sequences),
                  rows = rows_of_expert(&a, e);
    float sum = 0;
    for (int64_t r = threadIdx.x % WARP; r < rows; r += WARP)
        sum += read_one(a.x, (first + r) * a.n + at % a.n);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) write_one(a.z, at, a.accumulate ? read_one(a.z, at) + sum : sum);
}

/* ---- launches ---- */

static const uint32_t UNEVEN_NONE = MAX_ARGS;

static UnevenArgs uneven_args(const KernelArgs *args, uint32_t tokens, uint32_t slots,
                              uint32_t rows, uint32_t weights)
{
    UnevenArgs p;
    memset(&p, 0, sizeof p);
    p.sequences = args->size['b'], p.per_sequence = args->size['S'], p.choices = args->size['K'];
    p.experts = args->size['e'], p.start = args->start['e'], p.rooms = args->binding->size['O'];
    p.width = args->size['k'], p.elements = args->elements[rows];
    p.tokens = array_of(args, tokens, 1), p.rows = array_of(args, rows, 1);
    p.slots = (const int32_t *)args->ptr[slots];
    p.counts = (const int32_t *)args->ptr[args->n_in - 1];
    p.weighted = weights != UNEVEN_NONE;
    if (p.weighted) p.weights = array_of(args, weights, 1);
    p.accumulate = accumulates(args, 0);
    return p;
}

static int64_t uneven_threads(int64_t width)
{
    const int64_t warps = ceil_div(width, WARP);
    return (warps < UNEVEN_WARPS ? warps : UNEVEN_WARPS) * WARP;
}

static bool end_rows(const UnevenArgs *p, const CudaContext *cuda, CudaError *error)
{
    return p->accumulate ||
           LAUNCH(uneven_end, blocks_for(p->elements, UNEVEN_THREADS, UNEVEN_BLOCKS),
                  UNEVEN_THREADS, 0, *p, cuda, error);
}

static bool uneven_to(UnevenArgs p, const CudaContext *cuda, CudaError *error)
{
    return LAUNCH(uneven_spread, p.sequences * p.per_sequence, uneven_threads(p.width),
                  (size_t)p.choices * sizeof(int64_t), p, cuda, error) &&
           end_rows(&p, cuda, error);
}

static bool uneven_back(UnevenArgs p, const CudaContext *cuda, CudaError *error)
{
    return LAUNCH(uneven_collect, p.sequences * p.per_sequence, uneven_threads(p.width),
                  (size_t)p.choices * sizeof(int64_t), p, cuda, error);
}

/* slots [b,S,K] -> counts [e,b] */
bool cuda_counts(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenArgs p;
    memset(&p, 0, sizeof p);
    p.sequences = args->size['b'], p.per_sequence = args->size['S'], p.choices = args->size['K'];
    p.experts = args->size['e'], p.start = args->start['e'], p.rooms = args->attrs.capacity;
    p.slots = (const int32_t *)args->ptr[0], p.made = (int32_t *)args->ptr[1];
    return LAUNCH(uneven_count, ceil_div(p.experts * p.sequences, UNEVEN_WARPS), UNEVEN_THREADS, 0,
                  p, cuda, error);
}

/* x [b,S,k], slots [b,S,K], counts -> rows */
bool cuda_dispatch_uneven(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return uneven_to(uneven_args(args, 0, 1, 3, UNEVEN_NONE), cuda, error);
}

/* drows, slots [b,S,K], counts -> dx [b,S,k] */
bool cuda_dispatch_uneven_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return uneven_back(uneven_args(args, 3, 1, 0, UNEVEN_NONE), cuda, error);
}

/* slots [b,S,K], weights [b,S,K], rows, counts -> y [b,S,k] */
bool cuda_combine_uneven(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return uneven_back(uneven_args(args, 4, 0, 2, 1), cuda, error);
}

/* dy [b,S,k], slots [b,S,K], weights [b,S,K], counts -> drows */
bool cuda_combine_uneven_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return uneven_to(uneven_args(args, 0, 1, 4, 2), cuda, error);
}

/* dy [b,S,k], slots [b,S,K], rows, counts -> dweights [b,S,K] */
bool cuda_combine_uneven_weights(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenArgs p = uneven_args(args, 0, 1, 2, 4);
    const int64_t warps = p.choices < UNEVEN_WARPS ? p.choices : UNEVEN_WARPS;
    return LAUNCH(uneven_weights, p.sequences * p.per_sequence, warps * WARP, 0, p, cuda, error);
}

static UnevenProduct product_args(const KernelArgs *args, int64_t n, int64_t k)
{
    UnevenProduct p;
    memset(&p, 0, sizeof p);
    p.x = array_of(args, 0, 1), p.z = array_of(args, args->n_in, 1);
    p.counts = (const int32_t *)args->ptr[args->n_in - 1];
    p.experts = args->size['e'], p.sequences = args->size['b'];
    p.n = n, p.k = k;
    p.accumulate = accumulates(args, 0);
    return p;
}

/* Returns the largest number of tiles that the rows of argument `arg` can have. */
static int64_t most_tiles(const KernelArgs *args, uint32_t arg, int64_t width)
{
    return ceil_div(args->elements[arg] / width, UNEVEN_TILE) + args->size['e'];
}

static bool clear_end(const KernelArgs *args, const UnevenProduct *p, const CudaContext *cuda,
                      CudaError *error)
{
    UnevenArgs end;
    memset(&end, 0, sizeof end);
    end.rows = p->z, end.counts = p->counts, end.experts = p->experts;
    end.sequences = p->sequences, end.width = p->n, end.elements = args->elements[args->n_in];
    end.accumulate = p->accumulate;
    return end_rows(&end, cuda, error);
}

static bool multiply(const KernelArgs *args, const UnevenProduct *p, const CudaContext *cuda,
                     CudaError *error)
{
    const int64_t across = ceil_div(p->n, UNEVEN_TILE);
    const int64_t tiles = p->sums_rows ? p->experts * ceil_div(p->m, UNEVEN_TILE)
                                       : most_tiles(args, args->n_in, p->n);
    return LAUNCH(uneven_product, tiles * across, UNEVEN_THREADS,
                  2 * UNEVEN_TILE * UNEVEN_CHUNK * sizeof(float), *p, cuda, error) &&
           (p->sums_rows || clear_end(args, p, cuda, error));
}

/* rows [.,k], w [e,k,f], counts -> y [.,f] */
bool cuda_linear_uneven(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenProduct p = product_args(args, args->size['f'], args->size['k']);
    p.y = array_of(args, 1, 1), p.y_row = p.n, p.y_column = 1;
    return multiply(args, &p, cuda, error);
}

/* dy [.,f], w [e,k,f], counts -> dx [.,k] */
bool cuda_linear_uneven_rows(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenProduct p = product_args(args, args->size['k'], args->size['f']);
    p.y = array_of(args, 1, 1), p.y_row = 1, p.y_column = p.k;
    return multiply(args, &p, cuda, error);
}

/* rows [.,k], dy [.,f], counts -> dw [e,k,f] */
bool cuda_linear_uneven_weight(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenProduct p = product_args(args, args->size['f'], 0);
    p.y = array_of(args, 1, 1), p.m = args->size['k'], p.sums_rows = true;
    return multiply(args, &p, cuda, error);
}

/* x [.,f], bias [e,f], counts -> y [.,f] */
bool cuda_bias_uneven(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenProduct p = product_args(args, args->size['f'], 0);
    p.y = array_of(args, 1, 1);
    return LAUNCH(uneven_bias, most_tiles(args, 0, p.n), UNEVEN_THREADS, 0, p, cuda, error) &&
           clear_end(args, &p, cuda, error);
}

/* dy [.,f], counts -> dbias [e,f] */
bool cuda_bias_uneven_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UnevenProduct p = product_args(args, args->size['f'], 0);
    return LAUNCH(uneven_bias_sum, ceil_div(p.experts * p.n, UNEVEN_WARPS), UNEVEN_THREADS, 0, p,
                  cuda, error);
}
