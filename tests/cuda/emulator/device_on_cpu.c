/* Runs threads of a device as fibers of this process: see device_on_cpu.h. One block runs at a
 * time; of its threads, each runs until it comes to a barrier or ends. */
#include "tests/cuda/emulator/device_on_cpu.h"

#include <stdlib.h>

#include "tests/cuda/emulator/watch.h"

/* Stacks are a power of two and 17 cache lines apart. At a power of two alone, all stacks would
 * compete for a few lines of the processor's cache. */
enum { MAX_THREADS = 1024, STACK_BYTES = (128 << 10) + 17 * 64, GUARD = 64, NONE = MAX_THREADS };
static const unsigned char guard_byte = 0xa5;

typedef enum FiberState { READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, WAITING, ENDED } FiberState;
typedef struct Context {
    void *stack, *frame, *resumes;
} Context;
/* What a thread has announced to its warp at a barrier. */
typedef struct Arrival {
    WarpWork *work; /* done when all lanes have come; NULL: nothing */
    uint32_t mask;  /* lanes of the warp barrier */
    bool orders;    /* the barrier orders the lanes' memory accesses */
} Arrival;
/* A shuffle: the value that a thread gives, the value that it gets, and from which lane. */
typedef struct Exchange {
    uint64_t given, got;
    uint32_t from;
} Exchange;
typedef struct Wait {
    bool (*is_over)(void *what); /* the condition that ends the wait of a WAITING thread */
    void *what;
} Wait;

DeviceIndex device_thread, device_block, device_block_size, device_grid_size;
void *device_shared;

/* One array for each field of a thread. A loop over threads reads few of these fields. */
static Context contexts[MAX_THREADS];
static unsigned char states[MAX_THREADS]; /* FiberState */
static Arrival arrivals[MAX_THREADS];
static Exchange exchanges[MAX_THREADS];
static Wait waits[MAX_THREADS];
static uint32_t n_in[ENDED + 1]; /* threads of the block in each state */
static char *stacks;
static Context scheduler;
static uint32_t running;
static const DeviceLaunch *current;
static uint64_t seed, random_state, n_launches, n_blocks;
static const DeviceQueue *queue;

/* ---- orders ---- */

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* An order in which 0 .. n - 1 are visited: from `first` on, in steps of `stride`. n and stride
 * have no common factor. */
typedef struct Order {
    uint64_t first, stride;
} Order;

static uint64_t common_factor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common_factor(b, a % b);
}

static Order draw_order(uint64_t n)
{
    Order order = {0, 1};
    if (seed == 0 || n < 2) return order;
    order.first = random_next() % n;
    do order.stride = 1 + random_next() % n;
    while (common_factor(order.stride, n) != 1);
    return order;
}

static uint32_t order_next(Order order, uint32_t at, uint32_t n)
{
    uint64_t next = at + order.stride;
    return (uint32_t)(next < n ? next : next - n);
}

/* ---- switching ---- */

