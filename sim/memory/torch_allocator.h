/* A model of PyTorch's caching allocator on CUDA, made from its documentation and published
 * behaviour. It computes sizes and addresses, but holds no memory.
 *
 * A request is rounded up to a multiple of 512 bytes. Requests of up to 1 MiB use the small pool,
 * whose segments have 2 MiB. Larger requests use the large pool. Its segments have 20 MiB for
 * requests below 10 MiB; for larger ones, a segment has the size of the request, rounded up to 2
 * MiB. Each stream has its own pools. A request gets the smallest free block that is large enough;
 * among equal blocks, the one with the lowest address. The rest of the block is split off if it has
 * at least 512 bytes (small pool) or more than 1 MiB (large pool). Neighbouring free blocks of a
 * segment are merged. If the device has no room for a new segment, segments without a used block
 * are given back, and the request is tried once more.
 *
 * Expandable segments: each pool has a single segment, which grows at its end in steps of 2 MiB
 * (small pool) or 20 MiB (large pool). */
#ifndef TANDEM_SIM_MEMORY_TORCH_ALLOCATOR_H
#define TANDEM_SIM_MEMORY_TORCH_ALLOCATOR_H

#include <stdbool.h>

#include "planner/base/list.h"

typedef struct TorchAllocator TorchAllocator;

typedef struct TorchStats { /* all in bytes */
    uint64_t allocated, reserved, peak_allocated, peak_reserved;
    uint32_t n_retries; /* how often free segments were given back to make room */
    uint32_t n_segments;
    bool failed; /* some request found no room; this request and all later ones are counted as if
                    there were room */
} TorchStats;

/* Makes an allocator. All segments together may have at most limit_bytes bytes. */
TorchAllocator *torch_allocator_new(uint64_t limit_bytes, bool expandable, Arena *arena);
/* Returns the id of a block, which is never 0. A request of 0 bytes gets 512 bytes. */
uint32_t torch_allocate(TorchAllocator *a, uint64_t bytes, uint32_t stream);
void torch_release(TorchAllocator *a, uint32_t block);
TorchStats torch_stats(const TorchAllocator *a);
void torch_reset_peaks(TorchAllocator *a); /* sets the peaks to the present values */

/* Where a block lies. bytes: 0 if the id is not in use. unmapped: its pages were given back. */
typedef struct TorchPlace {
    uint64_t address, bytes;
    bool used, unmapped;
} TorchPlace;
/* Fills in where block `id` lies. Returns false if no block has this id or a larger one. */
bool torch_place(const TorchAllocator *a, uint32_t id, TorchPlace *place);

#endif
