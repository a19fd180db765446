/* See watch.h: the order of accesses, and the memory that may be touched. watch_count.c counts.
 *
 * Time is a counter that every barrier advances. An access of thread A at time t precedes the
 * current access of thread B in three cases:
 *   - t is before the block's last barrier
 *   - both are in one warp, and t is before that warp's last barrier
 *   - B's warp knows (through a barrier in memory) A's accesses up to a time after t
 *
 * For every four bytes, the last write and three reads are kept: the last one, the last one by
 * another thread of the same warp, and the last one by another warp. */
#define _GNU_SOURCE
#include "tests/cuda/emulator/watch_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MAX_WARPS = 32,
    MAX_THREADS = 1024,
    MAX_PHASES = 64,
    WORD = 4,
    MARGIN = 512,
    MOST_SHARED = 256 << 10,
    READS = 3,
    FENCES = 4
};
#define ARENA (UINT64_C(4) << 30) /* bytes of addresses; pages are allocated when touched */

typedef struct Access {
    uint32_t time; /* belongs to an earlier block if it is less than watch.begun */
    uint16_t thread;
    uint8_t bytes; /* one bit for each byte of the word */
    bool atomic;
} Access;

typedef struct Word {
    Access write, read[READS];
} Word;

/* The state of a barrier in shared memory. For each warp, it states up to which time the arriving
 * warps know that warp's accesses: in this phase, and in completed phases. */
typedef struct Phases {
    uint32_t arrived[MAX_WARPS], over[MAX_WARPS];
} Phases;

static struct Watch {
    const char *kernel;
    uint32_t time, launched, begun; /* when this kernel began; when this block began */
    uint32_t since;                 /* the time at which the current memory was allocated */
    uint32_t block_at, warp_at[MAX_WARPS], learnt[MAX_WARPS][MAX_WARPS];
    bool has_learnt;
    /* the last times at which the thread called the fence; the latest comes first */
    uint32_t to_async_at[MAX_THREADS][FENCES];
    Phases phases[MAX_PHASES];
    Word of_shared[MOST_SHARED / WORD];
    unsigned char *allowed; /* one byte for each byte of the arena */
    Word *of_arena;
    uint64_t used, live;
} watch = {.time = 1};
WatchedMemory watched;

/* ---- memory of kernels ---- */

static void *reserve(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(at != MAP_FAILED);
    return at;
}

void *watch_alloc(uint64_t bytes)
{
    if (watched.arena == NULL) {
        watched.arena = reserve(ARENA);
        watched.arena_bytes = ARENA;
        watch.allowed = reserve(ARENA);
        watch.of_arena = reserve(ARENA / WORD * sizeof *watch.of_arena);
    }
    uint64_t at = watch.used + MARGIN;
    watch.used = (at + bytes + MARGIN) / 256 * 256;
    assert(watch.used < ARENA);
    watch.live++;
    watch_allow(watched.arena + at, bytes, true);
    return watched.arena + at;
}

/* Memory is reused once none of it is in use. */
void watch_free(void *at)
{
    if (at == NULL || --watch.live > 0) return;
    memset(watch.allowed, 0, watch.used);
    watch.used = 0;
}

void watch_allow(const void *at, uint64_t bytes, bool allowed)
{
    uint64_t from = (uint64_t)((const unsigned char *)at - watched.arena);
    if ((const unsigned char *)at < watched.arena || from + bytes > ARENA) return;
    memset(watch.allowed + from, allowed, bytes);
}

/* ---- what orders ---- */

void watch_launch(const char *kernel)
{
    watch.kernel = kernel;
    watch.launched = ++watch.time;
    count_launch(kernel);
}

void watch_block(unsigned char *shared, uint64_t bytes)
{
    assert(bytes <= MOST_SHARED);
    watched.shared = shared;
    watched.shared_bytes = bytes;
    watch.block_at = watch.begun = ++watch.time;
    if (watch.has_learnt) {
        memset(watch.learnt, 0, sizeof watch.learnt);
        memset(watch.phases, 0, sizeof watch.phases);
    }
    watch.has_learnt = false;
}

void watch_block_end(void)
{
    watched.shared = NULL;
    count_block_end();
}

void watch_block_barrier(void)
{
    watch.block_at = ++watch.time;
}

