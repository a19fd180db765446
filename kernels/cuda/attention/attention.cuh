/* Shared by the kernels of attention and its gradient: their arguments, and tiles of 16-bit numbers
 * in shared memory. S = scale Q K^T, P = exp(S - lse), O = P V as in kernels/cpu/attention.c, which
 * defines these ops. Head h of the query reads group h / R of keys and values. All tensors are read
 * and written in place, by strides. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/attention/order.cuh"
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product/mma.cuh"

/* Macros make the names of the kernels here; these two macros expand them. */
#define KERNEL_OF(name, Args, threads, blocks_per_sm) KERNEL(name, Args, threads, blocks_per_sm)
#define LAUNCH_OF(name, blocks, threads, bytes, args, cuda, error)                                 \
    LAUNCH(name, blocks, threads, bytes, args, cuda, error)

typedef struct AttentionArgs {
    const void *dout, *q, *k, *v; /* [B,S,G,R,E], [B,T,G,E]; dout: only for the gradient */
    const void *out;              /* input of the gradient */
    const float *lse;             /* [B,S,G,R]; input of the gradient */
    void *to_out;                 /* outputs of attention */
    float *to_lse;
    void *dq, *dk, *dv; /* outputs of the gradient */
    float *delta;       /* [B,S,G,R], scratch of the gradient: rowsum(dO O) */
    int64_t B, S, T, G, R, E;
    int64_t position; /* global position of query 0, minus that of key 0 */
    /* For a part in two chunks, queries from `half` on are `jump` further on in the whole sequence;
     * otherwise S and 0. Positions increase from query to query. */
    int64_t half, jump;
    /* Number of heads, of all sequences, whose tiles of queries (or of keys) are visited side by
     * side: see order_beside. */
    uint32_t beside_queries, beside_keys;
    DType dtype;
    float scale;
    uint32_t causal, accumulate, drops;
    float grow; /* 1 / (1 - drop) */
    CudaDraw draw;
    /* The scores [b,s,g,r,T] of the whole sequences are numbered one after the other. `place` is
     * the number of the first local score; place_b is the distance between the numbers of
     * neighbours in b, and so on. */
    int64_t place, place_b, place_s, place_g, place_r;
} AttentionArgs;

enum { ATTENTION_THREADS = 128, ATTENTION_WARPS = ATTENTION_THREADS / WARP };
#define LOG2_E 1.4426950408889634f

/* The tile that a block works on; see order_place. */
typedef struct AttentionPlace {
    int64_t first, b, g, r; /* r: of keys, 0 */
    int64_t head;           /* g R + r */
} AttentionPlace;

/* The tile of a block, or of a ticket that stands for the block; `n` rows in tiles of `tile`
 * rows. */
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

/* Returns a query's distance from query 0 in the whole sequence. */
DEVICE int64_t attention_behind(const AttentionArgs *a, int64_t query)
{
    return query < a->half ? query : query + a->jump;
}

/* Returns how many keys the queries up to and including `query` may see. */
DEVICE int64_t attention_visible(const AttentionArgs *a, int64_t query)
{
    int64_t n = a->position + attention_behind(a, query) + 1;
    if (!a->causal || n > a->T) return a->T;
    return n < 0 ? 0 : n;
}

/* Returns the first query that sees any key from `key` on; S if none does. */
DEVICE int64_t attention_first(const AttentionArgs *a, int64_t key)
{
    int64_t query = a->causal ? key - a->position : 0;
    if (query >= a->half) query = query - a->jump > a->half ? query - a->jump : a->half;
    return query < 0 ? 0 : query < a->S ? query : a->S;
}

/* Returns the end of the queries that are neighbours of `query` in the whole sequence. */
DEVICE int64_t attention_end(const AttentionArgs *a, int64_t query)
{
    return query < a->half ? a->half : a->S;
}

/* The queries that a block of keys visits: tile by tile, for each head of the group in turn. A tile
 * never spans two chunks of queries. */
typedef struct AttentionWalk {
    int first, n; /* n: number of tiles of all heads */
} AttentionWalk;

DEVICE AttentionWalk attention_walk(const AttentionArgs *a, const AttentionPlace *at, int columns)
{
    AttentionWalk w;
    w.first = (int)attention_first(a, at->first);
    const int end = (int)attention_end(a, w.first), rest = (int)a->S - end;
    w.n = ((end - w.first + columns - 1) / columns + (rest + columns - 1) / columns) * (int)a->R;
    return w;
}

/* Returns the next tile's query; after the last tile of a head comes the first of the next head. */
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

/* True if dropout keeps the score of a local query and key. */
DEVICE bool attention_keeps(const AttentionArgs *a, const CudaDrawKey *key,
                            const AttentionPlace *at, int64_t query, int64_t t)
{
    int64_t place = a->place + at->b * a->place_b + attention_behind(a, query) * a->place_s;
    place += at->g * a->place_g + at->r * a->place_r + t;
    return draw_keeps(key, (uint64_t)place);
}

/* ---- tiles: [rows, head] 16-bit numbers. The order of 16-byte chunks changes from row to row, so
 * that equal chunks of eight rows lie in different banks. */

DEVICE Shared tile_chunk(Shared tile, int head, int row, int chunk)
{
    return tile + row * head * 2 + ((chunk ^ (row & 7)) << 4);
}

/* Returns the address of chunk even + odd (odd is 0 or 1): many such addresses differ only by a
 * constant. */
DEVICE Shared tile_pair(Shared tile, int head, int row, int even, int odd)
{
    return tile + row * head * 2 + (even >> 3 << 7) + ((((even & 7) | odd) ^ (row & 7)) << 4);
}

/* Starts to copy n_rows rows of E numbers; the rest of the tile is zero. */
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

/* Reduces over the four lanes that hold a row of a product. */
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
