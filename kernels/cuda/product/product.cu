/* Our own kernels for products. One transposes 8-bit operands for the library and bounds their
 * scales from below. Another one applies scales after a product. The plain kernel computes the
 * products that the library does not accept. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

#include "kernels/cuda/product/product.h"
#include "kernels/product.h"

/* ---- preparing 8-bit operands for the library ---- */

enum { TURN_THREADS = 256, TURN_TILE = 64, TURN_WORDS = TURN_TILE / 4, TURN_ROW = TURN_TILE + 4 };

/* A transposition of bytes: to [batch][columns][rows] = from [batch][rows][leading]. */
typedef struct Turn {
    const uint8_t *from;
    uint8_t *to;
    int64_t rows, columns, leading, stride, batch;
    int64_t tiles; /* number of blocks that transpose; 0: nothing is transposed */
} Turn;

typedef struct BoundArgs {
    Array from;
    float *to;
    int64_t n;
} BoundArgs;

typedef struct EightBitArgs {
    Turn a, b;
    BoundArgs scale_a, scale_b;
} EightBitArgs;

DEVICE void turn_tile(const Turn *t, int64_t tile, uint8_t *shared)
{
    int64_t across = (t->columns + TURN_TILE - 1) / TURN_TILE;
    int64_t down = (t->rows + TURN_TILE - 1) / TURN_TILE, of_batch = tile / (across * down);
    int64_t row0 = tile / across % down * TURN_TILE, column0 = tile % across * TURN_TILE;
    const uint8_t *from = t->from + of_batch * t->stride;
    uint8_t *to = t->to + of_batch * t->rows * t->columns;
    int word = (int)threadIdx.x % TURN_WORDS * 4;
    for (int i = (int)threadIdx.x / TURN_WORDS; i < TURN_TILE; i += TURN_THREADS / TURN_WORDS) {
        uint32_t four = 0;
        if (row0 + i < t->rows && column0 + word < t->columns)
            four = *ALIGNED(const uint32_t, from + (row0 + i) * t->leading + column0 + word);
        *ALIGNED(uint32_t, shared + i * TURN_ROW + word) = four;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x / TURN_WORDS; i < TURN_TILE; i += TURN_THREADS / TURN_WORDS) {
        uint32_t four = 0;
        for (int k = 0; k < 4; k++) four |= (uint32_t)shared[(word + k) * TURN_ROW + i] << (8 * k);
        if (column0 + i < t->columns && row0 + word < t->rows)
            *ALIGNED(uint32_t, to + (column0 + i) * t->rows + row0 + word) = four;
    }
}

/* Copies largest magnitudes and raises each to at least 1e-12, as the op's definition does.
 * Otherwise a tensor of zeros would have a scale of 0. */
DEVICE void bound_scales(const BoundArgs *b)
{
    for (int64_t i = threadIdx.x; i < b->n; i += TURN_THREADS) {
        float amax = read_one(b->from, i);
        b->to[i] = amax < 1e-12f ? 1e-12f : amax;
    }
}

/* The first blocks transpose tiles of a, the next ones tiles of b, and the last block bounds the
 * scales. */
KERNEL(product_eight_bit, EightBitArgs, TURN_THREADS, 4)
{
    SHARED(uint8_t, tile);
    int64_t block = blockIdx.x;
    if (block < a.a.tiles) {
        turn_tile(&a.a, block, tile);
    } else if (block < a.a.tiles + a.b.tiles) {
        turn_tile(&a.b, block - a.a.tiles, tile);
    } else {
        bound_scales(&a.scale_a);
        bound_scales(&a.scale_b);
    }
}

static Turn turn_of(const GemmMatrix *x, const ProductMatrix *stored, int64_t batch,
                    const KernelArgs *args, uint8_t *to)
{
    Turn t;
    memset(&t, 0, sizeof t);
    if (!x->turned) return t;
    t.from = (const uint8_t *)args->ptr[x->arg];
    t.to = to;
    t.rows = x->rows, t.columns = x->columns;
    t.leading = stored->leading;
    t.stride = stored->batch_stride;
    t.batch = batch;
    t.tiles = ceil_div(t.rows, TURN_TILE) * ceil_div(t.columns, TURN_TILE) * batch;
    assert(t.rows % GEMM_TURN_WORD == 0 && t.columns % GEMM_TURN_WORD == 0);
    assert(x->source_align >= GEMM_TURN_WORD);
    return t;
}

static BoundArgs bound_of(const KernelArgs *args, uint32_t operand, void *to)
{
    BoundArgs b;
    b.from = array_of(args, 2 + operand, 1);
    b.to = (float *)to;
    b.n = args->elements[2 + operand];
    return b;
}

