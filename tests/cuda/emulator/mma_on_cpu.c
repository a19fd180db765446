/* Matrix products of a warp and late copies, on the CPU: see mma_on_cpu.h. */
#include "tests/cuda/emulator/mma_on_cpu.h"

#include "tests/cuda/emulator/watch.h"

enum { WARPS = 32, MAX_COPIES = 256 };

/* What each lane passes to an instruction of the whole warp, and what it gets. */
typedef struct Lane {
    float a[8], b[4], sum[4]; /* a product */
    const unsigned char *row; /* matrices that are loaded */
    uint32_t loaded[4];
    bool transposed;
} Lane;
static Lane lanes[WARPS][32];

static Lane *mine(void)
{
    return &lanes[threadIdx.x / 32][threadIdx.x % 32];
}

/* Runs an instruction for all lanes of the warp, once all have arrived. */
static void all_lanes(WarpWork *work)
{
    assert(blockDim.x % 32 == 0);
    device_warp_works(0xffffffffu, work);
}

static void unpack(DType t, const uint32_t *word, uint32_t n, float *number)
{
    uint16_t half[8];
    for (uint32_t i = 0; i < n; i++) {
        half[2 * i] = (uint16_t)(word[i] & 0xffff);
        half[2 * i + 1] = (uint16_t)(word[i] >> 16);
    }
    number_widen(t, half, number, 2 * n);
}

/* Each returns two numbers with neighbouring k: read_a of row `row` of A, read_b of column `column`
 * of B. */
static const float *read_a(const Lane *warp, uint32_t row, uint32_t k)
{
    return &warp[row % 8 * 4 + k % 8 / 2].a[(row / 8 + k / 8 * 2) * 2];
}

static const float *read_b(const Lane *warp, uint32_t k, uint32_t column)
{
    return &warp[column * 4 + k % 8 / 2].b[k / 8 * 2];
}

static void multiply(uint32_t first, uint32_t mask)
{
    Lane *warp = lanes[first / 32];
    (void)mask;
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = 0;
            for (uint32_t k = 0; k < 16; k += 2) {
                const float *x = read_a(warp, row, k), *y = read_b(warp, k, column);
                sum += x[0] * y[0] + x[1] * y[1];
            }
            warp[lane].sum[i] = sum;
        }
}

void device_mma(DType t, float c[4], const uint32_t a[4], const uint32_t b[2])
{
    unpack(t, a, 4, mine()->a);
    unpack(t, b, 2, mine()->b);
    all_lanes(multiply);
    for (uint32_t i = 0; i < 4; i++) c[i] += mine()->sum[i];
}

static void load(uint32_t first, uint32_t mask)
{
    Lane *warp = lanes[first / 32];
    (void)mask;
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 4; i++) {
            uint16_t half[2];
            for (uint32_t j = 0; j < 2; j++) {
                bool transposed = warp[lane].transposed;
                uint32_t major = transposed ? lane % 4 * 2 + j : lane / 4;
                uint32_t minor = transposed ? lane / 4 : lane % 4 * 2 + j;
                memcpy(&half[j], warp[i * 8 + major].row + minor * sizeof half[j], sizeof half[j]);
            }
            warp[lane].loaded[i] = (uint32_t)half[0] | (uint32_t)half[1] << 16;
        }
}

void device_load_matrices(uint32_t r[4], Shared row, bool transposed)
{
    assert((uintptr_t)row % 16 == 0);
    watch_read(row, 16);
    mine()->row = row;
    mine()->transposed = transposed;
    all_lanes(load);
    memcpy(r, mine()->loaded, sizeof mine()->loaded);
}

/* ---- copies ---- */

typedef struct Copy {
    void *to;
    const void *from;
    bool whole;
    uint32_t group;
} Copy;
static struct Copies {
    Copy copy[MAX_COPIES];
    uint32_t n, group; /* group: the one to which copies are now added */
} copies[WARPS * 32];

static bool is_early;

void device_copies_arrive_early(bool early)
{
    is_early = early;
}

static void arrive(const Copy *c)
{
    static const unsigned char zero[16];
    watch_arrival(c->to, 16);
    memcpy(c->to, c->whole ? c->from : zero, 16);
}

void copy_start(Shared to, const void *from, bool whole)
{
    struct Copies *mine = &copies[threadIdx.x];
    assert((uintptr_t)to % 16 == 0 && (uintptr_t)from % 16 == 0);
    assert(mine->n < MAX_COPIES);
    if (whole) watch_read(from, 16);
    watch_write(to, 16);
    mine->copy[mine->n++] = (Copy){to, from, whole, mine->group};
    if (is_early) arrive(&mine->copy[mine->n - 1]);
}

void copies_commit(void)
{
    copies[threadIdx.x].group++;
}

/* With 0 groups left, the thread starts from an empty list. No copy may be running at the end of a
 * kernel. */
void copies_wait(uint32_t groups)
{
    struct Copies *mine = &copies[threadIdx.x];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mine->n; i++) {
        Copy *c = &mine->copy[i];
        if (c->group + groups >= mine->group)
            mine->copy[kept++] = *c;
        else if (!is_early)
            arrive(c);
    }
    mine->n = kept;
    if (kept == 0) mine->group = 0;
}

uint32_t device_copies_under_way(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < WARPS * 32; i++) n += copies[i].n;
    return n;
}
