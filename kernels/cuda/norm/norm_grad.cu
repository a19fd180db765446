/* Gradients of RMSNorm and LayerNorm. With xh the normalised input and g = dy * weight:
 *   rmsnorm    dx = r (g - xh mean(g xh))             dweight = sum dy xh
 *   layernorm  dx = r (g - mean(g) - xh mean(g xh))   dweight = sum dy xh, dbias = sum dy
 * A block processes every COLUMN_PARTS-th row, or group of narrow rows, and keeps its part of the
 * weights' gradients in shared memory meanwhile. A second kernel adds those parts. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/workspace.h"

enum { GRAD_THREADS = 256 };

typedef struct NormGradArgs {
    Array dy, x, weight, mean, r, dx;
    float *parts; /* [parts, sums, width] */
    Rows rows;
    int32_t sums; /* 1: dweight; 2: dweight and dbias */
    bool accumulate, centred;
    bool in_shared; /* sums of a group of threads are in shared memory: [groups, sums, pitch]; else
                       directly in `parts` */
    int64_t pitch, apart; /* apart: distance in shared memory between sums of successive k */
    Amax amax;            /* of dx */
} NormGradArgs;

typedef struct Slope {
    float g[HELD][EIGHT], xh[HELD][EIGHT]; /* dy weight; the normalised input */
    float dy[HELD][EIGHT];
} Slope;

/* Loads the thread's groups of eight of a row from `base` on; zeros beyond the row. */
DEVICE void slope_load(const NormGradArgs *a, int64_t row, int base, int lane, float mean, float r,
                       Slope *s)
{
    Raw dy[HELD], x[HELD];
    UNROLL for (int u = 0; u < HELD; u++)
    {
        int64_t column = row_column(a->rows, base, u, lane), at = row * a->rows.width + column;
        int n = row_count(a->rows, row, column);
        dy[u] = fetch(a->dy, at, n);
        x[u] = fetch(a->x, at, n);
    }
    UNROLL for (int u = 0; u < HELD; u++)
    {
        int64_t column = row_column(a->rows, base, u, lane);
        int n = row_count(a->rows, row, column);
        float weight[EIGHT];
        load(a->weight, column, n, weight);
        widen_all(a->dy, &dy[u], s->dy[u]);
        widen_all(a->x, &x[u], s->xh[u]);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            s->g[u][k] = s->dy[u][k] * weight[k];
            s->xh[u][k] = k < n ? (s->xh[u][k] - mean) * r : 0;
        }
    }
}

/* Returns the shared-memory index of the sum of a column that is the k-th of its eight. Sums are
 * stored apart by k, so that the lanes of a warp use different banks. Each k is shifted by 4 more
 * banks, so that this also holds for lanes with neighbouring columns. */
DEVICE int64_t slope_slot(const NormGradArgs *a, int64_t column, int k)
{
    return a->in_shared ? k * a->apart + column / EIGHT : column + k;
}

/* Adds to this thread's columns in its group's sums. */
DEVICE void slope_keep(const NormGradArgs *a, const Slope *s, int u, int64_t column, int n,
                       float *sums)
{
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        if (k >= n) continue;
        int64_t slot = slope_slot(a, column, k);
        sums[slot] += s->dy[u][k] * s->xh[u][k];
        if (a->sums > 1) sums[a->pitch + slot] += s->dy[u][k];
    }
}

/* Returns the larger of `most` and the magnitudes that it writes. */
DEVICE uint32_t slope_write(const NormGradArgs *a, const Slope *s, int u, int64_t at, int n,
                            float r, float mean_g, float mean_gx, uint32_t most)
{
    float dx[EIGHT], old[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) dx[k] =
        r * (s->g[u][k] - mean_g - s->xh[u][k] * mean_gx);
    if (a->accumulate) {
        load(a->dx, at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) dx[k] = old[k] + dx[k];
    }
    store(a->dx, at, n, dx);
    if (a->amax.of == AMAX_nothing) return most;
    round_all(a->dx.dtype, dx);
    return amax_of_eight(dx, n, most);
}

