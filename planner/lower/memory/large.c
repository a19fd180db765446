/* Chooses offsets for large buffers first. Small buffers then fill the holes between them. Each
 * large buffer gets the lowest offset at which no larger buffer is in use at the same time. */
#include "planner/lower/memory/large.h"

#include <string.h>

/* The largest number of large buffers. It is limited because every pair of them is compared. If
 * micro-batches run one after the other, only buffers of the first few count: the others get the
 * offsets of their counterparts. */
enum { MOST_LARGE = 2048 };

_Static_assert(MOST_LARGE <= 64 * 64, "a word has a bit for each word of a set");

/* The large buffers of one size. */
typedef struct SizeClass {
    uint64_t size;
    uint32_t n, next; /* next: where the next one of them is listed */
} SizeClass;

/* Returns the class of `size` among the first *n ones, which are sorted from the largest size to
 * the smallest. Adds the class if it is missing. */
static SizeClass *class_of(SizeClass *classes, uint32_t *n, uint64_t size)
{
    uint32_t lo = 0, hi = *n;
    while (lo < hi) {
        const uint32_t i = lo + (hi - lo) / 2;
        if (classes[i].size <= size)
            hi = i;
        else
            lo = i + 1;
    }
    if (lo < *n && classes[lo].size == size) return &classes[lo];
    memmove(&classes[lo + 1], &classes[lo], ((*n)++ - lo) * sizeof *classes);
    classes[lo] = (SizeClass){size, 0, 0};
    return &classes[lo];
}

/* Returns the indices of all large buffers, the largest first. Buffers of one size stay in the
 * order of the list. They have few sizes, so counting is faster than comparing. */
static uint32_t *order_by_size(const LargeBuffers *r)
{
    const uint32_t n = r->list.n;
    SizeClass *classes = arena_array(r->l->scratch, n, sizeof *classes);
    uint32_t *order = arena_array(r->l->scratch, n, sizeof *order), n_classes = 0, next = 0;
    for (uint32_t i = 0; i < n; i++) class_of(classes, &n_classes, r->list.at[i].size)->n++;
    for (uint32_t k = 0; k < n_classes; next += classes[k++].n) classes[k].next = next;
    for (uint32_t i = 0; i < n; i++)
        order[class_of(classes, &n_classes, r->list.at[i].size)->next++] = i;
    return order;
}

/* A large buffer that already has an offset. */
typedef struct Placed {
    uint64_t lo, hi;
    uint32_t index;
} Placed;

/* True if one of the two buffers ends before the other begins. */
static bool never_together(const LargeBuffer *a, const LargeBuffer *b)
{
    return a->begins < b->begins ? knows_passed(&b->knows, &a->end)
                                 : knows_passed(&a->knows, &b->end);
}

/* Returns the lowest offset at which `large` overlaps no placed buffer that is in use at the same
 * time. `placed` lists those buffers by offset. */
static uint64_t place_large(const LargeBuffers *r, const Placed *placed, uint32_t n,
                            const LargeBuffer *large, uint64_t bottom)
{
    uint64_t start = bottom;
    for (uint32_t k = 0; k < n && placed[k].lo < start + large->size; k++)
        if (placed[k].hi > start && !never_together(&r->list.at[placed[k].index], large))
            start = placed[k].hi;
    return start;
}

/* Returns the number of placed buffers whose offsets are at most `offset`. */
static uint32_t place_after(const Placed *placed, uint32_t n, uint64_t offset)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        const uint32_t i = lo + (hi - lo) / 2;
        if (placed[i].lo > offset)
            hi = i;
        else
            lo = i + 1;
    }
    return lo;
}

static void place_all_large(LargeBuffers *r, uint64_t bottom)
{
    Arena *scratch = r->l->scratch;
    const uint32_t n = r->list.n;
    const uint32_t *order = order_by_size(r);
    Placed *placed = arena_array(scratch, n, sizeof *placed);
    for (uint32_t i = 0; i < n; i++) {
        LargeBuffer *large = &r->list.at[i];
        large->end = r->l->end[large->last];
    }
    for (uint32_t i = 0; i < n; i++) {
        LargeBuffer *large = &r->list.at[order[i]];
        large->offset = place_large(r, placed, i, large, bottom);
        const uint32_t k = place_after(placed, i, large->offset);
        memmove(&placed[k + 1], &placed[k], (i - k) * sizeof *placed);
        placed[k] = (Placed){large->offset, large->offset + large->size, order[i]};
    }
    r->set = arena_array(scratch, MOST_LARGE / 64, sizeof *r->set);
    r->order = arena_array(scratch, n, sizeof *r->order);
    r->sorted = arena_array(scratch, n, sizeof *r->sorted);
    for (uint32_t i = 0; i < n; i++) {
        r->order[placed[i].index] = i;
        r->sorted[i] = (Extent){placed[i].lo, placed[i].hi};
    }
}

