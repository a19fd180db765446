/* Bulk copies to global memory, and the counters that order the blocks of a launch, on the CPU: see
 * hopper_on_cpu.h. Blocks run one after the other. So a block that waits for the counter of an
 * earlier ticket finds it set already. If it never gets that value, the test ends. */
#include <stdlib.h>

#include "tests/cuda/emulator/hopper_private.h"
#include "tests/cuda/emulator/watch.h"

enum { MAX_THREADS = 1024, MAX_BULKS = 4 };

typedef struct Bulk {
    float *to, *value; /* value: the number that was read; NULL: not read yet */
    const unsigned char *from;
    uint32_t bytes;
    bool add, arrived;
} Bulk;

static struct Turn {
    Bulk bulk[MAX_BULKS];
    uint32_t n;
    uint64_t block; /* number of the block that has waited for its turn */
} turns[MAX_THREADS];

static bool is_early;

void hopper_bulks_arrive_early(bool early)
{
    is_early = early;
}

uint32_t hopper_bulks_under_way(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_THREADS; i++) n += turns[i].n;
    memset(turns, 0, sizeof turns);
    return n;
}

void hopper_check_bulk(const void *global, const unsigned char *shared, uint32_t bytes)
{
    if ((uintptr_t)global % 16 != 0 || (uintptr_t)shared % 16 != 0 || bytes % 16 != 0)
        hopper_broken("a bulk copy that is not aligned to 16 bytes");
}

static void read_bulk(Bulk *b)
{
    if (b->value != NULL) return;
    b->value = malloc(b->bytes);
    assert(b->value != NULL);
    memcpy(b->value, b->from, b->bytes);
    watch_late_read(b->from, b->bytes);
}

static void deliver(Bulk *b)
{
    if (b->arrived) return;
    read_bulk(b);
    watch_atomic(b->to, b->bytes);
    for (uint32_t i = 0; i < b->bytes / sizeof(float); i++)
        b->to[i] = b->add ? b->to[i] + b->value[i] : b->value[i];
    b->arrived = true;
}

static void begin_bulk(float *to, unsigned char *from, uint32_t bytes, bool add)
{
    struct Turn *t = &turns[threadIdx.x];
    hopper_check_bulk(to, from, bytes);
    if (t->block != device_block_serial()) hopper_broken("a sum out of turn");
    assert(t->n < MAX_BULKS);
    watch_async(from, bytes, false);
    t->bulk[t->n] = (Bulk){.to = to, .from = from, .bytes = bytes, .add = add};
    if (is_early) deliver(&t->bulk[t->n]);
    t->n++;
}

void bulk_put(float *to, unsigned char *from, uint32_t bytes)
{
    begin_bulk(to, from, bytes, false);
}

void bulk_add(float *to, unsigned char *from, uint32_t bytes)
{
    begin_bulk(to, from, bytes, true);
}

/* For watch.c, an arrival covers the accesses before the warp's last barrier. The thread works
 * alone in its warp and meets no barrier of lanes, so one is reported here. */
void bulks_read(void)
{
    struct Turn *t = &turns[threadIdx.x];
    for (uint32_t i = 0; i < t->n; i++) read_bulk(&t->bulk[i]);
    watch_warp_barrier(threadIdx.x / 32, 1);
}

void bulks_wait(void)
{
    struct Turn *t = &turns[threadIdx.x];
    if (hopper_fault() == HOPPER_no_bulks_wait) return;
    for (uint32_t i = 0; i < t->n; i++) {
        deliver(&t->bulk[i]);
        free(t->bulk[i].value);
    }
    t->n = 0;
}

typedef struct Count {
    const uint32_t *counter;
    uint32_t value;
} Count;

static bool has_value(void *what)
{
    const Count *c = what;
    return *c->counter == c->value;
}

void counter_wait(uint32_t *counter, uint32_t value)
{
    Count c = {counter, value};
    if (hopper_fault() == HOPPER_no_turn) return;
    watch_atomic(counter, sizeof *counter);
    device_wait_until(has_value, &c);
    turns[threadIdx.x].block = device_block_serial();
}

void counter_set(uint32_t *counter, uint32_t value)
{
    struct Turn *t = &turns[threadIdx.x];
    if (t->n > 0) hopper_broken("a turn passed on before its sums have arrived");
    t->block = 0;
    watch_atomic(counter, sizeof *counter);
    *counter = value;
}
