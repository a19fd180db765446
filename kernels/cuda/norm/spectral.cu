/* Spectral norm (ops.def). Once a step, kernels multiply a weight by the two vectors of the power
 * iteration and normalise these vectors. In each micro-batch, other kernels divide by the norm, and
 * compute the norm's contribution to the gradient of the weight. */
#include "kernels/cuda/pointwise/point_launch.cuh"
#include "kernels/cuda/reduce.cuh"

enum { SPECTRAL_THREADS = 256, OUTER_BLOCKS = 528, COLUMN_ROWS = 32 };

typedef struct RowsArgs {
    Array w, x, out; /* w [rows,columns]; x [columns], or of w's shape if `each` is true; out
                        [rows] */
    Array sigma;     /* []: if `each` is true, the negative sums are divided by it */
    int64_t columns;
    bool each;
} RowsArgs;

/* A block computes one row. */
KERNEL(spectral_rows, RowsArgs, SPECTRAL_THREADS, 4)
{
    SHARED(float, held);
    int64_t row = blockIdx.x, first = row * a.columns;
    float sum = 0;
    for (int64_t at = threadIdx.x * EIGHT; at < a.columns; at += SPECTRAL_THREADS * EIGHT) {
        int n = eight_of(at, a.columns);
        float w[EIGHT], x[EIGHT];
        load(a.w, first + at, n, w);
        load(a.x, a.each ? first + at : at, n, x);
        UNROLL for (int k = 0; k < EIGHT; k++) sum += w[k] * x[k];
    }
    sum = block_sum(sum, held);
    if (threadIdx.x > 0) return;
    write_one(a.out, row, a.each ? -sum / read_one(a.sigma, 0) : sum);
}

static bool rows_launch(const KernelArgs *args, int64_t rows, int64_t columns, bool each,
                        const CudaContext *cuda, CudaError *error)
{
    RowsArgs p;
    memset(&p, 0, sizeof p);
    p.w = array_of(args, 0, columns), p.x = array_of(args, 1, columns);
    p.out = array_of(args, args->n_in, 1);
    if (each) p.sigma = array_of(args, 2, 1);
    p.columns = columns, p.each = each;
    return LAUNCH(spectral_rows, rows, SPECTRAL_THREADS, MAX_WARPS * sizeof(float), p, cuda, error);
}

typedef struct ColumnsArgs {
    Array w, x, out; /* w [rows,columns], x [rows], out [columns] */
    int64_t rows, columns;
} ColumnsArgs;

/* A thread computes eight columns. Rows are added in groups of COLUMN_ROWS, because long sums lose
 * precision. */
KERNEL(spectral_columns, ColumnsArgs, SPECTRAL_THREADS, 4)
{
    int64_t column = ((int64_t)blockIdx.x * SPECTRAL_THREADS + threadIdx.x) * EIGHT;
    int n = eight_of(column, a.columns);
    float sum[EIGHT], part[EIGHT], w[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) sum[k] = part[k] = 0;
    if (n == 0) return;
    for (int64_t row = 0; row < a.rows; row++) {
        float x = read_one(a.x, row);
        load(a.w, row * a.columns + column, n, w);
        UNROLL for (int k = 0; k < EIGHT; k++) part[k] += x * w[k];
        if ((row + 1) % COLUMN_ROWS != 0 && row + 1 < a.rows) continue;
        UNROLL for (int k = 0; k < EIGHT; k++) sum[k] += part[k], part[k] = 0;
    }
    store(a.out, column, n, sum);
}

static bool columns_launch(const KernelArgs *args, int64_t rows, int64_t columns,
                           const CudaContext *cuda, CudaError *error)
{
    ColumnsArgs p;
    memset(&p, 0, sizeof p);
    p.w = array_of(args, 0, columns), p.x = array_of(args, 1, 1);
    p.out = array_of(args, 2, columns);
    p.rows = rows, p.columns = columns;
    return LAUNCH(spectral_columns, ceil_div(columns, SPECTRAL_THREADS * EIGHT), SPECTRAL_THREADS,
                  0, p, cuda, error);
}

/* w [k,...], u [...] -> [k] */
bool cuda_project_of_first(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rows_launch(args, args->size['k'], args->rows, false, cuda, error);
}

/* w [k,...], v [k] -> [...] */
bool cuda_project_over_first(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return columns_launch(args, args->size['k'], args->rows, cuda, error);
}

/* w [...,n], v [...] -> [n] */
bool cuda_project_of_last(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return columns_launch(args, args->rows, args->size['n'], cuda, error);
}

/* w [...,n], u [n] -> [...] */
bool cuda_project_over_last(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rows_launch(args, args->rows, args->size['n'], false, cuda, error);
}

typedef struct SecondArgs {
    Array w, x, out; /* w [k,n,rows]; x [k,rows] and out [n], or x [n] and out [k,rows] */
    int64_t k, n, rows;
    bool over; /* true: sums over n; false: sums over k and rows */
} SecondArgs;

