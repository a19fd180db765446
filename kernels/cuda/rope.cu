/* Rotary position embedding, half-split: index e of the first half of the rotated elements pairs
 * with e + half, at the angle position * theta^(-2e/E); positions are global. A thread rotates one
 * pair index of one position for all heads, so the angle (in fp64), its sine and its cosine are
 * computed once. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { ROPE_THREADS = 128, ROPE_BLOCKS_PER_SM = 8, ROPE_HEADS = 4 };

typedef struct RopeArgs {
    Array x, y;
    int64_t tokens, seq, heads, width; /* [tokens, heads, width] */
    int64_t turned, start;             /* elements that are rotated; position of the first token */
    int64_t half, second;              /* position of the first token from `half` on */
    double log_theta, factor, low, high, context, sign;
    bool accumulate;
} RopeArgs;

/* Follows the CPU's definition, except that theta^(-2e/E) is computed by exp. */
DEVICE double rope_frequency(const RopeArgs *a, int64_t e)
{
    const double two_pi = 6.283185307179586476925286766559;
    double frequency = exp(-2.0 * (double)e / (double)a->turned * a->log_theta);
    if (a->factor == 0) return frequency;
    double turns = a->context * frequency / two_pi;
    if (turns > a->high) return frequency;
    if (turns < a->low) return frequency / a->factor;
    double blend = (turns - a->low) / (a->high - a->low);
    return (1 - blend) * frequency / a->factor + blend * frequency;
}

DEVICE void rope_write(const RopeArgs *a, int64_t at, float value)
{
    write_one(a->y, at, a->accumulate ? read_one(a->y, at) + value : value);
}

/* Copies elements that are not rotated. */
DEVICE void rope_rest(const RopeArgs *a, int64_t token, int64_t e)
{
    for (int64_t head = 0; head < a->heads; head++) {
        int64_t at = (token * a->heads + head) * a->width + e;
        rope_write(a, at, read_one(a->x, at));
    }
}

DEVICE void rope_turn(const RopeArgs *a, int64_t token, int64_t e)
{
    int64_t half = a->turned / 2;
    int64_t at = token % a->seq, position = at < a->half ? a->start + at : a->second + at - a->half;
    double angle = (double)position * rope_frequency(a, e), sine, cosine;
    device_sincos(angle, &sine, &cosine);
    float s = (float)(a->sign * sine), c = (float)cosine;
    for (int64_t first = 0; first < a->heads; first += ROPE_HEADS) {
        float x1[ROPE_HEADS], x2[ROPE_HEADS];
        UNROLL for (int h = 0; h < ROPE_HEADS; h++)
        {
            int64_t from = (token * a->heads + first + h) * a->width + e;
            x1[h] = first + h < a->heads ? read_one(a->x, from) : 0;
            x2[h] = first + h < a->heads ? read_one(a->x, from + half) : 0;
        }
        UNROLL for (int h = 0; h < ROPE_HEADS; h++)
        {
            int64_t to = (token * a->heads + first + h) * a->width + e;
            if (first + h >= a->heads) continue;
            rope_write(a, to, x1[h] * c - x2[h] * s);
            rope_write(a, to + half, x2[h] * c + x1[h] * s);
        }
    }
}

/* One thread for each pair of a token, and for each element that is not rotated. */
KERNEL(rope_tokens, RopeArgs, ROPE_THREADS, ROPE_BLOCKS_PER_SM)
{
    int64_t half = a.turned / 2, each = half + a.width - a.turned, n = a.tokens * each;
    int64_t step = (int64_t)gridDim.x * ROPE_THREADS;
    for (int64_t t = (int64_t)blockIdx.x * ROPE_THREADS + threadIdx.x; t < n; t += step) {
        int64_t token = split_row(t, each, n), e = t - token * each;
        if (e < half)
            rope_turn(&a, token, e);
        else
            rope_rest(&a, token, e - half + a.turned);
    }
}

/* x [b,s,...,E] -> y; y may be x */
static bool rope_launch(const KernelArgs *args, double sign, const CudaContext *cuda,
                        CudaError *error)
{
    RopeArgs p;
    const Attrs *attrs = &args->attrs;
    memset(&p, 0, sizeof p);
    p.x = array_of(args, 0, 1), p.y = array_of(args, 1, 1);
    p.tokens = args->size['b'] * args->size['s'], p.seq = args->size['s'];
    p.heads = args->rows, p.width = args->size['E'];
    p.turned = attrs->rope_dims ? attrs->rope_dims : p.width;
    p.start = args->start['s'];
    p.half = p.seq / 2, p.second = args->second['s'];
    p.log_theta = log(attrs->theta);
    p.factor = attrs->rope_factor, p.low = attrs->rope_low, p.high = attrs->rope_high;
    p.context = (double)attrs->rope_context;
    p.sign = sign;
    p.accumulate = sign < 0 && accumulates(args, 0);
    assert(p.turned % 2 == 0 && p.turned <= p.width);
    int64_t threads = p.tokens * (p.turned / 2 + p.width - p.turned);
    int64_t blocks =
        blocks_for(threads, ROPE_THREADS, (int64_t)cuda->n_sms * ROPE_BLOCKS_PER_SM * 4);
    return LAUNCH(rope_tokens, blocks, ROPE_THREADS, 0, p, cuda, error);
}

bool cuda_rope(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rope_launch(args, 1, cuda, error);
}

bool cuda_rope_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rope_launch(args, -1, cuda, error);
}

/* ---- sinusoidal positions: a thread handles one pair of features */

typedef struct SinusoidArgs {
    Array x, y;
    int64_t rows, S, D; /* rows: of [b,s] */
    int64_t start, half, jump;
    double theta;
} SinusoidArgs;

enum { SINUSOID_THREADS = 256 };

KERNEL(sinusoid_add, SinusoidArgs, SINUSOID_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * SINUSOID_THREADS + threadIdx.x, pairs = a.D / 2;
    if (i >= a.rows * pairs) return;
    const int64_t row = i / pairs, e = i % pairs, s = row % a.S, at = row * a.D + e;
    const double frequency = pow(a.theta, -(double)e / (double)(pairs - 1));
    double sine, cosine;
    device_sincos((double)(a.start + s + (s < a.half ? 0 : a.jump)) * frequency, &sine, &cosine);
    write_one(a.y, at, read_one(a.x, at) + (float)sine);
    write_one(a.y, at + pairs, read_one(a.x, at + pairs) + (float)cosine);
}

/* x [b,s,D] -> y [b,s,D] */
bool cuda_sinusoid(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    SinusoidArgs a;
    memset(&a, 0, sizeof a);
    a.S = args->size['s'], a.D = args->size['D'], a.rows = args->size['b'] * a.S;
    a.x = array_of(args, 0, a.D), a.y = array_of(args, 1, a.D);
    a.start = args->start['s'], a.half = a.S / 2;
    a.jump = args->second['s'] - args->start['s'] - a.half;
    a.theta = args->attrs.theta;
    return LAUNCH(sinusoid_add, ceil_div(a.rows * (a.D / 2), SINUSOID_THREADS), SINUSOID_THREADS, 0,
                  a, cuda, error);
}