/* Returns the larger of `most` and the magnitudes that this thread writes. */
DEVICE uint32_t norm_grad_row(const NormGradArgs *a, int64_t row, int lane, float *held,
                              float *sums, uint32_t most)
{
    Slope s;
    int stride = HELD * a->rows.lanes;
    bool real = row < a->rows.n;
    float r = real ? read_one(a->r, row) : 0,
          mean = real && a->centred ? read_one(a->mean, row) : 0;
    float mean_g = 0, mean_gx = 0, width = (float)a->rows.width;
    for (int base = 0; base < a->rows.eights; base += stride) {
        slope_load(a, row, base, lane, mean, r, &s);
        UNROLL for (int u = 0; u < HELD; u++) UNROLL for (int k = 0; k < EIGHT; k++)
        {
            mean_g += s.g[u][k];
            mean_gx = fmaf(s.g[u][k], s.xh[u][k], mean_gx);
        }
    }
    mean_gx = row_sum(a->rows, mean_gx, held) / width;
    mean_g = a->centred ? row_sum(a->rows, mean_g, held) / width : 0;
    for (int base = 0; base < a->rows.eights; base += stride) {
        if (a->rows.eights > stride) slope_load(a, row, base, lane, mean, r, &s);
        UNROLL for (int u = 0; u < HELD; u++)
        {
            int64_t column = row_column(a->rows, base, u, lane);
            int n = row_count(a->rows, row, column);
            if (n == 0) continue;
            slope_keep(a, &s, u, column, n, sums);
            most = slope_write(a, &s, u, row * a->rows.width + column, n, r, mean_g, mean_gx, most);
        }
    }
    return most;
}

KERNEL(norm_grad_rows, NormGradArgs, GRAD_THREADS, 2)
{
    SHARED(float, shared);
    float *held = shared;
    int groups = (int)blockDim.x / a.rows.lanes, group = (int)threadIdx.x / a.rows.lanes;
    int lane = (int)threadIdx.x % a.rows.lanes;
    int64_t per_part = a.sums * a.pitch, width = a.rows.width;
    float *part = a.parts + blockIdx.x * (a.sums * width);
    float *all = a.in_shared ? shared + MAX_WARPS : part;
    uint32_t most = 0;
    for (int64_t i = threadIdx.x; i < per_part * groups; i += blockDim.x) all[i] = 0;
    __syncthreads();
    for (int64_t first = (int64_t)blockIdx.x * groups; first < a.rows.n;
         first += (int64_t)gridDim.x * groups) {
        most = norm_grad_row(&a, first + group, lane, held, all + group * per_part, most);
        if (a.amax.of != AMAX_rows) continue;
        row_amax(a.amax, a.rows, first + group, lane, most, (uint32_t *)held);
        most = 0;
    }
    if (a.amax.of == AMAX_all) block_amax(a.amax, most, (uint32_t *)held);
    __syncthreads();
    if (!a.in_shared) return;
    for (int64_t i = threadIdx.x; i < a.sums * width; i += blockDim.x) {
        int64_t sum = i / width, column = i % width;
        int64_t slot = sum * a.pitch + slope_slot(&a, column, (int)(column % EIGHT));
        float total = 0;
        for (int g = 0; g < groups; g++) total += all[g * per_part + slot];
        part[i] = total;
    }
}

/* A row up to 1024 wide is handled by a warp or less; a block then has sums for each of its groups
 * of threads. */
static Rows grad_rows(int64_t n, int64_t width)
{
    int64_t eights = ceil_div(width, EIGHT);
    return rows_of(n, width, HELD, 16, eights <= 128 ? (int)WARP : (int)GRAD_THREADS);
}

/* Returns the number of blocks, each with a row of partial sums. */
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
    return (uint64_t)(grad_parts(elements[0] / width, width) * sums * width) * sizeof(float);
}

static bool norm_grad(const KernelArgs *args, NormGradArgs p, int64_t n, int64_t width,
                      const CudaContext *cuda, CudaError *error)
{
    uint32_t n_out = 1 + (uint32_t)p.sums;
    int64_t parts = grad_parts(n, width);
    p.rows = grad_rows(n, width);
    p.dy = array_of(args, 0, width), p.x = array_of(args, 1, width);
    p.weight = array_of(args, 2, width);
    p.dx = array_of(args, args->n_in, width);
    p.accumulate = accumulates(args, 0);
    p.parts = (float *)args->ptr[args->n_in + n_out];
    int64_t threads = p.rows.lanes > WARP ? p.rows.lanes : GRAD_THREADS;
    p.apart = ceil_div(p.rows.eights - 4, WARP) * WARP + 4;
    uint64_t shared = (uint64_t)(threads / p.rows.lanes * p.sums * p.apart * EIGHT) * sizeof(float);
    const uint64_t held = MAX_WARPS * sizeof(float);
    p.in_shared = held + shared <= shared_most(cuda);
    p.pitch = p.in_shared ? p.apart * EIGHT : width;
    if (!amax_clear(p.amax, cuda, error) ||
        !LAUNCH(norm_grad_rows, parts, threads, held + (p.in_shared ? shared : 0), p, cuda, error))
        return false;
    for (uint32_t j = 0; j < (uint32_t)p.sums; j++) {
        Array sums = array_f32(p.parts + j * (uint64_t)width, width);
        Array out = array_of(args, args->n_in + 1 + j, width);
        if (!columns_sum(sums, parts, p.sums * width, out, width, accumulates(args, 1 + j), cuda,
                         error))
            return false;
    }
    return true;
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
