/* Counts each kernel's requests to the memory system: see watch.h. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "tests/cuda/emulator/watch_private.h"

enum {
    MAX_KERNELS = 256,
    PLACES = 1 << 16,   /* number of pairs of a thread and a place in the code */
    REQUESTS = 1 << 15, /* number of requests gathered at once */
    LANES = 32,
    BANKS = 32,
    BANK_BYTES = 4,
    SECTOR_BYTES = 32
};

typedef struct CountedKernel {
    const char *name;
    WatchCounts counts;
} CountedKernel;

/* How often a thread has reached a place in the code. */
typedef struct Visits {
    const void *from;
    uint32_t thread, n;
} Visits;

typedef struct Request {
    const void *from; /* NULL: none */
    uint32_t warp, nth, lanes, bytes;
    bool is_shared;
    uintptr_t at[LANES];
} Request;

static CountedKernel kernels[MAX_KERNELS];
static CountedKernel *current;
static uint32_t n_kernels, n_visits, n_requests;
static Visits visits[PLACES];
static Request requests[REQUESTS];
bool watch_counting;

/* ---- one request ---- */

static int compare_addresses(const void *x, const void *y)
{
    const uintptr_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

/* Sorts the numbers. Returns how many different ones there are. */
static uint32_t different(uintptr_t *x, uint32_t n)
{
    uint32_t found = n > 0;
    qsort(x, n, sizeof *x, compare_addresses);
    for (uint32_t i = 1; i < n; i++) found += x[i] != x[i - 1];
    return found;
}

/* Lists the 4-byte words that lanes [from, from + n) request. A shorter access requests a whole
 * word. */
static uint32_t words_of(const Request *r, uint32_t from, uint32_t n, uintptr_t word[LANES * 4])
{
    uint32_t found = 0;
    for (uint32_t lane = from; lane < from + n; lane++)
        for (uintptr_t at = r->at[lane] / BANK_BYTES;
             r->lanes >> lane & 1 && at * BANK_BYTES < r->at[lane] + r->bytes; at++)
            word[found++] = at;
    return found;
}

static void count_global(const Request *r, WatchCounts *c)
{
    uintptr_t sector[LANES * 2], piece[LANES * 16];
    uint32_t n = 0, pieces = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (!(r->lanes >> lane & 1)) continue;
        sector[n++] = r->at[lane] / SECTOR_BYTES;
        sector[n++] = (r->at[lane] + r->bytes - 1) / SECTOR_BYTES;
        for (uint32_t k = 0; k < r->bytes; k++) piece[pieces++] = r->at[lane] + k;
    }
    c->requests++;
    c->sectors += different(sector, n);
    c->fewest_sectors += (different(piece, pieces) + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

/* Accesses of 8 bytes are served for half a warp at a time, of 16 bytes for a quarter. Lanes that
 * request the same word share it. Different words of one bank need separate passes. */
static void count_shared(const Request *r, WatchCounts *c)
{
    uint32_t at_once = r->bytes > 8 ? 8 : r->bytes > 4 ? 16 : LANES;
    for (uint32_t from = 0; from < LANES; from += at_once) {
        uintptr_t word[LANES * 4];
        uint32_t n = words_of(r, from, at_once, word), most = 0, of_bank[BANKS] = {0};
        different(word, n);
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0 && word[i] == word[i - 1]) continue;
            uint32_t bank = (uint32_t)(word[i] % BANKS);
            of_bank[bank]++;
            if (of_bank[bank] > most) most = of_bank[bank];
        }
        c->passes += most;
        c->fewest_passes += n > 0;
    }
}

static void count_all(void)
{
    for (uint32_t i = 0; i < REQUESTS && n_requests > 0; i++) {
        Request *r = &requests[i];
        if (r->from == NULL) continue;
        if (r->is_shared)
            count_shared(r, &current->counts);
        else
            count_global(r, &current->counts);
        r->from = NULL;
        n_requests--;
    }
}

/* ---- gathering ---- */

static uint32_t slot_of(const void *from, uint32_t x, uint32_t y, uint32_t size)
{
    uint64_t h = (uint64_t)(uintptr_t)from ^ (uint64_t)x << 40 ^ (uint64_t)y << 20;
    return (uint32_t)(h * UINT64_C(0x9e3779b97f4a7c15) >> 40) % size;
}

static uint32_t next_visit(const void *from, uint32_t thread)
{
    uint32_t i = slot_of(from, thread, 0, PLACES);
    while (visits[i].from != NULL && (visits[i].from != from || visits[i].thread != thread))
        i = (i + 1) % PLACES;
    if (visits[i].from == NULL) n_visits++;
    assert(n_visits < PLACES);
    visits[i].from = from, visits[i].thread = thread;
    return visits[i].n++;
}

