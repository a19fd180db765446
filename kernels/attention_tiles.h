/* Tells which calls of attention the GPU kernels with tiles can compute. The CUDA kernels use these
 * functions to refuse other calls. The simulator uses them to find out which kernel will compute a
 * call. */
#ifndef TANDEM_KERNELS_ATTENTION_TILES_H
#define TANDEM_KERNELS_ATTENTION_TILES_H

#include <stdbool.h>
#include <stdint.h>

/* The head sizes for which there are tiles. A head must have a multiple of 8 elements. A head of
 * another size is computed by the kernel for the next larger size. */
#define ATTENTION_HEADS(X) X(64) X(128) X(256)

/* Rows (queries or keys) that a block of Hopper's kernels holds. */
enum { ATTENTION_TILE_ROWS = 128 };

/* Returns the head size of the smallest tile that a head fits into; 0: there is none. */
static inline int attention_tile_head(int64_t head)
{
    if (head <= 0 || head % 8 != 0) return 0;
#define FITS(size)                                                                                 \
    if (head <= (size)) return size;
    ATTENTION_HEADS(FITS)
#undef FITS
    return 0;
}

/* Returns true if Hopper's kernels have tiles of this head size. */
static inline bool attention_has_hopper_tile(int tile_head)
{
    return tile_head == 64 || tile_head == 128;
}

/* Returns how many queries there are in a tile of Hopper's kernel for the whole gradient. */
static inline int64_t attention_tile_queries(int tile_head)
{
    return tile_head == 64 ? 128 : 64;
}

/* Returns true if full tiles cover all queries and keys of a call. Hopper's kernel for the whole
 * gradient needs this. */
static inline bool attention_in_whole_tiles(int tile_head, int64_t queries, int64_t keys)
{
    return keys % ATTENTION_TILE_ROWS == 0 && queries % attention_tile_queries(tile_head) == 0;
}

#endif
