/* The two arenas of a rank, each a single allocation, and the host's access to them between steps.
 * With the option `poison`, memory that holds no value at the beginning of a step is filled with
 * NaN. With `poison` or `measure`, bytes that are never written keep their pattern until the
 * end. */
#include <assert.h>
#include <string.h>

#include "exec/cuda/private.h"

enum { MOST_BLOCK_BYTES = 1 << 22 };

/* Stands for the address of the arena until the arena is allocated. The choice of kernels depends
 * only on the alignment of addresses, up to ARENA_LEAST bytes. This address has that alignment. */
#define PLACE_HOLDER UINT64_C(0x7000000000)
enum { ARENA_LEAST = 256 };

static const Program *program_of(const Cuda *c)
{
    return plan_program(c->plan, c->rank);
}

/* Returns the size of a pinned block of host memory. Tandem fills or inspects the arena through
 * this block, piece by piece. A small arena fits into it as a whole. The size is a multiple of 8,
 * because the pattern has 8 bytes. */
static uint64_t block_bytes(const Cuda *c)
{
    return c->gpu.arena_bytes < MOST_BLOCK_BYTES ? c->gpu.arena_bytes : MOST_BLOCK_BYTES;
}

/* Allocates a pinned block, which either holds poison or receives bytes to inspect. */
static bool block_open(Cuda *c, char **block)
{
    *block = NULL;
    return CHECK_CUDA(c, cudaMallocHost, ((void **)block, block_bytes(c)));
}

static void block_close(char *block)
{
    if (block != NULL) cudaFreeHost(block);
}

/* Fills bytes lo to hi - 1 of the device arena with the pattern in `block`. */
static bool fill(Cuda *c, uint64_t lo, uint64_t hi, const char *block)
{
    while (lo < hi) {
        uint64_t phase = lo % 8; /* offset in the pattern, which depends on the address */
        uint64_t n = block_bytes(c) - phase;
        if (hi - lo < n) n = hi - lo;
        if (!CHECK_CUDA(c, cudaMemcpy,
                        (c->state.device + lo, block + phase, n, cudaMemcpyHostToDevice)))
            return false;
        lo += n;
    }
    return true;
}

static bool take_arena(Cuda *c)
{
    void *at = NULL;
    if (c->gpu.arena != NULL) return true;
    c->gpu.arena_of_nccl = c->n_ranks > 1 && c->own.via != CUDA_VIA_host;
    bool fine = c->gpu.arena_of_nccl ? CHECK_NCCL(c, NULL, ncclMemAlloc, (&at, c->gpu.arena_bytes))
                                     : CHECK_CUDA(c, cudaMalloc, (&at, c->gpu.arena_bytes));
    if (!fine) {
        if (c->d->items.n > 0)
            diag_hint(c->d, "the arena needs %s, but the device had only %s free",
                      str_bytes(c->arena, c->gpu.arena_bytes),
                      str_bytes(c->arena, c->gpu.free_before));
        return false;
    }
    c->gpu.arena = at;
    assert((uintptr_t)at % ARENA_LEAST == 0);
    return true;
}

bool memory_open(Cuda *c, const Program *p)
{
    RankState *r = &c->state;
    uint64_t host = p->host_bytes + ARENA_SLACK;
    r->poison = c->options.poison;
    r->measure = c->options.measure;
    c->gpu.arena_bytes = (p->bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN + ARENA_SLACK;
    r->device = (char *)(uintptr_t)PLACE_HOLDER;
    /* if the arena is too large for the device, the run must fail here, before it takes time to
     * choose algorithms */
    if (c->gpu.arena_bytes > c->gpu.free_before && !take_arena(c)) return false;
    void *host_at = NULL;
    if (!CHECK_CUDA(c, cudaMallocHost, (&host_at, host))) return false;
    r->host = host_at;
    if (r->poison || r->measure)
        poison_fill(r->host, host);
    else
        memset(r->host, 0, host);
    return true;
}

bool memory_place(Cuda *c)
{
    RankState *r = &c->state;
    if (!take_arena(c)) return false;
    rank_move(r, c->gpu.arena);
    c->gpu.unsettled = true;
    return CHECK_CUDA(c, cudaMemset, (r->device, 0, c->gpu.arena_bytes));
}

bool memory_fill(Cuda *c)
{
    const RankState *r = &c->state;
    c->gpu.unsettled = true;
    if (!r->poison && !r->measure)
        return CHECK_CUDA(c, cudaMemset, (r->device, 0, c->gpu.arena_bytes));
    char *block;
    if (!block_open(c, &block)) return false;
    poison_fill(block, block_bytes(c));
    bool fine = fill(c, 0, c->gpu.arena_bytes, block);
    block_close(block);
    return fine;
}

void memory_close(Cuda *c)
{
    RankState *r = &c->state;
    if (c->gpu.arena != NULL && c->gpu.arena_of_nccl) ncclMemFree(c->gpu.arena);
    if (c->gpu.arena != NULL && !c->gpu.arena_of_nccl) cudaFree(c->gpu.arena);
    if (r->host != NULL) cudaFreeHost(r->host);
    c->gpu.arena = r->device = r->host = NULL;
}

bool memory_settle(Cuda *c)
{
    if (!c->gpu.unsettled) return true;
    c->gpu.unsettled = false;
    return CHECK_CUDA(c, cudaStreamSynchronize, (cudaStreamLegacy));
}

static uint64_t bytes_of(const Cuda *c, BufferId b)
{
    return program_of(c)->buffers.at[b].bytes;
}

bool memory_read(Cuda *c, BufferId b, void *to)
{
    return CHECK_CUDA(c, cudaMemcpy,
                      (to, rank_memory(&c->state, b), bytes_of(c, b), cudaMemcpyDefault));
}

bool memory_write(Cuda *c, BufferId b, const void *from)
{
    c->gpu.unsettled = true;
    return CHECK_CUDA(c, cudaMemcpy,
                      (rank_memory(&c->state, b), from, bytes_of(c, b), cudaMemcpyDefault));
}

/* Finds the next range *lo to *hi - 1 of bytes, from `at` on, that holds no value between steps.
 * Returns false if there is none before `end`. */
static bool next_dead(const Program *p, Space space, uint64_t end, uint64_t at, uint64_t *lo,
                      uint64_t *hi)
{
    *lo = at;
    for (bool moved = true; moved;) {
        moved = false;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *x = &p->buffers.at[b];
            if (x->parent != 0 || !x->persistent || x->space != space) continue;
            if (x->offset > *lo || x->offset + x->bytes <= *lo) continue;
            *lo = x->offset + x->bytes;
            moved = true;
        }
    }
    *hi = end;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *x = &p->buffers.at[b];
        bool lives = x->parent == 0 && x->persistent && x->space == space && x->bytes > 0;
        if (lives && x->offset >= *lo && x->offset < *hi) *hi = x->offset;
    }
    return *lo < end;
}