static void gather(const void *at, uint64_t bytes, bool is_shared, const void *from)
{
    uint32_t thread = threadIdx.x, warp = thread / LANES, lane = thread % LANES;
    if (bytes > 16) return;
    if (n_requests >= REQUESTS / 4 * 3) count_all();
    uint32_t nth = next_visit(from, thread), i = slot_of(from, warp, nth, REQUESTS);
    while (requests[i].from != NULL &&
           (requests[i].from != from || requests[i].warp != warp || requests[i].nth != nth ||
            requests[i].bytes != bytes || requests[i].is_shared != is_shared))
        i = (i + 1) % REQUESTS;
    Request *r = &requests[i];
    if (r->from == NULL) {
        r->from = from, r->warp = warp, r->nth = nth, r->bytes = (uint32_t)bytes;
        r->is_shared = is_shared;
        r->lanes = 0;
        n_requests++;
    }
    r->at[lane] = (uintptr_t)at;
    r->lanes |= 1u << lane;
}

void count_block_end(void)
{
    if (!watch_counting || current == NULL) return;
    count_all();
    memset(visits, 0, sizeof visits);
    n_visits = 0;
}

/* ---- wide accesses: compilers split them, but a device does not ---- */

enum { WIDES = 16 };
static struct Wide {
    uintptr_t at;
    uint32_t bytes, thread, block;
    bool counted;
} wides[WIDES];
static uint32_t n_wides;

void watch_wide(const void *at, uint64_t bytes)
{
    if (!watch_counting || current == NULL) return;
    wides[n_wides++ % WIDES] = (struct Wide){(uintptr_t)at, (uint32_t)bytes, threadIdx.x,
                                             (uint32_t)device_block_serial(), false};
}

/* Returns the thread's latest wide access that contains this one, or NULL. */
static struct Wide *wide_of(const void *at)
{
    for (uint32_t i = 1; i <= WIDES && i <= n_wides; i++) {
        struct Wide *w = &wides[(n_wides - i) % WIDES];
        if (w->thread == threadIdx.x && w->block == (uint32_t)device_block_serial() &&
            (uintptr_t)at - w->at < w->bytes)
            return w;
    }
    return NULL;
}

void count_access(const void *at, uint64_t bytes, bool is_shared, const void *from)
{
    if (!watch_counting || current == NULL) return;
    struct Wide *w = wide_of(at);
    if (w == NULL) {
        gather(at, bytes, is_shared, from);
    } else if (!w->counted) {
        gather((const void *)w->at, w->bytes, is_shared, from);
        w->counted = true;
    }
}

/* ---- kernels ---- */

static CountedKernel *kernel_of(const char *name)
{
    for (uint32_t i = 0; i < n_kernels; i++)
        if (strcmp(kernels[i].name, name) == 0) return &kernels[i];
    assert(n_kernels < MAX_KERNELS);
    kernels[n_kernels].name = name;
    return &kernels[n_kernels++];
}

void count_launch(const char *kernel)
{
    current = watch_counting ? kernel_of(kernel) : NULL;
}

void watch_count(bool on)
{
    watch_counting = on;
}

WatchCounts watch_counts_so_far(const char *kernel)
{
    return kernel_of(kernel)->counts;
}

WatchCounts watch_counts(const char *kernel)
{
    CountedKernel *k = kernel_of(kernel);
    WatchCounts counts = k->counts;
    memset(&k->counts, 0, sizeof k->counts);
    return counts;
}

static double ratio(uint64_t x, uint64_t of)
{
    return of > 0 ? (double)x / (double)of : 0;
}

const char *watch_kernel(uint32_t i)
{
    return i < n_kernels ? kernels[i].name : NULL;
}

static void print_all(void)
{
    printf("%-34s %10s %10s %8s %8s %10s %8s\n", "kernel", "requests", "sectors", "a request",
           "/ fewest", "passes", "/ fewest");
    for (uint32_t i = 0; i < n_kernels; i++) {
        const WatchCounts *c = &kernels[i].counts;
        printf("%-34s %10llu %10llu %8.2f %8.2f %10llu %8.2f\n", kernels[i].name,
               (unsigned long long)c->requests, (unsigned long long)c->sectors,
               ratio(c->sectors, c->requests), ratio(c->sectors, c->fewest_sectors),
               (unsigned long long)c->passes, ratio(c->passes, c->fewest_passes));
    }
}

__attribute__((constructor)) static void begin(void)
{
    const char *what = getenv("TANDEM_WATCH");
    if (what == NULL || strcmp(what, "print") != 0) return;
    watch_counting = true;
    atexit(print_all);
}
