/* Gradients of norms for bf16 rows of common widths. A thread computes the same eight columns in
 * all rows of its block, so that its sums for dweight and dbias stay in registers. A group of
 * threads processes two rows at a time. While it does so, the numbers of its next two rows arrive
 * in shared memory, where each thread reads only its own. So loads are always under way, also
 * during the barriers for the sums over a row. */
#include "kernels/cuda/norm/norm_grad.cuh"
#include "kernels/cuda/product/mma.cuh"

enum {
    COLUMN_THREADS = 256,
    COLUMN_BLOCKS_PER_SM = 3,
    COLUMN_ROWS = 2,   /* rows that a group of threads processes at a time */
    COLUMN_STAGES = 2, /* pairs of rows in shared memory at the same time, for each group */
    COLUMN_VALUES = 4, /* values that are summed over the threads of a row: two for each of these
                          rows */
    /* number of floats in shared memory that column_sums needs */
    HELD_VALUES = 2 * COLUMN_THREADS / WARP * COLUMN_VALUES,
    COLUMN_SMS = 132 /* the H100's number of multiprocessors, used on all devices so that all give
                        the same bits */
};

/* What a thread keeps in shared memory: its weights, and for each row dy, x, and the earlier dx. */
enum { KEPT_dy, KEPT_x, KEPT_old, KEPT_OF_ROW };
enum { KEPT_ALL = 1 + COLUMN_STAGES * COLUMN_ROWS * KEPT_OF_ROW };

/* Returns the place of eight bf16 numbers of this thread in row j of a stage. `kept` begins with
 * the weights of all threads. */
DEVICE uint4 *column_slot(uint4 *kept, int stage, int j, int which)
{
    const int slot = 1 + (stage * COLUMN_ROWS + j) * KEPT_OF_ROW + which;
    return kept + slot * (int)blockDim.x + (int)threadIdx.x;
}

DEVICE Raw column_raw(const uint4 *slot)
{
    const uint4 four = *ALIGNED(const uint4, slot);
    Raw raw = raw_zero();
    raw.word[0] = four.x, raw.word[1] = four.y, raw.word[2] = four.z, raw.word[3] = four.w;
    return raw;
}

/* Statistics of a row: mean, and 1 / deviation. */
typedef struct Column {
    float mean, r;
} Column;

DEVICE void column_copy(uint4 *slot, Array x, int64_t at, bool real)
{
    copy_start(shared_of(slot), x.at + at * (int)sizeof(uint16_t), real);
}

/* Starts to copy this thread's columns of a row to a stage, zeros if the row or the columns do not
 * exist. Returns the row's statistics. */
DEVICE Column column_start(const NormGradArgs *a, const bool centred, int row, int column, bool own,
                           uint4 *kept, int stage, int j)
{
    const bool exists = row < (int)a->rows.n, real = exists && own;
    const int64_t at = real ? (int64_t)row * (int)a->rows.width + column : 0;
    Column c;
    column_copy(column_slot(kept, stage, j, KEPT_dy), a->dy, at, real);
    column_copy(column_slot(kept, stage, j, KEPT_x), a->x, at, real);
    if (a->accumulate) column_copy(column_slot(kept, stage, j, KEPT_old), a->dx, at, real);
    c.r = exists ? ((const float *)a->r.at)[row] : 0;
    c.mean = exists && centred ? ((const float *)a->mean.at)[row] : 0;
    return c;
}

/* Computes for eight columns: dy in fp32, g = dy * weight, away = x - mean. */
DEVICE void column_slopes(const Column *c, uint4 *kept, int stage, int j, float dy[EIGHT],
                          float g[EIGHT], float away[EIGHT])
{
    float weight[EIGHT];
    const Raw raw[] = {column_raw(kept + threadIdx.x),
                       column_raw(column_slot(kept, stage, j, KEPT_dy)),
                       column_raw(column_slot(kept, stage, j, KEPT_x))};
    widen_any(KINDS_real, DT_bf16, &raw[0], weight);
    widen_any(KINDS_real, DT_bf16, &raw[1], dy);
    widen_any(KINDS_real, DT_bf16, &raw[2], away);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        g[k] = dy[k] * weight[k];
        away[k] -= c->mean;
    }
}

