/* Gradients of RMSNorm and LayerNorm. Let xh be the normalised input and g = dy * weight:
 *   rmsnorm    dx = r (g - xh mean(g xh))            dweight = sum dy xh
 *   layernorm  dx = r (g - mean(g) - xh mean(g xh))  dweight = sum dy xh, dbias = sum dy
 * A block processes every COLUMN_PARTS-th row (or group of narrow rows) and adds up its part of
 * dweight and dbias in shared memory. A second kernel adds the parts of all blocks. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/norm/norm_grad.cuh"
#include "kernels/cuda/pointwise/fused.h"
#include "kernels/cuda/workspace.h"

enum { GRAD_THREADS = 256 };

/* A thread's elements of a row, as they were loaded. They are not kept in fp32, because that would
 * take too many registers. For fp32 inputs, each group of eight elements is loaded where it is
 * used, and loaded again in the second pass. */
typedef struct LoadedRow {
    Raw dy[HELD], x[HELD];
} LoadedRow;

/* One group of eight columns, widened: dy, and the normalised input. */
typedef struct EightSlopes {
    float dy[EIGHT], xh[EIGHT]; /* xh: the normalised input */
} EightSlopes;

/* Loads groups first to first + n_eights - 1 of the thread's groups of eight, counted from group
 * `base` of the row. Elements beyond the row become 0. */
DEVICE void slope_load(const bool half, const NormGradArgs *a, int64_t row, int base, int lane,
                       const int first, const int n_eights, LoadedRow *s)
{
    UNROLL for (int u = first; u < first + n_eights; u++)
    {
        int column = row_column(a->rows, base, u, lane), n = norm_count(half, a->rows, row, column);
        int64_t at = row * a->rows.width + column;
        s->dy[u] = fetch(norm_array(half, a->dy), at, n);
        s->x[u] = fetch(norm_array(half, a->x), at, n);
    }
}

DEVICE EightSlopes slope_eight(const bool half, const NormGradArgs *a, const LoadedRow *s, int u,
                               int n, float mean, float r)
{
    EightSlopes e;
    widen_all(norm_array(half, a->dy), &s->dy[u], e.dy);
    widen_all(norm_array(half, a->x), &s->x[u], e.xh);
    UNROLL for (int k = 0; k < EIGHT; k++) e.xh[k] = k < n ? (e.xh[k] - mean) * r : 0;
    return e;
}

/* Computes g = dy weight. This is done in both passes, because keeping g would take too many
 * registers. */
DEVICE void slope_weighted(const bool half, const NormGradArgs *a, const EightSlopes *s, int column,
                           int n, float g[EIGHT])
{
    load(norm_array(half, a->weight), column, n, g);
    UNROLL for (int k = 0; k < EIGHT; k++) g[k] = s->dy[k] * g[k];
}

/* Returns true if a block's sums are in shared memory. Otherwise they are in `parts`, because the
 * rows are too wide. The kernel for 16-bit numbers never gets such rows. */
DEVICE bool sums_in_shared(const bool half, const NormGradArgs *a)
{
    return half || a->in_shared;
}

/* Returns the index in shared memory of a column's sum; k is the column's index in its group of
 * eight. Sums with the same k are stored together, so that the lanes of a warp use different banks.
 * Each k is shifted by 4 more banks, so that lanes with neighbouring columns use different banks,
 * too. */
DEVICE int slope_slot(const bool half, const NormGradArgs *a, int column, int k)
{
    return sums_in_shared(half, a) ? k * a->apart + column / EIGHT : column + k;
}

/* Adds the contributions of a row to dweight and dbias, in this thread's n columns. */
DEVICE void slope_keep(const bool half, const NormGradArgs *a, const EightSlopes *s, int column,
                       int n, float *sums)
{
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        if (k >= n) continue;
        int slot = slope_slot(half, a, column, k);
        sums[slot] += s->dy[k] * s->xh[k];
        if (a->sums > 1) sums[a->pitch + slot] += s->dy[k];
    }
}

