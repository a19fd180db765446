/* PyTorch's caching allocator on CUDA, after its documentation and published behaviour. It models
 * sizes and places and holds no memory. Requests are rounded up to 512 bytes. Requests up to 1 MiB
 * come from the small pool, whose segments have 2 MiB. Larger requests come from the large pool.
 * Its segments have 20 MiB for requests below 10 MiB. For larger requests, a segment has the size
 * of the request, rounded up to 2 MiB. Each stream has its own pools. The smallest free block that
 * is large enough is taken. Among equal blocks, the block with the lowest address is taken. The
 * remainder is split off if it has at least 512 bytes (small) or more than 1 MiB (large). Free
 * neighbours in a segment are merged. If the device has no room for a segment, wholly free segments
 * are given back and the request is tried once more.
 *
 * Expandable segments: each pool has one segment, which grows at its end in steps of 2 MiB (small)
 * or 20 MiB. */
#ifndef TANDEM_SIM_MEMORY_TORCH_ALLOCATOR_H
#define TANDEM_SIM_MEMORY_TORCH_ALLOCATOR_H

#include <stdbool.h>

#include "planner/base/list.h"

typedef struct TorchAllocator TorchAllocator;

typedef struct TorchStats { /* bytes */
    uint64_t allocated, reserved, peak_allocated, peak_reserved;
    uint32_t n_retries; /* free segments were given back to make room */
    uint32_t n_segments;
    bool failed; /* a request found no room; this request and all later ones are counted as if there
                    were room */
} TorchStats;

/* limit_bytes: the limit for all segments together. */
TorchAllocator *torch_allocator_new(uint64_t limit_bytes, bool expandable, Arena *arena);
/* Returns a block, never 0; a request of 0 bytes takes 512. */
uint32_t torch_allocate(TorchAllocator *a, uint64_t bytes, uint32_t stream);
void torch_release(TorchAllocator *a, uint32_t block);
TorchStats torch_stats(const TorchAllocator *a);
void torch_reset_peaks(TorchAllocator *a); /* sets the peaks to the current values */

#endif
