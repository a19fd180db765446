/* Halos of a split dimension: the rows of neighbours that a rank also needs. Kernels copy the rows
 * that neighbours need (or contributions to the neighbours' sums) into strips, and copy received
 * strips back. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/number.h"

/* Rows from row `from` on of a buffer [outer, rows, inner] that begins at `at`. */
typedef struct HaloRows {
    char *at;
    int64_t rows, from;
} HaloRows;

static HaloRows strip_rows(const KernelArgs *a, void *strips, int which, int64_t from)
{
    const size_t bytes = (size_t)(a->outer * a->halo.strip * a->inner) * dtype_bytes(a->dtype[0]);
    return (HaloRows){(char *)strips + (size_t)which * bytes, a->halo.strip, from};
}

static void zero(const KernelArgs *a, uint32_t arg)
{
    memset(a->ptr[arg], 0, (size_t)a->elements[arg] * dtype_bytes(a->dtype[arg]));
}

static void copy_rows(const KernelArgs *a, HaloRows from, HaloRows to, int64_t n)
{
    const size_t step = (size_t)a->inner * dtype_bytes(a->dtype[0]);
    for (int64_t o = 0; n > 0 && o < a->outer; o++)
        memcpy(to.at + (size_t)(o * to.rows + to.from) * step,
               from.at + (size_t)(o * from.rows + from.from) * step, (size_t)n * step);
}

/* Adds n rows of `from` to `to`, element by element, in the dtype of the buffers. */
static void add_rows(const KernelArgs *a, HaloRows from, HaloRows to, int64_t n)
{
    const DType t = a->dtype[0];
    for (int64_t o = 0; n > 0 && o < a->outer; o++) {
        const int64_t x = (o * from.rows + from.from) * a->inner;
        const int64_t y = (o * to.rows + to.from) * a->inner;
        for (int64_t i = 0; i < n * a->inner; i++)
            number_write(t, to.at, (uint64_t)(y + i),
                         number_read(t, to.at, (uint64_t)(y + i)) +
                             number_read(t, from.at, (uint64_t)(x + i)));
    }
}

static int64_t length(Interval at)
{
    return at.hi - at.lo;
}

/* Returns the rows that a rank both owns and holds. */
static Interval common(const Halo *h)
{
    Interval at = {h->own.lo > h->held.lo ? h->own.lo : h->held.lo,
                   h->own.hi < h->held.hi ? h->own.hi : h->held.hi};
    if (at.hi < at.lo) at.hi = at.lo;
    return at;
}

void cpu_halo_pack(const KernelArgs *a)
{
    const Halo *h = &a->halo;
    char *own = a->ptr[0];
    zero(a, 1);
    copy_rows(a, (HaloRows){own, a->middle, length(h->own) - h->to_next},
              strip_rows(a, a->ptr[1], 0, 0), h->to_next);
    copy_rows(a, (HaloRows){own, a->middle, 0}, strip_rows(a, a->ptr[1], 1, 0), h->to_previous);
}

/* Puts the rank's own rows and the received strips together. A rank may need fewer rows than it has
 * received, because a window with a stride skips some rows. */
void cpu_halo_join(const KernelArgs *a)
{
    const Halo *h = &a->halo;
    const Interval both = common(h);
    char *held = a->ptr[2];
    zero(a, 2);
    copy_rows(a, (HaloRows){a->ptr[0], a->middle, both.lo - h->own.lo},
              (HaloRows){held, a->part_size, both.lo - h->held.lo}, length(both));
    const int64_t before = h->before < length(h->held) ? h->before : length(h->held);
    const int64_t after = h->after < length(h->held) ? h->after : length(h->held);
    copy_rows(a, strip_rows(a, a->ptr[1], 0, 0), (HaloRows){held, a->part_size, 0}, before);
    copy_rows(a, strip_rows(a, a->ptr[1], 1, h->after - after),
              (HaloRows){held, a->part_size, length(h->held) - after}, after);
}

void cpu_halo_cut(const KernelArgs *a)
{
    const Halo *h = &a->halo;
    char *held = a->ptr[0];
    const int64_t before = h->before < length(h->held) ? h->before : length(h->held);
    const int64_t after = h->after < length(h->held) ? h->after : length(h->held);
    zero(a, 1);
    copy_rows(a, (HaloRows){held, a->part_size, length(h->held) - after},
              strip_rows(a, a->ptr[1], 0, h->after - after), after);
    copy_rows(a, (HaloRows){held, a->part_size, 0}, strip_rows(a, a->ptr[1], 1, 0), before);
}

void cpu_halo_fold(const KernelArgs *a)
{
    const Halo *h = &a->halo;
    const Interval both = common(h);
    char *own = a->ptr[2];
    assert(number_is_real(a->dtype[0]));
    zero(a, 2);
    copy_rows(a, (HaloRows){a->ptr[0], a->part_size, both.lo - h->held.lo},
              (HaloRows){own, a->middle, both.lo - h->own.lo}, length(both));
    add_rows(a, strip_rows(a, a->ptr[1], 0, 0), (HaloRows){own, a->middle, 0}, h->to_previous);
    add_rows(a, strip_rows(a, a->ptr[1], 1, 0),
             (HaloRows){own, a->middle, length(h->own) - h->to_next}, h->to_next);
}
