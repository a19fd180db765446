/* Element-wise ops with a special input: a single row, one number for each row, or a part of longer
 * rows. They are biases, the balance loss that is added to each token, quantisation, and segments
 * of fused projections. */
#include "kernels/cuda/pointwise/point_launch.cuh"

/* x [b,s,...], bias [...] -> y [b,s,...] */
bool cuda_bias(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PointArgs p = point_args(args, POINT_add, args->size['b'] * args->size['s'], args->rows);
    p.spread[1] = SPREAD_column;
    return point_launch(2, p, cuda, error);
}

/* x [b,s], balance [b] -> y [b,s] = x - balance; y may be x */
bool cuda_charge(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    PointArgs p = point_args(args, POINT_subtract, args->size['b'], args->size['s']);
    p.spread[1] = SPREAD_row;
    return point_launch(2, p, cuda, error);
}

/* x [rows,row], amax [rows] or [row] -> x times attrs.scale / amax */
static bool quantise(const KernelArgs *args, int64_t rows, int64_t row, Spread spread,
                     const CudaContext *cuda, CudaError *error)
{
    PointArgs p = point_args(args, POINT_quantise, rows, row);
    p.spread[1] = spread;
    return point_launch(2, p, cuda, error);
}

#define TOKENS (args->size['b'] * args->size['s'])
#define QUANTISE(name, rows, row, spread)                                                          \
    bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)            \
    {                                                                                              \
        return quantise(args, rows, row, SPREAD_##spread, cuda, error);                            \
    }
QUANTISE(quantise, 1, args->rows, row)
QUANTISE(quantise_of_tokens, TOKENS, args->rows, row)
QUANTISE(quantise_over_tokens, TOKENS, args->rows, column)
QUANTISE(quantise_of_first, args->size['k'], args->rows, row)
QUANTISE(quantise_over_first, args->size['k'], args->rows, column)
QUANTISE(quantise_of_last, args->rows, args->size['n'], column)
QUANTISE(quantise_over_last, args->rows, args->size['n'], row)

/* x [x], amax [] -> y [x], for elements lo to hi - 1; the other elements become 0, or stay
 * unchanged if the op accumulates */
bool cuda_quantise_range(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    Range range = local_range(args);
    KernelArgs part = *args;
    if (!accumulates(args, 0) && range.n < args->size['x'] &&
        !device_zero(args->ptr[2], (uint64_t)args->size['x'] * dtype_bytes(args->dtype[2]), cuda,
                     error))
        return false;
    part.ptr[0] = (char *)args->ptr[0] + (uint64_t)range.from * dtype_bytes(args->dtype[0]);
    part.ptr[2] = (char *)args->ptr[2] + (uint64_t)range.from * dtype_bytes(args->dtype[2]);
    return range.n == 0 || quantise(&part, 1, range.n, SPREAD_row, cuda, error);
}

/* ---- ops that take columns out of longer rows, or write them back */

/* Copies columns `from` to from + n - 1 out of argument `longer`, whose rows have `pitch` elements.
 * If this argument is the output, writes the columns back. */
static bool take(const KernelArgs *args, uint32_t longer, int64_t rows, int64_t pitch, int64_t from,
                 int64_t n, const CudaContext *cuda, CudaError *error)
{
    PointArgs p = point_args(args, POINT_pass, rows, n);
    Array part = array_of(args, longer, pitch);
    uint64_t bytes = array_bytes(part.dtype);
    assert(from >= 0 && from + n <= pitch);
    if (longer == 1 && !p.accumulate &&
        !device_zero(part.at, (uint64_t)(rows * pitch) * bytes, cuda, error))
        return false;
    part.at += (uint64_t)from * bytes;
    part.wide = part.wide && n % EIGHT == 0 && from % EIGHT == 0;
    if (longer == 0)
        p.in[0] = part, p.pitch[0] = pitch;
    else
        p.out = part, p.out_pitch = pitch;
    return point_launch(1, p, cuda, error);
}

/* Copies one of F equal segments: x [tokens,F,n] -> y [tokens,n] */
static bool segment(const KernelArgs *args, uint32_t longer, const CudaContext *cuda,
                    CudaError *error)
{
    int64_t n = args->rows;
    return take(args, longer, TOKENS, args->size['F'] * n, args->attrs.segment * n, n, cuda, error);
}

bool cuda_segment(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return segment(args, 0, cuda, error);
}

bool cuda_segment_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return segment(args, 1, cuda, error);
}

/* Copies a part of each group: x [tokens,groups,F,e] -> y [tokens,groups,n,e], from index
 * attrs.first + start of F on */
static bool part(const KernelArgs *args, uint32_t longer, char group, int64_t start, int64_t n,
                 const CudaContext *cuda, CudaError *error)
{
    int64_t e = args->size['E'] ? args->size['E'] : 1;
    return take(args, longer, TOKENS * args->size[(int)group], args->size['F'] * e,
                (args->attrs.first + start) * e, n * e, cuda, error);
}

#define PART(name, longer, group, start, n)                                                        \
    bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)            \
    {                                                                                              \
        return part(args, longer, group, start, n, cuda, error);                                   \
    }
PART(part, 0, 'n', 0, args->size['X'])
PART(part_grad, 1, 'n', 0, args->size['X'])
/* dy [b,X,...] -> dx [b,F,...]: writes X tokens of each sequence back, from token attrs.first on */
bool cuda_tokens_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    int64_t token = args->rows;
    return take(args, 1, args->size['b'], args->size['F'] * token, args->attrs.first * token,
                args->size['X'] * token, cuda, error);
}

bool cuda_span_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return cuda_tokens_grad(args, cuda, error);
}

PART(part_heads, 0, 'g', args->start['r'], args->size['r'])
PART(part_heads_grad, 1, 'g', args->start['r'], args->size['r'])
PART(part_head, 0, 'g', 0, 1)
PART(part_head_grad, 1, 'g', 0, 1)
