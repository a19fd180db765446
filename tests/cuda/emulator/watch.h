/* Watches the memory accesses of a kernel's threads. The compiler inserts a call before every load
 * and store (-fsanitize=thread). The functions below take the place of its library. A test ends
 * when a kernel touches memory that it was not given. It also ends when two threads touch the same
 * bytes of shared or global memory, one of them writing, and nothing orders them. Accesses are
 * ordered by a barrier of the block, __syncwarp, a named barrier, a barrier in shared memory, or
 * the end of the kernel. (Shuffles, ballots and products of a warp order nothing.) Hopper's boxes
 * and products must not touch data that was stored without a fence between. A race is found even if
 * no tried order of threads would show it.
 *
 * TANDEM_WATCH=print counts each kernel's requests to the memory system and prints a table at the
 * end. For global memory it compares the 32-byte sectors that warps touch with the fewest that hold
 * their bytes. For shared memory it compares the number of passes with the number that would do
 * without bank conflicts. If several lanes of a warp reach one place in the code for the n-th time,
 * their accesses there are one request. */
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
/* Barriers in shared memory, by their number in the block. */
void watch_arrive(uint32_t barrier, uint32_t warp);
void watch_phase_over(uint32_t barrier);
void watch_waited(uint32_t barrier, uint32_t warp);
void watch_read(const void *at, uint64_t bytes);
void watch_write(void *at, uint64_t bytes);
void watch_atomic(void *at, uint64_t bytes);
/* the end of a write that was counted when it began */
void watch_arrival(void *at, uint64_t bytes);
void watch_late_read(const void *at, uint64_t bytes); /* a read that is not counted */
/* the next accesses to these bytes count as one access */
void watch_wide(const void *at, uint64_t bytes);
/* Boxes and products access memory through another proxy. They may read stored data only if the
 * storing thread has called the fence after the store, and this thread comes later. `replaced`:
 * they overwrite the memory from now on. */
void watch_to_async(void);
void watch_async(const void *at, uint64_t bytes, bool replaced);
/* Returns memory for kernels. No byte of it may be touched before it is allowed. */
void *watch_alloc(uint64_t bytes);
void watch_free(void *at);
void watch_allow(const void *at, uint64_t bytes, bool allowed);
void watch_count(bool on);
/* Returns the counts of a kernel since the previous call. */
WatchCounts watch_counts(const char *kernel);
WatchCounts watch_counts_so_far(const char *kernel);
/* Returns the name of the i-th kernel that was counted; NULL: there are no more. */
const char *watch_kernel(uint32_t i);
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
