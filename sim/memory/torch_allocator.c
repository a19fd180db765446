/* See torch_allocator.h. The blocks of a segment form a doubly linked list in the order of their
 * addresses. The free blocks of a pool are in two arrays, sorted by (size, address): blocks with
 * memory, and blocks whose pages were given back to the device. */
#include "sim/memory/torch_allocator.h"

#include <assert.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
static const uint64_t ROUND = 512, SMALL_MOST = MIB, SMALL_SEGMENT = 2 * MIB,
                      LARGE_SEGMENT = 20 * MIB, LARGE_LEAST = 10 * MIB, LARGE_ROUND = 2 * MIB;

typedef struct TorchBlock {
    uint64_t address, bytes;
    uint32_t previous, next; /* neighbours in the segment; 0: there is none */
    uint32_t pool;
    /* unmapped: these pages of an expandable segment were given back to the device */
    bool used, unmapped;
} TorchBlock;

/* A free block in a list, with a copy of the fields by which the list is sorted. */
typedef struct FreeBlock {
    uint64_t bytes, address;
    uint32_t id;
} FreeBlock;
typedef LIST(FreeBlock) FreeList;

typedef struct Pool {
    uint32_t stream;
    bool small;
    uint32_t last; /* for an expandable pool: the last block of its segment */
    FreeList free, unmapped;
} Pool;

struct TorchAllocator {
    Arena *arena;
    uint64_t limit, next_address;
    bool expandable;
    LIST(TorchBlock) blocks; /* entry 0 is unused */
    LIST(uint32_t) holes;    /* numbers of unused entries of `blocks` */
    LIST(Pool) pools;
    TorchStats stats;
};

TorchAllocator *torch_allocator_new(uint64_t limit_bytes, bool expandable, Arena *arena)
{
    TorchAllocator *a = arena_alloc(arena, sizeof *a);
    memset(a, 0, sizeof *a);
    a->arena = arena;
    a->limit = limit_bytes;
    a->expandable = expandable;
    list_reserve_none(arena, &a->blocks);
    return a;
}

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

static uint32_t pool_of(TorchAllocator *a, uint32_t stream, bool small)
{
    for (uint32_t i = 0; i < a->pools.n; i++)
        if (a->pools.at[i].stream == stream && a->pools.at[i].small == small) return i;
    Pool pool;
    memset(&pool, 0, sizeof pool);
    pool.stream = stream;
    pool.small = small;
    return list_push(a->arena, &a->pools, pool);
}

static uint32_t new_block(TorchAllocator *a, TorchBlock block)
{
    if (a->holes.n == 0) return list_push(a->arena, &a->blocks, block);
    uint32_t id = a->holes.at[--a->holes.n];
    a->blocks.at[id] = block;
    return id;
}

static bool is_before(const FreeBlock *f, uint64_t bytes, uint64_t address)
{
    return f->bytes != bytes ? f->bytes < bytes : f->address < address;
}

/* Returns the position in a sorted list of the free block with this size and address, or the
 * position where it would stand. */
