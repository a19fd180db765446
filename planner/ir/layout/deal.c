/* Builds deals and answers questions about them: which intervals of a split dimension each part
 * has. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"

static DealId find_deal(const Deals *deals, const Deal *want, const Interval *intervals)
{
    for (DealId i = 1; i < deals->deals.n; i++) {
        const Deal *d = &deals->deals.at[i];
        if (d->kind != want->kind || d->n_parts != want->n_parts || d->size != want->size ||
            d->n != want->n || d->per_part != want->per_part || d->bound != want->bound)
            continue;
        size_t bytes = d->n * sizeof *intervals;
        if (!bytes || memcmp(&deals->intervals.at[d->first], intervals, bytes) == 0) return i;
    }
    return 0;
}

DealId deal_intern(Deals *deals, Arena *arena, Deal deal, const Interval *intervals)
{
    list_reserve_none(arena, &deals->deals);
    DealId found = find_deal(deals, &deal, intervals);
    if (found) return found;
    deal.first = deals->intervals.n;
    for (uint32_t i = 0; i < deal.n; i++) list_push(arena, &deals->intervals, intervals[i]);
    return (DealId)list_push(arena, &deals->deals, deal);
}

DealId deal_ceil(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts)
{
    assert(n_parts > 0);
    assert(size >= 0);
    if (size % n_parts == 0) return 0;
    Deal deal = {.kind = DEAL_ceil, .n_parts = n_parts, .size = size};
    return deal_intern(deals, arena, deal, NULL);
}

DealId deal_padded(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t each)
{
    Deal deal = {.kind = DEAL_ceil, .n_parts = n_parts, .size = size, .per_part = each};
    assert(each > 0 && deal_padding_fits(&deal, INT64_MAX));
    return deal_intern(deals, arena, deal, NULL);
}

bool deal_is_padded(const Deals *deals, DealId id)
{
    if (deal_is_rows(deals, id))
        /* the buffer has room for more rows than there are tokens, so its end is padding */
        return true;
    return id && deals->deals.at[id].kind == DEAL_ceil && deals->deals.at[id].per_part > 0;
}

DealId deal_whole(const Deals *deals, DealId id)
{
    return deal_is_padded(deals, id) && deals->deals.at[id].n_parts == 1 ? id : 0;
}

bool deal_padding_fits(const Deal *d, int64_t most)
{
    if (d->kind == DEAL_rows)
        return d->n_parts == 1 && d->per_part > 0 && d->per_part <= most && d->size > 0 &&
               d->bound >= ROWS_MEAN;
    if (d->bound) return false;
    if (d->kind == DEAL_equal || d->per_part == 0) return d->per_part == 0;
    return d->n_parts > 0 && d->per_part <= most && d->per_part >= (d->size - 1) / d->n_parts + 1;
}

DealId deal_listed(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t per_part,
                   const Interval *intervals)
{
    assert(n_parts > 0);
    assert(per_part > 0 && per_part <= UINT32_MAX / n_parts);
    Deal deal = {.kind = DEAL_listed,
                 .n_parts = n_parts,
                 .size = size,
                 .n = n_parts * per_part,
                 .per_part = per_part};
    return deal_intern(deals, arena, deal, intervals);
}

static Interval chunk(int64_t each, uint32_t i)
{
    return (Interval){i * each, (i + 1) * each};
}

DealId deal_zigzag(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts)
{
    const int64_t each = size / (2 * (int64_t)n_parts);
    Interval *at = arena_array(arena, 2 * (size_t)n_parts, sizeof *at);
    assert(each * 2 * n_parts == size);
    for (uint32_t i = 0; i < n_parts; i++) {
        at[2 * i] = chunk(each, i);
        at[2 * i + 1] = chunk(each, 2 * n_parts - 1 - i);
    }
    return deal_listed(deals, arena, size, n_parts, 2, at);
}

bool deal_is_zigzag(const Deals *deals, DealId id)
{
    const Deal *d = &deals->deals.at[id];
    if (!id || d->kind != DEAL_listed || d->per_part != 2 || d->size % (2 * d->n_parts) != 0)
        return false;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const Interval *own = &deals->intervals.at[d->first + 2 * i];
        const int64_t each = d->size / (2 * (int64_t)d->n_parts);
        const Interval low = chunk(each, i), high = chunk(each, 2 * d->n_parts - 1 - i);
        if (own[0].lo != low.lo || own[0].hi != low.hi || own[1].lo != high.lo ||
            own[1].hi != high.hi)
            return false;
    }
    return true;
}

/* Sets `out` to the intervals of elements [from, to) of a part, counted from the part's first
 * element. `out` has d->per_part entries; unused ones stay as they are. */
static void take(const Deals *deals, const Deal *d, uint32_t part, int64_t from, int64_t to,
                 Interval *out)
{
    for (uint32_t k = 0, n = 0; k < d->per_part; k++) {
        const Interval own = deals->intervals.at[d->first + part * d->per_part + k];
        const int64_t size = own.hi - own.lo;
        const int64_t lo = from > 0 ? from : 0, hi = to < size ? to : size;
        if (lo < hi) out[n++] = (Interval){own.lo + lo, own.lo + hi};
        from -= size, to -= size;
    }
}

