/* The memory of the interpreter. Scripts make many small tables, for which malloc is several times
 * slower than a list of free blocks. So freed blocks wait in lists, one list for each multiple of
 * 16 bytes. A block in a list is never given to another list, so all lists together get only a
 * region of limited size. Larger blocks come from malloc, and so do all blocks once the region is
 * used up. Under AddressSanitizer everything comes from malloc, so that overruns are found. */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "planner/front/child/child.h"

#if defined(__SANITIZE_ADDRESS__)
enum { MOST_POOLED = 0 };
#else
enum { MOST_POOLED = CHILD_MOST_POOLED };
#endif
enum { STEP = CHILD_POOL_STEP, REGION = 128 << 20 };

static size_t list_of(size_t bytes)
{
    return (bytes + STEP - 1) / STEP;
}

static bool is_pooled(const ChildPool *pool, const void *block)
{
    return pool->region != NULL && (uintptr_t)block - (uintptr_t)pool->region < REGION;
}

/* Asks the system for the region, at most once. If the system refuses, everything comes from
 * malloc. */
static void map_region(ChildPool *pool)
{
    pool->mapped = true;
    void *at = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) pool->region = at;
}

/* Returns a block of at least this size, or NULL if the system has no memory. */
static void *get(ChildPool *pool, size_t bytes)
{
    if (bytes > MOST_POOLED) return malloc(bytes);
    const size_t list = list_of(bytes), room = list * STEP;
    void *block = pool->free[list];
    if (block != NULL) {
        /* the first bytes of a free block hold the address of the next one */
        memcpy(&pool->free[list], block, sizeof(void *));
        return block;
    }
    if (!pool->mapped) map_region(pool);
    if (pool->region == NULL || REGION - pool->used < room) return malloc(room);
    block = pool->region + pool->used;
    pool->used += room;
    return block;
}

static void give(ChildPool *pool, void *block, size_t bytes)
{
    if (!is_pooled(pool, block)) {
        free(block);
        return;
    }
    const size_t list = list_of(bytes);
    memcpy(block, &pool->free[list], sizeof(void *));
    pool->free[list] = block;
}

void *child_resize(ChildPool *pool, void *at, size_t old, size_t size)
{
    if (size == 0) {
        give(pool, at, old);
        return NULL;
    }
    if (at == NULL) return get(pool, size);
    if (old > MOST_POOLED && size > MOST_POOLED) return realloc(at, size);
    if (old <= MOST_POOLED && size <= MOST_POOLED && list_of(old) == list_of(size)) return at;
    void *moved = get(pool, size);
    /* to make a block smaller must never fail: Lua relies on that */
    if (moved == NULL) return size < old ? at : NULL;
    memcpy(moved, at, old < size ? old : size);
    give(pool, at, old);
    return moved;
}
