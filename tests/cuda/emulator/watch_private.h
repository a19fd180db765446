/* Shared by the files that watch accesses: see watch.h. */
#ifndef TANDEM_TESTS_CUDA_WATCH_PRIVATE_H
#define TANDEM_TESTS_CUDA_WATCH_PRIVATE_H

#include "tests/cuda/emulator/device_on_cpu.h"
#include "tests/cuda/emulator/watch.h"

typedef enum AccessKind { ACCESS_read, ACCESS_write, ACCESS_atomic } AccessKind;

/* The memory whose accesses are watched: the shared memory of the running block, and memory of
 * kernels. `shared` is NULL while no block runs. */
typedef struct WatchedMemory {
    unsigned char *shared, *arena;
    uint64_t shared_bytes, arena_bytes;
} WatchedMemory;
extern WatchedMemory watched;

void watch_access_watched(const void *at, uint64_t bytes, AccessKind kind, const void *from);
/* Records an access by the running thread; `from` is the address of the code. Most accesses are to
 * the thread's own variables, which are not watched. */
static inline void watch_access(const void *p, uint64_t bytes, AccessKind kind, const void *from)
{
    const unsigned char *at = p;
    if (bytes == 0 || watched.shared == NULL) return;
    if ((uint64_t)(at - watched.shared) < watched.shared_bytes ||
        (uint64_t)(at - watched.arena) < watched.arena_bytes)
        watch_access_watched(at, bytes, kind, from);
}

extern bool watch_counting; /* requests are counted (watch_count.c) */
void count_launch(const char *kernel);
void count_access(const void *at, uint64_t bytes, bool is_shared, const void *from);
void count_block_end(void);

#endif
