/* Learned positions: adds rows of a table to tokens, and computes the table's gradient. A rank's
 * tokens may be two separate chunks of the sequence, but each rank has the whole table. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { POSITION_THREADS = 256 };

typedef struct PositionArgs {
    Array x, table, y;                      /* [b,s,k], [S,k], [b,s,k] */
    int64_t sequences, tokens, rows, width; /* b, s, S, k */
    int64_t start, half, second;            /* positions of the first token of the first chunk, and
                                               of the second; half: local index at which the second
                                               chunk begins */
    bool accumulate;
} PositionArgs;

/* A thread computes eight features of one token. */
KERNEL(position_add, PositionArgs, POSITION_THREADS, 4)
{
    const int64_t groups = (a.width + EIGHT - 1) / EIGHT, all = a.sequences * a.tokens * groups;
    const int64_t i = (int64_t)blockIdx.x * POSITION_THREADS + threadIdx.x;
    if (i >= all) return;
    const int64_t token = split_row(i, groups, all), column = (i - token * groups) * EIGHT;
    const int64_t s = token - split_row(token, a.tokens, a.sequences * a.tokens) * a.tokens;
    const int64_t row = s < a.half ? a.start + s : a.second + s - a.half;
    const int n = eight_of(column, a.width);
    float x[EIGHT], y[EIGHT];
    load(a.x, token * a.width + column, n, x);
    load(a.table, row * a.width + column, n, y);
    UNROLL for (int k = 0; k < EIGHT; k++) y[k] = x[k] + y[k];
    store(a.y, token * a.width + column, n, y);
}

/* A thread computes eight features of one row of the table, summed over the sequences. */
KERNEL(position_sum, PositionArgs, POSITION_THREADS, 4)
{
    const int64_t groups = (a.width + EIGHT - 1) / EIGHT, all = a.rows * groups;
    const int64_t i = (int64_t)blockIdx.x * POSITION_THREADS + threadIdx.x;
    if (i >= all) return;
    const int64_t row = split_row(i, groups, all), column = (i - row * groups) * EIGHT;
    const int n = eight_of(column, a.width);
    int64_t s = row - a.start;
    if (s < 0 || s >= a.half) s = a.half + row - a.second;
    const bool here = (row >= a.start && row < a.start + a.half) || (s >= a.half && s < a.tokens);
    float sum[EIGHT], x[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) sum[k] = 0;
    for (int64_t b = 0; here && b < a.sequences; b++) {
        load(a.x, (b * a.tokens + s) * a.width + column, n, x);
        UNROLL for (int k = 0; k < EIGHT; k++) sum[k] += x[k];
    }
    if (a.accumulate) {
        load(a.table, row * a.width + column, n, x);
        UNROLL for (int k = 0; k < EIGHT; k++) sum[k] = x[k] + sum[k];
    }
    store(a.table, row * a.width + column, n, sum);
}

static PositionArgs position_args(const KernelArgs *args)
{
    PositionArgs p;
    memset(&p, 0, sizeof p);
    p.sequences = args->size['b'], p.tokens = args->size['s'];
    p.rows = args->size['S'], p.width = args->size['k'];
    p.start = args->start['s'], p.half = p.tokens / 2, p.second = args->second['s'];
    p.x = array_of(args, 0, p.width), p.table = array_of(args, 1, p.width);
    return p;
}

/* x [b,s,k], table [S,k] -> y [b,s,k] */
bool cuda_position(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PositionArgs p = position_args(args);
    const int64_t n = p.sequences * p.tokens * ceil_div(p.width, EIGHT);
    p.y = array_of(args, 2, p.width);
    return LAUNCH(position_add, ceil_div(n, POSITION_THREADS), POSITION_THREADS, 0, p, cuda, error);
}

/* dy [b,s,k] -> dtable [S,k] */
bool cuda_position_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PositionArgs p = position_args(args);
    const int64_t n = p.rows * ceil_div(p.width, EIGHT);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(position_sum, ceil_div(n, POSITION_THREADS), POSITION_THREADS, 0, p, cuda, error);
}
