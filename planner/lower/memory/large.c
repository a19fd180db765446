/* Chooses offsets for large buffers first. Small buffers then fill the holes between them. Each
 * large buffer gets the lowest offset at which no larger buffer is in use at the same time. */
#include "planner/lower/memory/large.h"

#include <stdlib.h>
#include <string.h>

/* The largest number of large buffers. It is limited because every pair of them is compared. If
 * micro-batches run one after the other, only buffers of the first few count: the others get the
 * offsets of their counterparts. */
enum { MOST_LARGE = 2048 };

typedef struct Sized {
    uint64_t size;
    uint32_t index;
} Sized;

static int by_size(const void *a, const void *b)
{
    const Sized *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
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

static void place_all_large(LargeBuffers *r, uint64_t bottom)
{
    Arena *scratch = r->l->scratch;
    const uint32_t n = r->list.n;
    Sized *order = arena_array(scratch, n, sizeof *order);
    Placed *placed = arena_array(scratch, n, sizeof *placed);
    for (uint32_t i = 0; i < n; i++) {
        LargeBuffer *large = &r->list.at[i];
        large->end = r->l->end[large->last];
        order[i] = (Sized){large->size, i};
    }
    qsort(order, n, sizeof *order, by_size);
    for (uint32_t i = 0; i < n; i++) {
        LargeBuffer *large = &r->list.at[order[i].index];
        large->offset = place_large(r, placed, i, large, bottom);
        uint32_t k = i;
        while (k > 0 && placed[k - 1].lo > large->offset) k--;
        memmove(&placed[k + 1], &placed[k], (i - k) * sizeof *placed);
        placed[k] = (Placed){large->offset, large->offset + large->size, order[i].index};
    }
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

bool large_find(LargeBuffers *r, const Lives *l, const LargeWanted *wanted, uint64_t bottom)
{
    *r = (LargeBuffers){.l = l, .of = arena_array(l->scratch, l->p->buffers.n, sizeof *r->of)};
    if (!collect(r, wanted)) return false;
    place_all_large(r, bottom);
    return true;
}

/* Lists the extents whose indices are in the set, and empties the set. */
static void list_extents(LargeBuffers *r, uint64_t *set)
{
    for (uint32_t word = 0; word <= r->list.n / 64; word++)
        for (; set[word] != 0; set[word] &= set[word] - 1)
            list_push(r->l->scratch, &r->ahead,
                      r->sorted[64 * word + (uint32_t)__builtin_ctzll(set[word])]);
}

void large_ahead(LargeBuffers *r, BufferId b)
{
    /* how many of the large buffers that begin after the last instruction of b are examined */
    enum { DOUBTFUL = 8 };
    const Lives *l = r->l;
    const BufferId heir = l->heir[b];
    const Pc first = lives_first(l, b), last = lives_last(l, heir);
    const End end = l->end[heir];
    uint64_t set[MOST_LARGE / 64 + 1];
    memset(set, 0, (r->list.n / 64 + 1) * sizeof *set);
    r->ahead.n = 0;
    while (r->next < r->list.n && r->list.at[r->next].begins < first) r->next++;
    for (uint32_t i = r->next, later = 0; i < r->list.n && later < DOUBTFUL; i++) {
        const LargeBuffer *large = &r->list.at[i];
        const uint32_t number = r->order[i];
        later += large->begins > last;
        if (large->begins <= last || !knows_passed(&large->knows, &end))
            set[number / 64] |= UINT64_C(1) << number % 64;
    }
    list_extents(r, set);
}
