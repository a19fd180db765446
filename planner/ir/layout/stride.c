/* Strided deals (stride.h): each part has pieces of the rows at equal distances. */
#include "planner/ir/layout/stride.h"

#include <assert.h>

DealId deal_strided(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t pieces)
{
    const int64_t all = (int64_t)n_parts * pieces, rows = size / all;
    assert(n_parts > 1 && pieces > 0 && size % all == 0);
    if (pieces == 1) return 0;
    Deal deal = {.kind = DEAL_strided,
                 .n_parts = n_parts,
                 .size = size,
                 .n = n_parts * pieces,
                 .per_part = pieces};
    Interval *at = arena_array(arena, deal.n, sizeof *at);
    for (uint32_t p = 0; p < n_parts; p++)
        for (uint32_t k = 0; k < pieces; k++) {
            const int64_t piece = (int64_t)k * n_parts + p;
            at[p * pieces + k] = (Interval){piece * rows, (piece + 1) * rows};
        }
    return deal_intern(deals, arena, deal, at);
}

bool strides_find(const Deals *deals, DealId id, uint32_t part, Strides *out)
{
    if (!deal_is_strided(deals, id)) return false;
    const Deal *d = &deals->deals.at[id];
    *out = (Strides){.n_parts = d->n_parts,
                     .part = part,
                     .pieces = d->per_part,
                     .rows = d->size / ((int64_t)d->n_parts * d->per_part),
                     .most = (d->per_part + d->n_parts - 1) / d->n_parts};
    return part < d->n_parts;
}