/* Orders all lanes of the warp. Kernels use no barrier of some lanes only. */
void watch_warp_barrier(uint32_t warp, uint32_t mask)
{
    assert((mask & (mask + 1)) == 0);
    watch.warp_at[warp] = ++watch.time;
}

static void learn(uint32_t known[MAX_WARPS], const uint32_t from[MAX_WARPS])
{
    for (uint32_t of = 0; of < MAX_WARPS; of++)
        if (from[of] > known[of]) known[of] = from[of];
}

void watch_warps_barrier(uint32_t warps)
{
    uint32_t all[MAX_WARPS] = {0};
    watch.has_learnt = true;
    watch.time++;
    for (uint32_t w = 0; w < MAX_WARPS; w++)
        if (warps >> w & 1) learn(all, watch.learnt[w]);
    for (uint32_t w = 0; w < MAX_WARPS; w++)
        for (uint32_t of = 0; of < MAX_WARPS && warps >> w & 1; of++)
            watch.learnt[w][of] = warps >> of & 1 ? watch.time : all[of];
}

/* One lane arrives for its warp. This covers all accesses before the warp's last barrier. */
void watch_arrive(uint32_t barrier, uint32_t warp)
{
    assert(barrier < MAX_PHASES);
    uint32_t *const arrived = watch.phases[barrier].arrived;
    watch.has_learnt = true;
    learn(arrived, watch.learnt[warp]);
    if (watch.warp_at[warp] > arrived[warp]) arrived[warp] = watch.warp_at[warp];
}

void watch_phase_over(uint32_t barrier)
{
    Phases *const p = &watch.phases[barrier];
    learn(p->over, p->arrived);
    memset(p->arrived, 0, sizeof p->arrived);
}

void watch_waited(uint32_t barrier, uint32_t warp)
{
    learn(watch.learnt[warp], watch.phases[barrier].over);
}

static inline bool is_before(const Access *x, const Access *now)
{
    if (x->time < watch.since || !(x->bytes & now->bytes)) return true;
    if (x->time < watch.begun) return false;
    if (x->time < watch.block_at || x->thread == now->thread) return true;
    const uint32_t warp = now->thread / 32, of = x->thread / 32;
    return (warp == of && x->time < watch.warp_at[warp]) || x->time < watch.learnt[warp][of];
}

/* ---- one access ---- */

static void broken(const char *what, const unsigned char *at, const Access *by)
{
    bool is_shared = at >= watched.shared && at < watched.shared + watched.shared_bytes;
    fprintf(stderr, "%s: thread %u of block %u %s, byte %llu of %s memory", watch.kernel,
            threadIdx.x, blockIdx.x, what,
            (unsigned long long)(at - (is_shared ? watched.shared : watched.arena)),
            is_shared ? "shared" : "global");
    if (by != NULL)
        fprintf(stderr, ": so does thread %u of %s block, and nothing orders the two", by->thread,
                by->time >= watch.begun ? "the same" : "another");
    fprintf(stderr, "\n");
    abort();
}

static inline void put(Access *to, const Access *now)
{
    uint8_t bytes = to->time == now->time && to->thread == now->thread ? to->bytes : 0;
    *to = *now;
    to->bytes |= bytes;
}

static inline void note_read(Word *w, const Access *now)
{
    Access *last = &w->read[0];
    bool same_block = last->time >= watch.begun;
    if (!same_block || last->thread != now->thread)
        w->read[same_block && last->thread / 32 == now->thread / 32 ? 1 : 2] = *last;
    put(last, now);
}

static inline void access_word(Word *w, const unsigned char *at, const Access *now, AccessKind kind)
{
    if (!is_before(&w->write, now) && !(now->atomic && w->write.atomic))
        broken(kind == ACCESS_read ? "reads what another writes" : "writes what another writes", at,
               &w->write);
    if (kind == ACCESS_read) {
        note_read(w, now);
        return;
    }
    for (int i = 0; i < READS; i++)
        if (!is_before(&w->read[i], now)) broken("writes what another reads", at, &w->read[i]);
    put(&w->write, now);
}