/* A block computes one output. Terms are added in groups, because long sums lose precision. */
KERNEL(spectral_second, SecondArgs, SPECTRAL_THREADS, 4)
{
    SHARED(float, held);
    int64_t at = blockIdx.x, terms = a.over ? a.n : a.k * a.rows;
    float sum = 0, part = 0;
    int in_part = 0;
    for (int64_t t = threadIdx.x; t < terms; t += SPECTRAL_THREADS) {
        int64_t i = a.over ? at / a.rows : t / a.rows, r = (a.over ? at : t) % a.rows;
        int64_t j = a.over ? t : at;
        part += read_one(a.w, (i * a.n + j) * a.rows + r) * read_one(a.x, t);
        if (++in_part < COLUMN_ROWS) continue;
        sum += part, part = 0;
        in_part = 0;
    }
    sum = block_sum(sum + part, held);
    if (threadIdx.x == 0) write_one(a.out, at, sum);
}

static bool second_launch(const KernelArgs *args, bool over, const CudaContext *cuda,
                          CudaError *error)
{
    SecondArgs p;
    memset(&p, 0, sizeof p);
    p.w = array_of(args, 0, 1), p.x = array_of(args, 1, 1), p.out = array_of(args, 2, 1);
    p.k = args->size['k'], p.n = args->size['n'], p.rows = args->rows;
    p.over = over;
    return LAUNCH(spectral_second, over ? p.k * p.rows : p.n, SPECTRAL_THREADS,
                  MAX_WARPS * sizeof(float), p, cuda, error);
}

/* w [k,n,...], v [k,...] -> [n] */
bool cuda_project_of_second(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return second_launch(args, false, cuda, error);
}

/* w [k,n,...], u [n] -> [k,...] */
bool cuda_project_over_second(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return second_launch(args, true, cuda, error);
}

/* x, y [...] -> [] */
bool cuda_inner_product(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rows_launch(args, 1, args->rows, false, cuda, error);
}

/* dz, z [b,s,...], sigma [] -> [b,s] */
bool cuda_divide_dot(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rows_launch(args, args->size['b'] * args->size['s'], args->rows, true, cuda, error);
}

typedef struct NormaliseArgs {
    Array x, square, out;
    float eps;
    int64_t n;
} NormaliseArgs;

KERNEL(spectral_normalise, NormaliseArgs, SPECTRAL_THREADS, 4)
{
    int64_t i = (int64_t)blockIdx.x * SPECTRAL_THREADS + threadIdx.x;
    float length = sqrtf(read_one(a.square, 0));
    if (length < a.eps) length = a.eps;
    if (i < a.n) write_one(a.out, i, read_one(a.x, i) / length);
}

/* old vector (overwritten), x [...], squared length of x [] -> x divided by its length */
bool cuda_normalise(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    NormaliseArgs p;
    memset(&p, 0, sizeof p);
    p.x = array_of(args, 1, 1), p.square = array_of(args, 2, 1), p.out = array_of(args, 3, 1);
    p.eps = (float)args->attrs.eps, p.n = args->rows;
    return LAUNCH(spectral_normalise, ceil_div(p.n, SPECTRAL_THREADS), SPECTRAL_THREADS, 0, p, cuda,
                  error);
}

/* x [...], sigma [] -> x / sigma */
bool cuda_divide(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PointArgs p = point_args(args, POINT_divide, 1, args->rows);
    p.spread[1] = SPREAD_row;
    return point_launch(2, p, cuda, error);
}

typedef struct OuterArgs {
    Array d, x, y, out; /* d [tokens], x [rows], y [columns], out [rows,columns] */
    int64_t tokens, columns, n;
    int64_t inner; /* not 0: x is [rows,inner], and out is [rows,columns,inner] */
    bool accumulate;
} OuterArgs;

/* Every block computes the sum of all of d, in the same order. */
KERNEL(spectral_outer, OuterArgs, SPECTRAL_THREADS, 4)
{
    SHARED(float, held);
    int64_t step = (int64_t)gridDim.x * SPECTRAL_THREADS;
    float d = 0;
    for (int64_t i = threadIdx.x; i < a.tokens; i += SPECTRAL_THREADS) d += read_one(a.d, i);
    d = block_sum(d, held);
    for (int64_t i = (int64_t)blockIdx.x * SPECTRAL_THREADS + threadIdx.x; i < a.n; i += step) {
        int64_t line = a.inner ? split_row(i, a.inner, a.n) : i;
        int64_t row = split_row(line, a.columns, a.n), column = line - row * a.columns;
        if (a.inner) row = row * a.inner + i - line * a.inner;
        float value = d * read_one(a.x, row) * read_one(a.y, column);
        write_one(a.out, i, a.accumulate ? read_one(a.out, i) + value : value);
    }
}

static bool outer_launch(const KernelArgs *args, int64_t rows, int64_t columns, int64_t inner,
                         const CudaContext *cuda, CudaError *error)
{
    OuterArgs p;
    memset(&p, 0, sizeof p);
    p.d = array_of(args, 0, 1), p.x = array_of(args, 1, 1), p.y = array_of(args, 2, 1);
    p.out = array_of(args, 3, 1);
    p.tokens = args->size['b'] * args->size['s'], p.columns = columns, p.inner = inner;
    p.n = rows * columns * (inner ? inner : 1);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(spectral_outer, blocks_for(p.n, SPECTRAL_THREADS, OUTER_BLOCKS), SPECTRAL_THREADS,
                  MAX_WARPS * sizeof(float), p, cuda, error);
}

bool cuda_outer_first(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return outer_launch(args, args->size['k'], args->rows, 0, cuda, error);
}

bool cuda_outer_last(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return outer_launch(args, args->rows, args->size['n'], 0, cuda, error);
}

bool cuda_outer_second(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return outer_launch(args, args->size['k'], args->size['n'], args->rows, cuda, error);
}
