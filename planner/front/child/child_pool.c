/* The memory of the interpreter: free blocks of small sizes wait in lists, one list for each
 * multiple of 16 bytes. Scripts make many small tables, and malloc takes several times longer for
 * them. A list never gives its blocks back, so the lists share a region of limited size. When the
 * region is used up, and for large blocks, malloc is used. Under AddressSanitizer everything comes
 * from malloc, so that overruns are found. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
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

/* Asks for the region, once. Without it everything comes from malloc. */
static void map_region(ChildPool *pool)
{
    pool->mapped = true;
    void *at = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) pool->region = at;
}

/* Returns NULL if the system has no memory. */
static void *get(ChildPool *pool, size_t bytes)
{
    if (bytes > MOST_POOLED) return malloc(bytes);
    const size_t list = list_of(bytes), room = list * STEP;
    void *block = pool->free[list];
    if (block != NULL) {
        memcpy(&pool->free[list], block, sizeof(void *)); /* the next block of the list */
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
    /* Lua expects that memory can always shrink. */
    if (moved == NULL) return size < old ? at : NULL;
    memcpy(moved, at, old < size ? old : size);
    give(pool, at, old);
    return moved;
}