bool product_prepare_eight_bit(const Gemm *g, const KernelArgs *args, const CudaContext *cuda,
                               CudaError *error)
{
    const GemmScratch s = gemm_scratch(g, args);
    const Product p = product_of(args->binding, args->size);
    uint8_t *scratch = (uint8_t *)args->ptr[args->n_args - 1];
    EightBitArgs e;
    e.a = turn_of(&g->a, &p.y, g->batch, args, scratch + s.turned_a);
    e.b = turn_of(&g->b, &p.x, g->batch, args, scratch + s.turned_b);
    e.scale_a = bound_of(args, g->a.arg, scratch + s.scale_a);
    e.scale_b = bound_of(args, g->b.arg, scratch + s.scale_b);
    return LAUNCH(product_eight_bit, e.a.tiles + e.b.tiles + 1, TURN_THREADS, TURN_TILE * TURN_ROW,
                  e, cuda, error);
}

/* ---- scales after the product ---- */

enum { SCALE_THREADS = 256, SCALE_COLUMNS = 4 * SCALE_THREADS };

/* z [batch][row][columns] = product [batch][rows][columns] times a scale for each row and one for
 * each column. With `accumulate`, the result is added to z. */
typedef struct ScaleArgs {
    const float *product, *scale_row, *scale_column; /* scale_row: the scale of the first row is
                                                        scale_row[0] */
    Array z;
    int64_t rows, columns;
    int64_t z_at, z_row, z_batch; /* in elements: index of the first row; distance between rows;
                                     distance between batches */
    float factor;
    bool accumulate;
} ScaleArgs;

/* One block for each SCALE_COLUMNS columns of a row. */
KERNEL(product_scale, ScaleArgs, SCALE_THREADS, 4)
{
    const int64_t across = (a.columns + SCALE_COLUMNS - 1) / SCALE_COLUMNS;
    const int64_t row = blockIdx.x / across, batch = row / a.rows, i = row % a.rows;
    const int64_t z = a.z_at + batch * a.z_batch + i * a.z_row;
    const float scale = a.factor * a.scale_row[i];
    UNROLL for (int k = 0; k < 4; k++)
    {
        int64_t j = blockIdx.x % across * SCALE_COLUMNS + k * SCALE_THREADS + threadIdx.x;
        if (j < a.columns) {
            float sum = a.product[row * a.columns + j] * scale * a.scale_column[j];
            if (a.accumulate) sum += read_any(KINDS_all, a.z, z + j);
            write_any(KINDS_all, a.z, z + j, sum);
        }
    }
}

bool product_scale_rows(const Gemm *g, const KernelArgs *args, int64_t first,
                        const CudaContext *cuda, CudaError *error)
{
    const GemmScratch s = gemm_scratch(g, args);
    const Product p = product_of(args->binding, args->size);
    char *scratch = (char *)args->ptr[args->n_args - 1];
    ScaleArgs x;
    x.product = (const float *)(scratch + s.unscaled);
    x.scale_row = (const float *)(scratch + s.scale_b) + first;
    x.scale_column = (const float *)(scratch + s.scale_a);
    x.z = array_of(args, g->d.arg, 1);
    x.rows = g->chunk, x.columns = g->m;
    x.z_at = first * p.z.leading;
    x.z_row = p.z.leading;
    x.z_batch = p.z.batch_stride;
    x.factor = (float)args->attrs.scale;
    x.accumulate = accumulates(args, 0);
    int64_t blocks = ceil_div(x.columns, SCALE_COLUMNS) * x.rows * g->batch;
    return LAUNCH(product_scale, blocks, SCALE_THREADS, 0, x, cuda, error);
}

/* ---- random numbers ---- */

typedef struct FillArgs {
    Array x;
    int64_t n;
    uint32_t from;
} FillArgs;

enum { FILL_THREADS = 256, FILL_BLOCKS = 1024 };

KERNEL(product_random, FillArgs, FILL_THREADS, 4)
{
    int64_t step = (int64_t)gridDim.x * FILL_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * FILL_THREADS + threadIdx.x; i < a.n; i += step) {
        uint32_t u = ((uint32_t)i + a.from) * 2654435761u;
        u = (u ^ u >> 15) * 2246822519u;
        u ^= u >> 13;
        write_any(KINDS_all, a.x, i, (float)(u >> 8) * 0x1p-23f - 1);
    }
}

bool product_fill(DType t, void *x, uint64_t bytes, uint32_t which, const CudaContext *cuda,
                  CudaError *error)
{
    FillArgs f;
    f.x.at = (char *)x;
    f.x.dtype = (int32_t)t;
    f.x.wide = false;
    f.n = (int64_t)(bytes / dtype_bytes(t));
    /* all tensors take their numbers from one cycle of 2^32 numbers, and begin at distant places */
    f.from = which * 2246822507u;
    return LAUNCH(product_random, blocks_for(f.n, FILL_THREADS, FILL_BLOCKS), FILL_THREADS, 0, f,
                  cuda, error);
}

/* ---- the plain kernel ---- */

