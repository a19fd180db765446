/* Products of a warpgroup on the CPU: see hopper_on_cpu.h. Each warp computes its 16 rows, from
 * shared memory as the descriptors say, and from the registers of its lanes. Each lane gets the
 * elements that the PTX manual assigns to it. */
#include <stdlib.h>

#include "tests/cuda/emulator/hopper_private.h"
#include "tests/cuda/emulator/watch.h"

enum {
    MAX_THREADS = 1024,
    MAX_PRODUCTS = 32,
    MAX_HELD = 4,
    MAX_RESULTS = 64,
    DEPTH = 16,
    ROWS = 16,
    MAX_COLUMNS = 128
};
/* What the registers of A and D contain until the product is awaited: a NaN in fp32; in bf16, one
 * of the two numbers is a NaN. So a kernel that reads them too early computes wrong numbers. */
static const uint32_t under_way = 0x7fc0dead;

typedef struct Issued {
    DeviceProduct p;
    uint32_t a[4]; /* contents of A's registers at issue */
    uint32_t group;
    bool computed;
} Issued;

/* The registers of D while a product runs, and its result. */
typedef struct Held {
    float *d;
    uint32_t n, products;
    float value[MAX_RESULTS];
} Held;

static struct Thread {
    Issued issued[MAX_PRODUCTS];
    Held held[MAX_HELD];
    uint32_t n_issued, n_held, group; /* group: the one to which products are now added */
    uint32_t running;                 /* the wait leaves this many groups running */
    bool fenced;
} threads[MAX_THREADS];

static bool is_early;

void device_products_read_early(bool early)
{
    is_early = early;
}

uint32_t hopper_products_under_way(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_THREADS; i++) n += threads[i].n_issued;
    memset(threads, 0, sizeof threads);
    return n;
}

/* ---- operands ---- */

/* Most of the tests' time is spent here, so the sanitizers are off. hopper_memory() checks that
 * memory belongs to the block. */
#define INNER_LOOP __attribute__((no_sanitize("address", "undefined")))

INNER_LOOP static float widen(DType t, uint16_t bits)
{
    static float half[1 << 16];
    static bool filled;
    if (t == DT_bf16) {
        const uint32_t word = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &word, sizeof x);
        return x;
    }
    for (uint32_t i = 0; !filled && i < 1 << 16; i++) {
        uint16_t x = (uint16_t)i;
        number_widen(DT_f16, &x, &half[i], 1);
    }
    filled = true;
    return half[bits];
}

/* Returns the offset of number k of row mn, in bytes, by the PTX manual's layouts: without, or with
 * the swizzle of 128 bytes. */
INNER_LOOP static uint32_t offset_of(bool swizzled, bool columns, uint32_t leading, uint32_t stride,
                                     uint32_t mn, uint32_t k)
{
    if (swizzled && columns) return mn / 64 * leading + mn % 64 * 2 + k / 8 * stride + k % 8 * 128;
    if (swizzled) return mn / 8 * stride + mn % 8 * 128 + k * 2;
    if (columns) return mn / 8 * stride + mn % 8 * 2 + k / 8 * leading + k % 8 * 16;
    return mn / 8 * stride + mn % 8 * 16 + k / 8 * leading + k % 8 * 2;
}

/* Reads row mn of a matrix in shared memory. Along k, runs of 16 bytes are contiguous, unless the
 * matrix is stored by columns. */
INNER_LOOP static void shared_row(DType t, uint64_t matrix, bool columns, uint32_t mn,
                                  float number[DEPTH])
{
    const uint32_t base = (uint32_t)(matrix & 0x3fff) << 4;
    const uint32_t leading = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(matrix >> 32 & 0x3fff) << 4;
    const bool swizzled = matrix >> 62 == 1;
    const uint32_t together = columns ? 1 : 8;
    uint16_t bits[8];
    for (uint32_t k = 0; k < DEPTH; k += together) {
        uint32_t address = base + offset_of(swizzled, columns, leading, stride, mn, k);
        if (swizzled) address = hopper_swizzle(address);
        if (columns)
            memcpy(bits, hopper_memory(address, 2), 2);
        else
            memcpy(bits, hopper_memory(address, 16), 16);
        for (uint32_t i = 0; i < together; i++) number[k + i] = widen(t, bits[i]);
    }
}

