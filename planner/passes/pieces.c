/* The free bytes of an arena that is planned: who takes, who gives back, and who must have finished
 * before bytes may be used again. */
#include "planner/passes/pieces.h"

#include <string.h>

enum { FEW_PIECES = 24 };

void pieces_init(Pieces *m, uint64_t bottom, Arena *arena)
{
    m->arena = arena;
    m->top = bottom;
    m->many = FEW_PIECES;
    m->list.n = 0;
    m->busy.n = 0;
    list_reserve_none(arena, &m->busy);
    m->busy.at[0] = (Clock){{0}};
}

static bool is_free(const Pieces *m, uint32_t piece, const Clock *now)
{
    return clock_passed(&m->busy.at[m->list.at[piece].busy], now);
}

/* Removes [offset, offset + size), which usable pieces cover, beginning within piece i. */
static void take(Pieces *m, uint32_t i, uint64_t offset, uint64_t size)
{
    Piece head = m->list.at[i];
    head.size = offset - head.offset;
    uint64_t end = offset + size;
    uint32_t k = i;
    while (k < m->list.n && m->list.at[k].offset + m->list.at[k].size <= end) k++;
    bool tail = k < m->list.n && m->list.at[k].offset < end;
    Piece rest = {0, 0, 0};
    if (tail) {
        rest = m->list.at[k];
        rest.size -= end - rest.offset;
        rest.offset = end;
        k++;
    }
    uint32_t n_new = (head.size > 0) + (uint32_t)tail;
    if (n_new > k - i) list_add(m->arena, &m->list); /* one piece becomes two */
    uint32_t behind = m->list.n - (n_new > k - i) - k;
    memmove(&m->list.at[i + n_new], &m->list.at[k], behind * sizeof(Piece));
    m->list.n = i + n_new + behind;
    if (head.size > 0) m->list.at[i++] = head;
    if (tail) m->list.at[i] = rest;
}

/* The same place as in the micro-batch before, so that interior micro-batches repeat. */
bool pieces_take_at(Pieces *m, uint64_t offset, uint64_t size, const Clock *now)
{
    uint32_t i = 0;
    while (i < m->list.n && m->list.at[i].offset + m->list.at[i].size <= offset) i++;
    uint32_t first = i;
    if (offset >= m->top) {
        Piece gap = {m->top, offset - m->top, 0};
        if (gap.size) list_push(m->arena, &m->list, gap);
        m->top = offset + size;
        return true;
    }
    if (i == m->list.n || m->list.at[i].offset > offset) return false;
    uint64_t end = m->list.at[i].offset;
    while (i < m->list.n && m->list.at[i].offset == end && end < offset + size) {
        if (!is_free(m, i, now)) return false;
        end += m->list.at[i++].size;
    }
    if (end < offset + size) return false;
    take(m, first, offset, size);
    return true;
}

/* The lowest run of adjacent usable pieces that holds `size`; else grows the arena, from its last
 * free pieces if they are usable. */
uint64_t pieces_take(Pieces *m, uint64_t size, const Clock *now)
{
    uint64_t tail_size = 0;
    uint32_t tail = UINT32_MAX;
    for (uint32_t i = 0; i < m->list.n;) {
        if (!is_free(m, i, now)) {
            i++;
            continue;
        }
        uint32_t first = i;
        uint64_t start = m->list.at[i].offset, end = start;
        while (i < m->list.n && m->list.at[i].offset == end && is_free(m, i, now))
            end += m->list.at[i++].size;
        if (end - start >= size) {
            take(m, first, start, size);
            return start;
        }
        if (end == m->top) tail = first, tail_size = end - start;
    }
    uint64_t offset = m->top - tail_size;
    if (tail != UINT32_MAX) m->list.n = tail;
    m->top = offset + size;
    return offset;
}

static uint32_t join_busy(Pieces *m, uint32_t a, uint32_t b)
{
    if (!a || !b) return a ? a : b;
    Clock both = m->busy.at[a];
    clock_join(&both, &m->busy.at[b]);
    return list_push(m->arena, &m->busy, both);
}

/* Keeps the list short: adjacent pieces that are all free by now become one. */
static void compact(Pieces *m, const Clock *now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->list.n; i++) {
        Piece at = m->list.at[i], *last = n ? &m->list.at[n - 1] : NULL;
        bool joins = last && last->offset + last->size == at.offset && is_free(m, n - 1, now) &&
                     is_free(m, i, now);
        if (joins) {
            last->size += at.size;
            last->busy = join_busy(m, last->busy, at.busy);
        } else {
            m->list.at[n++] = at;
        }
    }
    m->list.n = n;
    m->many = 2 * n + FEW_PIECES;
}

void pieces_give(Pieces *m, uint64_t offset, uint64_t size, const Clock *busy, const Clock *now)
{
    Piece piece = {offset, size, list_push(m->arena, &m->busy, *busy)};
    list_push(m->arena, &m->list, piece);
    uint32_t i = m->list.n - 1;
    for (; i > 0 && m->list.at[i - 1].offset > offset; i--) m->list.at[i] = m->list.at[i - 1];
    m->list.at[i] = piece;
    if (m->list.n > m->many) compact(m, now);
}
