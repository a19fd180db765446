/* An arena is a linked list of blocks, which are filled from the front.
 *
 * arena_reset keeps the blocks. When such a block is filled again, only the bytes up to its highest
 * byte ever written need zeroing; `dirty` is that byte. arena_free puts the blocks into a pool from
 * which the next arena gets them. This is faster than asking the system again, because the system
 * must map and clear every page.
 *
 * Under AddressSanitizer, all bytes that are not handed out are poisoned, with a gap after each
 * allocation. AddressSanitizer then reports overruns, as it does with malloc. It also reports uses
 * of a freed arena, because the pool holds a freed block back until 16 MiB more have been freed. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#include "planner/base/arena.h"

#include <assert.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "planner/base/list.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
enum { GAP = 16, HELD_BACK = 16 << 20, HAS_REGION = 0 };
static void hide(const void *at, size_t bytes)
{
    ASAN_POISON_MEMORY_REGION(at, bytes);
}
static void show(const void *at, size_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
}
#else
enum { GAP = 0, HELD_BACK = 0, HAS_REGION = 1 };
static void hide(const void *at, size_t bytes)
{
    (void)at, (void)bytes;
}
static void show(const void *at, size_t bytes)
{
    (void)at, (void)bytes;
}
#endif

enum { ALIGN = 16, FIRST_BLOCK = 1 << 14, LARGEST_STEP = 1 << 24 };
static_assert(ALIGN >= alignof(max_align_t), "any type can be stored");

typedef struct Block Block;
struct Block {
    Block *next;
    /* bytes of `data`. Bytes at or above both `used` and `dirty` are zero. */
    size_t size, used, dirty;
    size_t freed_at; /* value of pool.freed when the block was put into the pool */
    /* true: the block lies in `region` (large pages), and must not be passed to free() */
    bool mapped;
    alignas(ALIGN) unsigned char data[];
};

struct Arena {
    Block *first, *now;
    size_t handed, next_size;
    void (*release)(void *self);
    void *self;
    ArenaScope *scope;    /* the scope that was open when the arena was made; NULL: none */
    Arena *older, *newer; /* the arenas made before and after this one in the same scope */
};

/* ---- memory is exhausted ---- */

static _Thread_local ArenaScope *innermost;
static void (*process_on_full)(void *self);
static void *process_self;

_Noreturn void arena_full(void)
{
    if (innermost != NULL) innermost->on_full(innermost->self);
    if (process_on_full != NULL) process_on_full(process_self);
    fputs("tandem: out of memory\n", stderr);
    abort();
}

void arena_on_full(void (*on_full)(void *self), void *self)
{
    process_on_full = on_full;
    process_self = self;
}

void arena_scope_open(ArenaScope *scope, void (*on_full)(void *self), void *self)
{
    *scope = (ArenaScope){innermost, NULL, on_full, self};
    innermost = scope;
}

static void scope_add(ArenaScope *scope, Arena *arena)
{
    arena->scope = scope;
    arena->older = scope != NULL ? scope->newest : NULL;
    arena->newer = NULL;
    if (arena->older != NULL) arena->older->newer = arena;
    if (scope != NULL) scope->newest = arena;
}

static void scope_remove(Arena *arena)
{
    if (arena->newer != NULL) arena->newer->older = arena->older;
    if (arena->older != NULL) arena->older->newer = arena->newer;
    if (arena->scope != NULL && arena->newer == NULL) arena->scope->newest = arena->older;
}

void arena_scope_close(ArenaScope *scope)
{
    assert(innermost == scope);
    innermost = scope->outer;
    for (Arena *arena; (arena = scope->newest) != NULL;) {
        scope_remove(arena);
        scope_add(scope->outer, arena);
    }
}

void arena_scope_unwind(ArenaScope *scope)
{
    while (scope->newest != NULL) arena_free(scope->newest);
    arena_scope_close(scope);
}

void arena_forget_scopes(void)
{
    innermost = NULL;
}

/* ---- the pool: freed blocks that wait for the next arena, one list for each block size ---- */