static void check_matrix(uint64_t matrix, bool columns)
{
    const uint64_t unused = UINT64_C(3) << 14 | UINT64_C(3) << 30 | UINT64_C(7) << 46 |
                            UINT64_C(0x3ff) << 52 | UINT64_C(7) << 49;
    if (matrix & unused) hopper_broken("a descriptor with bits that are none, or a base offset");
    if (matrix >> 62 > 1) hopper_broken("a swizzle that is not 128 bytes");
    /* The base offset is 0, so a swizzle pattern begins at a multiple of 1024 bytes, and the matrix
     * begins in the pattern's first row. */
    if (matrix >> 62 == 1 && (matrix & 0x3fff) << 4 >> 7 & 7)
        hopper_broken("a matrix with a swizzle of 128 bytes that does not begin at 1024 bytes");
    if (matrix >> 62 == 1 && !columns && (matrix << 4) % 128 > 96)
        hopper_broken("16 numbers that go over the end of a row");
}

/* ---- computing ---- */

static Held *held_of(struct Thread *t, const float *d)
{
    for (uint32_t i = 0; i < t->n_held; i++)
        if (t->held[i].d == d) return &t->held[i];
    return NULL;
}

/* Reads the rows of A that the warp multiplies. Row r of the warp is in the registers of the four
 * lanes from 4 (r % 8) on, or in shared memory. */
INNER_LOOP static void read_rows(const struct Thread *warp, uint32_t first, uint32_t index,
                                 float a[ROWS][DEPTH])
{
    const DeviceProduct *p = &warp[0].issued[index].p;
    for (uint32_t r = 0; r < ROWS; r++) {
        if (!p->registers) {
            shared_row(p->dtype, p->a, p->turned, first / 32 % 4 * ROWS + r, a[r]);
            continue;
        }
        for (uint32_t k = 0; k < DEPTH; k++) {
            const uint32_t word = warp[r % 8 * 4 + k % 8 / 2].issued[index].a[r / 8 + k / 8 * 2];
            a[r][k] = widen(p->dtype, (uint16_t)(word >> k % 2 * 16));
        }
    }
}

typedef float Four __attribute__((vector_size(16)));

/* Adds to sum[column] along k in ascending order. */
INNER_LOOP static void multiply_row(const float a[DEPTH], Four b[DEPTH][MAX_COLUMNS / 4],
                                    uint32_t n, Four sum[MAX_COLUMNS / 4])
{
    for (uint32_t c = 0; c < n / 4; c += 2) {
        Four even = {0}, odd = {0};
        for (uint32_t k = 0; k < DEPTH; k++) {
            const Four x = {a[k], a[k], a[k], a[k]};
            even += x * b[k][c];
            odd += x * b[k][c + 1];
        }
        sum[c] = even, sum[c + 1] = odd;
    }
}

/* Computes product `index` of a warp. */
INNER_LOOP static void compute(struct Thread *warp, uint32_t first, uint32_t index)
{
    static float a[ROWS][DEPTH];
    static Four b[DEPTH][MAX_COLUMNS / 4], sum[ROWS][MAX_COLUMNS / 4];
    const DeviceProduct *p = &warp[0].issued[index].p;
    read_rows(warp, first, index, a);
    for (uint32_t n = 0; n < p->n; n++) {
        float column[DEPTH];
        shared_row(p->dtype, p->b, p->columns, n, column);
        for (uint32_t k = 0; k < DEPTH; k++) b[k][n / 4][n % 4] = column[k];
    }
    for (uint32_t r = 0; r < ROWS; r++) multiply_row(a[r], b, p->n, sum[r]);
    for (uint32_t lane = 0; lane < 32; lane++) {
        float *const value = held_of(&warp[lane], warp[lane].issued[index].p.d)->value;
        for (uint32_t i = 0; i < p->n / 2; i++) {
            const uint32_t row = lane / 4 + i / 2 % 2 * 8,
                           column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            const float x = sum[row][column / 4][column % 4];
            value[i] = p->add ? value[i] + x : x;
        }
        warp[lane].issued[index].computed = true;
    }
}