enum { PLAIN_THREADS = 256, PLAIN_TILE = 32, PLAIN_ROW = PLAIN_TILE + 1 };

typedef struct PlainMatrix {
    Array at;
    int64_t row, column, batch; /* distances in elements between neighbours */
} PlainMatrix;

typedef struct PlainProductArgs {
    PlainMatrix x, y, z;
    Array scale_x, scale_y;
    int64_t m, n, k;
    float factor;
    int32_t scaling;
    bool accumulate;
} PlainProductArgs;

DEVICE float plain_read(const PlainMatrix *x, int64_t batch, int64_t row, int64_t column)
{
    return read_any(KINDS_all, x->at, batch * x->batch + row * x->row + column * x->column);
}

DEVICE float plain_scale(Array scale, int32_t scaling, int64_t i)
{
    float amax = read_one(scale, scaling == SCALING_rowwise ? i : 0);
    return amax < 1e-12f ? 1e-12f : amax;
}

DEVICE void plain_write(const PlainProductArgs *a, int64_t batch, int64_t i, int64_t j, float sum)
{
    int64_t at = batch * a->z.batch + i * a->z.row + j;
    if (i >= a->m || j >= a->n) return;
    if (a->scaling != SCALING_none)
        sum = sum * (a->factor * plain_scale(a->scale_x, a->scaling, i)) *
              plain_scale(a->scale_y, a->scaling, j);
    if (a->accumulate) sum += read_any(KINDS_all, a->z.at, at);
    write_any(KINDS_all, a->z.at, at, sum);
}

/* One block for each tile of the output. A thread computes four rows of one column. */
KERNEL(product_tile, PlainProductArgs, PLAIN_THREADS, 4)
{
    SHARED(float, x);
    float *const y = x + PLAIN_TILE * PLAIN_ROW;
    const int64_t across = (a.n + PLAIN_TILE - 1) / PLAIN_TILE;
    const int64_t down = (a.m + PLAIN_TILE - 1) / PLAIN_TILE;
    const int64_t batch = blockIdx.x / (across * down);
    const int64_t i0 = blockIdx.x / across % down * PLAIN_TILE;
    const int64_t j0 = blockIdx.x % across * PLAIN_TILE;
    const int column = (int)threadIdx.x % PLAIN_TILE, row = (int)threadIdx.x / PLAIN_TILE;
    float sum[4] = {0, 0, 0, 0};
    for (int64_t k0 = 0; k0 < a.k; k0 += PLAIN_TILE) {
        UNROLL for (int r = 0; r < 4; r++)
        {
            int i = row + r * 8;
            bool in_x = i0 + i < a.m && k0 + column < a.k, in_y = k0 + i < a.k && j0 + column < a.n;
            x[i * PLAIN_ROW + column] = in_x ? plain_read(&a.x, batch, i0 + i, k0 + column) : 0;
            y[i * PLAIN_ROW + column] = in_y ? plain_read(&a.y, batch, k0 + i, j0 + column) : 0;
        }
        __syncthreads();
        for (int k = 0; k < PLAIN_TILE; k++)
            UNROLL for (int r = 0; r < 4; r++) sum[r] =
                fmaf(x[(row + r * 8) * PLAIN_ROW + k], y[k * PLAIN_ROW + column], sum[r]);
        __syncthreads();
    }
    UNROLL for (int r = 0; r < 4; r++)
        plain_write(&a, batch, i0 + row + r * 8, j0 + column, sum[r]);
}

static PlainMatrix plain_matrix(const KernelArgs *args, uint32_t arg, const ProductMatrix *x)
{
    PlainMatrix m;
    m.at = array_of(args, arg, 1);
    m.row = x->transposed ? 1 : x->leading;
    m.column = x->transposed ? x->leading : 1;
    m.batch = x->batch_stride;
    return m;
}

bool product_plain(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const Product p = product_of(args->binding, args->size);
    PlainProductArgs a;
    memset(&a, 0, sizeof a);
    a.x = plain_matrix(args, p.left, &p.x);
    a.y = plain_matrix(args, p.right, &p.y);
    a.z = plain_matrix(args, args->binding->n_in, &p.z);
    a.m = p.m, a.n = p.n, a.k = p.k;
    a.scaling = (int32_t)op_info(op)->scaling;
    a.factor = (float)args->attrs.scale;
    a.accumulate = accumulates(args, 0);
    if (a.scaling != SCALING_none) {
        a.scale_x = array_of(args, 2 + p.left, 1);
        a.scale_y = array_of(args, 2 + p.right, 1);
    }
    int64_t blocks = ceil_div(p.m, PLAIN_TILE) * ceil_div(p.n, PLAIN_TILE) * p.batch;
    size_t bytes = 2 * PLAIN_TILE * PLAIN_ROW * sizeof(float);
    return LAUNCH(product_tile, blocks, PLAIN_THREADS, bytes, a, cuda, error);
}
