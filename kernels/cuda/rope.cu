/* Rotary position embedding in half-split form: of the rotated elements, element e of the first
 * half and element e + half form a pair. The pair is rotated by the angle position * theta^(-2e/E),
 * where positions are global. A block computes the sines and cosines of a few positions once, for
 * all heads and for several sequences. Its threads then rotate eight pairs at a time. Angles are
 * computed in turns in fp64, because only the fraction of a turn matters; sines of fractions are
 * exact enough in fp32. */
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/rope.h"

/* ROPE_AHEAD: items that a thread loads at a time; ROPE_FILL: number of rounds that keep a
 * multiprocessor busy; ROPE_KNOWN: largest number of frequencies that the host computes */
enum {
    ROPE_THREADS = 128,
    ROPE_BLOCKS_PER_SM = 6,
    ROPE_AHEAD = 2,
    ROPE_FILL = 6,
    ROPE_KNOWN = 128
};

typedef struct RopeArgs {
    Array x, y;
    int64_t batches, seq; /* x is [batches, seq, heads, width] */
    int32_t heads, width;
    int32_t turned, per_head;    /* turned: number of rotated elements of a head; per_head: number
                                    of groups of a head. A group is eight pairs, or eight elements
                                    that are not rotated */
    int64_t start, half, second; /* position of the first token; position of the first token from
                                    local index `half` on */
    int64_t round, together;     /* a round is `round` positions of `together` sequences */
    int64_t rounds, n_rounds;    /* rounds of a sequence; of all */
    RopeRamp ramp;
    RopeGrid grid;
    double log_theta, sign;
    bool accumulate, by_pair, knows;
    double pair[ROPE_PAIRS];  /* divides the frequency of each pair, if `by_pair` is true */
    double turns[ROPE_KNOWN]; /* frequency of each pair in turns, if `knows` is true */
} RopeArgs;

/* Returns the frequency of pair e, in turns for each position. It follows the CPU's definition,
 * except that exp computes theta^(-2e/E). */
ROPE_BOTH double rope_frequency(const RopeArgs *a, int64_t e)
{
    const double two_pi = 6.283185307179586476925286766559;
    const double frequency = exp(-rope_exponent(&a->grid, e) * a->log_theta) / two_pi;
    if (a->by_pair) return frequency / a->pair[e];
    if (a->ramp.factor == 0) return frequency;
    double at = a->ramp.context > 0 ? a->ramp.context * frequency : (double)e;
    double kept = fmin(fmax((at - a->ramp.none) / (a->ramp.whole - a->ramp.none), 0.0), 1.0);
    return (1 - kept) * frequency / a->ramp.factor + kept * frequency;
}

DEVICE int64_t rope_position(const RopeArgs *a, int64_t at)
{
    return at < a->half ? a->start + at : a->second + at - a->half;
}

/* `half`: x and y are aligned arrays of bf16 numbers, and so are the halves of heads. */
DEVICE Array rope_array(const bool half, Array x)
{
    return half ? array_as_bf16(x) : x;
}

