/* Sums over the rows of a matrix, column by column. This file computes the gradients of biases, and
 * the second stage for the gradients of norm weights. In the first stage, a block adds rows of 256
 * columns. Each of its warps adds every eighth row, and each lane has eight columns. At the end,
 * the sums of the warps are added in order. The second stage has few rows. To have enough blocks
 * even so, a block of this stage adds only eight columns, and each pair of lanes adds every 128th
 * row. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/workspace.h"

enum { COLUMN_WARPS = 8, COLUMN_TILE = WARP * EIGHT, COLUMN_THREADS = COLUMN_WARPS * WARP };

typedef struct ColumnArgs {
    Array x, out;
    int64_t rows, pitch, columns;
    int64_t tiles, part; /* tiles: number of tiles of 256 columns; part: number of rows that a block
                            adds to one row of `out` */
    bool accumulate;
} ColumnArgs;

/* Adds rows first, first + COLUMN_WARPS, ... below `end` to `total`, in this lane's columns. */
DEVICE void column_add(const ColumnArgs *a, int64_t first, int64_t end, int64_t column, int n,
                       float total[EIGHT])
{
    enum { AHEAD = 4 };
    for (int64_t row = first; row < end; row += AHEAD * COLUMN_WARPS) {
        Raw raw[AHEAD];
        UNROLL for (int u = 0; u < AHEAD; u++)
        {
            int64_t at = row + u * COLUMN_WARPS;
            raw[u] = fetch(a->x, at * a->pitch + column, at < end ? n : 0);
        }
        UNROLL for (int u = 0; u < AHEAD; u++)
        {
            float x[EIGHT];
            widen_all(a->x, &raw[u], x);
            UNROLL for (int k = 0; k < EIGHT; k++) total[k] += x[k];
        }
    }
}

KERNEL(column_sums, ColumnArgs, COLUMN_THREADS, 3)
{
    SHARED(float, held); /* [warp, column of the tile] */
    int64_t part = blockIdx.x / a.tiles, first = part * a.part, end = first + a.part;
    int64_t column = blockIdx.x % a.tiles * COLUMN_TILE + threadIdx.x % WARP * EIGHT;
    int n = eight_of(column, a.columns), warp = (int)threadIdx.x / WARP;
    float total[EIGHT], old[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) total[k] = 0;
    if (end > a.rows) end = a.rows;
    column_add(&a, first + warp, end, column, n, total);
    UNROLL for (int k = 0; k < EIGHT; k++)
        held[warp * COLUMN_TILE + k * WARP + (int)threadIdx.x % WARP] = total[k];
    __syncthreads();
    if (warp > 0 || n == 0) return;
    UNROLL for (int k = 0; k < EIGHT; k++) for (int w = 1; w < COLUMN_WARPS; w++) total[k] +=
        held[w * COLUMN_TILE + k * WARP + (int)threadIdx.x];
    if (a.accumulate) {
        load(a.out, part * a.columns + column, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) total[k] = old[k] + total[k];
    }
    store(a.out, part * a.columns + column, n, total);
}

/* ---- the second stage ---- */

enum { FEW_COLUMNS = 8, FEW_ROWS = COLUMN_THREADS / 2, FEW_EACH = FEW_COLUMNS / 2 };

typedef struct FewArgs {
    const float *x;
    ColumnOut to[COLUMN_OUTS];
    int64_t rows, pitch, columns;
    int64_t blocks; /* of an output */
    bool wide;      /* four columns can be loaded at once */
} FewArgs;

/* Loads n <= 4 columns of a row and sets the rest to 0. */
DEVICE float4 few_fetch(const FewArgs *a, int64_t row, int64_t column, int n)
{
    const float *at = a->x + row * a->pitch + column;
    float4 four;
    if (a->wide && n == FEW_EACH) return *ALIGNED(const float4, at);
    four.x = n > 0 ? at[0] : 0, four.y = n > 1 ? at[1] : 0;
    four.z = n > 2 ? at[2] : 0, four.w = n > 3 ? at[3] : 0;
    return four;
}

/* Adds this thread's rows (every 128th) to `total`, in its n columns. */
DEVICE void few_add(const FewArgs *a, int64_t column, int n, float total[FEW_EACH])
{
    enum { AHEAD = 4 };
    for (int64_t row = threadIdx.x / 2; row < a->rows; row += AHEAD * FEW_ROWS) {
        float4 four[AHEAD];
        UNROLL for (int u = 0; u < AHEAD; u++)
        {
            int64_t at = row + u * FEW_ROWS;
            four[u] = few_fetch(a, at, column, at < a->rows ? n : 0);
        }
        UNROLL for (int u = 0; u < AHEAD; u++)
        {
            total[0] += four[u].x, total[1] += four[u].y;
            total[2] += four[u].z, total[3] += four[u].w;
        }
    }
}