DealId deal_cut(Deals *deals, Arena *arena, DealId id, uint32_t k)
{
    const Deal d = deals->deals.at[id];
    const int64_t each = d.size / d.n_parts / k;
    Interval *at = arena_array(arena, (size_t)d.n * k, sizeof *at);
    assert(d.kind == DEAL_listed && each * k * d.n_parts == d.size);
    for (uint32_t part = 0; part < d.n_parts; part++)
        for (uint32_t i = 0; i < k; i++)
            take(deals, &d, part, i * each, (i + 1) * each, &at[(part * k + i) * d.per_part]);
    return deal_listed(deals, arena, d.size, d.n_parts * k, d.per_part, at);
}

DealId deal_segments(Deals *deals, Arena *arena, uint32_t n_parts, uint32_t n_segments,
                     const int64_t *each)
{
    assert(n_parts > 0 && n_segments > 0);
    Deal deal = {
        .kind = DEAL_segments, .n_parts = n_parts, .n = n_segments, .per_part = n_segments};
    Interval *at = arena_array(arena, n_segments, sizeof *at);
    for (uint32_t k = 0; k < n_segments; k++) {
        at[k] = (Interval){deal.size, deal.size + each[k] * n_parts};
        deal.size = at[k].hi;
    }
    return deal_intern(deals, arena, deal, at);
}

uint64_t deal_table(const Deal *d)
{
    if (d->kind == DEAL_listed || d->kind >= DEAL_halo) return (uint64_t)d->n_parts * d->per_part;
    return d->kind == DEAL_segments ? d->per_part : 0;
}

/* Returns the deal if it has a table of intervals; NULL for the kinds equal, ceil and rows. */
static const Deal *listed(const Deals *deals, DealId id)
{
    if (!id) return NULL;
    assert(id < deals->deals.n);
    const Deal *d = &deals->deals.at[id];
    return deal_table(d) ? d : NULL;
}

/* Returns the size of each part's buffer in elements, for a deal without a table of intervals. */
static int64_t each_of(const Deals *deals, DealId id, int64_t size, uint32_t n_parts)
{
    return deal_is_padded(deals, id) && !deal_is_rows(deals, id) ? deals->deals.at[id].per_part
                                                                 : (size + n_parts - 1) / n_parts;
}

static Interval entry(const Deals *deals, const Deal *d, uint32_t part, uint32_t k)
{
    if (d->kind != DEAL_segments) return deals->intervals.at[d->first + part * d->per_part + k];
    Interval all = deals->intervals.at[d->first + k];
    int64_t each = (all.hi - all.lo) / d->n_parts, lo = all.lo + part * each;
    return (Interval){lo, lo + each};
}

bool deal_interval(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   uint32_t k, Interval *out)
{
    const Deal *d = listed(deals, id);
    assert(part < n_parts);
    if (d) {
        assert(d->n_parts == n_parts);
        if (k >= d->per_part) return false;
        *out = entry(deals, d, part, k);
        return out->hi > out->lo;
    }
    if (k > 0) return false;
    int64_t each = each_of(deals, id, size, n_parts);
    int64_t lo = part * each, hi = lo + each;
    *out = (Interval){lo < size ? lo : size, hi < size ? hi : size};
    return out->hi > out->lo;
}

DealId deal_turn(Deals *deals, Arena *arena, DealId id, int64_t size, uint32_t n_parts)
{
    const Deal *d = listed(deals, id);
    const uint32_t per_part = d ? d->per_part : 1;
    Interval *at = arena_array(arena, (size_t)n_parts * per_part, sizeof *at), own;
    bool in_order = per_part == 1;
    for (uint32_t p = 0; p < n_parts; p++)
        for (uint32_t k = 0; k < per_part; k++)
            if (deal_interval(deals, id, size, n_parts, (p + n_parts - 1) % n_parts, k, &own))
                at[p * per_part + k] = own;
    for (uint32_t p = 0; p < n_parts && in_order; p++)
        in_order = at[p].lo == size / n_parts * p && at[p].hi == size / n_parts * (p + 1);
    return in_order ? 0 : deal_listed(deals, arena, size, n_parts, per_part, at);
}

int64_t deal_index(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   int64_t at)
{
    Interval i = {0, 0};
    for (uint32_t k = 0; deal_interval(deals, id, size, n_parts, part, k, &i); k++) {
        if (at < i.hi - i.lo)
            return ((i.lo + at) % size + size) %
                   size; /* a halo may reach beyond the edge of a periodic dimension */
        at -= i.hi - i.lo;
    }
    assert(0 && "an element of the part");
    return 0;
}

int64_t deal_valid(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part)
{
    const Deal *d = listed(deals, id);
    Interval i;
    int64_t n = 0;
    for (uint32_t k = 0; k < (d ? d->per_part : 1); k++)
        if (deal_interval(deals, id, size, n_parts, part, k, &i)) n += i.hi - i.lo;
    return n;
}

int64_t deal_local(const Deals *deals, DealId id, int64_t size, uint32_t n_parts)
{
    assert(n_parts > 0);
    if (!listed(deals, id)) return each_of(deals, id, size, n_parts);
    int64_t most = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        int64_t n = deal_valid(deals, id, size, n_parts, p);
        if (n > most) most = n;
    }
    return most;
}