/* Writes eight elements of dx. Returns `most`, or the largest magnitude of these elements if that
 * is larger. */
DEVICE uint32_t slope_write(const bool half, const NormGradArgs *a, const EightSlopes *s,
                            int64_t row, int column, int n, const float by[3], uint32_t most)
{
    const float r = by[0], mean_g = by[1], mean_gx = by[2];
    const int64_t at = row * a->rows.width + column;
    float dx[EIGHT], old[EIGHT];
    slope_weighted(half, a, s, column, n, dx);
    UNROLL for (int k = 0; k < EIGHT; k++) dx[k] = r * (dx[k] - mean_g - s->xh[k] * mean_gx);
    if (a->accumulate) {
        load(norm_array(half, a->dx), at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) dx[k] = old[k] + dx[k];
    }
    store(norm_array(half, a->dx), at, n, dx);
    if (a->amax.of == AMAX_nothing) return most;
    round_all(norm_array(half, a->dx).dtype, dx);
    return amax_of_eight(dx, n, most);
}

/* Computes the gradient of one row. Returns `most`, or the largest magnitude that this thread
 * writes if that is larger. */
DEVICE uint32_t norm_grad_row(const bool half, const NormGradArgs *a, int64_t row, int lane,
                              float *held, float *sums, uint32_t most)
{
    const bool holds = half;
    LoadedRow s;
    int stride = HELD * a->rows.lanes;
    bool real = row < a->rows.n;
    float r = real ? read_one(a->r, row) : 0,
          mean = real && a->centred ? read_one(a->mean, row) : 0;
    float mean_g = 0, mean_gx = 0, width = (float)a->rows.width;
    for (int base = 0; base < a->rows.eights; base += stride) {
        if (holds) slope_load(half, a, row, base, lane, 0, HELD, &s);
        UNROLL for (int u = 0; u < HELD; u++)
        {
            int column = row_column(a->rows, base, u, lane),
                n = norm_count(half, a->rows, row, column);
            float g[EIGHT];
            if (!holds) slope_load(half, a, row, base, lane, u, 1, &s);
            const EightSlopes e = slope_eight(half, a, &s, u, n, mean, r);
            slope_weighted(half, a, &e, column, n, g);
            UNROLL for (int k = 0; k < EIGHT; k++)
            {
                mean_g += g[k];
                mean_gx = fmaf(g[k], e.xh[k], mean_gx);
            }
        }
    }
    mean_gx = row_sum(a->rows, mean_gx, held) / width;
    mean_g = a->centred ? row_sum(a->rows, mean_g, held) / width : 0;
    const float by[3] = {r, mean_g, mean_gx};
    for (int base = 0; base < a->rows.eights; base += stride) {
        if (holds && a->rows.eights > stride) slope_load(half, a, row, base, lane, 0, HELD, &s);
        UNROLL for (int u = 0; u < HELD; u++)
        {
            int column = row_column(a->rows, base, u, lane),
                n = norm_count(half, a->rows, row, column);
            if (n == 0) continue;
            if (!holds) slope_load(half, a, row, base, lane, u, 1, &s);
            const EightSlopes e = slope_eight(half, a, &s, u, n, mean, r);
            slope_keep(half, a, &e, column, n, sums);
            most = slope_write(half, a, &e, row, column, n, by, most);
        }
    }
    return most;
}

/* Computes the rows of a block. If `half` is true, norm_is_half must accept
 * dy, x, weight and dx. */
