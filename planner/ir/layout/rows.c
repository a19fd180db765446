#include "planner/ir/layout/rows.h"

#include <assert.h>

enum { EXPERTS, SAMPLES, ROOMS };

DealId deal_rows(Deals *deals, Arena *arena, int64_t rooms, uint32_t top_k, uint32_t bound)
{
    const Deal deal = {
        .kind = DEAL_rows, .n_parts = 1, .size = rooms, .per_part = top_k, .bound = bound};
    assert(rooms > 0 && top_k > 0 && bound >= ROWS_MEAN);
    return deal_intern(deals, arena, deal, NULL);
}

bool rows_uneven(const Shape *s, const Deals *deals)
{
    return s->n_dims >= ROWS_DIMS && deal_is_rows(deals, s->deal[ROOMS]);
}

/* Returns how many rows all experts together get from the samples of a rank: each token gives
 * top_k rows. */
static int64_t choices(const Shape *s, const Mesh *mesh, const Deals *deals)
{
    const Deal *d = &deals->deals.at[s->deal[ROOMS]];
    return shape_local_dim(s, mesh, deals, SAMPLES) * d->size * d->per_part;
}

double rows_mean(const Shape *s, const Mesh *mesh, const Deals *deals)
{
    assert(rows_uneven(s, deals));
    return (double)choices(s, mesh, deals) * (double)shape_local_dim(s, mesh, deals, EXPERTS) /
           (double)s->dim[EXPERTS];
}

int64_t rows_most(const Shape *s, const Mesh *mesh, const Deals *deals)
{
    assert(rows_uneven(s, deals));
    const int64_t chosen = deals->deals.at[s->deal[ROOMS]].per_part,
                  here = shape_local_dim(s, mesh, deals, EXPERTS);
    return choices(s, mesh, deals) / chosen * (here < chosen ? here : chosen);
}

int64_t rows_local(const Shape *s, const Mesh *mesh, const Deals *deals)
{
    assert(rows_uneven(s, deals));
    const Deal *d = &deals->deals.at[s->deal[ROOMS]];
    const int64_t here = shape_local_dim(s, mesh, deals, EXPERTS), all = choices(s, mesh, deals);
    if (here == s->dim[EXPERTS]) return all;
    const int64_t most = rows_most(s, mesh, deals), parts = s->dim[EXPERTS] / here * ROWS_MEAN;
    const int64_t bound = all / parts * d->bound + (all % parts * d->bound + parts - 1) / parts;
    return bound < most ? bound : most;
}

int64_t shape_extent(const Shape *s, const Mesh *mesh, const Deals *deals, int d)
{
    assert(d >= 0 && d < s->n_dims);
    if (d >= ROWS_DIMS || !rows_uneven(s, deals)) return shape_local_dim(s, mesh, deals, d);
    return d == 0 ? rows_local(s, mesh, deals) : 1;
}

int64_t shape_local_elements(const Shape *s, const Mesh *mesh, const Deals *deals)
{
    int64_t n = 1;
    for (int d = 0; d < s->n_dims; d++) n *= shape_extent(s, mesh, deals, d);
    return n;
}
