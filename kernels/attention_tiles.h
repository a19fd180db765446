/* The calls that the tiled GPU kernels of attention take. The CUDA kernels refuse other calls, and
 * the simulator predicts a call by the kernels that take it: both ask these functions. */
#ifndef TANDEM_KERNELS_ATTENTION_TILES_H
#define TANDEM_KERNELS_ATTENTION_TILES_H

#include <stdbool.h>
#include <stdint.h>

/* The head sizes of the tiles. Heads must be a multiple of 8 wide. A kernel computes a head of
 * another size like the next larger of these sizes. */
#define ATTENTION_HEADS(X) X(64) X(128) X(256)

/* The rows (queries or keys) of a block of Hopper's kernels. */
enum { ATTENTION_TILE_ROWS = 128 };

/* Returns the head size of the smallest tile that a head fits in; 0: none. */
static inline int attention_tile_head(int64_t head)
{
    if (head <= 0 || head % 8 != 0) return 0;
#define FITS(size)                                                                                 \
    if (head <= (size)) return size;
    ATTENTION_HEADS(FITS)
#undef FITS
    return 0;
}

/* True if Hopper's kernels have tiles of this head size. */
static inline bool attention_has_hopper_tile(int tile_head)
{
    return tile_head == 64 || tile_head == 128;
}

/* Returns the queries of a tile of Hopper's gradient in one kernel. */
static inline int64_t attention_tile_queries(int tile_head)
{
    return tile_head == 64 ? 128 : 64;
}

/* True if whole tiles cover a call of Hopper's gradient in one kernel, which needs this. */
static inline bool attention_in_whole_tiles(int tile_head, int64_t queries, int64_t keys)
{
    return keys % ATTENTION_TILE_ROWS == 0 && queries % attention_tile_queries(tile_head) == 0;
}

#endif