DEVICE void rope_write(const RopeArgs *a, const bool half, int64_t at, int n, float y[EIGHT])
{
    float old[EIGHT];
    if (a->accumulate) {
        load(rope_array(half, a->y), at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    store(rope_array(half, a->y), at, n, y);
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

/* A group of a head, for one thread. */
typedef struct RopeItem {
    int group, head, token; /* token: counted from the first one of the round */
} RopeItem;

/* Returns the item with number i. Also used for the distance of i items. */
DEVICE RopeItem rope_item(const RopeArgs *a, int i)
{
    RopeItem item;
    item.token = i / (a->heads * a->per_head);
    i -= item.token * a->heads * a->per_head;
    item.head = i / a->per_head;
    item.group = i - item.head * a->per_head;
    return item;
}

/* Returns the item at the distance `by` after item `from`. */
DEVICE RopeItem rope_next(const RopeArgs *a, RopeItem from, RopeItem by)
{
    from.group += by.group, from.head += by.head, from.token += by.token;
    if (from.group >= a->per_head) from.group -= a->per_head, from.head++;
    if (from.head >= a->heads) from.head -= a->heads, from.token++;
    return from;
}

/* The elements of an item, and its numbers as they were loaded. */
typedef struct RopeGroup {
    int at, angle, n;  /* at: first element, counted from the first one of the round; angle: index
                          of its sine, -1 if the group is not rotated; n: pairs or elements */
    Raw first, second; /* of the first and the second half of a head */
} RopeGroup;

/* Loads an item's numbers. `base`: number of the round's first element */
DEVICE RopeGroup rope_load(const RopeArgs *a, const bool half, int64_t base, RopeItem item)
{
    const int pairs = a->turned / 2, turns = (pairs + EIGHT - 1) / EIGHT;
    const bool turned = item.group < turns;
    const int e = item.group * EIGHT + (turned ? 0 : a->turned - turns * EIGHT);
    const Array x = rope_array(half, a->x);
    RopeGroup g;
    g.at = (item.token * a->heads + item.head) * a->width + e;
    g.angle = turned ? item.token * pairs + e : -1;
    g.n = half ? EIGHT : eight_of(e, turned ? pairs : a->width);
    g.first = fetch(x, base + g.at, half ? EIGHT : g.n);
    g.second = raw_zero();
    if (turned) g.second = fetch(x, base + g.at + pairs, half ? EIGHT : g.n);
    return g;
}

/* Rotates up to eight pairs, or copies up to eight elements. */
DEVICE void rope_turn(const RopeArgs *a, const bool half, int64_t base, const RopeGroup *g,
                      const float *sines, const float *cosines)
{
    const int pairs = a->turned / 2, n = half ? EIGHT : g->n;
    const bool aligned = half || pairs % EIGHT == 0;
    float x1[EIGHT], x2[EIGHT], y1[EIGHT], y2[EIGHT], s[EIGHT], c[EIGHT];
    widen_all(rope_array(half, a->x), &g->first, x1);
    if (g->angle < 0) {
        rope_write(a, half, base + g->at, n, x1);
        return;
    }
    rope_angles(sines + g->angle, n, aligned, s);
    rope_angles(cosines + g->angle, n, aligned, c);
    widen_all(rope_array(half, a->x), &g->second, x2);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        y1[k] = x1[k] * c[k] - x2[k] * s[k];
        y2[k] = x1[k] * s[k] + x2[k] * c[k];
    }
    rope_write(a, half, base + g->at, n, y1);
    rope_write(a, half, base + g->at + pairs, n, y2);
}

/* Rotates n tokens of a sequence. `base`: number of their first element */
DEVICE void rope_tokens(const RopeArgs *a, const bool half, const int ahead, int64_t base, int n,
                        const float *sines, const float *cosines)
{
    const RopeItem by = rope_item(a, ROPE_THREADS);
    RopeItem next = rope_item(a, (int)threadIdx.x);
    while (next.token < n) {
        RopeGroup group[ROPE_AHEAD];
        UNROLL for (int u = 0; u < ahead; u++)
        {
            group[u].n = 0;
            if (next.token < n) group[u] = rope_load(a, half, base, next);
            next = rope_next(a, next, by);
        }
        UNROLL for (int u = 0; u < ahead; u++)
        {
            if (group[u].n > 0) rope_turn(a, half, base, &group[u], sines, cosines);
        }
    }
}

/* Rotates the rounds of a block. Shared memory has sines [round, pairs]; the cosines and then the
 * frequencies [pairs] follow. */
DEVICE void rope_rounds(const RopeArgs *a, const bool half, const int ahead, float *sines)
{
    const int pairs = a->turned / 2;
    float *cosines = sines + a->round * pairs;
    double *frequency = (double *)(cosines + a->round * pairs);
    for (int e = (int)threadIdx.x; e < pairs; e += ROPE_THREADS)
        frequency[e] = a->knows ? a->turns[e] : rope_frequency(a, e);
    for (int64_t round = blockIdx.x; round < a->n_rounds; round += gridDim.x) {
        const int64_t of = split_row(round, a->rounds, a->n_rounds);
        const int64_t first = (round - of * a->rounds) * a->round;
        const int n = (int)(a->seq - first < a->round ? a->seq - first : a->round);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n * pairs; i += ROPE_THREADS) {
            float sine, cosine;
            const int64_t position = rope_position(a, first + i / pairs);
            const double turn =
                (double)rope_place(&a->grid, i % pairs, position) * frequency[i % pairs];
            device_sincos_turn((float)(turn - rint(turn)), &sine, &cosine);
            sines[i] = (float)(a->sign * a->ramp.gain) * sine;
            cosines[i] = (float)a->ramp.gain * cosine;
        }
        __syncthreads();
        for (int64_t batch = of * a->together; batch < (of + 1) * a->together && batch < a->batches;
             batch++)
            rope_tokens(a, half, ahead, (batch * a->seq + first) * a->heads * a->width, n, sines,
                        cosines);
    }
}

KERNEL(rope_any, RopeArgs, ROPE_THREADS, 5)
{
    SHARED(float, sines);
    rope_rounds(&a, false, 1, sines);
}

KERNEL(rope_half, RopeArgs, ROPE_THREADS, ROPE_BLOCKS_PER_SM)
{
    SHARED(float, sines);
    rope_rounds(&a, true, ROPE_AHEAD, sines);
}

/* Divides the tokens into rounds. If sequences are many, a round has several of them, which share
 * their angles. */
static void rope_divide(RopeArgs *p, int64_t pairs, const CudaContext *cuda)
{
    p->round = pairs > 0 && pairs < ROPE_THREADS ? ROPE_THREADS / pairs : 1;
    p->rounds = ceil_div(p->seq, p->round);
    p->together = p->rounds * p->batches / ((int64_t)cuda->n_sms * ROPE_FILL);
    if (p->together < 1) p->together = 1;
    if (p->together > p->batches) p->together = p->batches;
    p->n_rounds = p->batches > 0 ? p->rounds * ceil_div(p->batches, p->together) : 0;
}

/* x [b,s,...,E] -> y; both may be the same memory */
static bool rope_launch(const KernelArgs *args, double sign, const CudaContext *cuda,
                        CudaError *error)
{
    RopeArgs p;
    const Attrs *attrs = &args->attrs;
    memset(&p, 0, sizeof p);
    p.batches = args->size['b'], p.seq = args->size['s'];
    p.heads = (int32_t)args->rows, p.width = (int32_t)args->size['E'];
    p.turned = attrs->rope_dims ? (int32_t)attrs->rope_dims : p.width;
    const int64_t pairs = p.turned / 2;
    p.per_head = (int32_t)(ceil_div(pairs, EIGHT) + ceil_div(p.width - p.turned, EIGHT));
    /* groups of eight elements are aligned if the lengths of a half and of a head are multiples of
     * eight */
    const int64_t row = p.width % EIGHT == 0 && pairs % EIGHT == 0 ? EIGHT : 1;
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
    p.knows = pairs <= ROPE_KNOWN;
    for (int64_t e = 0; p.knows && e < pairs; e++) p.turns[e] = rope_frequency(&p, e);
    rope_divide(&p, pairs, cuda);
    const size_t shared = (size_t)pairs * (sizeof(double) + 2 * (size_t)p.round * sizeof(float));
    const int64_t blocks = blocks_for(p.n_rounds, 1, (int64_t)cuda->n_sms * ROPE_BLOCKS_PER_SM);
    if (array_is_bf16(p.x) && array_is_bf16(p.y))
        return LAUNCH(rope_half, blocks, ROPE_THREADS, shared, p, cuda, error);
    return LAUNCH(rope_any, blocks, ROPE_THREADS, shared, p, cuda, error);
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
