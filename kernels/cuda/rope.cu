/* Rotary position embedding in half-split form: of the rotated elements, element e of the first
 * half and element e + half form a pair. The pair is rotated by the angle position * theta^(-2e/E),
 * where positions are global. A block computes the sines and cosines of a few positions once, for
 * all heads and for several sequences. Its threads then rotate eight pairs at a time. Angles are
 * computed in fp64, in units of a full turn, because only the fraction of a turn matters. The sines
 * of such fractions are exact enough in fp32. The number of sequences of a block is chosen so that
 * the blocks fill the device evenly. */
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/rope.h"

/* ROPE_AHEAD: items that a thread loads at a time; ROPE_SETUP: about the number of items that could
 * be rotated in the time that a block's angles take; ROPE_TOGETHER: most sequences of a block;
 * ROPE_KNOWN: largest number of frequencies that the host computes */
enum {
    ROPE_THREADS = 128,
    ROPE_BLOCKS_PER_SM = 8,
    ROPE_AHEAD = 2,
    ROPE_SETUP = 4,
    ROPE_TOGETHER = 64,
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
    int32_t round, together;     /* a block rotates `round` positions of `together` sequences */
    int32_t apart;               /* elements from a sequence of a block to the next */
    int64_t rounds, n_rounds;    /* rounds of a sequence; of all sequences */
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

/* The calls that a kernel is compiled for.
 * ROPE_half: x and y are aligned arrays of bf16 numbers, and so are the halves of heads; the host
 * has computed the frequencies.
 * ROPE_usual: in addition, whole heads are rotated, by the positions of their tokens, and y is
 * overwritten. This kernel needs fewer registers, so more blocks run at a time. */
typedef enum RopeKind { ROPE_any, ROPE_half, ROPE_usual } RopeKind;

DEVICE Array rope_array(const RopeKind kind, Array x)
{
    return kind != ROPE_any ? array_as_bf16(x) : x;
}

DEVICE void rope_write(const RopeArgs *a, const RopeKind kind, int64_t at, int n, float y[EIGHT])
{
    float old[EIGHT];
    if (kind != ROPE_usual && a->accumulate) {
        load(rope_array(kind, a->y), at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    store(rope_array(kind, a->y), at, n, y);
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

/* A group of a head, for one thread. Token and batch are counted from the first of the block. */
typedef struct RopeItem {
    int group, head, token, batch;
} RopeItem;

/* Returns the item with index i, or a distance of i items in the same form. `n` is the number of
 * tokens of a sequence in this block. */
DEVICE RopeItem rope_item(const RopeArgs *a, int n, int i)
{
    RopeItem item;
    item.head = i / a->per_head;
    item.group = i - item.head * a->per_head;
    item.token = item.head / a->heads;
    item.head -= item.token * a->heads;
    item.batch = item.token / n;
    item.token -= item.batch * n;
    return item;
}

/* Returns the item at the distance `by` after item `from`. */
DEVICE RopeItem rope_next(const RopeArgs *a, int n, RopeItem from, RopeItem by)
{
    from.group += by.group, from.head += by.head, from.token += by.token, from.batch += by.batch;
    if (from.group >= a->per_head) from.group -= a->per_head, from.head++;
    if (from.head >= a->heads) from.head -= a->heads, from.token++;
    if (from.token >= n) from.token -= n, from.batch++;
    return from;
}

/* The elements of an item, and its numbers as they were loaded. */
typedef struct RopeGroup {
    int at, angle, n;  /* at: first element, counted from the first one of the block; angle: index
                          of its sine, -1 if the group is not rotated; n: pairs or elements */
    Raw first, second; /* of the first and the second half of a head */
} RopeGroup;

/* Loads an item's numbers. `base` is the index of the block's first element. */
DEVICE RopeGroup rope_load(const RopeArgs *a, const RopeKind kind, int64_t base, RopeItem item)
{
    const int pairs = a->turned / 2, turns = (pairs + EIGHT - 1) / EIGHT;
    const bool turned = kind == ROPE_usual || item.group < turns;
    const int e = item.group * EIGHT + (turned ? 0 : a->turned - turns * EIGHT);
    const Array x = rope_array(kind, a->x);
    RopeGroup g;
    g.at = item.batch * a->apart + (item.token * a->heads + item.head) * a->width + e;
    g.angle = turned ? item.token * pairs + e : -1;
    g.n = kind != ROPE_any ? EIGHT : eight_of(e, turned ? pairs : a->width);
    g.first = fetch(x, base + g.at, kind != ROPE_any ? EIGHT : g.n);
    g.second = raw_zero();
    if (turned) g.second = fetch(x, base + g.at + pairs, kind != ROPE_any ? EIGHT : g.n);
    return g;
}

/* Rotates up to eight pairs, or copies up to eight elements. */
DEVICE void rope_turn(const RopeArgs *a, const RopeKind kind, int64_t base, const RopeGroup *g,
                      const float *sines, const float *cosines)
{
    const int pairs = a->turned / 2, n = kind != ROPE_any ? EIGHT : g->n;
    const bool aligned = kind != ROPE_any || pairs % EIGHT == 0;
    float x1[EIGHT], x2[EIGHT], y1[EIGHT], y2[EIGHT], s[EIGHT], c[EIGHT];
    widen_all(rope_array(kind, a->x), &g->first, x1);
    if (kind != ROPE_usual && g->angle < 0) {
        rope_write(a, kind, base + g->at, n, x1);
        return;
    }
    rope_angles(sines + g->angle, n, aligned, s);
    rope_angles(cosines + g->angle, n, aligned, c);
    widen_all(rope_array(kind, a->x), &g->second, x2);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        y1[k] = x1[k] * c[k] - x2[k] * s[k];
        y2[k] = x1[k] * s[k] + x2[k] * c[k];
    }
    rope_write(a, kind, base + g->at, n, y1);
    rope_write(a, kind, base + g->at + pairs, n, y2);
}

/* How far a thread has come in its list of items: the next item, and the distance to the item after
 * it. */
typedef struct RopeWalk {
    RopeItem next, by;
    int64_t base;   /* first element of the block */
    int n, batches; /* tokens of a sequence in this block; number of its sequences */
} RopeWalk;

/* Loads the next items. Groups of items that do not exist have n = 0. */
DEVICE void rope_fetch(const RopeArgs *a, const RopeKind kind, const int ahead, RopeWalk *walk,
                       RopeGroup group[ROPE_AHEAD])
{
    UNROLL for (int u = 0; u < ahead; u++)
    {
        group[u].n = 0;
        if (walk->next.batch < walk->batches) group[u] = rope_load(a, kind, walk->base, walk->next);
        walk->next = rope_next(a, walk->n, walk->next, walk->by);
    }
}

/* Computes the angles of n tokens from local index `first` on: sines and cosines [n, pairs]. */
DEVICE void rope_compute(const RopeArgs *a, const RopeKind kind, int64_t first, int n, float *sines,
                         float *cosines)
{
    const int pairs = a->turned / 2;
    for (int i = (int)threadIdx.x; i < n * pairs; i += ROPE_THREADS) {
        float sine, cosine;
        const int e = i % pairs;
        const int64_t position = rope_position(a, first + i / pairs);
        const double frequency = kind != ROPE_any || a->knows ? a->turns[e] : rope_frequency(a, e);
        const int64_t place = kind == ROPE_usual ? position : rope_place(&a->grid, e, position);
        const double turn = (double)place * frequency;
        device_sincos_turn((float)(turn - rint(turn)), &sine, &cosine);
        sines[i] = (float)(a->sign * a->ramp.gain) * sine;
        cosines[i] = (float)a->ramp.gain * cosine;
    }
    __syncthreads();
}

/* Rotates the tokens of a block, which is one round. Shared memory has sines [round, pairs]; the
 * cosines follow. The first items are loaded before the angles are computed, so that both happen at
 * the same time. */
DEVICE void rope_round(const RopeArgs *a, const RopeKind kind, const int ahead, float *sines)
{
    const int64_t of = split_row(blockIdx.x, a->rounds, a->n_rounds), batch = of * a->together;
    const int64_t first = (blockIdx.x - of * a->rounds) * a->round, left = a->batches - batch;
    const int n = (int)(a->seq - first < a->round ? a->seq - first : a->round);
    float *cosines = sines + a->round * (a->turned / 2);
    RopeWalk walk;
    RopeGroup group[ROPE_AHEAD];
    walk.next = rope_item(a, n, (int)threadIdx.x), walk.by = rope_item(a, n, ROPE_THREADS);
    walk.base = (batch * a->seq + first) * a->heads * a->width;
    walk.n = n, walk.batches = left < a->together ? (int)left : a->together;
    rope_fetch(a, kind, ahead, &walk, group);
    rope_compute(a, kind, first, n, sines, cosines);
    while (group[0].n > 0) {
        UNROLL for (int u = 0; u < ahead; u++)
        {
            if (group[u].n > 0) rope_turn(a, kind, walk.base, &group[u], sines, cosines);
        }
        rope_fetch(a, kind, ahead, &walk, group);
    }
}

KERNEL(rope_any, RopeArgs, ROPE_THREADS, 5)
{
    SHARED(float, sines);
    rope_round(&a, ROPE_any, 1, sines);
}

KERNEL(rope_half, RopeArgs, ROPE_THREADS, 5)
{
    SHARED(float, sines);
    rope_round(&a, ROPE_half, ROPE_AHEAD, sines);
}

KERNEL(rope_usual, RopeArgs, ROPE_THREADS, ROPE_BLOCKS_PER_SM)
{
    SHARED(float, sines);
    rope_round(&a, ROPE_usual, ROPE_AHEAD, sines);
}

/* Divides the tokens into rounds, one for each block. Sequences that share a block share its
 * angles. The device computes blocks in waves; the best number of sequences makes the waves
 * shortest. */
static void rope_divide(RopeArgs *p, int64_t pairs, const CudaContext *cuda)
{
    const int64_t at_once = (int64_t)cuda->n_sms * ROPE_BLOCKS_PER_SM;
    int64_t least = INT64_MAX;
    p->round = pairs > 0 && pairs < ROPE_THREADS ? (int32_t)(ROPE_THREADS / pairs) : 1;
    p->rounds = ceil_div(p->seq, p->round);
    const int64_t items = ceil_div((int64_t)p->round * p->heads * p->per_head, ROPE_THREADS);
    const int64_t apart = p->seq * p->heads * p->width;
    p->together = 1, p->n_rounds = 0;
    for (int64_t together = 1; together <= p->batches && together <= ROPE_TOGETHER; together++) {
        if (together > 1 && together * apart > INT32_MAX) break;
        const int64_t blocks = p->rounds * ceil_div(p->batches, together);
        const int64_t time = ceil_div(blocks, at_once) * (ROPE_SETUP + together * items);
        if (time >= least) continue;
        least = time;
        p->together = (int32_t)together, p->n_rounds = blocks;
    }
    p->apart = p->together > 1 ? (int32_t)apart : 0;
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
    const size_t shared = 2 * (size_t)(pairs * p.round) * sizeof(float);
    if (!array_is_bf16(p.x) || !array_is_bf16(p.y) || !p.knows)
        return LAUNCH(rope_any, p.n_rounds, ROPE_THREADS, shared, p, cuda, error);
    if (p.turned < p.width || p.accumulate || p.grid.rows > 0)
        return LAUNCH(rope_half, p.n_rounds, ROPE_THREADS, shared, p, cuda, error);
    return LAUNCH(rope_usual, p.n_rounds, ROPE_THREADS, shared, p, cuda, error);
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