/* Checks that all lanes have issued the same product, and computes it if products read early. */
static void begin_product(uint32_t first, uint32_t mask)
{
    struct Thread *const warp = &threads[first];
    const uint32_t index = warp->n_issued - 1;
    (void)mask;
    for (uint32_t i = 0; i < 32; i++) {
        const DeviceProduct *x = &warp[i].issued[index].p, *y = &warp[0].issued[index].p;
        if (warp[i].n_issued != warp->n_issued || x->a != y->a || x->b != y->b || x->n != y->n ||
            x->add != y->add || x->dtype != y->dtype || x->columns != y->columns ||
            x->turned != y->turned || (x->registers == NULL) != (y->registers == NULL) ||
            warp[i].issued[index].group != warp[0].issued[index].group)
            hopper_broken("lanes of a warp issue different products");
    }
    if (is_early) compute(warp, first, index);
}

static void compute_awaited(uint32_t first, uint32_t mask)
{
    struct Thread *const warp = &threads[first];
    (void)mask;
    for (uint32_t i = 0; i < warp->n_issued; i++)
        if (warp->issued[i].group + warp->running < warp->group && !warp->issued[i].computed)
            compute(warp, first, i);
}

/* ---- issuing and waiting ---- */

static void hold(struct Thread *t, const DeviceProduct *p)
{
    Held *h = held_of(t, p->d);
    if ((h == NULL || p->registers) && !t->fenced)
        hopper_broken("a product whose registers no products_fence has ordered");
    if (h != NULL && h->n != p->n) hopper_broken("another shape on the same registers");
    if (h == NULL) {
        assert(t->n_held < MAX_HELD && p->n / 2 <= MAX_RESULTS && p->n <= MAX_COLUMNS &&
               p->n % 8 == 0);
        h = &t->held[t->n_held++];
        h->d = p->d;
        h->n = p->n;
        h->products = 0;
        memcpy(h->value, p->d, p->n / 2 * sizeof(float));
        for (uint32_t k = 0; k < p->n / 2; k++) memcpy(&p->d[k], &under_way, sizeof under_way);
    }
    h->products++;
}

/* Takes over the contents of A's registers. No running product may use them already. */
static void hold_a(struct Thread *t, uint32_t index)
{
    uint32_t *const at = t->issued[index].p.registers;
    for (uint32_t i = 0; i < index; i++)
        if (t->issued[i].p.registers == at)
            hopper_broken("registers that are A of two running products");
    memcpy(t->issued[index].a, at, sizeof t->issued[index].a);
    for (int k = 0; k < 4; k++) at[k] = under_way;
}

/* Gives back the registers of A after the product, and checks that nothing has written them in the
 * meantime. */
static void give_back_a(const Issued *i)
{
    for (int k = 0; k < 4; k++)
        if (i->p.registers[k] != under_way)
            hopper_broken("registers of A were written before the product was waited for");
    memcpy(i->p.registers, i->a, sizeof i->a);
}

/* Reports accesses to `rows` of 16 numbers each to watch.c, 16 bytes at a time. */
static void watch_matrix(uint64_t matrix, bool columns, uint32_t rows)
{
    const uint32_t leading = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(matrix >> 32 & 0x3fff) << 4;
    for (uint32_t mn = 0; mn < rows; mn += columns ? 8 : 1)
        for (uint32_t k = 0; k < DEPTH; k += columns ? 1 : 8) {
            const uint32_t at = ((uint32_t)(matrix & 0x3fff) << 4) +
                                offset_of(true, columns, leading, stride, mn, k);
            watch_async(hopper_memory(hopper_swizzle(at), 16), 16, false);
        }
}

