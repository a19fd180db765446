/* Barriers in shared memory, boxes (copies of tiles of tensors), and registers that warps hand to
 * each other, on the CPU: see hopper_on_cpu.h. products_on_hopper.c has the products. */
#include <stdlib.h>

#include "tests/cuda/emulator/hopper_private.h"
#include "tests/cuda/emulator/watch.h"

#include "kernels/cuda/attention/hopper/hopper.cuh"

enum { MAX_BARRIERS = 64, MAX_BOXES = 256, NUMBERED = 16, BARRIER_BYTES = 8, REGISTERS = 65536 };
static const unsigned char barrier_mark[BARRIER_BYTES] = "mbarrier";

typedef struct Barrier {
    unsigned char *at;
    uint32_t arrivals, pending, parity; /* counts of the current phase */
    int64_t bytes;                      /* bytes that are expected but have not arrived */
    bool ready, async;                  /* visible to other threads; visible to boxes */
    uint32_t by;                        /* the thread that initialised the barrier */
} Barrier;

typedef struct Box {
    TensorMap map;
    unsigned char *to;
    Barrier *barrier;
    int64_t first[4];
} Box;

/* State of the running block. */
static struct Block {
    uint64_t serial;
    Barrier barrier[MAX_BARRIERS];
    Box box[MAX_BOXES];
    uint32_t n_barriers, n_boxes;
    uint32_t here[NUMBERED], round[NUMBERED], warps[NUMBERED];
    /* for each numbered barrier: 1 + the last round to which the thread came */
    uint32_t last_turn[NUMBERED][1024];
    uint32_t registers[1024], pool;
} block;

static bool boxes_are_early;
static HopperFault fault;
static uint64_t tail_rows;
static uint32_t left;

void device_boxes_arrive_early(bool early)
{
    boxes_are_early = early;
    hopper_bulks_arrive_early(early);
}

void device_hopper_fault(HopperFault value)
{
    fault = value;
}

void device_hopper_tail(uint64_t rows)
{
    tail_rows = rows;
}

HopperFault hopper_fault(void)
{
    return fault;
}

void hopper_broken(const char *rule)
{
    fprintf(stderr, "thread %u of block %u: %s\n", threadIdx.x, blockIdx.x, rule);
    abort();
}

static uint32_t leave_block(void)
{
    uint32_t n = block.n_boxes;
    for (uint32_t i = 0; i < block.n_barriers; i++)
        n += block.barrier[i].pending != block.barrier[i].arrivals || block.barrier[i].bytes != 0;
    for (uint32_t i = 0; i < NUMBERED; i++) n += block.here[i] != 0;
    return n;
}

static struct Block *this_block(void)
{
    if (block.serial == device_block_serial()) return &block;
    left += leave_block();
    memset(&block, 0, sizeof block);
    block.serial = device_block_serial();
    uint32_t each = REGISTERS / blockDim.x / 8 * 8;
    for (uint32_t i = 0; i < blockDim.x; i++) block.registers[i] = each;
    return &block;
}

uint32_t device_hopper_under_way(void)
{
    uint32_t n = left + leave_block() + hopper_products_under_way() + hopper_bulks_under_way();
    left = 0;
    memset(&block, 0, sizeof block);
    return n;
}

/* ---- addresses: a kernel's memory begins behind the system's part, in the middle of a pattern
 * ---- */

enum { WINDOW = 1024 + 128 };

uint32_t shared_window(Shared at)
{
    return WINDOW + (uint32_t)(at - (unsigned char *)device_shared);
}

int thread_again(void)
{
    return (int)threadIdx.x;
}

unsigned char *hopper_memory(uint32_t window, uint32_t bytes)
{
    if (window < WINDOW || window + bytes > WINDOW + device_shared_bytes())
        hopper_broken("an address outside of the block's shared memory");
    return (unsigned char *)device_shared + (window - WINDOW);
}

uint32_t hopper_swizzle(uint32_t window)
{
    return window ^ (window >> 7 & 7) << 4;
}

/* ---- barriers ---- */

void barrier_init(Shared at, uint32_t arrivals)
{
    struct Block *b = this_block();
    assert(shared_window(at) % BARRIER_BYTES == 0 && b->n_barriers < MAX_BARRIERS && arrivals > 0);
    if (fault == HOPPER_one_arrival_too_few && arrivals > 1) arrivals--;
    b->barrier[b->n_barriers++] =
        (Barrier){.at = at, .arrivals = arrivals, .pending = arrivals, .by = threadIdx.x};
    memcpy(hopper_memory(shared_window(at), BARRIER_BYTES), barrier_mark, BARRIER_BYTES);
}