KERNEL(column_few_rows, FewArgs, COLUMN_THREADS, 4)
{
    SHARED(float, held); /* [warp, column] */
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    const bool second = blockIdx.x >= a.blocks;
    const int64_t block = blockIdx.x - (second ? a.blocks : 0), first = block * FEW_COLUMNS;
    const int64_t column = first + lane % 2 * FEW_EACH, left = a.columns - column;
    const ColumnOut to = second ? a.to[1] : a.to[0];
    float total[FEW_EACH];
    UNROLL for (int k = 0; k < FEW_EACH; k++) total[k] = 0;
    few_add(&a, column + (second ? a.columns : 0), left < FEW_EACH ? (int)left : (int)FEW_EACH,
            total);
    UNROLL for (int k = 0; k < FEW_EACH; k++)
    {
        float x = total[k];
        for (int lanes = WARP / 2; lanes > 1; lanes /= 2) x += __shfl_xor_sync(FULL, x, lanes);
        if (lane < 2) held[warp * FEW_COLUMNS + lane * FEW_EACH + k] = x;
    }
    __syncthreads();
    if (threadIdx.x >= FEW_COLUMNS || first + threadIdx.x >= a.columns) return;
    float sum = 0;
    for (int w = 0; w < COLUMN_WARPS; w++) sum += held[w * FEW_COLUMNS + (int)threadIdx.x];
    if (to.accumulate) sum = read_one(to.out, first + threadIdx.x) + sum;
    write_one(to.out, first + threadIdx.x, sum);
}

bool columns_finish(const float *x, int64_t rows, int64_t columns, const ColumnOut *outs,
                    uint32_t n_outs, const CudaContext *cuda, CudaError *error)
{
    FewArgs p;
    memset(&p, 0, sizeof p);
    assert(n_outs >= 1 && n_outs <= COLUMN_OUTS);
    for (uint32_t i = 0; i < n_outs; i++) p.to[i] = outs[i];
    p.x = x, p.rows = rows, p.pitch = n_outs * columns, p.columns = columns;
    p.blocks = ceil_div(columns, FEW_COLUMNS);
    p.wide = (uintptr_t)x % 16 == 0 && columns % FEW_EACH == 0;
    return LAUNCH(column_few_rows, n_outs * p.blocks, COLUMN_THREADS,
                  COLUMN_WARPS * FEW_COLUMNS * sizeof(float), p, cuda, error);
}

/* ---- both stages ---- */

static bool column_launch(ColumnArgs p, int64_t parts, const CudaContext *cuda, CudaError *error)
{
    p.tiles = ceil_div(p.columns, COLUMN_TILE);
    p.part = ceil_div(p.rows, parts);
    return LAUNCH(column_sums, p.tiles * parts, COLUMN_THREADS,
                  COLUMN_WARPS * COLUMN_TILE * sizeof(float), p, cuda, error);
}

/* Returns into how many parts the rows are divided. There are enough parts to keep the device busy,
 * but never more than COLUMN_PARTS blocks, which run at the same time on an H100. Each part has at
 * least 64 rows, so that the second stage is cheap. */
static int64_t bias_parts(int64_t rows, int64_t columns)
{
    int64_t parts = COLUMN_PARTS / ceil_div(columns, COLUMN_TILE), most = rows / 64;
    if (parts > most) parts = most;
    return parts > 1 ? parts : 1;
}

uint64_t cuda_columns_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                uint32_t n_args)
{
    (void)op, (void)dtype, (void)n_args;
    int64_t columns = elements[1], parts = bias_parts(elements[0] / columns, columns);
    return parts > 1 ? (uint64_t)(parts * columns) * sizeof(float) : 0;
}

/* dy [rows,columns] -> out [columns], the sum over rows */
static bool column_gradient(const KernelArgs *args, int64_t rows, int64_t columns,
                            const CudaContext *cuda, CudaError *error)
{
    ColumnArgs p;
    int64_t parts = bias_parts(rows, columns);
    ColumnOut to;
    to.out = array_of(args, 1, columns), to.accumulate = accumulates(args, 0);
    memset(&p, 0, sizeof p);
    p.x = array_of(args, 0, columns);
    p.rows = rows, p.pitch = p.columns = columns;
    p.out = to.out, p.accumulate = to.accumulate;
    if (parts == 1) return column_launch(p, 1, cuda, error);
    p.out = array_f32(args->ptr[2], columns), p.accumulate = false;
    return column_launch(p, parts, cuda, error) &&
           columns_finish((const float *)args->ptr[2], parts, columns, &to, 1, cuda, error);
}

/* dy [b,s,...] -> dbias [...], the sum over b and s */
bool cuda_bias_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return column_gradient(args, args->size['b'] * args->size['s'], args->rows, cuda, error);
}