static inline void check_allowed(const unsigned char *at, uint64_t first, uint64_t bytes,
                                 AccessKind kind)
{
    uint32_t word;
    memcpy(&word, watch.allowed + first, sizeof word);
    if (bytes == WORD && word == 0x01010101) return;
    if (bytes == 1 && watch.allowed[first]) return;
    const unsigned char *none = memchr(watch.allowed + first, 0, bytes);
    if (none != NULL)
        broken(kind == ACCESS_read ? "reads what it was not given" : "writes what it was not given",
               at + (none - watch.allowed) - first, NULL);
}

static void access_words(Word *words, const unsigned char *at, uint64_t first, uint64_t bytes,
                         AccessKind kind)
{
    Access now = {watch.time, (uint16_t)threadIdx.x, 0, kind == ACCESS_atomic};
    for (uint64_t i = first / WORD; i <= (first + bytes - 1) / WORD; i++) {
        uint64_t low = i * WORD < first ? first % WORD : 0;
        uint64_t high = i * WORD + WORD > first + bytes ? (first + bytes) % WORD : WORD;
        now.bytes = (uint8_t)((1u << high) - (1u << low));
        access_word(&words[i], at, &now, kind);
    }
}

void watch_access_watched(const void *p, uint64_t bytes, AccessKind kind, const void *from)
{
    const unsigned char *at = p;
    const uint64_t in_shared = (uint64_t)(at - watched.shared);
    const bool is_shared = in_shared < watched.shared_bytes;
    const uint64_t first = is_shared ? in_shared : (uint64_t)(at - watched.arena);
    if (is_shared && first + bytes > watched.shared_bytes)
        broken("touches what lies behind shared memory", at, NULL);
    if (!is_shared) check_allowed(at, first, bytes, kind);
    watch.since = is_shared ? watch.begun : watch.launched;
    Word *const words = is_shared ? watch.of_shared : watch.of_arena;
    if (first % WORD + bytes <= WORD) { /* most accesses */
        const uint32_t ones = ((1u << bytes) - 1) << first % WORD;
        const Access now = {watch.time, (uint16_t)threadIdx.x, (uint8_t)ones,
                            kind == ACCESS_atomic};
        access_word(&words[first / WORD], at, &now, kind);
    } else {
        access_words(words, at, first, bytes, kind);
    }
    if (from != NULL && watch_counting) count_access(at, bytes, is_shared, from);
}

void watch_to_async(void)
{
    uint32_t *const at = watch.to_async_at[threadIdx.x];
    memmove(at + 1, at, (FENCES - 1) * sizeof *at);
    at[0] = ++watch.time;
}

/* Returns true if the writing thread has called the fence after the write, and this call precedes
 * `now`. */
static bool is_fenced(const Access *write, const Access *now)
{
    for (int i = 0; i < FENCES; i++) {
        Access said = *write;
        said.time = watch.to_async_at[write->thread][i];
        if (said.time > write->time && is_before(&said, now)) return true;
    }
    return false;
}

void watch_async(const void *p, uint64_t bytes, bool replaced)
{
    const unsigned char *at = p;
    if (watched.shared == NULL) return;
    assert(at >= watched.shared && at + bytes <= watched.shared + watched.shared_bytes);
    const uint64_t first = (uint64_t)(at - watched.shared) / WORD;
    const Access now = {watch.time, (uint16_t)threadIdx.x, 15, false};
    assert((at - watched.shared) % WORD == 0 && bytes % WORD == 0);
    watch.since = watch.begun;
    for (uint64_t i = first; i < first + bytes / WORD; i++) {
        Access *const write = &watch.of_shared[i].write;
        if (write->time >= watch.begun && write->bytes != 0) {
            if (!is_fenced(write, &now))
                broken("has a box or product touch what was stored, and no fence is between", at,
                       write);
        }
        if (replaced) write->bytes = 0;
    }
}

void watch_read(const void *at, uint64_t bytes)
{
    watch_access(at, bytes, ACCESS_read, __builtin_return_address(0));
}

void watch_write(void *at, uint64_t bytes)
{
    watch_access(at, bytes, ACCESS_write, __builtin_return_address(0));
}

void watch_arrival(void *at, uint64_t bytes)
{
    watch_access(at, bytes, ACCESS_write, NULL);
}

void watch_late_read(const void *at, uint64_t bytes)
{
    watch_access(at, bytes, ACCESS_read, NULL);
}

void watch_atomic(void *at, uint64_t bytes)
{
    watch_access(at, bytes, ACCESS_atomic, __builtin_return_address(0));
}