DEVICE void norm_grad_block(const bool half, const NormGradArgs *a, float *shared)
{
    float *held = shared;
    int groups = (int)blockDim.x / a->rows.lanes, group = (int)threadIdx.x / a->rows.lanes;
    int lane = (int)threadIdx.x % a->rows.lanes;
    int64_t per_part = a->sums * a->pitch, width = a->rows.width;
    float *part = a->parts + blockIdx.x * (a->sums * width);
    float *all = sums_in_shared(half, a) ? shared + MAX_WARPS : part;
    uint32_t most = 0;
    for (int64_t i = threadIdx.x; i < per_part * groups; i += blockDim.x) all[i] = 0;
    __syncthreads();
    for (int64_t first = (int64_t)blockIdx.x * groups; first < a->rows.n;
         first += (int64_t)gridDim.x * groups) {
        most = norm_grad_row(half, a, first + group, lane, held, all + group * per_part, most);
        if (a->amax.of != AMAX_rows) continue;
        row_amax(a->amax, a->rows, first + group, lane, most, (uint32_t *)held);
        most = 0;
    }
    if (a->amax.of == AMAX_all) block_amax(a->amax, most, (uint32_t *)held);
    __syncthreads();
    if (!sums_in_shared(half, a)) return;
    for (int64_t i = threadIdx.x; i < a->sums * width; i += blockDim.x) {
        int sum = (int)(i / width), column = (int)(i % width);
        int64_t slot = sum * a->pitch + slope_slot(half, a, column, column % EIGHT);
        float total = 0;
        for (int g = 0; g < groups; g++) total += all[g * per_part + slot];
        part[i] = total;
    }
}

KERNEL(norm_grad_rows, NormGradArgs, GRAD_THREADS, 4)
{
    SHARED(float, shared);
    norm_grad_block(false, &a, shared);
}

KERNEL(norm_grad_rows_half, NormGradArgs, GRAD_THREADS, 4)
{
    SHARED(float, shared);
    norm_grad_block(true, &a, shared);
}

/* Returns how the rows are divided. For a row of up to 1024 elements, these are at most the threads
 * of one warp. A block then has several groups of threads, each with its own sums. */
static Rows grad_rows(int64_t n, int64_t width)
{
    int64_t eights = ceil_div(width, EIGHT);
    return rows_of(n, width, HELD, 16, eights <= 128 ? (int)WARP : (int)GRAD_THREADS);
}

/* Returns the number of blocks. Each block makes one row of partial sums. */
static int64_t grad_parts(int64_t n, int64_t width)
{
    Rows rows = grad_rows(n, width);
    int64_t groups = rows.lanes > WARP ? 1 : GRAD_THREADS / rows.lanes;
    return blocks_for(n, groups, COLUMN_PARTS);
}

uint64_t cuda_norm_grad_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                  uint32_t n_args)
{
    (void)dtype, (void)n_args;
    int64_t width = elements[2], sums = op == OP_layernorm_grad ? 2 : 1;
    int64_t n = elements[0] / width, parts = grad_parts(n, width);
    if (parts < norm_grad_column_parts(n, width)) parts = norm_grad_column_parts(n, width);
    return (uint64_t)(parts * sums * width) * sizeof(float);
}

/* Launches the first stage, which computes dx and `parts` rows of partial sums. */
static bool norm_grad_first(NormGradArgs p, int64_t parts, const CudaContext *cuda,
                            CudaError *error)
{
    int64_t threads = p.rows.lanes > WARP ? p.rows.lanes : GRAD_THREADS;
    p.apart = (int32_t)ceil_div(p.rows.eights - 4, WARP) * WARP + 4;
    uint64_t shared = (uint64_t)(threads / p.rows.lanes * p.sums * p.apart * EIGHT) * sizeof(float);
    const uint64_t held = MAX_WARPS * sizeof(float);
    p.in_shared = held + shared <= shared_most(cuda);
    p.pitch = p.in_shared ? p.apart * EIGHT : (int32_t)p.rows.width;
    const uint64_t bytes = held + (p.in_shared ? shared : 0);
    if (!amax_clear(p.amax, cuda, error)) return false;
    bool half = p.in_shared && norm_is_half(p.dy) && norm_is_half(p.x) && norm_is_half(p.weight) &&
                norm_is_half(p.dx);
    return half ? LAUNCH(norm_grad_rows_half, parts, threads, bytes, p, cuda, error)
                : LAUNCH(norm_grad_rows, parts, threads, bytes, p, cuda, error);
}

