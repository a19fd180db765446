/* Arguments of the kernels of attention and of its gradient, and functions on tiles of 16-bit
 * numbers in shared memory. kernels/cpu/attention.c defines the two ops: S = scale Q K^T, P = exp(S
 * - lse), O = P V. R query heads use the same head of keys and values, so query head h uses head h
 * / R of K and V. The kernels read and write all tensors where they lie, by strides. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/attention/order.cuh"
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product/mma.cuh"

/* Kernel names are made by macros. These two macros expand a name before KERNEL and LAUNCH use
 * it. */
#define KERNEL_OF(name, Args, threads, blocks_per_sm) KERNEL(name, Args, threads, blocks_per_sm)
#define LAUNCH_OF(name, blocks, threads, bytes, args, cuda, error)                                 \
    LAUNCH(name, blocks, threads, bytes, args, cuda, error)

typedef struct AttentionArgs {
    const void *dout, *q, *k, *v; /* Q [B,S,G,R,E]; K and V [B,T,G,E]; dout [B,S,G,R,E] is the
                                     gradient of O, read only by the kernels of the gradient */
    const void *out;              /* O, read by the kernels of the gradient */
    const float
        *lse; /* [B,S,G,R]: the log-sum-exp of each row of S, read by the kernels of the gradient */
    void *to_out; /* attention writes O and lse here */
    float *to_lse;
    void *dq, *dk, *dv; /* the gradient writes the gradients of Q, K and V here */
    float *delta;       /* [B,S,G,R]: scratch memory of the gradient, in which it keeps the sum of
                           dO O over each row */
    int64_t B, S, T, G, R, E;
    int64_t position; /* global position of query 0, minus global position of key 0 */
    /* A rank's queries may be two separate chunks of the sequence. Then the second chunk begins at
     * local query `half`, and the chunks are `jump` tokens apart in the sequence. Otherwise half =
     * S and jump = 0. A query with a larger index has a larger position. */
    int64_t half, jump;
    /* How many heads the running blocks work on at the same time, so that what they read stays in
     * the cache (order_beside). Heads of all sequences count. The first number is for kernels whose
     * blocks hold queries, the second for kernels whose blocks hold keys. */
    uint32_t beside_queries, beside_keys;
    DType dtype;
    float scale;
    uint32_t causal, accumulate, drops;
    float grow; /* 1 / (1 - drop), by which dropout multiplies each score that it keeps */
    CudaDraw draw;
    /* For dropout, the scores [b,s,g,r,T] of the whole sequences have indices in row-major order.
     * `place` is the index of the first local score. From one b to the next, this index grows by
     * place_b, and so on for s, g and r. */
    int64_t place, place_b, place_s, place_g, place_r;
} AttentionArgs;

enum { ATTENTION_THREADS = 128, ATTENTION_WARPS = ATTENTION_THREADS / WARP };
#define LOG2_E 1.4426950408889634f

/* The tile of rows that a block computes. order_place assigns tiles to blocks. */
typedef struct AttentionPlace {
    int64_t first, b, g, r; /* index of the first row; sequence; group; query head in the group (0
                               if the rows are keys) */
    int64_t head;           /* index of the query head in the sequence: g R + r */
} AttentionPlace;

/* Returns the tile of the block with index `block`. In a kernel whose blocks take
 * numbers from a counter (tickets), `block` is such a number. The tensor has n rows, in tiles of
 * `tile` rows. */
DEVICE AttentionPlace attention_place_of(const AttentionArgs *a, uint32_t block, int64_t n,
                                         int64_t tile, int64_t heads_a_group, uint32_t beside,
                                         bool last_first)
{
    const uint32_t r = (uint32_t)heads_a_group, heads = (uint32_t)a->G * r;
    const OrderPlace o = order_place(block, heads * (uint32_t)a->B,
                                     (uint32_t)((n + tile - 1) / tile), beside, last_first);
    AttentionPlace p;
    p.first = (int64_t)o.tile * tile;
    p.b = o.head / heads;
    p.head = o.head % heads;
    p.g = o.head % heads / r;
    p.r = o.head % r;
    return p;
}

DEVICE AttentionPlace attention_place(const AttentionArgs *a, int64_t n, int64_t tile,
                                      int64_t heads_a_group, uint32_t beside, bool last_first)
{
    return attention_place_of(a, blockIdx.x, n, tile, heads_a_group, beside, last_first);
}

/* Returns the distance in tokens from query 0 to `query` in the whole sequence. */
DEVICE int64_t attention_behind(const AttentionArgs *a, int64_t query)
{
    return query < a->half ? query : query + a->jump;
}

