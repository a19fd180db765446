/* Computes the halo of a part: the rows of neighbouring parts that it reads, too (halo.h). */
#include "planner/ir/layout/halo.h"

#include <assert.h>

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

DealId deal_around(Deals *deals, Arena *arena, DealKind kind, int64_t size, uint32_t n_parts,
                   const Interval *held)
{
    assert(kind == DEAL_halo || kind == DEAL_overlap);
    Deal deal = {.kind = kind, .n_parts = n_parts, .size = size, .n = n_parts, .per_part = 1};
    return deal_intern(deals, arena, deal, held);
}

/* Returns the rows that a part owns. If there are fewer rows than parts, the last parts are
 * empty. */
static Interval own_rows(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part)
{
    Interval at;
    return deal_interval(deals, 0, size, n_parts, part, 0, &at) ? at : (Interval){size, size};
}

static Interval held_rows(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part,
                          DealId around, Interval own)
{
    Interval at;
    return deal_interval(deals, around, size, n_parts, part, 0, &at) ? at
                                                                     : (Interval){own.lo, own.lo};
}

/* Sets rows[0] and rows[1] to the count of halo rows in front of a part and behind it. */
static void sides(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
                  int64_t rows[2])
{
    const Interval mine = own_rows(deals, size, n_parts, part);
    const Interval held = held_rows(deals, size, n_parts, part, around, mine);
    const bool none = held.lo >= held.hi;
    rows[0] = none ? 0 : most(mine.lo - held.lo, 0);
    rows[1] = none ? 0 : most(held.hi - mine.hi, 0);
}

static int64_t length(Interval at)
{
    return at.hi - at.lo;
}

bool halo_find(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
               Halo *h)
{
    assert(n_parts > 1 && part < n_parts);
    const uint32_t previous = (part + n_parts - 1) % n_parts, next = (part + 1) % n_parts;
    int64_t rows[2];
    *h = (Halo){.own = own_rows(deals, size, n_parts, part)};
    h->held = held_rows(deals, size, n_parts, part, around, h->own);
    for (uint32_t p = 0; p < n_parts; p++) {
        sides(deals, size, n_parts, p, around, rows);
        const bool first = p == 0 && rows[0] > 0, last = p + 1 == n_parts && rows[1] > 0;
        h->wraps = h->wraps || first || last;
        h->strip = most(h->strip, most(rows[0], rows[1]));
        const uint32_t before = (p + n_parts - 1) % n_parts, after = (p + 1) % n_parts;
        if (rows[0] > length(own_rows(deals, size, n_parts, before)) ||
            rows[1] > length(own_rows(deals, size, n_parts, after)))
            return false;
        if (p == part) h->before = rows[0], h->after = rows[1];
        if (p == next) h->to_next = rows[0];
        if (p == previous) h->to_previous = rows[1];
    }
    return true;
}

int halo_dim(const Shape *s, const Deals *deals, AxisSet axes)
{
    for (int d = 0; d < s->n_dims; d++)
        if (deal_is_around(deals, s->deal[d]) && layout_axes_split(&s->layout, d) == axes) return d;
    return -1;
}
