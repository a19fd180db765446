/* Arenas: a chain of blocks filled from the front. A block that is used again after a reset is
 * zeroed only up to the highest byte ever written. Freed blocks wait in a pool for the next arena,
 * because the system needs longer to map a fresh page than a program needs to fill it. Under
 * AddressSanitizer, all bytes that are not handed out are poisoned, with a gap after each
 * allocation. AddressSanitizer then finds overruns, as it does with malloc. A freed block is not
 * given out again until 16 MiB more have been freed, so uses of a freed arena are found, too. */
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
    size_t size, used, dirty; /* bytes of `data`; those beyond both `used` and `dirty` are zero */
    size_t freed_at;          /* value of pool.freed when the block was added to a list */
    bool mapped;              /* the block lies in a region of large pages, and is never freed */
    alignas(ALIGN) unsigned char data[];
};

struct Arena {
    Block *first, *now;
    size_t handed, next_size;
    void (*release)(void *self);
    void *self;
    ArenaScope *scope;    /* the scope in which the arena was made; NULL: none */
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

/* ---- the pool of blocks, one list for each size ---- */

enum { SIZES = 11, MOST_POOLED = 256 << 20 };
static_assert(FIRST_BLOCK << (SIZES - 1) == LARGEST_STEP, "one list for each size of block");
static struct {
    pthread_mutex_t lock;
    Block *free[SIZES], *last[SIZES]; /* last[i]: the newest block of list i */
    size_t bytes, freed; /* bytes: of all blocks in the lists. freed: of all blocks ever added. */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Large blocks lie in large pages, if the system has them: 2 MiB then cost one page fault instead
 * of 512. Smaller blocks lie in ordinary pages. The system clears a page at first use, and a short
 * command should not wait for 2 MiB to be cleared. */
enum { LARGE_PAGE = 2 << 20, LEAST_LARGE = 1 << 18, REGION = 32 << 20 };
static struct {
    unsigned char *at, *end; /* memory that belongs to no block yet; guarded by the pool's lock */
    size_t mapped;
} region;

/* Maps another region of large pages. Returns false if the system has no memory, or if the regions
 * together already have MOST_POOLED bytes. */
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

/* Returns a block of a pooled size from the region of large pages. Returns NULL if the region
 * cannot provide the block; the caller then gets it from calloc. */
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

/* Returns the list for blocks of this size, or SIZES if such blocks are not pooled. */
static int pool_index(size_t size)
{
    for (int i = 0; i < SIZES; i++)
        if (size + sizeof(Block) == (size_t)FIRST_BLOCK << i) return i;
    return SIZES;
}

/* Returns the least pooled size of at least `room` bytes. Returns `room` if it is larger than all
 * pooled sizes. */
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

/* A process may be forked while another thread holds the lock. That thread does not exist in the
 * child, which would wait for ever. */
static void pool_survives_forks(void)
{
    (void)pthread_atfork(pool_lock, pool_unlock, pool_unlock);
}

/* Returns a block with `size` bytes of data. The bytes beyond `dirty` are zero. NULL: out of
 * memory. */
static Block *block_get(size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int index = pool_index(size);
    Block *block = NULL;
    if (index < SIZES) {
        pthread_once(&once, pool_survives_forks);
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

/* Adds a block to its list. Under AddressSanitizer, the block that was freed first is given out
 * first. Otherwise the newest block is, because its bytes may still be in the caches. */
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

static size_t room_for(size_t bytes) /* Returns the space that an allocation takes, or 0 if that is
                                        more than fits in size_t. */
{
    if (bytes > SIZE_MAX - GAP - 2 * ALIGN - sizeof(Block)) return 0;
    return (bytes + GAP + (ALIGN - 1)) & ~(size_t)(ALIGN - 1);
}

/* Makes arena->now a block with `room` free bytes. This is the block after arena->now if that block
 * is large enough, otherwise a new one. */
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

/* Allocates `bytes` bytes and zeroes those from index `keep` on. The caller overwrites the first
 * `keep` bytes. */
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

/* Grows a list without moving it, if it is the newest allocation of its block. Returns false
 * otherwise. */
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