enum { SIZES = 11, MOST_POOLED = 256 << 20 };
static_assert(FIRST_BLOCK << (SIZES - 1) == LARGEST_STEP, "one list for each size of block");
static struct {
    pthread_mutex_t lock;
    /* [list]: the first block, which is given out next; the block that was added last */
    Block *free[SIZES], *last[SIZES];
    /* `bytes`: the size of all blocks in the lists now. `freed`: the size of all blocks that were
     * ever added. */
    size_t bytes, freed;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Large blocks are cut from regions of 2 MiB pages, if the system has such pages. One page fault
 * then maps 2 MiB, which costs 512 faults with ordinary pages. Smaller blocks come from calloc: the
 * system clears a whole page at its first use, and a short command should not wait until 2 MiB are
 * cleared. */
enum { LARGE_PAGE = 2 << 20, LEAST_LARGE = 1 << 18, REGION = 32 << 20 };
static struct {
    /* the rest of the newest region, from which no block has been cut; guarded by pool.lock */
    unsigned char *at, *end;
    size_t mapped;
} region;

/* Maps a new region of large pages. Returns false if the system has no memory, or if MOST_POOLED
 * bytes are already mapped for regions. */
static bool region_grow(void)
{
    if (region.mapped >= MOST_POOLED) return false;
    void *all = mmap(NULL, REGION + LARGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return false;
    const uintptr_t first = ((uintptr_t)all + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1);
    region.at = (unsigned char *)all + (first - (uintptr_t)all);
    region.end = region.at + REGION;
    region.mapped += REGION;
    (void)madvise(region.at, REGION, MADV_HUGEPAGE); /* without this advice the system uses small
                                                        pages */
    return true;
}

/* Cuts a block with `size` data bytes from the region of large pages. Returns NULL if the block is
 * too small for large pages, or if no region can be mapped. The caller then uses calloc. */
static Block *region_block(size_t size)
{
    const size_t bytes = size + sizeof(Block);
    if (!HAS_REGION || bytes < LEAST_LARGE) return NULL;
    if ((size_t)(region.end - region.at) < bytes && !region_grow()) return NULL;
    Block *block = (Block *)(void *)region.at;
    region.at += bytes;
    block->size = size;
    block->mapped = true;
    return block;
}

/* Returns the index in pool.free of the list for blocks with `size` data bytes. Returns SIZES if
 * blocks of this size never enter the pool. */
static int pool_index(size_t size)
{
    for (int i = 0; i < SIZES; i++)
        if (size + sizeof(Block) == (size_t)FIRST_BLOCK << i) return i;
    return SIZES;
}

/* Returns the data bytes of the smallest pooled block that has room for `room` bytes. Returns
 * `room` itself if every pooled block is smaller. */
static size_t pooled_size(size_t room)
{
    size_t bytes = FIRST_BLOCK;
    while (bytes < LARGEST_STEP && bytes - sizeof(Block) < room) bytes *= 2;
    return bytes - sizeof(Block) >= room ? bytes - sizeof(Block) : room;
}

static void pool_lock(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void pool_unlock(void)
{
    pthread_mutex_unlock(&pool.lock);
}

/* At the end of a process, the search for leaks reads all memory that a variable leads to, and maps
 * the pages that it reads. Free blocks lead to nothing, so they are returned before it. */
static void pool_empty(void)
{
    pool_lock();
    for (int i = 0; i < SIZES; i++)
        for (Block *block; (block = pool.free[i]) != NULL;) {
            pool.free[i] = block->next;
            pool.bytes -= block->size;
            free(block);
        }
    pool_unlock();
}

/* Makes fork() wait until no thread holds the lock. Otherwise the child would inherit a locked lock
 * without the thread that unlocks it, and would wait for ever. */
static void pool_begins(void)
{
    (void)pthread_atfork(pool_lock, pool_unlock, pool_unlock);
    if (!HAS_REGION) (void)atexit(pool_empty); /* all blocks came from calloc */
}

/* Returns a block with `size` data bytes, from the pool or else from the system. Its bytes from
 * `dirty` on are zero. Returns NULL if there is no memory. */
static Block *block_get(size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int index = pool_index(size);
    Block *block = NULL;
    if (index < SIZES) {
        pthread_once(&once, pool_begins);
        pool_lock();
        block = pool.free[index];
        if (block != NULL && pool.freed < block->freed_at + HELD_BACK) block = NULL;
        if (block != NULL) {
            pool.free[index] = block->next;
            pool.bytes -= size;
        } else {
            block = region_block(size);
        }
        pool_unlock();
    }
    if (block != NULL) return block;
    block = calloc(1, sizeof *block + size);
    if (block == NULL) return NULL;
    block->size = size;
    hide(block->data, size);
    return block;
}

/* Puts a freed block into list `index` of the pool. Normally it becomes the first of the list and
 * is reused first, because its bytes may still be in the caches. Under AddressSanitizer it becomes
 * the last, so that it is reused as late as possible. */
static void pool_add(Block *block, int index)
{
    if (HELD_BACK > 0 && pool.free[index] != NULL) {
        block->next = NULL;
        pool.last[index]->next = block;
    } else {
        block->next = pool.free[index];
        pool.free[index] = block;
    }
    pool.last[index] = block;
    pool.bytes += block->size;
    pool.freed += block->size;
    block->freed_at = pool.freed;
}

static void block_free(Block *block)
{
    const int index = pool_index(block->size);
    if (index < SIZES) {
        pool_lock();
        const bool keeps = block->mapped || pool.bytes + block->size <= MOST_POOLED;
        if (keeps) {
            if (block->used > block->dirty) block->dirty = block->used;
            hide(block->data, block->used);
            block->used = 0;
            pool_add(block, index);
        }
        pool_unlock();
        if (keeps) return;
    }
    show(block->data, block->size);
    free(block);
}

/* ---- arenas ---- */

Arena *arena_new(void)
{
    Arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) arena_full();
    arena->next_size = FIRST_BLOCK;
    scope_add(innermost, arena);
    return arena;
}

void arena_free(Arena *arena)
{
    if (arena == NULL) return;
    if (arena->release != NULL) arena->release(arena->self);
    scope_remove(arena);
    for (Block *block = arena->first, *next; block != NULL; block = next) {
        next = block->next;
        block_free(block);
    }
    free(arena);
}

void arena_reset(Arena *arena)
{
    for (Block *block = arena->first; block != NULL; block = block->next) {
        if (block->used > block->dirty) block->dirty = block->used;
        hide(block->data, block->used);
        block->used = 0;
    }
    arena->now = arena->first;
    arena->handed = 0;
}

void arena_at_end(Arena *arena, void (*release)(void *self), void *self)
{
    assert(arena->release == NULL);
    arena->release = release;
    arena->self = self;
}

/* Returns the bytes that an allocation occupies in a block, including alignment and gap. Returns 0
 * if they do not fit into size_t. */
static size_t room_for(size_t bytes)
{
    if (bytes > SIZE_MAX - GAP - 2 * ALIGN - sizeof(Block)) return 0;
    return (bytes + GAP + (ALIGN - 1)) & ~(size_t)(ALIGN - 1);
}

/* Moves arena->now to a block with at least `room` free bytes: to the following block of the arena
 * if that is large enough, otherwise to a new block. */
static void next_block(Arena *arena, size_t room)
{
    Block *now = arena->now;
    Block *next = now != NULL ? now->next : NULL;
    if (next != NULL && next->size >= room) {
        arena->now = next;
        return;
    }
    size_t size = arena->next_size - sizeof(Block);
    if (size < room)
        size = pooled_size(room);
    else if (arena->next_size < LARGEST_STEP)
        arena->next_size *= 2;
    Block *block = block_get(size);
    if (block == NULL) arena_full();
    block->next = next;
    if (now != NULL)
        now->next = block;
    else
        arena->first = block;
    arena->now = block;
}

/* Allocates `bytes` bytes. Zeroes them from index `keep` on; the caller promises to overwrite the
 * first `keep` bytes. */
static unsigned char *alloc_from(Arena *arena, size_t bytes, size_t keep)
{
    assert(arena != NULL && keep <= bytes);
    size_t room = room_for(bytes == 0 ? 1 : bytes);
    if (room == 0) arena_full();
    if (arena->now == NULL || arena->now->size - arena->now->used < room) next_block(arena, room);
    Block *block = arena->now;
    assert(block->used == 0 || block->size - block->used >= room);
    unsigned char *at = block->data + block->used;
    show(at, bytes);
    if (block->used + keep < block->dirty) memset(at + keep, 0, bytes - keep);
    block->used += room;
    arena->handed += bytes;
    return at;
}

void *arena_alloc(Arena *arena, size_t bytes)
{
    return alloc_from(arena, bytes, 0);
}

void *arena_array(Arena *arena, size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size) arena_full();
    return arena_alloc(arena, n * size);
}

char *arena_copy(Arena *arena, const char *text, size_t bytes)
{
    assert(text != NULL || bytes == 0);
    char *copy = arena_alloc(arena, bytes + 1);
    if (bytes != 0) memcpy(copy, text, bytes);
    return copy;
}

char *arena_dup(Arena *arena, const char *text)
{
    return arena_copy(arena, text, strlen(text));
}

char *arena_print(Arena *arena, const char *format, ...)
{
    assert(format != NULL);
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    char first[256]; /* most texts are short */
    int n = vsnprintf(first, sizeof first, format, args);
    va_end(args);
    if (n < 0) arena_full(); /* the C library had no memory for formatting */
    char *text = arena_alloc(arena, (size_t)n + 1);
    if ((size_t)n < sizeof first)
        memcpy(text, first, (size_t)n);
    else if (vsnprintf(text, (size_t)n + 1, format, again) != n)
        arena_full();
    va_end(again);
    return text;
}

bool arena_has(const Arena *arena, const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (const Block *block = arena->first; block != NULL; block = block->next) {
        const uintptr_t from = (uintptr_t)block->data;
        if (at >= from && at - from < block->used) return true;
    }
    return false;
}

size_t arena_bytes(const Arena *arena)
{
    return arena->handed;
}

/* Extends the list at `at` from `old_bytes` to `new_bytes` bytes without moving it. This is
 * possible only if the list is the newest allocation of its block and the block has room. Returns
 * false otherwise. */
static bool grow_in_place(Arena *arena, unsigned char *at, size_t old_bytes, size_t new_bytes)
{
    Block *block = arena->now;
    size_t old_room = room_for(old_bytes), new_room = room_for(new_bytes);
    if (block == NULL || at < block->data || at >= block->data + block->used) return false;
    size_t offset = (size_t)(at - block->data);
    if (offset + old_room != block->used || block->size - offset < new_room) return false;
    show(at, new_bytes);
    block->used = offset + new_room;
    arena->handed += new_bytes - old_bytes;
    return true;
}

void *list_grow(Arena *arena, void *at, uint32_t n, uint32_t *room, uint32_t more, size_t size)
{
    assert(n <= *room && size > 0);
    if (*room - n >= more) return at;
    uint64_t wanted = (uint64_t)n + more, doubled = (uint64_t)*room * 2;
    if (wanted > UINT32_MAX) arena_full();
    if (wanted < doubled) wanted = doubled;
    if (wanted < 8) wanted = 8;
    if (wanted > UINT32_MAX) wanted = UINT32_MAX;
    if (wanted > SIZE_MAX / size) arena_full();
    size_t old_bytes = (size_t)*room * size, new_bytes = (size_t)wanted * size;
    if (at == NULL || !grow_in_place(arena, at, old_bytes, new_bytes)) {
        void *moved = alloc_from(arena, new_bytes, new_bytes);
        if (n != 0) memcpy(moved, at, (size_t)n * size);
        at = moved;
    }
    *room = (uint32_t)wanted;
    return at;
}