void device_product(const DeviceProduct *given)
{
    struct Thread *t = &threads[threadIdx.x];
    DeviceProduct p = *given;
    uint32_t index = t->n_issued++;
    assert(index < MAX_PRODUCTS && blockDim.x % 128 == 0);
    if (hopper_fault() == HOPPER_matrix_not_swizzled) p.b &= ~(UINT64_C(3) << 62);
    if (hopper_fault() == HOPPER_wrong_stride)
        p.b = (p.b & ~(UINT64_C(0x3fff) << 32)) | UINT64_C(32) << 32;
    if (!p.registers) check_matrix(p.a, p.turned);
    check_matrix(p.b, p.columns);
    if (watch_is_on() && threadIdx.x % 32 == 0 && p.b >> 62 == 1) {
        if (!p.registers) watch_matrix(p.a, p.turned, 64);
        watch_matrix(p.b, p.columns, p.n);
    }
    hold(t, &p);
    t->issued[index] = (Issued){.p = p, .group = t->group};
    if (p.registers) hold_a(t, index);
    device_warp_works(0xffffffffu, begin_product);
}

void products_fence(void)
{
    if (hopper_fault() != HOPPER_no_products_fence) threads[threadIdx.x].fenced = true;
}

void products_commit(void)
{
    threads[threadIdx.x].group++;
}

/* The rows of A belong to the whole warpgroup until each of its warps has waited. They count as
 * read at that moment. */
static void note_rows_of_a(const DeviceProduct *p)
{
    uint32_t stride = (uint32_t)(p->a >> 32 & 0x3fff) << 4;
    for (uint32_t mn = 0; mn < 64 && threadIdx.x % 32 == 0; mn += p->turned ? 8 : 1)
        for (uint32_t k = 0; k < DEPTH; k += p->turned ? 1 : 8) {
            uint32_t at =
                ((uint32_t)(p->a & 0x3fff) << 4) + offset_of(true, p->turned, 0, stride, mn, k);
            watch_late_read(hopper_memory(hopper_swizzle(at), 16), 16);
        }
}

static void finish(struct Thread *t, const Issued *i)
{
    if (watch_is_on() && !i->p.registers) note_rows_of_a(&i->p);
    Held *h = held_of(t, i->p.d);
    if (i->p.registers) give_back_a(i);
    if (--h->products > 0) return;
    for (uint32_t k = 0; k < h->n / 2; k++)
        if (memcmp(&h->d[k], &under_way, sizeof under_way) != 0)
            hopper_broken("registers of D were written before the product was waited for");
    memcpy(h->d, h->value, h->n / 2 * sizeof(float));
    *h = t->held[--t->n_held];
}

/* All lanes compute before any of them continues and writes its registers. */
void products_wait(uint32_t groups)
{
    struct Thread *t = &threads[threadIdx.x];
    uint32_t kept = 0, n = t->n_issued;
    if (hopper_fault() == HOPPER_no_wait_for_products && n < MAX_PRODUCTS / 2) return;
    if (hopper_fault() == HOPPER_one_group_too_many) groups++;
    t->running = groups;
    device_warp_works(0xffffffffu, compute_awaited);
    for (uint32_t i = 0; i < n; i++) {
        if (t->issued[i].group + groups < t->group)
            finish(t, &t->issued[i]);
        else
            t->issued[kept++] = t->issued[i];
    }
    t->n_issued = kept;
    t->fenced = false;
    device_warp_meets(0xffffffffu);
}

/* The address must be in the block's memory, although nothing is stored there. */
void products_wait_behind(float x, Shared spare)
{
    (void)hopper_memory(shared_window(spare), sizeof x);
    if (x < 0) hopper_broken("a number below zero in front of a wait");
}