void barriers_ready(void)
{
    struct Block *b = this_block();
    if (fault == HOPPER_no_barriers_ready) return;
    for (uint32_t i = 0; i < b->n_barriers; i++)
        if (b->barrier[i].by == threadIdx.x) b->barrier[i].ready = true;
}

void shared_to_async(void)
{
    struct Block *b = this_block();
    if (fault == HOPPER_no_shared_to_async) return;
    watch_to_async();
    for (uint32_t i = 0; i < b->n_barriers; i++)
        if (b->barrier[i].by == threadIdx.x) b->barrier[i].async = true;
}

static Barrier *barrier_at(Shared at)
{
    struct Block *b = this_block();
    for (uint32_t i = 0; i < b->n_barriers; i++) {
        if (b->barrier[i].at != at) continue;
        if (!b->barrier[i].ready) hopper_broken("a barrier that is not ready");
        if (memcmp(at, barrier_mark, BARRIER_BYTES) != 0) hopper_broken("a barrier overwritten");
        return &b->barrier[i];
    }
    hopper_broken("no barrier");
    return NULL;
}

static void end_phase(Barrier *b)
{
    if (b->pending > 0 || b->bytes != 0) return;
    b->parity ^= 1;
    b->pending = b->arrivals;
    watch_phase_over((uint32_t)(b - block.barrier));
}

static void arrive(Barrier *b)
{
    assert(b->pending > 0);
    b->pending--;
    watch_arrive((uint32_t)(b - block.barrier), threadIdx.x / 32);
    end_phase(b);
}

/* Lets other threads run after the arrival, so that threads that wait for it may continue before
 * this one. */
void barrier_arrive(Shared at)
{
    arrive(barrier_at(at));
    device_stall();
}

void barrier_expect(Shared at, uint32_t bytes)
{
    Barrier *b = barrier_at(at);
    b->bytes += fault == HOPPER_half_the_bytes ? bytes / 2 : bytes;
    arrive(b);
}

/* ---- boxes ---- */

/* Copies in chunks of 16 bytes: E is a multiple of eight numbers. */
static void deliver(const Box *x)
{
    const TensorMap *m = &x->map;
    uint32_t row_bytes = m->box[0] * 2, row = 0;
    for (uint32_t i3 = 0; i3 < m->box[3]; i3++)
        for (uint32_t i2 = 0; i2 < m->box[2]; i2++)
            for (uint32_t i1 = 0; i1 < m->box[1]; i1++, row++)
                for (uint32_t chunk = 0; chunk < row_bytes; chunk += 16) {
                    const int64_t at[4] = {x->first[0] + chunk / 2, x->first[1] + i1,
                                           x->first[2] + i2, x->first[3] + i3};
                    uint32_t to = shared_window(x->to) + row * row_bytes + chunk;
                    uint64_t from = 0;
                    bool inside = true;
                    for (int d = 0; d < 4; d++) {
                        inside = inside && at[d] >= 0 && (uint64_t)at[d] < m->dim[d];
                        from += (uint64_t)at[d] * m->stride[d];
                    }
                    unsigned char *p = hopper_memory(m->swizzled ? hopper_swizzle(to) : to, 16);
                    if (inside)
                        memcpy(p, m->at + from, 16);
                    else
                        memset(p, 0, 16);
                }
    x->barrier->bytes -= (int64_t)row * row_bytes;
    end_phase(x->barrier);
}

static void begin_box(const Box *box)
{
    struct Block *b = this_block();
    const uint32_t *n = box->map.box;
    assert(b->n_boxes < MAX_BOXES);
    if (!box->barrier->async) hopper_broken("a box for a barrier that no shared_to_async follows");
    watch_async(box->to, (uint64_t)n[0] * n[1] * n[2] * n[3] * 2, true);
    if (boxes_are_early)
        deliver(box);
    else
        b->box[b->n_boxes++] = *box;
}

void box_fetch(Shared to, const TensorMap *map, Shared barrier, int c0, int c1, int c2, int c3)
{
    const Box box = {*map, to, barrier_at(barrier), {c0, c1, c2, c3}};
    if (shared_window(to) % SWIZZLE_BYTES != 0)
        hopper_broken("a box with a swizzle of 128 bytes that does not begin at 1024 bytes");
    begin_box(&box);
}

/* A bulk copy is a box of one row. */
void bulk_fetch(Shared to, const void *from, uint32_t bytes, Shared barrier)
{
    hopper_check_bulk(from, to, bytes);
    const Box box = {
        {.at = from, .dim = {bytes / 2, 1, 1, 1}, .stride = {2}, .box = {bytes / 2, 1, 1, 1}},
        to,
        barrier_at(barrier),
        {0, 0, 0, 0}};
    begin_box(&box);
}

