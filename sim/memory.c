/* What lies in device memory at each instruction of a program, by category. */
#include "sim/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct Place {
    uint64_t offset;
    Pc first;
} Place;

static int by_place(const void *a, const void *b)
{
    const Place *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static bool is_root(const Program *p, BufferId id)
{
    const Buffer *b = &p->buffers.at[id];
    return id != 0 && b->parent == 0 && b->space == SPACE_device && b->bytes > 0;
}

/* Where transient buffers begin: one that begins where and when another ends has taken it over in
 * place, and the two are one for that instruction. */
static uint32_t find_places(const Program *p, Place *places)
{
    uint32_t n = 0;
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        if (is_root(p, id) && !b->persistent) places[n++] = (Place){b->offset, b->first};
    }
    qsort(places, n, sizeof *places, by_place);
    return n;
}

static bool taken_over(const Place *places, uint32_t n, const Buffer *b)
{
    Place at = {b->offset, b->last};
    if (b->first == b->last) return false;
    return n > 0 && bsearch(&at, places, n, sizeof *places, by_place) != NULL;
}

void memory_curve(const Plan *plan, const Program *p, Arena *arena, MemoryCurve *curve)
{
    (void)plan;
    uint32_t n = p->code.n == 0 ? 1 : p->code.n;
    Arena *scratch = arena_new();
    /* Unsigned differences wrap and come right again in the sums. */
    curve->at = arena_array(arena, (size_t)n + 1, sizeof *curve->at);
    curve->n = n;
    curve->peak = 0;
    Place *places = arena_array(scratch, p->buffers.n + 1, sizeof *places);
    uint32_t n_places = find_places(p, places);
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        if (!is_root(p, id)) continue;
        Pc first = b->persistent ? 0 : b->first, last = b->persistent ? n - 1 : b->last;
        if (!b->persistent && taken_over(places, n_places, b)) last--;
        assert(first <= last);
        assert(last < n);
        curve->at[first][b->category] += b->bytes;
        curve->at[last + 1][b->category] -= b->bytes;
    }
    uint64_t highest = 0;
    for (Pc pc = 0; pc < n; pc++) {
        uint64_t sum = 0;
        for (uint32_t c = 0; c < CATEGORY_COUNT; c++) {
            if (pc > 0) curve->at[pc][c] += curve->at[pc - 1][c];
            sum += curve->at[pc][c];
        }
        if (sum <= highest) continue;
        highest = sum;
        curve->peak = pc;
    }
    arena_free(scratch);
}