/* Adds one row to the sums of this thread's columns. `by` gets this thread's part of two sums over
 * the row: of g, and of g * away. */
DEVICE void column_add(const Column *c, const bool centred, uint4 *kept, int stage, int j,
                       float dweight[EIGHT], float dbias[EIGHT], float by[2])
{
    float dy[EIGHT], g[EIGHT], away[EIGHT];
    column_slopes(c, kept, stage, j, dy, g, away);
    by[0] = by[1] = 0;
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        dweight[k] = fmaf(dy[k] * c->r, away[k], dweight[k]);
        if (centred) dbias[k] += dy[k], by[0] += g[k];
        by[1] = fmaf(g[k], away[k], by[1]);
    }
}

/* Writes dx of this thread's columns. `means` has the means of g, and of g times the normalised
 * input. Returns the largest magnitude that it writes. */
DEVICE uint32_t column_write(const NormGradArgs *a, const Column *c, const bool centred,
                             uint4 *kept, int stage, int j, int64_t at, const float means[2])
{
    const float least = c->r * means[0], slope = -c->r * c->r * means[1];
    float dy[EIGHT], g[EIGHT], away[EIGHT], dx[EIGHT], old[EIGHT];
    column_slopes(c, kept, stage, j, dy, g, away);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        dx[k] = centred ? fmaf(g[k], c->r, -least) : g[k] * c->r;
        dx[k] = fmaf(away[k], slope, dx[k]);
    }
    if (a->accumulate) {
        const Raw raw = column_raw(column_slot(kept, stage, j, KEPT_old));
        widen_any(KINDS_real, DT_bf16, &raw, old);
        UNROLL for (int k = 0; k < EIGHT; k++) dx[k] = old[k] + dx[k];
    }
    store(array_as_bf16(a->dx), at, EIGHT, dx);
    round_all(DT_bf16, dx);
    return amax_of_eight(dx, EIGHT, 0);
}

/* Raises the maximum of the row, or of the whole tensor, to the largest magnitude of the warp. */
DEVICE void column_raise(const NormGradArgs *a, int64_t row, uint32_t most)
{
    most = warp_largest(most);
    if (threadIdx.x % WARP > 0 || row >= a->rows.n) return;
    atomicMax(a->amax.of == AMAX_rows ? &a->amax.out[row] : a->amax.out, most);
}

/* Adds each value over the threads of the row; each thread gets the sums. Successive calls use
 * different halves of `held`. So a warp that is already in the next call does not overwrite numbers
 * that other warps still read. */
DEVICE void column_sums(const int n, int per_row, float value[COLUMN_VALUES], float *held)
{
    const int warp = (int)threadIdx.x / WARP;
    const int first = (int)threadIdx.x / per_row * per_row / WARP;
    UNROLL for (int i = 0; i < COLUMN_VALUES; i++)
    {
        if (i >= n) continue;
        value[i] = warp_sum(value[i]);
        if (threadIdx.x % WARP == 0) held[warp * COLUMN_VALUES + i] = value[i];
        value[i] = 0;
    }
    __syncthreads();
    for (int w = first; w < first + per_row / WARP; w++)
        UNROLL for (int i = 0; i < COLUMN_VALUES; i++) if (i < n) value[i] +=
            held[w * COLUMN_VALUES + i];
}

/* Adds the sums of the block's groups and writes the result. The position of a column in shared
 * memory is chosen so that the lanes of a warp use different banks. This holds if they have
 * neighbouring groups of eight columns, and also if they have neighbouring columns. */
