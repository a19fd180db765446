/* Rotary position embedding in half-split form: of the rotated elements, element e of the first
 * half and element e + half form a pair. The pair is rotated by the angle position * theta^(-2e/E),
 * where positions are global. A block computes the angles (in fp64), sines and cosines of a few
 * tokens once for all heads. Its threads then rotate eight pairs at a time. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/rope.h"

enum { ROPE_THREADS = 128, ROPE_BLOCKS_PER_SM = 8 };

typedef struct RopeArgs {
    Array x, y;
    int64_t tokens, seq, heads, width; /* [tokens, heads, width] */
    int64_t turned, start;             /* turned: elements of a head that are rotated; start:
                                          position of the first token */
    int64_t half, second;              /* position of the first token, and of the first token from
                                          local index `half` on */
    int64_t round;                     /* tokens whose angles a block computes at a time */
    RopeRamp ramp;
    RopeGrid grid;
    double log_theta, sign;
    bool accumulate, by_pair;
    double pair[ROPE_PAIRS]; /* divides the frequency of each pair, if `by_pair` is true */
} RopeArgs;

/* Returns the frequency of pair e. It follows the CPU's definition, except that exp computes
 * theta^(-2e/E). */
DEVICE double rope_frequency(const RopeArgs *a, int64_t e)
{
    const double two_pi = 6.283185307179586476925286766559;
    double frequency = exp(-rope_exponent(&a->grid, e) * a->log_theta);
    if (a->by_pair) return frequency / a->pair[e];
    if (a->ramp.factor == 0) return frequency;
    double at = a->ramp.context > 0 ? a->ramp.context * frequency / two_pi : (double)e;
    double kept = fmin(fmax((at - a->ramp.none) / (a->ramp.whole - a->ramp.none), 0.0), 1.0);
    return (1 - kept) * frequency / a->ramp.factor + kept * frequency;
}

DEVICE int64_t rope_position(const RopeArgs *a, int64_t token)
{
    int64_t at = token % a->seq;
    return at < a->half ? a->start + at : a->second + at - a->half;
}

DEVICE void rope_write(const RopeArgs *a, int64_t at, int n, const float turned[EIGHT])
{
    float y[EIGHT], old[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) y[k] = turned[k];
    if (a->accumulate) {
        load(a->y, at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    store(a->y, at, n, y);
}

/* Loads eight sines or cosines. A row whose length is no multiple of eight is not aligned. */
DEVICE void rope_angles(const float *of, int n, bool aligned, float v[EIGHT])
{
    if (!aligned) {
        UNROLL for (int k = 0; k < EIGHT; k++) v[k] = k < n ? of[k] : 0;
        return;
    }
    UNROLL for (int quarter = 0; quarter < EIGHT; quarter += 4)
    {
        uint4 u = *ALIGNED(const uint4, of + quarter);
        v[quarter] = FLOAT_OF_BITS(u.x), v[quarter + 1] = FLOAT_OF_BITS(u.y);
        v[quarter + 2] = FLOAT_OF_BITS(u.z), v[quarter + 3] = FLOAT_OF_BITS(u.w);
    }
}

/* Rotates up to eight pairs from pair e on, in the head that begins at element `head`. */
DEVICE void rope_turn(const RopeArgs *a, int64_t head, int e, const float *sine,
                      const float *cosine)
{
    const int half = (int)(a->turned / 2), n = eight_of(e, half);
    float x1[EIGHT], x2[EIGHT], y1[EIGHT], y2[EIGHT], s[EIGHT], c[EIGHT];
    Raw first = fetch(a->x, head + e, n), second = fetch(a->x, head + e + half, n);
    rope_angles(sine + e, n, half % EIGHT == 0, s);
    rope_angles(cosine + e, n, half % EIGHT == 0, c);
    widen_all(a->x, &first, x1);
    widen_all(a->x, &second, x2);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        y1[k] = x1[k] * c[k] - x2[k] * s[k];
        y2[k] = x1[k] * s[k] + x2[k] * c[k];
    }
    rope_write(a, head + e, n, y1);
    rope_write(a, head + e + half, n, y2);
}

/* Copies eight elements that are not rotated. */
DEVICE void rope_rest(const RopeArgs *a, int64_t head, int e)
{
    float x[EIGHT];
    int n = eight_of(e, a->width);
    load(a->x, head + e, n, x);
    rope_write(a, head + e, n, x);
}

KERNEL(rope_tokens, RopeArgs, ROPE_THREADS, ROPE_BLOCKS_PER_SM)
{
    SHARED(float, sines); /* [round, half]; the cosines and then the frequencies [half] follow */
    const int half = (int)(a.turned / 2), turns = (half + EIGHT - 1) / EIGHT;
    const int per_head = turns + (int)((a.width - a.turned + EIGHT - 1) / EIGHT);
    float *cosines = sines + a.round * half;
    double *frequency = (double *)(cosines + a.round * half);
    for (int e = (int)threadIdx.x; e < half; e += ROPE_THREADS)
        frequency[e] = rope_frequency(&a, e);
    for (int64_t first = blockIdx.x * a.round; first < a.tokens; first += gridDim.x * a.round) {
        const int n = (int)(a.tokens - first < a.round ? a.tokens - first : a.round);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n * half; i += ROPE_THREADS) {
            double sine, cosine;
            const int64_t token = rope_position(&a, first + i / half);
            device_sincos((double)rope_place(&a.grid, i % half, token) * frequency[i % half], &sine,
                          &cosine);
            sines[i] = (float)(a.sign * a.ramp.gain * sine);
            cosines[i] = (float)(a.ramp.gain * cosine);
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n * (int)a.heads * per_head; i += ROPE_THREADS) {
            const int of_round = i / per_head, group = i - of_round * per_head;
            const int angles = of_round / (int)a.heads * half;
            const int64_t head = (first * a.heads + of_round) * a.width;
            if (group < turns)
                rope_turn(&a, head, group * EIGHT, sines + angles, cosines + angles);
            else
                rope_rest(&a, head, (int)a.turned + (group - turns) * EIGHT);
        }
    }
}

