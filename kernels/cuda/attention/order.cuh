/* The order in which the blocks of attention's kernels process heads and tiles. Both functions are
 * pure, so that a test can check them for every block of a launch. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ORDER_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ORDER_CUH

#include "kernels/attention_tiles.h"
#include "kernels/cuda/device.cuh"

/* Number of rows (queries or keys) that one block of a kernel for Hopper holds. */
enum { ORDER_ROWS = ATTENTION_TILE_ROWS };

/* Returns how many of the `all` heads the blocks process at the same time. `bytes` is the size of
 * the operands of one head. The function chooses the number so that the operands of these heads fit
 * into half of the L2 cache (half is 25 MiB on an H100). Other data need the other half.
 *
 * With a causal mask, the last heads have long blocks that begin late. If there are few blocks for
 * each multiprocessor, these late blocks cost more time than the cache saves. Then all heads are
 * processed at the same time. On an H200, processing fewer heads at a time was 12 % slower with 4
 * blocks for each multiprocessor, and 15 % faster with 8. */
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
    uint32_t tile, head; /* index of the tile in its head; index of the head among the heads of all
                            sequences */
} OrderPlace;

/* Returns the tile and the head that a block computes. The launch has one block for each of the
 * n_tiles tiles of each head. `beside` heads at a time are processed together: first tile 0 of each
 * of these heads, then tile 1 of each, and so on. If `last_first` is true, tiles come in the
 * reverse order. */
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