/* Inlined, because a processor always mispredicts a return to another stack. */
#ifndef __x86_64__
#error "write switch_to for this processor: it saves what a called function must keep"
#endif
#define VECTORS                                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
static inline __attribute__((always_inline)) void switch_to(Context *save, const Context *to)
{
    __asm__ volatile("movq %%rsp, 0(%0)\n movq %%rbp, 8(%0)\n"
                     "leaq 1f(%%rip), %%rcx\n movq %%rcx, 16(%0)\n"
                     "movq 0(%1), %%rsp\n movq 8(%1), %%rbp\n"
                     "jmp *16(%1)\n"
                     "1:\n"
                     : "+D"(save), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", VECTORS, "memory", "cc");
}

static void set_state(uint32_t i, FiberState state)
{
    n_in[states[i]]--;
    n_in[state]++;
    states[i] = (unsigned char)state;
}

/* A pass runs once each READY thread, of `n` threads from `first` on, up to its next barrier. */
static struct Pass {
    Order order;
    uint32_t first, n, at, left; /* the place of the next thread; how many are left */
    uint32_t end;                /* the number of threads of the block */
} pass;

/* Returns the pass's next READY thread, or NONE. */
static uint32_t next_of_pass(void)
{
    while (pass.left > 0) {
        const uint32_t i = pass.first + pass.at;
        pass.left--;
        pass.at = order_next(pass.order, pass.at, pass.n);
        if (i < pass.end && states[i] == READY) return i;
    }
    return NONE;
}

static void choose(uint32_t i)
{
    running = i;
    device_thread.x = i;
}

/* Leaves the running thread in this state. The pass's next thread continues at once, without a
 * switch to the scheduler. */
static inline void rest(FiberState state)
{
    const uint32_t mine = running;
    set_state(mine, state);
    const uint32_t next = next_of_pass();
    if (next != NONE) choose(next);
    switch_to(&contexts[mine], next != NONE ? &contexts[next] : &scheduler);
}

static void run_pass(uint32_t first, uint32_t n, uint32_t end, Order order)
{
    pass = (struct Pass){order, first, n, (uint32_t)order.first, n, end};
    const uint32_t next = next_of_pass();
    if (next == NONE) return;
    choose(next);
    switch_to(&scheduler, &contexts[next]);
}

static void fiber_begins(void)
{
    current->thread(current->args);
    rest(ENDED);
    assert(0 && "an ended thread runs again");
}

static void fiber_prepare(uint32_t i)
{
    char *top = stacks + (size_t)(i + 1) * STACK_BYTES;
    void (*entry)(void) = fiber_begins;
    states[i] = READY;
    contexts[i] = (Context){.stack = top - 64 - 8}; /* as after a call: 8 below a multiple of 16 */
    memcpy(&contexts[i].resumes, &entry, sizeof entry);
}

/* ---- barriers ---- */

void __syncthreads(void)
{
    rest(AT_BLOCK_BARRIER);
}

static void meet(uint32_t mask, bool orders, WarpWork *work)
{
    uint32_t lane = running % 32, n = device_block_size.x - running / 32 * 32;
    if (n < 32) mask &= (1u << n) - 1; /* an incomplete warp */
    assert(mask >> lane & 1);
    arrivals[running] = (Arrival){work, mask, orders};
    rest(AT_WARP_BARRIER);
}

void device_warp_barrier(uint32_t mask)
{
    meet(mask, true, NULL);
}

void device_warp_meets(uint32_t mask)
{
    meet(mask, false, NULL);
}

void device_warp_works(uint32_t mask, WarpWork *work)
{
    meet(mask, false, work);
}

void device_wait_until(bool (*is_over)(void *what), void *what)
{
    while (!is_over(what)) {
        waits[running] = (Wait){is_over, what};
        rest(WAITING);
    }
}

void device_stall(void)
{
    rest(READY);
}

uint64_t device_block_serial(void)
{
    return n_blocks;
}

uint64_t device_shared_bytes(void)
{
    return current->shared_bytes;
}

void __threadfence(void) {}

static void shuffle(uint32_t first, uint32_t mask)
{
    for (uint32_t lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            exchanges[first + lane].got = exchanges[exchanges[first + lane].from].given;
}

uint64_t device_shuffle(uint32_t mask, uint64_t bits, uint32_t from)
{
    Exchange *mine = &exchanges[running];
    mine->given = bits;
    mine->from = running / 32 * 32 + from % 32;
    assert(mine->from < device_block_size.x && (mask >> from % 32 & 1));
    device_warp_works(mask, shuffle);
    return mine->got;
}

static void ballot(uint32_t first, uint32_t mask)
{
    uint64_t all = 0;
    for (uint32_t lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) all |= exchanges[first + lane].given << lane;
    for (uint32_t lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) exchanges[first + lane].got = all;
}

uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    Exchange *mine = &exchanges[running];
    mine->given = predicate != 0;
    device_warp_works(mask, ballot);
    return (uint32_t)mine->got;
}

/* A plain comparison is atomic here, because threads run one at a time. */
uint32_t atomicMax(uint32_t *p, uint32_t x)
{
    uint32_t old = *p;
    watch_atomic(p, sizeof *p);
    if (x > old) *p = x;
    return old;
}

uint32_t atomicAdd(uint32_t *p, uint32_t x)
{
    uint32_t old = *p;
    watch_atomic(p, sizeof *p);
    *p = old + x;
    return old;
}

/* Returns true if all lanes have come to the warp barrier at which thread i waits. */
static bool is_complete(uint32_t first, uint32_t i)
{
    const Arrival mine = arrivals[i];
    for (uint32_t lane = 0; lane < 32; lane++) {
        const Arrival *other = &arrivals[first + lane];
        if (!(mine.mask >> lane & 1)) continue;
        if (states[first + lane] != AT_WARP_BARRIER || other->mask != mine.mask) return false;
        assert(other->work == mine.work && other->orders == mine.orders);
    }
    return true;
}

/* Releases threads of the warp that begins with thread `first`: those whose barrier is complete,
 * and those whose wait is over. */
static bool release_warp(uint32_t first, uint32_t n)
{
    bool any = false;
    for (uint32_t i = first; i < first + 32 && i < n; i++) {
        if (states[i] == AT_WARP_BARRIER && is_complete(first, i)) {
            const Arrival at = arrivals[i];
            if (at.orders) watch_warp_barrier(first / 32, at.mask);
            if (at.work != NULL) at.work(first, at.mask);
            for (uint32_t lane = 0; lane < 32; lane++)
                if (at.mask >> lane & 1) set_state(first + lane, READY);
            any = true;
        } else if (states[i] == WAITING && waits[i].is_over(waits[i].what)) {
            set_state(i, READY);
            any = true;
        }
    }
    return any;
}

/* Releases what can continue. Returns true when all threads have ended. */
static bool release(uint32_t n)
{
    if (n_in[ENDED] == n) return true;
    if (n_in[AT_BLOCK_BARRIER] == n) {
        for (uint32_t i = 0; i < n; i++) set_state(i, READY);
        watch_block_barrier();
        return false;
    }
    bool any = n_in[READY] > 0;
    for (uint32_t first = 0; first < n; first += 32) any |= release_warp(first, n);
    if (any) return false;
    fprintf(stderr,
            "%s: %u threads wait for the block, %u for their warp, %u in shared memory, %u have "
            "ended\n",
            current->name, n_in[AT_BLOCK_BARRIER], n_in[AT_WARP_BARRIER], n_in[WAITING],
            n_in[ENDED]);
    abort();
}

/* ---- launches ---- */

/* Runs every thread up to its next barrier of any kind. */
static void run_all_a_little(uint32_t n)
{
    run_pass(0, n, n, draw_order(n));
}

/* Runs one warp after the other, each as far as possible. So warps get far ahead of each other
 * where they may. */
static void run_warps_far(uint32_t n)
{
    uint32_t n_warps = (n + 31) / 32;
    Order warps = draw_order(n_warps), lanes = draw_order(32);
    uint32_t warp = (uint32_t)warps.first;
    for (uint32_t w = 0; w < n_warps; w++, warp = order_next(warps, warp, n_warps)) do
            run_pass(warp * 32, 32, n, lanes);
        while (release_warp(warp * 32, n));
}

static void run_block(uint64_t block, uint32_t n)
{
    device_block.x = (unsigned)block;
    n_blocks++;
    unsigned char *shared = aligned_alloc(128, (current->shared_bytes + GUARD + 127) / 128 * 128);
    assert(shared != NULL);
    memset(shared, 0xff, current->shared_bytes); /* NaNs in numbers of every width */
    memset(shared + current->shared_bytes, guard_byte, GUARD);
    device_shared = shared;
    watch_block(shared, current->shared_bytes);
    for (uint32_t i = 0; i < n; i++) fiber_prepare(i);
    memset(n_in, 0, sizeof n_in);
    n_in[READY] = n;
    do {
        if (seed % 2 == 0)
            run_all_a_little(n);
        else
            run_warps_far(n);
    } while (!release(n));
    watch_block_end();
    for (int i = 0; i < GUARD; i++)
        if (shared[current->shared_bytes + (uint64_t)i] != guard_byte) {
            fprintf(stderr, "%s: writes beyond its %llu bytes of shared memory\n", current->name,
                    (unsigned long long)current->shared_bytes);
            abort();
        }
    free(shared);
}

void device_run(const DeviceLaunch *launch)
{
    assert(launch->threads > 0 && launch->threads <= MAX_THREADS);
    assert(launch->blocks < UINT64_C(1) << 31);
    if (stacks == NULL) {
        stacks = aligned_alloc(128, (size_t)MAX_THREADS * STACK_BYTES);
        assert(stacks != NULL);
    }
    current = launch;
    watch_launch(launch->name);
    device_block_size.x = (unsigned)launch->threads;
    device_grid_size.x = (unsigned)launch->blocks;
    Order order = draw_order(launch->blocks);
    uint32_t block = (uint32_t)order.first, n = (uint32_t)launch->blocks;
    for (uint32_t i = 0; i < n; i++, block = order_next(order, block, n))
        run_block(block, (uint32_t)launch->threads);
    current = NULL;
}

void *device_aligned(uintptr_t p, size_t bytes, const char *file, int line)
{
    void *at;
    if (p % bytes != 0) {
        fprintf(stderr, "%s:%d: %zu bytes at %#llx are not aligned\n", file, line, bytes,
                (unsigned long long)p);
        abort();
    }
    memcpy(&at, &p, sizeof at);
    watch_wide(at, bytes);
    return at;
}

void device_set_seed(uint64_t value)
{
    seed = value;
    random_state = value * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

void device_set_queue(const DeviceQueue *value)
{
    queue = value;
}

uint64_t device_n_launches(void)
{
    return n_launches;
}

/* Returns how many bytes of shared memory a block may request. (CUDA C++ Programming Guide,
 * technical specifications per compute capability.) */
static uint64_t most_shared(uint32_t compute_capability)
{
    static const struct {
        uint32_t capability;
        uint64_t kib;
    } most[] = {{80, 163}, {86, 99}, {87, 163}, {89, 99}, {90, 227}, {100, 227}, {120, 99}};
    uint64_t kib = 48;
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++)
        if (most[i].capability <= compute_capability) kib = most[i].kib;
    return kib << 10;
}

static const DeviceKernel *known; /* filled before main() */

void device_know(DeviceKernel *kernel)
{
    kernel->next = known;
    known = kernel;
}

const DeviceKernel *device_kernels(void)
{
    return known;
}

bool device_launch(void (*thread)(const void *args), const char *name, uint64_t blocks,
                   uint64_t threads, uint64_t shared_bytes, uint32_t compute_capability,
                   const void *args, uint64_t args_bytes, void *stream)
{
    DeviceLaunch launch = {thread, name, blocks, threads, shared_bytes, args_bytes, {0}};
    if (blocks == 0) return true;
    if (shared_bytes > most_shared(compute_capability)) {
        fprintf(stderr, "%s: a block of capability %u has no %llu bytes of shared memory\n", name,
                compute_capability, (unsigned long long)shared_bytes);
        abort();
    }
    assert(args_bytes <= sizeof launch.args);
    memcpy(launch.args, args, args_bytes);
    n_launches++;
    if (queue != NULL)
        queue->launch(queue->self, stream, &launch);
    else
        device_run(&launch);
    return true;
}

bool device_copy(void *to, const void *from, uint64_t bytes, const CudaContext *cuda,
                 CudaError *error)
{
    (void)error;
    if (bytes == 0 || to == from) return true;
    if (from != NULL && (char *)to < (const char *)from + bytes &&
        (const char *)from < (char *)to + bytes) {
        fprintf(stderr, "device: a copy between bytes that overlap\n");
        abort();
    }
    if (queue != NULL)
        queue->copy(queue->self, cuda->stream, to, from, bytes);
    else if (from == NULL)
        memset(to, 0, bytes);
    else
        memcpy(to, from, bytes);
    return true;
}

bool device_zero(void *p, uint64_t bytes, const CudaContext *cuda, CudaError *error)
{
    return device_copy(p, NULL, bytes, cuda, error);
}
