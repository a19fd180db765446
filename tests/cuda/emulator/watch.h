/* What the threads of a kernel do with memory, watched: the compiler calls in before every load and
 * store (-fsanitize=thread, with the functions below instead of its library). A test ends when a
 * kernel touches what it was not given, or when two threads touch the same bytes of shared or
 * global memory, one of them writing, and nothing orders the two: no barrier of the block,
 * __syncwarp, named barrier, barrier in shared memory, or end of the kernel. (Shuffles, ballots and
 * products of a warp order nothing.) Nor may Hopper's boxes and products touch what was stored
 * without the fence that is between the two. Whether orders of threads that are tried would show it
 * does not matter.
 *
 * TANDEM_WATCH=print counts what each kernel asks of the memory system, and prints a table when the
 * program ends: 32-byte sectors that warps touch in global memory, against the fewest that hold the
 * bytes they want; passes that shared memory needs for them, against those without bank conflicts.
 * What a warp's lanes do at one place in the code for the n-th time is one request. */
#ifndef TANDEM_TESTS_CUDA_WATCH_H
#define TANDEM_TESTS_CUDA_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct WatchCounts {
    uint64_t requests, sectors, fewest_sectors; /* of global memory */
    uint64_t passes, fewest_passes;             /* of shared memory */
} WatchCounts;

#ifdef TANDEM_WATCHED
static inline bool watch_is_on(void)
{
    return true;
}
void watch_launch(const char *kernel);
void watch_block(unsigned char *shared, uint64_t bytes);
void watch_block_end(void);
void watch_block_barrier(void);
void watch_warp_barrier(uint32_t warp, uint32_t mask);
void watch_warps_barrier(uint32_t warps); /* bit w: warp w */
/* Barriers in shared memory, by number, of a block. */
void watch_arrive(uint32_t barrier, uint32_t warp);
void watch_phase_over(uint32_t barrier);
void watch_waited(uint32_t barrier, uint32_t warp);
void watch_read(const void *at, uint64_t bytes);
void watch_write(void *at, uint64_t bytes);
void watch_atomic(void *at, uint64_t bytes);
void watch_arrival(void *at, uint64_t bytes); /* of a write that was counted when it began */
void watch_late_read(const void *at, uint64_t bytes); /* ... and of a read, that is not counted */
void watch_wide(const void *at, uint64_t bytes);      /* what follows there is one access */
/* Boxes and products are of another proxy: what was stored there is theirs only when who stored it
 * has said so since, before this thread. `replaced`: by them, from now on. */
void watch_to_async(void);
void watch_async(const void *at, uint64_t bytes, bool replaced);
/* Memory that kernels may be given. None of it may be touched before it is allowed. */
void *watch_alloc(uint64_t bytes);
void watch_free(void *at);
void watch_allow(const void *at, uint64_t bytes, bool allowed);
void watch_count(bool on);
/* Of a kernel, since the last call. */
WatchCounts watch_counts(const char *kernel);
WatchCounts watch_counts_so_far(const char *kernel);
const char *watch_kernel(uint32_t i); /* the i-th that was counted; NULL: there are no more */
#else
static inline bool watch_is_on(void)
{
    return false;
}
static inline void *watch_alloc(uint64_t bytes)
{
    (void)bytes;
    return NULL;
}
static inline void watch_free(void *at)
{
    (void)at;
}
static inline void watch_allow(const void *at, uint64_t bytes, bool allowed)
{
    (void)at, (void)bytes, (void)allowed;
}
static inline void watch_launch(const char *kernel)
{
    (void)kernel;
}
static inline void watch_block(unsigned char *shared, uint64_t bytes)
{
    (void)shared, (void)bytes;
}
static inline void watch_block_end(void) {}
static inline void watch_block_barrier(void) {}
static inline void watch_warp_barrier(uint32_t warp, uint32_t mask)
{
    (void)warp, (void)mask;
}
static inline void watch_warps_barrier(uint32_t warps)
{
    (void)warps;
}
static inline void watch_arrive(uint32_t barrier, uint32_t warp)
{
    (void)barrier, (void)warp;
}
static inline void watch_phase_over(uint32_t barrier)
{
    (void)barrier;
}
static inline void watch_waited(uint32_t barrier, uint32_t warp)
{
    (void)barrier, (void)warp;
}
static inline void watch_read(const void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
static inline void watch_write(void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
static inline void watch_late_read(const void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
static inline void watch_wide(const void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
static inline void watch_to_async(void) {}
static inline void watch_async(const void *at, uint64_t bytes, bool replaced)
{
    (void)at, (void)bytes, (void)replaced;
}
static inline void watch_arrival(void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
static inline void watch_atomic(void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
#endif

#endif
