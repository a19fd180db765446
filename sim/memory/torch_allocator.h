/* PyTorch's caching allocator on CUDA, as its documentation and its published behaviour have it;
 * only sizes and places, no memory. Requests are rounded up to 512 bytes. Up to 1 MiB they come
 * from the small pool, whose segments have 2 MiB; others from the large pool, whose segments have
 * 20 MiB for requests below 10 MiB, else the request rounded up to 2 MiB. A pool belongs to a
 * stream. The smallest free block that is large enough is taken, the lower address among equals;
 * its rest is split off where at least 512 bytes (small) or more than 1 MiB (large) remain; free
 * neighbours in a segment are merged. Where the device has no room for a segment, wholly free
 * segments are given back, and it is tried once more.
 *
 * Expandable segments: one segment a pool, which grows at its end in steps of 2 MiB (small) or 20
 * MiB. */
#ifndef TANDEM_SIM_MEMORY_TORCH_ALLOCATOR_H
#define TANDEM_SIM_MEMORY_TORCH_ALLOCATOR_H

#include <stdbool.h>

#include "planner/base/list.h"

typedef struct TorchAllocator TorchAllocator;

typedef struct TorchStats { /* bytes */
    uint64_t allocated, reserved, peak_allocated, peak_reserved;
    uint32_t n_retries; /* free segments were given back to make room */
    uint32_t n_segments;
    bool failed; /* a request had no room; it and what follows counts as if there were */
} TorchStats;

/* limit_bytes: of all segments together. */
TorchAllocator *torch_allocator_new(uint64_t limit_bytes, bool expandable, Arena *arena);
/* A block, never 0; bytes 0 is 512. */
uint32_t torch_allocate(TorchAllocator *a, uint64_t bytes, uint32_t stream);
void torch_release(TorchAllocator *a, uint32_t block);
TorchStats torch_stats(const TorchAllocator *a);
void torch_reset_peaks(TorchAllocator *a); /* to what there is now */

#endif