/* x [b,s,...,E] -> y; both may be the same memory */
static bool rope_launch(const KernelArgs *args, double sign, const CudaContext *cuda,
                        CudaError *error)
{
    RopeArgs p;
    const Attrs *attrs = &args->attrs;
    memset(&p, 0, sizeof p);
    p.tokens = args->size['b'] * args->size['s'], p.seq = args->size['s'];
    p.heads = args->rows, p.width = args->size['E'];
    p.turned = attrs->rope_dims ? attrs->rope_dims : p.width;
    /* groups of eight elements are aligned if the lengths of a half and of a head are multiples of
     * eight */
    const int64_t row = p.width % EIGHT == 0 && p.turned / 2 % EIGHT == 0 ? EIGHT : 1;
    p.x = array_of(args, 0, row), p.y = array_of(args, 1, row);
    p.start = args->start['s'];
    p.half = p.seq / 2, p.second = args->second['s'];
    p.log_theta = log(attrs->theta);
    p.ramp = rope_ramp(attrs, p.turned);
    p.grid = rope_grid(attrs, p.turned);
    p.by_pair = attrs->rope_pair[0] > 0;
    memcpy(p.pair, attrs->rope_pair, sizeof p.pair);
    p.sign = sign;
    p.accumulate = sign < 0 && accumulates(args, 0);
    assert(p.turned % 2 == 0 && p.turned <= p.width);
    const int64_t half = p.turned / 2;
    p.round = half > 0 && half < ROPE_THREADS ? ROPE_THREADS / half : 1;
    const size_t shared = (size_t)half * (sizeof(double) + 2 * (size_t)p.round * sizeof(float));
    int64_t blocks = blocks_for(p.tokens, p.round, (int64_t)cuda->n_sms * ROPE_BLOCKS_PER_SM);
    return LAUNCH(rope_tokens, blocks, ROPE_THREADS, shared, p, cuda, error);
}

bool cuda_rope(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rope_launch(args, 1, cuda, error);
}

bool cuda_rope_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return rope_launch(args, -1, cuda, error);
}

/* ---- sinusoidal positions: a thread computes one pair of features */

typedef struct SinusoidArgs {
    Array x, y;
    int64_t rows, S, D; /* rows: number of tokens, b times s */
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
