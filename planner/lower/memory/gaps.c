/* Keeps the free bytes of an arena while offsets are chosen. Each gap names the instructions that
 * must end before its bytes are used again. */
#include "planner/lower/memory/gaps.h"

#include <assert.h>
#include <string.h>

enum { FEW_PIECES = 24 };

void gaps_init(Gaps *m, uint64_t bottom, Arena *arena)
{
    m->arena = arena;
    m->top = bottom;
    m->many = FEW_PIECES;
    m->list.n = 0;
}

static inline bool is_free(const Gaps *m, uint32_t gap, const Knowledge *now)
{
    return knows_passed(now, &m->list.at[gap].end);
}

/* Removes bytes [offset, offset + size) from the list. Gap i and the gaps after it contain these
 * bytes and may be used now. */
static void take(Gaps *m, uint32_t i, uint64_t offset, uint64_t size)
{
    Gap head = m->list.at[i];
    if (head.offset == offset && head.size > size) { /* its start moves */
        m->list.at[i].offset += size;
        m->list.at[i].size -= size;
        return;
    }
    head.size = offset - head.offset;
    uint64_t end = offset + size;
    uint32_t k = i;
    while (k < m->list.n && m->list.at[k].offset + m->list.at[k].size <= end) k++;
    bool tail = k < m->list.n && m->list.at[k].offset < end;
    Gap rest = {0};
    if (tail) {
        rest = m->list.at[k];
        rest.size -= end - rest.offset;
        rest.offset = end;
        k++;
    }
    uint32_t n_new = (head.size > 0) + (uint32_t)tail;
    if (n_new > k - i) list_add(m->arena, &m->list); /* one gap is split into two */
    uint32_t behind = m->list.n - (n_new > k - i) - k;
    if (n_new != k - i) memmove(&m->list.at[i + n_new], &m->list.at[k], behind * sizeof(Gap));
    m->list.n = i + n_new + behind;
    if (head.size > 0) m->list.at[i++] = head;
    if (tail) m->list.at[i] = rest;
}

/* A sequence of adjacent gaps whose bytes may all be used. */
typedef struct GapRun {
    uint32_t first; /* the index of the sequence's first gap */
    uint64_t start, end;
} GapRun;

/* Finds the next sequence of adjacent free gaps, from gap *i on. Sets *i to the first gap after it.
 * Returns false if there is none. */
static bool next_run(const Gaps *m, uint32_t *i, const Knowledge *now, GapRun *run)
{
    const uint32_t n = m->list.n;
    uint32_t k = *i;
    while (k < n && !is_free(m, k, now)) k++;
    if (k == n) {
        *i = k;
        return false;
    }
    run->first = k;
    run->start = m->list.at[k].offset;
    run->end = run->start + m->list.at[k++].size;
    while (k < n && m->list.at[k].offset == run->end && is_free(m, k, now))
        run->end += m->list.at[k++].size;
    *i = k;
    return true;
}

static void take_from(Gaps *m, const GapRun *run, uint64_t offset, uint64_t size)
{
    uint32_t i = run->first;
    while (m->list.at[i].offset + m->list.at[i].size <= offset) i++;
    take(m, i, offset, size);
}

/* Raises the top to `end`. The new bytes become a gap. */
static void reach(Gaps *m, uint64_t end)
{
    if (end <= m->top) return;
    Gap more = {.offset = m->top, .size = end - m->top};
    list_push(m->arena, &m->list, more);
    m->top = end;
}

bool gaps_take_at(Gaps *m, uint64_t offset, uint64_t size, const Knowledge *now)
{
    if (offset >= m->top) {
        reach(m, offset);
        m->top = offset + size;
        return true;
    }
    uint32_t lo = 0, hi = m->list.n; /* searches for the gap that contains offset */
    while (lo < hi) {
        const uint32_t i = lo + (hi - lo) / 2;
        if (m->list.at[i].offset + m->list.at[i].size <= offset)
            lo = i + 1;
        else
            hi = i;
    }
    if (lo == m->list.n || m->list.at[lo].offset > offset) return false;
    uint64_t end = m->list.at[lo].offset;
    for (uint32_t i = lo; end < offset + size && i < m->list.n; i++) {
        if (m->list.at[i].offset != end || !is_free(m, i, now)) return false;
        end += m->list.at[i].size;
    }
    if (end < offset + size && end != m->top) return false;
    reach(m, offset + size);
    take(m, lo, offset, size);
    return true;
}

uint64_t extents_clear(const Extent *others, uint32_t n, uint64_t start, uint64_t size)
{
    for (uint32_t k = 0; k < n && others[k].lo < start + size; k++)
        if (others[k].hi > start) start = others[k].hi;
    return start;
}

uint64_t gaps_take(Gaps *m, uint64_t size, const Knowledge *now, const Extent *others, uint32_t n)
{
    GapRun run = {0, 0, 0};
    for (uint32_t i = 0; i < m->list.n; i++) {
        const Gap *gap = &m->list.at[i];
        if (!is_free(m, i, now)) continue;
        if (gap->offset != run.end) run.first = i, run.start = gap->offset;
        run.end = gap->offset + gap->size;
        if (run.end - run.start < size) continue;
        const uint64_t start = extents_clear(others, n, run.start, size);
        if (start + size > run.end) continue;
        take_from(m, &run, start, size);
        return start;
    }
    const uint64_t start = extents_clear(others, n, run.end == m->top ? run.start : m->top, size);
    const bool taken = gaps_take_at(m, start, size, now);
    assert(taken);
    return start;
}

uint64_t gaps_take_tightest(Gaps *m, uint64_t size, const Knowledge *now)
{
    GapRun run, best = {0, 0, UINT64_MAX};
    for (uint32_t i = 0; next_run(m, &i, now, &run);)
        if (run.end - run.start >= size && run.end - run.start < best.end - best.start) best = run;
    if (best.end == UINT64_MAX) return gaps_take(m, size, now, NULL, 0);
    take_from(m, &best, best.start, size);
    return best.start;
}

static End join_ends(Gaps *m, End a, End b)
{
    if (!a.known || !b.known) return a.known ? a : b;
    Clock *both = arena_alloc(m->arena, sizeof *both);
    *both = *a.busy;
    clock_join(both, b.busy);
    return (End){both, a.known > b.known ? a.known : b.known};
}

void gaps_compact(Gaps *m, const Knowledge *now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->list.n; i++) {
        Gap at = m->list.at[i], *last = n ? &m->list.at[n - 1] : NULL;
        bool joins = last && last->offset + last->size == at.offset && is_free(m, n - 1, now) &&
                     is_free(m, i, now);
        if (joins) {
            last->size += at.size;
            last->end = join_ends(m, last->end, at.end);
        } else {
            m->list.at[n++] = at;
        }
    }
    m->list.n = n;
    if (m->many != UINT32_MAX) m->many = 2 * n + FEW_PIECES;
}

void gaps_give(Gaps *m, uint64_t offset, uint64_t size, End end, const Knowledge *now)
{
    const Gap gap = {.offset = offset, .size = size, .end = end};
    uint32_t lo = 0, hi = m->list.n; /* the index of the new gap */
    while (lo < hi) {
        const uint32_t i = lo + (hi - lo) / 2;
        if (m->list.at[i].offset > offset)
            hi = i;
        else
            lo = i + 1;
    }
    m->list.at = list_room(m->arena, &m->list);
    memmove(&m->list.at[lo + 1], &m->list.at[lo], (m->list.n++ - lo) * sizeof(Gap));
    m->list.at[lo] = gap;
    if (m->list.n > m->many) gaps_compact(m, now);
}
