/* Memory of the Lua interpreter. Scripts create many small tables, and a list of free blocks is
 * several times faster than malloc.
 *
 * There is a list of free blocks for each size class (multiples of 16 bytes, up to 512). Blocks are
 * cut from one mapped region and never move to another list, so the lists can never use more than
 * this region. Larger blocks, and all blocks once the region is used up, come from malloc. Under
 * AddressSanitizer all blocks come from malloc, so that it detects overruns.
 */
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

/* Maps the region at the first call. If the system refuses, all blocks come from malloc. */
static void map_region(ChildPool *pool)
{
    pool->mapped = true;
    void *at = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) pool->region = at;
}

/* Returns a block of at least `bytes` bytes, or NULL if the system has no memory. */
static void *get(ChildPool *pool, size_t bytes)
{
    if (bytes > MOST_POOLED) return malloc(bytes);
    const size_t list = list_of(bytes), room = list * STEP;
    void *block = pool->free[list];
    if (block != NULL) {
        /* a free block begins with the address of the next free block */
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
    /* Lua assumes that shrinking a block never fails; the block then keeps its old size */
    if (moved == NULL) return size < old ? at : NULL;
    memcpy(moved, at, old < size ? old : size);
    give(pool, at, old);
    return moved;
}