static uint32_t place_of(const FreeList *list, uint64_t bytes, uint64_t address)
{
    uint32_t low = 0, high = list->n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (is_before(&list->at[middle], bytes, address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static FreeList *list_of(TorchAllocator *a, const TorchBlock *b)
{
    Pool *pool = &a->pools.at[b->pool];
    return b->unmapped ? &pool->unmapped : &pool->free;
}

/* Writes the block to a vacant position of its list, and moves its neighbours until the list is
 * sorted again. */
static void settle(TorchAllocator *a, FreeList *list, uint32_t at, uint32_t id)
{
    const TorchBlock *b = &a->blocks.at[id];
    for (; at > 0 && !is_before(&list->at[at - 1], b->bytes, b->address); at--)
        list->at[at] = list->at[at - 1];
    for (; at + 1 < list->n && is_before(&list->at[at + 1], b->bytes, b->address); at++)
        list->at[at] = list->at[at + 1];
    list->at[at] = (FreeBlock){b->bytes, b->address, id};
}

static void add_free(TorchAllocator *a, uint32_t id)
{
    const TorchBlock *b = &a->blocks.at[id];
    FreeList *list = list_of(a, b);
    const uint32_t at = place_of(list, b->bytes, b->address);
    list_add(a->arena, list);
    memmove(list->at + at + 1, list->at + at, (list->n - 1 - at) * sizeof *list->at);
    list->at[at] = (FreeBlock){b->bytes, b->address, id};
}

static void take_free_at(FreeList *list, uint32_t at)
{
    memmove(list->at + at, list->at + at + 1, (list->n - 1 - at) * sizeof *list->at);
    list->n--;
}

/* Returns the position of a free block in its list. */
static uint32_t find_free(TorchAllocator *a, uint32_t id)
{
    const TorchBlock *b = &a->blocks.at[id];
    const FreeList *list = list_of(a, b);
    const uint32_t at = place_of(list, b->bytes, b->address);
    assert(at < list->n && list->at[at].id == id);
    return at;
}

static void take_free(TorchAllocator *a, uint32_t id)
{
    take_free_at(list_of(a, &a->blocks.at[id]), find_free(a, id));
}

static void drop_block(TorchAllocator *a, uint32_t id)
{
    const TorchBlock *b = &a->blocks.at[id];
    Pool *pool = &a->pools.at[b->pool];
    if (b->previous) a->blocks.at[b->previous].next = b->next;
    if (b->next) a->blocks.at[b->next].previous = b->previous;
    if (pool->last == id) pool->last = b->previous;
    list_push(a->arena, &a->holes, id);
    a->blocks.at[id].bytes = 0;
    a->blocks.at[id].used = false;
}

static void count_reserved(TorchAllocator *a, uint64_t bytes)
{
    TorchStats *s = &a->stats;
    s->reserved += bytes;
    if (s->reserved > s->peak_reserved) s->peak_reserved = s->reserved;
}

/* Gives back to the device every segment without a used block, and all free pages of expandable
 * segments. */
static void give_back(TorchAllocator *a)
{
    for (uint32_t i = 0; i < a->pools.n; i++) {
        Pool *pool = &a->pools.at[i];
        for (uint32_t k = pool->free.n; k-- > 0;) {
            uint32_t id = pool->free.at[k].id;
            TorchBlock *b = &a->blocks.at[id];
            if (a->expandable) {
                a->stats.reserved -= b->bytes;
                pool->free.n--;
                b->unmapped = true;
                add_free(a, id);
            } else if (b->previous == 0 && b->next == 0) {
                a->stats.reserved -= b->bytes;
                a->stats.n_segments--;
                take_free(a, id);
                drop_block(a, id);
            }
        }
    }
}

/* Takes `bytes` bytes from the device, after giving back free memory if there is not enough. */
static void reserve(TorchAllocator *a, uint64_t bytes)
{
    if (a->stats.reserved + bytes > a->limit) {
        give_back(a);
        a->stats.n_retries++;
        if (a->stats.reserved + bytes > a->limit) a->stats.failed = true;
    }
    count_reserved(a, bytes);
}

/* Extends the pool's single segment until there is a free block of at least `bytes` bytes at its
 * end. */
static uint32_t grow(TorchAllocator *a, uint32_t pool, uint64_t bytes)
{
    uint64_t step = a->pools.at[pool].small ? SMALL_SEGMENT : LARGE_SEGMENT;
    uint32_t last = a->pools.at[pool].last;
    if (last && !a->blocks.at[last].used && !a->blocks.at[last].unmapped) {
        uint64_t more = round_up(bytes - a->blocks.at[last].bytes, step);
        reserve(a, more); /* reserve() may have given back the pages of this block, and then all
                             `bytes` are missing */
        if (a->blocks.at[last].unmapped) count_reserved(a, a->blocks.at[last].bytes);
        take_free(a, last);
        a->blocks.at[last].bytes += more;
        a->blocks.at[last].unmapped = false;
        add_free(a, last);
        return last;
    }
    uint64_t size = round_up(bytes, step), address = UINT64_C(1) << 44;
    reserve(a, size);
    last = a->pools.at[pool].last;
    address *= pool + 1; /* so that addresses of different pools are far apart */
    if (last) address = a->blocks.at[last].address + a->blocks.at[last].bytes;
    uint32_t id = new_block(a, (TorchBlock){address, size, last, 0, pool, false, false});
    if (last)
        a->blocks.at[last].next = id;
    else
        a->stats.n_segments++;
    a->pools.at[pool].last = id;
    add_free(a, id);
    return id;
}

static uint32_t new_segment(TorchAllocator *a, uint32_t pool, uint64_t bytes)
{
    if (a->expandable) return grow(a, pool, bytes);
    uint64_t size = a->pools.at[pool].small ? SMALL_SEGMENT
                    : bytes < LARGE_LEAST   ? LARGE_SEGMENT
                                            : round_up(bytes, LARGE_ROUND);
    reserve(a, size);
    uint32_t id = new_block(a, (TorchBlock){a->next_address, size, 0, 0, pool, false, false});
    a->next_address += size;
    a->stats.n_segments++;
    add_free(a, id);
    return id;
}

/* A free block that is about to be used: its list, and its position there. */
typedef struct Taken {
    FreeList *list;
    uint32_t at;
} Taken;

/* Takes a free block from its list, and uses `bytes` bytes of it. If enough bytes are left over,
 * they become a free block of their own, in the same list. */
static void split(TorchAllocator *a, uint32_t id, uint64_t bytes, Taken from)
{
    uint64_t rest = a->blocks.at[id].bytes - bytes;
    bool fine = a->pools.at[a->blocks.at[id].pool].small || a->expandable;
    if (fine ? rest < ROUND : rest <= SMALL_MOST) {
        take_free_at(from.list, from.at);
        return;
    }
    TorchBlock b = a->blocks.at[id];
    uint32_t tail =
        new_block(a, (TorchBlock){b.address + bytes, rest, id, b.next, b.pool, false, b.unmapped});
    if (b.next) a->blocks.at[b.next].previous = tail;
    if (a->pools.at[b.pool].last == id) a->pools.at[b.pool].last = tail;
    a->blocks.at[id].next = tail;
    a->blocks.at[id].bytes = bytes;
    settle(a, from.list, from.at, tail);
}

/* Returns the size to which a free block could grow. The last block of an expandable segment can
 * grow without limit. If the pages after a block were given back, the block can grow into them. */
static uint64_t may_become(const TorchAllocator *a, const Pool *pool, uint32_t id)
{
    const TorchBlock *b = &a->blocks.at[id];
    if (!a->expandable) return b->bytes;
    if (pool->last == id) return UINT64_MAX;
    const TorchBlock *next = &a->blocks.at[b->next];
    return b->bytes + (next->unmapped ? next->bytes : 0);
}

/* Finds the free block to use for `bytes` bytes; 0: there is none. Like PyTorch, it starts with the
 * smallest block that is large enough. It goes on to the next block as long as that one would be
 * smaller after growing. */
static uint32_t best_fit(const TorchAllocator *a, Pool *pool, uint64_t bytes, Taken *found)
{
    FreeList *list = &pool->free;
    uint32_t at = place_of(list, bytes, 0);
    while (a->expandable && at + 1 < list->n &&
           may_become(a, pool, list->at[at + 1].id) < may_become(a, pool, list->at[at].id))
        at++;
    if (at >= list->n) {
        list = &pool->unmapped;
        at = place_of(list, bytes, 0);
    }
    *found = (Taken){list, at};
    return at < list->n ? list->at[at].id : 0;
}

uint32_t torch_allocate(TorchAllocator *a, uint64_t bytes, uint32_t stream)
{
    bytes = bytes == 0 ? ROUND : round_up(bytes, ROUND);
    uint32_t pool = pool_of(a, stream, bytes <= SMALL_MOST);
    Taken found;
    uint32_t id = best_fit(a, &a->pools.at[pool], bytes, &found);
    if (id == 0) {
        id = new_segment(a, pool, bytes);
        found = (Taken){list_of(a, &a->blocks.at[id]), find_free(a, id)};
    }
    split(a, id, bytes, found);
    TorchBlock *b = &a->blocks.at[id];
    b->used = true;
    if (b->unmapped) {
        b->unmapped = false;
        reserve(a, b->bytes);
    }
    b = &a->blocks.at[id];
    a->stats.allocated += b->bytes;
    if (a->stats.allocated > a->stats.peak_allocated) a->stats.peak_allocated = a->stats.allocated;
    return id;
}

/* Joins block `id` with the block `next` after it. The caller updates the list of free blocks. */
static void join_next(TorchAllocator *a, uint32_t id, uint32_t next)
{
    a->blocks.at[id].bytes += a->blocks.at[next].bytes;
    bool was_last = a->pools.at[a->blocks.at[id].pool].last == next;
    drop_block(a, next);
    if (was_last) a->pools.at[a->blocks.at[id].pool].last = id;
}

static bool is_free(const TorchAllocator *a, uint32_t id)
{
    return id != 0 && !a->blocks.at[id].used && !a->blocks.at[id].unmapped;
}

void torch_release(TorchAllocator *a, uint32_t block)
{
    assert(block > 0 && block < a->blocks.n && a->blocks.at[block].used);
    a->blocks.at[block].used = false;
    a->stats.allocated -= a->blocks.at[block].bytes;
    const uint32_t next = a->blocks.at[block].next, previous = a->blocks.at[block].previous;
    FreeList *list = list_of(a, &a->blocks.at[block]);
    uint32_t vacant = UINT32_MAX; /* the position in the list of a block that was joined */
    if (is_free(a, next)) {
        vacant = find_free(a, next);
        join_next(a, block, next);
    }
    if (is_free(a, previous)) {
        if (vacant != UINT32_MAX) take_free_at(list, vacant);
        vacant = find_free(a, previous);
        join_next(a, previous, block);
        block = previous;
    }
    if (vacant != UINT32_MAX)
        settle(a, list, vacant, block);
    else
        add_free(a, block);
}

TorchStats torch_stats(const TorchAllocator *a)
{
    return a->stats;
}

void torch_reset_peaks(TorchAllocator *a)
{
    a->stats.peak_allocated = a->stats.allocated;
    a->stats.peak_reserved = a->stats.reserved;
}

bool torch_place(const TorchAllocator *a, uint32_t id, TorchPlace *place)
{
    if (id >= a->blocks.n) return false;
    const TorchBlock *b = &a->blocks.at[id];
    *place = (TorchPlace){b->address, b->bytes, b->used, b->unmapped};
    return true;
}