/* True if the buffer, or a buffer that takes over its memory, is in use while memory is nearly
 * full. */
static bool is_tight(const Lives *l, const uint32_t *tight, BufferId b, Pc first)
{
    const Pc end = l->p->code.n - 1, last = lives_last(l, l->heir[b]);
    return tight[last < end ? last : end] > tight[first - 1];
}

/* True if buffers that begin at `in` may be listed. The forward work of some later micro-batches
 * is included, because it shows which buffers are in use while a pipeline is full. */
static bool is_wanted(const LargeWanted *wanted, const Instr *in)
{
    const uint32_t k = in->microbatch, n = wanted->n_microbatches;
    if (k < n) return true;
    return wanted->full > 0 && in->phase == PHASE_forward && k >= wanted->full &&
           k < wanted->full + n;
}

static bool collect(LargeBuffers *r, const LargeWanted *wanted)
{
    const Lives *l = r->l;
    for (Pc pc = 1; pc < l->p->code.n; pc++) {
        if (!is_wanted(wanted, &l->p->code.at[pc])) continue;
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b]) {
            const Buffer *at = &l->p->buffers.at[b];
            if (at->bytes < wanted->least || !at->bytes) continue;
            if (wanted->placed && wanted->placed[b]) continue;
            const BufferId from = l->taken_over[b];
            if (from && r->of[from]) {
                r->of[b] = r->of[from];
                r->list.at[r->of[b] - 1].last = b;
                continue;
            }
            if (wanted->tight && !is_tight(l, wanted->tight, b, pc)) continue;
            if (r->list.n == MOST_LARGE) return false;
            const Pc begins = lives_first(l, b);
            LargeBuffer large = {b,  b, 0, gaps_round(at->bytes), begins, lives_knows(l, begins),
                                 {0}};
            r->of[b] = 1 + (uint32_t)list_push(l->scratch, &r->list, large);
        }
    }
    return r->list.n > 0;
}

/* True if both lists have the same buffers. They then have the same offsets. */
static bool are_equal(const LargeBuffers *a, const LargeBuffers *b)
{
    if (a->list.n != b->list.n) return false;
    for (uint32_t i = 0; i < a->list.n; i++)
        if (a->list.at[i].first != b->list.at[i].first || a->list.at[i].last != b->list.at[i].last)
            return false;
    return true;
}

bool large_find(LargeBuffers *r, const Lives *l, const LargeWanted *wanted, uint64_t bottom)
{
    *r = (LargeBuffers){.l = l, .of = arena_array(l->scratch, l->p->buffers.n, sizeof *r->of)};
    if (!collect(r, wanted)) return false;
    for (uint32_t i = 0; i < wanted->n_earlier; i++)
        if (are_equal(r, &wanted->earlier[i])) return false;
    place_all_large(r, bottom);
    return true;
}

/* Lists the extents whose indices are in the set, and empties the set. `words` has a bit for each
 * word of the set that is not 0. Extents that overlap become one, so that the list is short. So do
 * extents that touch, unless a buffer without bytes is to be placed, which fits between them. */
static void list_extents(LargeBuffers *r, uint64_t words, bool has_bytes)
{
    Extent now = {0, 0};
    for (; words != 0; words &= words - 1) {
        const uint32_t word = (uint32_t)__builtin_ctzll(words);
        for (uint64_t *set = &r->set[word]; *set != 0; *set &= *set - 1) {
            const Extent *next = &r->sorted[64 * word + (uint32_t)__builtin_ctzll(*set)];
            if (next->lo > now.hi || (next->lo == now.hi && !has_bytes)) {
                if (now.hi > 0) list_push(r->l->scratch, &r->ahead, now);
                now = *next;
            }
            if (next->hi > now.hi) now.hi = next->hi;
        }
    }
    if (now.hi > 0) list_push(r->l->scratch, &r->ahead, now);
}

void large_ahead(LargeBuffers *r, BufferId b)
{
    /* how many of the large buffers that begin after the last instruction of b are examined */
    enum { DOUBTFUL = 8 };
    const Lives *l = r->l;
    const BufferId heir = l->heir[b];
    const Pc first = lives_first(l, b), last = lives_last(l, heir);
    const End end = l->end[heir];
    uint64_t words = 0;
    r->ahead.n = 0;
    while (r->next < r->list.n && r->list.at[r->next].begins < first) r->next++;
    for (uint32_t i = r->next, later = 0; i < r->list.n && later < DOUBTFUL; i++) {
        const LargeBuffer *large = &r->list.at[i];
        const uint32_t number = r->order[i];
        later += large->begins > last;
        if (large->begins > last && knows_passed(&large->knows, &end)) continue;
        r->set[number / 64] |= UINT64_C(1) << number % 64;
        words |= UINT64_C(1) << number / 64;
    }
    list_extents(r, words, l->p->buffers.at[b].bytes > 0);
}