DEVICE void column_finish(const NormGradArgs *a, const bool centred, int per_row, bool own,
                          const float dweight[EIGHT], const float dbias[EIGHT], float *shared)
{
    const int apart = per_row + 4, groups = (int)blockDim.x / per_row;
    const int group = (int)threadIdx.x / per_row, t = (int)threadIdx.x % per_row;
    const int width = (int)a->rows.width, sums = centred ? 2 : 1;
    float *const to = shared + group * sums * EIGHT * apart;
    __syncthreads();
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        if (!own) continue;
        to[k * apart + t] = dweight[k];
        if (centred) to[(EIGHT + k) * apart + t] = dbias[k];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < sums * width; i += (int)blockDim.x) {
        const int sum = i / width, column = i - sum * width;
        const int at = (sum * EIGHT + column % EIGHT) * apart + column / EIGHT;
        float total = 0;
        for (int g = 0; g < groups; g++) total += shared[g * sums * EIGHT * apart + at];
        a->parts[(int64_t)blockIdx.x * sums * width + i] = total;
    }
}

/* Computes two rows, whose numbers lie in `stage`. */
DEVICE void column_rows(const NormGradArgs *a, const bool centred, const bool finds, int row,
                        const Column c[COLUMN_ROWS], uint4 *kept, int stage, float *held,
                        float dweight[EIGHT], float dbias[EIGHT])
{
    const int per_row = a->rows.lanes, column = (int)threadIdx.x % per_row * EIGHT;
    const bool own = column < a->rows.width;
    const float width = (float)a->rows.width;
    float value[COLUMN_VALUES];
    UNROLL for (int j = 0; j < COLUMN_ROWS; j++)
    {
        float by[2];
        column_add(&c[j], centred, kept, stage, j, dweight, dbias, by);
        value[j] = by[1], value[COLUMN_ROWS + j] = by[0];
    }
    column_sums(centred ? COLUMN_VALUES : COLUMN_ROWS, per_row, value,
                held + stage * (HELD_VALUES / 2));
    UNROLL for (int j = 0; j < COLUMN_ROWS; j++)
    {
        const float means[2] = {value[COLUMN_ROWS + j] / width, value[j] * c[j].r / width};
        const int64_t at = (int64_t)(row + j) * (int)a->rows.width + column;
        uint32_t most = 0;
        if (own && row + j < (int)a->rows.n)
            most = column_write(a, &c[j], centred, kept, stage, j, at, means);
        if (finds) column_raise(a, row + j, most);
    }
}

/* Computes the rows of a block. If `finds` is true, it also finds the largest magnitudes of dx. */
DEVICE void column_block(const NormGradArgs *a, const bool centred, const bool finds, float *held)
{
    const int per_row = a->rows.lanes, groups = (int)blockDim.x / per_row;
    const int group = (int)threadIdx.x / per_row, column = (int)threadIdx.x % per_row * EIGHT;
    const bool own = column < a->rows.width;
    const int n = (int)a->rows.n, step = (int)gridDim.x * groups * COLUMN_ROWS;
    uint4 *const kept = ALIGNED(uint4, held + HELD_VALUES);
    float dweight[EIGHT], dbias[EIGHT];
    Column next[COLUMN_ROWS];
    int row = ((int)blockIdx.x * groups + group) * COLUMN_ROWS, stage = 0;
    UNROLL for (int k = 0; k < EIGHT; k++) dweight[k] = dbias[k] = 0;
    column_copy(kept + threadIdx.x, a->weight, own ? column : 0, own);
    UNROLL for (int j = 0; j < COLUMN_ROWS; j++) next[j] =
        column_start(a, centred, row + j, column, own, kept, 0, j);
    copies_commit();
    for (int first = (int)blockIdx.x * groups * COLUMN_ROWS; first < n; first += step) {
        Column c[COLUMN_ROWS];
        UNROLL for (int j = 0; j < COLUMN_ROWS; j++)
        {
            c[j] = next[j];
            next[j] = column_start(a, centred, row + step + j, column, own, kept, 1 - stage, j);
        }
        copies_commit();
        copies_wait(1);
        column_rows(a, centred, finds, row, c, kept, stage, held, dweight, dbias);
        row += step, stage = 1 - stage;
    }
    copies_wait(0);
    column_finish(a, centred, per_row, own, dweight, dbias, held);
}

