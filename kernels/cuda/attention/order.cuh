/* The order in which the blocks of attention's kernels visit heads and tiles. Both functions are
 * pure, so that a test can check them for all blocks of a launch. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ORDER_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ORDER_CUH

#include "kernels/attention_tiles.h"
#include "kernels/cuda/device.cuh"

/* Rows of queries or keys that one block of a kernel for Hopper holds. */
enum { ORDER_ROWS = ATTENTION_TILE_ROWS };

/* Returns the number of heads (of `all`) that blocks visit side by side. A head has operands of
 * `bytes` bytes. The operands of these heads fit in half of the cache (25 MiB on an H100); other
 * data pass through the other half.
 *
 * A causal mask gives the last heads long blocks that begin late. If a processor has few of the
 * `blocks`, this costs more than the cache saves, so all heads are side by side. (Measured on an
 * H200: 12 % slower with 4 blocks for each processor, 15 % faster with 8.) */
static inline uint32_t order_beside(const CudaContext *cuda, int64_t bytes, int64_t all,
                                    bool causal, int64_t blocks)
{
    enum { MANY = 6 };
    int64_t n = cuda->l2_bytes == 0 || bytes == 0 ? all : (int64_t)cuda->l2_bytes / 2 / bytes;
    if (causal && blocks < MANY * (int64_t)cuda->n_sms) n = all;
    n = n < 1 ? 1 : n < all ? n : all;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

typedef struct OrderPlace {
    uint32_t tile, head; /* head: of all sequences */
} OrderPlace;

/* Returns the tile and the head of a block. The launch has a block for each of n_tiles tiles of
 * each head. Heads are visited in sets of `beside`. Within such a set of heads, tile 0 of every
 * head comes first, then tile 1 of every head, and so on. With `last_first` the order of tiles is
 * reversed. */
DEVICE OrderPlace order_place(uint32_t block, uint32_t heads, uint32_t n_tiles, uint32_t beside,
                              bool last_first)
{
    const uint32_t chunk = beside < heads ? beside : heads;
    const uint32_t begin = block / (chunk * n_tiles) * chunk, left = heads - begin;
    const uint32_t here = left < chunk ? left : chunk, among = block - begin * n_tiles;
    const uint32_t of_tile = among / here;
    OrderPlace p;
    p.tile = last_first ? n_tiles - 1 - of_tile : of_tile;
    p.head = begin + among % here;
    return p;
}

#endif