/* Notes the highest byte of the arenas that was written, before the arenas are poisoned again. */
static bool note_highest(Cuda *c)
{
    for (int space = SPACE_device; space <= SPACE_host; space++) {
        uint64_t highest = memory_highest(c, (Space)space);
        if (highest > c->state.highest[space]) c->state.highest[space] = highest;
    }
    return !c->failed;
}

bool memory_poison(Cuda *c)
{
    const Program *p = program_of(c);
    char *block;
    if (!c->options.poison) return true;
    if (!note_highest(c) || !block_open(c, &block)) return false;
    poison_fill(block, block_bytes(c));
    bool fine = true;
    for (uint64_t lo, hi, at = 0; fine && next_dead(p, SPACE_device, p->bytes, at, &lo, &hi);
         at = hi)
        fine = fill(c, lo, hi, block);
    for (uint64_t lo, hi, at = 0; next_dead(p, SPACE_host, p->host_bytes, at, &lo, &hi); at = hi)
        for (uint64_t i = lo; i < hi; i++) c->state.host[i] = block[i % 8];
    block_close(block);
    return fine;
}

/* Finds the end of the highest byte below `end` in the device arena that was written. */
static bool device_end(Cuda *c, uint64_t end, uint64_t *highest)
{
    char *block;
    *highest = 0;
    if (!block_open(c, &block)) return false;
    bool fine = true, found = false;
    while (fine && !found && end > 0) {
        uint64_t lo = (end - 1) / block_bytes(c) * block_bytes(c);
        fine = CHECK_CUDA(c, cudaMemcpy,
                          (block, c->state.device + lo, end - lo, cudaMemcpyDeviceToHost));
        uint64_t n = fine ? poison_end(block, 0, end - lo) : 0;
        found = n > 0;
        if (found) *highest = lo + n;
        end = lo;
    }
    block_close(block);
    return fine;
}

uint64_t memory_highest(Cuda *c, Space space)
{
    const Program *p = program_of(c);
    uint64_t highest = 0;
    if (!c->options.poison && !c->options.measure) return 0;
    if (space == SPACE_host)
        highest = poison_end(c->state.host, 0, p->host_bytes);
    else if (!device_end(c, p->bytes, &highest))
        return 0;
    return highest > c->state.highest[space] ? highest : c->state.highest[space];
}

bool memory_inspect(Cuda *c)
{
    const Program *p = program_of(c);
    char slack[ARENA_SLACK] __attribute__((aligned(8)));
    if (!c->options.poison) return true;
    uint64_t shift = p->bytes % 8; /* offset in the pattern, which depends on the address */
    assert(p->bytes - shift + sizeof slack <= c->gpu.arena_bytes);
    if (!CHECK_CUDA(
            c, cudaMemcpy,
            (slack, c->state.device + p->bytes - shift, sizeof slack, cudaMemcpyDeviceToHost)))
        return false;
    uint64_t device = poison_end(slack, shift, sizeof slack) - shift;
    uint64_t host =
        poison_end(c->state.host, p->host_bytes, p->host_bytes + ARENA_SLACK) - p->host_bytes;
    if (device == 0 && host == 0) return true;
    return cuda_fail(c, "arena-overrun", "rank %u wrote %llu bytes beyond %s of %llu bytes",
                     c->rank, (unsigned long long)(device ? device : host),
                     device ? "an arena" : "a host arena",
                     (unsigned long long)(device ? p->bytes : p->host_bytes));
}

/* Measures the memory that this process uses on the device outside of its arena. This includes the
 * CUDA context, which existed before any measurement. If other ranks use the device, too, only the
 * memory that was added since the start counts. */
void memory_outside(Cuda *c)
{
    size_t unused = 0, total = 0;
    if (!CHECK_CUDA(c, cudaMemGetInfo, (&unused, &total))) return;
    uint64_t before = c->own.share_device ? c->gpu.free_before : total;
    uint64_t used = before > unused ? before - unused : 0;
    c->gpu.outside = used > c->gpu.arena_bytes ? used - c->gpu.arena_bytes : 0;
}
