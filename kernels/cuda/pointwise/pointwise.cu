/* Element-wise ops. There is one kernel for each number of inputs. A thread issues all its loads
 * before it waits for the first one. */
#include "kernels/cuda/pointwise/point_launch.cuh"

enum { POINT_THREADS = 256, POINT_BLOCKS_PER_SM = 3 };

typedef struct PointPlace {
    int64_t row, column;
    int n;
} PointPlace;

DEVICE PointPlace point_place(const PointArgs *a, int64_t t)
{
    PointPlace place;
    place.row = a->rows == 1 ? 0 : split_row(t, a->per_row, a->n);
    place.column = (t - place.row * a->per_row) * EIGHT;
    place.n = t < a->n ? eight_of(place.column, a->row) : 0;
    return place;
}

DEVICE Raw point_fetch(const PointArgs *a, int input, PointPlace p)
{
    Raw r = raw_zero();
    if (p.n == 0) return r;
    if (a->spread[input] == SPREAD_flat)
        return fetch_any(KINDS_all, a->in[input], p.row * a->pitch[input] + p.column, p.n);
    if (a->spread[input] == SPREAD_column) return fetch_any(KINDS_all, a->in[input], p.column, p.n);
    r.word[0] = BITS_OF_FLOAT(read_one(a->in[input], p.row));
    return r;
}

DEVICE void point_widen(const PointArgs *a, int input, const Raw *r, float x[EIGHT])
{
    bool factors = a->op == POINT_quantise && input == 1;
    if (a->spread[input] == SPREAD_row) {
        float one = FLOAT_OF_BITS(r->word[0]);
        if (factors) one = point_quantise_factor(one, a->scale);
        UNROLL for (int k = 0; k < EIGHT; k++) x[k] = one;
    } else {
        widen_any(KINDS_all, a->in[input].dtype, r, x);
        if (factors)
            UNROLL for (int k = 0; k < EIGHT; k++) x[k] = point_quantise_factor(x[k], a->scale);
    }
}

/* Processes `many` groups of eight elements, from group t on. n_in and many are constants after
 * inlining. */
DEVICE void point_run(const PointArgs *a, int64_t t, const int n_in, const int many)
{
    Raw raw[4][POINT_INPUTS];
    UNROLL for (int u = 0; u < many; u++)
    {
        PointPlace p = point_place(a, t + u * POINT_THREADS);
        UNROLL for (int i = 0; i < n_in; i++) raw[u][i] = point_fetch(a, i, p);
    }
    UNROLL for (int u = 0; u < many; u++)
    {
        PointPlace p = point_place(a, t + u * POINT_THREADS);
        float x[POINT_INPUTS][EIGHT], y[EIGHT], old[EIGHT];
        if (p.n == 0) continue;
        if (a->accumulate) load_any(KINDS_all, a->out, p.row * a->out_pitch + p.column, p.n, old);
        UNROLL for (int i = 0; i < n_in; i++) point_widen(a, i, &raw[u][i], x[i]);
        point_apply(a->op, a->scale, x[0], x[1], x[2], y);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            if (p.column + k >= a->valid) y[k] = 0;
            if (a->accumulate) y[k] = old[k] + y[k];
        }
        store_any(KINDS_all, a->out, p.row * a->out_pitch + p.column, p.n, y);
    }
}

#define POINT_KERNEL(name, n_in, many)                                                             \
    KERNEL(name, PointArgs, POINT_THREADS, POINT_BLOCKS_PER_SM)                                    \
    {                                                                                              \
        int64_t step = (int64_t)gridDim.x * POINT_THREADS * (many);                                \
        int64_t first = (int64_t)blockIdx.x * POINT_THREADS * (many) + threadIdx.x;                \
        for (int64_t t = first; t < a.n; t += step) point_run(&a, t, n_in, many);                  \
    }
POINT_KERNEL(point_0, 0, 1)
POINT_KERNEL(point_1, 1, 4)
POINT_KERNEL(point_2, 2, 2)
POINT_KERNEL(point_3, 3, 1)

PointArgs point_args(const KernelArgs *args, Point op, int64_t rows, int64_t row)
{
    PointArgs p;
    memset(&p, 0, sizeof p);
    for (uint32_t i = 0; i < args->n_in; i++) {
        p.in[i] = array_of(args, i, rows == 1 ? 0 : row);
        p.pitch[i] = row;
    }
    p.out = array_of(args, args->n_in, rows == 1 ? 0 : row);
    p.op = op;
    p.scale = (float)args->attrs.scale;
    p.accumulate = accumulates(args, 0);
    p.rows = rows, p.row = p.valid = p.out_pitch = row;
    p.per_row = ceil_div(row, EIGHT);
    p.n = rows * p.per_row;
    return p;
}

bool point_launch(uint32_t n_in, PointArgs p, const CudaContext *cuda, CudaError *error)
{
    int64_t many = n_in == 1 ? 4 : n_in == 2 ? 2 : 1;
    int64_t blocks = blocks_for(p.n, POINT_THREADS * many, cuda->n_sms * POINT_BLOCKS_PER_SM);
    if (n_in == 0) return LAUNCH(point_0, blocks, POINT_THREADS, 0, p, cuda, error);
    if (n_in == 1) return LAUNCH(point_1, blocks, POINT_THREADS, 0, p, cuda, error);
    if (n_in == 2) return LAUNCH(point_2, blocks, POINT_THREADS, 0, p, cuda, error);
    return LAUNCH(point_3, blocks, POINT_THREADS, 0, p, cuda, error);
}

/* x0 [...], x1 [...] -> y [...] */
#define FLAT(name, expression)                                                                     \
    bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)            \
    {                                                                                              \
        return point_launch(args->n_in, point_args(args, POINT_##name, 1, args->rows), cuda,       \
                            error);                                                                \
    }
POINT_OPS(FLAT)

bool cuda_cast(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    if (!number_is_real(args->dtype[0]))
        return device_copy(args->ptr[1], args->ptr[0],
                           (uint64_t)args->rows * dtype_bytes(args->dtype[0]), cuda, error);
    return point_launch(1, point_args(args, POINT_pass, 1, args->rows), cuda, error);
}

/* Arguments of the kernel that fills arrays of fp64. Only sums of losses are fp64; the other
 * kernels of this file do not write fp64. */
typedef struct DoublesArgs {
    double *y;
    int64_t n;
    double value;
} DoublesArgs;

KERNEL(fill_doubles, DoublesArgs, POINT_THREADS, POINT_BLOCKS_PER_SM)
{
    int64_t i = (int64_t)blockIdx.x * POINT_THREADS + threadIdx.x;
    if (i < a.n) a.y[i] = a.value;
}

/* y [...] = attrs.scale, rounded once */
bool cuda_fill(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    uint64_t held = 0;
    if (args->attrs.scale == 0)
        return device_zero(args->ptr[0], (uint64_t)args->rows * dtype_bytes(args->dtype[0]), cuda,
                           error);
    if (args->dtype[0] == DT_f64) {
        DoublesArgs d = {(double *)args->ptr[0], args->rows, args->attrs.scale};
        return LAUNCH(fill_doubles, ceil_div(d.n, POINT_THREADS), POINT_THREADS, 0, d, cuda, error);
    }
    PointArgs p = point_args(args, POINT_fill, 1, args->rows);
    number_write(args->dtype[0], &held, 0, args->attrs.scale);
    p.scale = (float)number_read(args->dtype[0], &held, 0);
    return point_launch(0, p, cuda, error);
}