/* Returns how many keys `query` may see. The keys that an earlier query may see are among them. */
DEVICE int64_t attention_visible(const AttentionArgs *a, int64_t query)
{
    int64_t n = a->position + attention_behind(a, query) + 1;
    if (!a->causal || n > a->T) return a->T;
    return n < 0 ? 0 : n;
}

/* Returns the first query that may see key `key`. Returns S if no query may see it. */
DEVICE int64_t attention_first(const AttentionArgs *a, int64_t key)
{
    int64_t query = a->causal ? key - a->position : 0;
    if (query >= a->half) query = query - a->jump > a->half ? query - a->jump : a->half;
    return query < 0 ? 0 : query < a->S ? query : a->S;
}

/* Returns the end of the chunk of queries that `query` belongs to. */
DEVICE int64_t attention_end(const AttentionArgs *a, int64_t query)
{
    return query < a->half ? a->half : a->S;
}

/* The queries that a block of keys reads. For each head of the group in turn, it reads them tile by
 * tile. A tile never contains queries of two chunks. */
typedef struct AttentionWalk {
    int first, n; /* first: the first query of each head; n: number of tiles, summed over the
                     group's heads */
} AttentionWalk;

DEVICE AttentionWalk attention_walk(const AttentionArgs *a, const AttentionPlace *at, int columns)
{
    AttentionWalk w;
    w.first = (int)attention_first(a, at->first);
    const int end = (int)attention_end(a, w.first), rest = (int)a->S - end;
    w.n = ((end - w.first + columns - 1) / columns + (rest + columns - 1) / columns) * (int)a->R;
    return w;
}

/* Returns the first query of the tile after the tile that begins at `query`. After the last tile of
 * a head, this is the first tile of the next head. */
DEVICE int attention_next(const AttentionWalk *w, const AttentionArgs *a, int query, int columns)
{
    const int end = (int)attention_end(a, query),
              next = query + columns < end ? query + columns : end;
    return next < a->S ? next : w->first;
}

DEVICE CudaDrawKey attention_draw_key(const AttentionArgs *a)
{
    CudaDrawKey none;
    none.seed = none.stream = 0;
    none.threshold = 0;
    return a->drops ? draw_key(&a->draw) : none;
}

/* Returns true if dropout keeps the score of query `query` and key `t` (both local). */
DEVICE bool attention_keeps(const AttentionArgs *a, const CudaDrawKey *key,
                            const AttentionPlace *at, int64_t query, int64_t t)
{
    int64_t place = a->place + at->b * a->place_b + attention_behind(a, query) * a->place_s;
    place += at->g * a->place_g + at->r * a->place_r + t;
    return draw_keeps(key, (uint64_t)place);
}

/* ---- tiles: matrices [rows, head] of 16-bit numbers in shared memory. A chunk is 16 bytes of a
 * row. The order of chunks differs from row to row. So chunks with the same index in eight
 * neighbouring rows lie in different banks and can be read at once. */

DEVICE Shared tile_chunk(Shared tile, int head, int row, int chunk)
{
    return tile + row * head * 2 + ((chunk ^ (row & 7)) << 4);
}

/* Returns the address of chunk even + odd, where odd is 0 or 1. The compiler can then reach many
 * such addresses from one register plus a constant. */
DEVICE Shared tile_pair(Shared tile, int head, int row, int even, int odd)
{
    return tile + row * head * 2 + (even >> 3 << 7) + ((((even & 7) | odd) ^ (row & 7)) << 4);
}

/* Starts to copy n_rows rows of E numbers into a tile, and sets the rest of the tile to zero. */
DEVICE void tile_load(Shared tile, int head, int rows, const uint16_t *from, int64_t stride,
                      int64_t n_rows, int64_t E)
{
    int chunks = head / 8;
    for (int i = (int)threadIdx.x; i < rows * chunks; i += ATTENTION_THREADS) {
        int row = i / chunks, chunk = i % chunks;
        bool whole = row < n_rows && chunk * 8 < E;
        const uint16_t *at = whole ? from + row * stride + chunk * 8 : from;
        copy_start(tile_chunk(tile, head, row, chunk), at, whole);
    }
}

DEVICE float widen_bf16(uint32_t bits)
{
    return FLOAT_OF_BITS(bits << 16);
}

/* A row of a product lies in four neighbouring lanes. These two functions reduce over those
 * lanes. */
DEVICE float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(FULL, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL, x, 2));
}

DEVICE float row_sum(float x)
{
    x += __shfl_xor_sync(FULL, x, 1);
    return x + __shfl_xor_sync(FULL, x, 2);
}

#endif