static bool norm_grad(const KernelArgs *args, NormGradArgs p, int64_t n, int64_t width,
                      const CudaContext *cuda, CudaError *error)
{
    uint32_t n_out = 1 + (uint32_t)p.sums;
    p.rows = grad_rows(n, width);
    p.dy = array_of(args, 0, width), p.x = array_of(args, 1, width);
    p.weight = array_of(args, 2, width);
    p.dx = array_of(args, args->n_in, width);
    p.accumulate = accumulates(args, 0);
    p.parts = (float *)args->ptr[args->n_in + n_out];
    const bool columns = norm_grad_has_columns(&p, width);
    const int64_t parts = columns ? norm_grad_column_parts(n, width) : grad_parts(n, width);
    if (!(columns ? norm_grad_columns(p, cuda, error) : norm_grad_first(p, parts, cuda, error)))
        return false;
    ColumnOut to[COLUMN_OUTS];
    for (uint32_t j = 0; j < (uint32_t)p.sums; j++) {
        to[j].out = array_of(args, args->n_in + 1 + j, width);
        to[j].accumulate = accumulates(args, 1 + j);
    }
    return columns_finish(p.parts, parts, width, to, (uint32_t)p.sums, cuda, error);
}

/* dy [n,width], x [n,width], weight [width], r [n] -> dx [n,width], dweight [width] */
static bool rms_grad(const KernelArgs *args, Amax amax, int64_t n, int64_t width,
                     const CudaContext *cuda, CudaError *error)
{
    NormGradArgs p;
    memset(&p, 0, sizeof p);
    p.sums = 1;
    p.r = array_of(args, 3, 1);
    p.amax = amax;
    return norm_grad(args, p, n, width, cuda, error);
}

/* dy, x [b,s,D], weight [D], mean, r [b,s] -> dx [b,s,D], dweight, dbias [D] */
static bool layer_grad(const KernelArgs *args, Amax amax, const CudaContext *cuda, CudaError *error)
{
    NormGradArgs p;
    memset(&p, 0, sizeof p);
    p.sums = 2, p.centred = true;
    p.mean = array_of(args, 3, 1), p.r = array_of(args, 4, 1);
    p.amax = amax;
    return norm_grad(args, p, args->size['b'] * args->size['s'], args->size['D'], cuda, error);
}

static Amax amax_none(void)
{
    Amax amax;
    memset(&amax, 0, sizeof amax);
    return amax;
}

bool cuda_rmsnorm_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rms_grad(args, amax_none(), args->size['b'] * args->size['s'], args->size['D'], cuda,
                    error);
}

bool cuda_rmsnorm_heads_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rms_grad(args, amax_none(), args->size['b'] * args->size['s'] * args->rows,
                    args->size['E'], cuda, error);
}

bool cuda_layernorm_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return layer_grad(args, amax_none(), cuda, error);
}

uint32_t cuda_norm_grad_length(const CudaChainPart *part, uint32_t n)
{
    const KernelArgs *args = part[0].args;
    if (n < 2 || (part[0].op != OP_rmsnorm_grad && part[0].op != OP_layernorm_grad)) return 0;
    uint32_t dx = args->n_in;
    int64_t rows = args->size['b'] * args->size['s'];
    bool joins = amax_joins(&part[1], args->ptr[dx], args->dtype[dx], args->elements[dx], rows);
    return joins ? 2 : 0;
}

bool cuda_norm_grad_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                        CudaError *error)
{
    const KernelArgs *args = part[0].args;
    assert(n == 2);
    Amax amax = amax_of_part(&part[1]);
    if (part[0].op == OP_layernorm_grad) return layer_grad(args, amax, cuda, error);
    return rms_grad(args, amax, args->size['b'] * args->size['s'], args->size['D'], cuda, error);
}