#define COLUMN_KERNEL(name, centred, finds, blocks_per_sm)                                         \
    KERNEL(name, NormGradArgs, COLUMN_THREADS, blocks_per_sm)                                      \
    {                                                                                              \
        SHARED(float, held);                                                                       \
        column_block(&a, centred, finds, held);                                                    \
    }
COLUMN_KERNEL(norm_grad_columns_layer, true, false, COLUMN_BLOCKS_PER_SM)
COLUMN_KERNEL(norm_grad_columns_layer_amax, true, true, 2)
COLUMN_KERNEL(norm_grad_columns_rms, false, false, COLUMN_BLOCKS_PER_SM)
COLUMN_KERNEL(norm_grad_columns_rms_amax, false, true, 2)

/* ---- which calls these kernels compute ---- */

static bool has_width(int64_t width)
{
    return width % EIGHT == 0 && width > WARP * EIGHT && width <= COLUMN_THREADS * EIGHT;
}

/* The answer does not depend on a fused amax, so that a gradient has equal bits with and without
 * amax. */
bool norm_grad_has_columns(const NormGradArgs *p, int64_t width)
{
    return has_width(width) && array_is_bf16(p->dy) && array_is_bf16(p->x) &&
           array_is_bf16(p->weight) && array_is_bf16(p->dx) && p->r.dtype == DT_f32 &&
           (!p->centred || p->mean.dtype == DT_f32) && p->rows.n < INT32_MAX / 2;
}

/* Returns the number of threads for a row, a multiple of 32. */
static int column_threads(int64_t width)
{
    return (int)ceil_div(width, WARP * EIGHT) * WARP;
}

/* Returns the number of groups of threads in a block. */
static int column_groups(int64_t width)
{
    return COLUMN_THREADS / column_threads(width);
}

/* Returns the number of blocks, chosen so that all blocks run at the same time on an H100. */
int64_t norm_grad_column_parts(int64_t n, int64_t width)
{
    if (!has_width(width)) return 0;
    const int groups = column_groups(width), threads = groups * column_threads(width);
    const int at_once = COLUMN_THREADS * COLUMN_BLOCKS_PER_SM / threads;
    return blocks_for(n, (int64_t)groups * COLUMN_ROWS, (int64_t)COLUMN_SMS * at_once);
}

#define COLUMN_LAUNCH(name) LAUNCH(name, parts, groups *per_row, bytes, p, cuda, error)

bool norm_grad_columns(NormGradArgs p, const CudaContext *cuda, CudaError *error)
{
    const int per_row = column_threads(p.rows.width), groups = column_groups(p.rows.width);
    p.rows.lanes = per_row;
    const int64_t parts = norm_grad_column_parts(p.rows.n, p.rows.width);
    const uint64_t sums = (uint64_t)(groups * p.sums * EIGHT * (per_row + 4));
    const uint64_t held =
        HELD_VALUES * sizeof(float) + (uint64_t)(groups * per_row) * KEPT_ALL * sizeof(uint4);
    const uint64_t bytes = sums * sizeof(float) > held ? sums * sizeof(float) : held;
    if (p.amax.of == AMAX_rows &&
        !device_zero(p.amax.out, (uint64_t)p.rows.n * sizeof(float), cuda, error))
        return false;
    if (!amax_clear(p.amax, cuda, error)) return false;
    if (p.amax.of != AMAX_nothing)
        return p.centred ? COLUMN_LAUNCH(norm_grad_columns_layer_amax)
                         : COLUMN_LAUNCH(norm_grad_columns_rms_amax);
    return p.centred ? COLUMN_LAUNCH(norm_grad_columns_layer)
                     : COLUMN_LAUNCH(norm_grad_columns_rms);
}