typedef struct Wait {
    Barrier *barrier;
    uint32_t parity;
} Wait;

/* The latest box arrives first, because boxes arrive in no fixed order. */
static bool phase_is_over(void *what)
{
    const Wait *w = what;
    struct Block *b = this_block();
    for (uint32_t i = b->n_boxes; i-- > 0 && w->barrier->parity == w->parity;) {
        if (b->box[i].barrier != w->barrier) continue;
        deliver(&b->box[i]);
        b->box[i] = b->box[--b->n_boxes];
    }
    return w->barrier->parity != w->parity;
}

void barrier_wait(Shared at, uint32_t parity)
{
    Wait w = {barrier_at(at), parity};
    bool by_producer = threadIdx.x == 0;
    if (fault == HOPPER_no_wait_for_boxes && !by_producer) return;
    if (fault == HOPPER_no_wait_for_slots && by_producer) return;
    if (fault == HOPPER_wrong_phase && !by_producer) w.parity ^= 1;
    device_wait_until(phase_is_over, &w);
    watch_waited((uint32_t)(w.barrier - block.barrier), threadIdx.x / 32);
}

typedef struct Round {
    uint32_t number, round;
} Round;

static bool round_is_over(void *what)
{
    const Round *r = what;
    return this_block()->round[r->number] != r->round;
}

void barrier_threads(uint32_t number, uint32_t threads)
{
    struct Block *b = this_block();
    assert(number > 0 && number < NUMBERED && threads % 32 == 0);
    Round mine = {number, b->round[number]};
    b->warps[number] |= 1u << threadIdx.x / 32;
    if (++b->here[number] == threads) {
        watch_warps_barrier(b->warps[number]);
        b->warps[number] = 0;
        b->here[number] = 0;
        b->round[number]++;
    }
    device_wait_until(round_is_over, &mine);
}

/* A turn orders no memory accesses, so watch.c does not learn of it. */
static Round take_turn(uint32_t number, uint32_t threads)
{
    struct Block *b = this_block();
    assert(number > 0 && number < NUMBERED && threads % 32 == 0);
    const Round mine = {number, b->round[number]};
    uint32_t *const last = &b->last_turn[number][threadIdx.x];
    if (*last == mine.round + 1) hopper_broken("two arrivals in one phase of a turn");
    *last = mine.round + 1;
    if (++b->here[number] == threads) {
        b->here[number] = 0;
        b->round[number]++;
    }
    return mine;
}

void turn_wait(uint32_t number, uint32_t threads)
{
    Round mine = take_turn(number, threads);
    device_wait_until(round_is_over, &mine);
}

void turn_pass(uint32_t number, uint32_t threads)
{
    (void)take_turn(number, threads);
    device_stall();
}

/* ---- registers ---- */

static bool pool_has(void *what)
{
    return this_block()->pool >= *(const uint32_t *)what;
}

void device_registers(uint32_t n, bool grow)
{
    struct Block *b = this_block();
    uint32_t *mine = &b->registers[threadIdx.x];
    assert(n % 8 == 0 && n >= 24 && n <= 256 && (grow ? n >= *mine : n <= *mine));
    uint32_t more = grow ? n - *mine : 0;
    device_wait_until(pool_has, &more);
    b->pool += *mine - n; /* unsigned, so a larger n is subtracted */
    *mine = n;
}

/* ---- tensors ---- */

bool tensor_map_make(TensorMap *map, const TensorShape *t, const CudaContext *cuda,
                     CudaError *error)
{
    (void)cuda, (void)error;
    assert(t->dtype == DT_bf16 || t->dtype == DT_f16);
    assert((uintptr_t)t->at % 16 == 0 && t->box[0] * 2 <= 128 && t->box[0] * 2 % 16 == 0);
    *map = (TensorMap){.at = t->at, .swizzled = fault != HOPPER_map_not_swizzled};
    map->stride[0] = 2;
    for (int i = 0; i < TENSOR_DIMS; i++) {
        assert(t->dim[i] > 0 && t->dim[i] <= UINT64_C(1) << 32 && t->box[i] > 0 &&
               t->box[i] <= 256);
        map->dim[i] = t->dim[i];
        map->box[i] = t->box[i];
        if (i == TENSOR_DIMS - 1) continue;
        assert(t->stride[i] % 16 == 0 && t->stride[i] < UINT64_C(1) << 40);
        map->stride[i + 1] = t->stride[i];
    }
    if (fault == HOPPER_no_tail_mask && map->dim[2] == tail_rows) map->dim[2] -= HOPPER_TAIL;
    return true;
}
