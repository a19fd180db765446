/* Compares two layouts by the global indices that each rank has: one must divide the parts of the
 * other, or both must have the same parts on different ranks. */
#include "planner/verify/value/value.h"

enum {
    MOST_INTERVALS = 2
}; /* with more intervals, parts could differ although their first and
      last indices are equal */

static bool is_small(const Deals *deals, DealId id)
{
    const Deal *d = &deals->deals.at[id];
    return !id || (d->kind == DEAL_listed && d->per_part <= MOST_INTERVALS);
}

bool verify_nests(const Verifier *v, const Shape *whole, const Shape *cut, int d, AxisSet axes)
{
    const Mesh *mesh = &v->plan->mesh;
    const Deals *deals = &v->g->deals;
    const uint32_t k = mesh_size(mesh, axes), n_parts = shape_parts(cut, mesh, d),
                   n_whole = shape_parts(whole, mesh, d);
    const int64_t n = shape_local_dim(cut, mesh, deals, d), size = cut->dim[d];
    if (!cut->deal[d] || !is_small(deals, cut->deal[d]) || !is_small(deals, whole->deal[d]))
        return false;
    if (n_whole * k != n_parts || shape_local_dim(whole, mesh, deals, d) != n * k ||
        n * n_parts != size)
        return false;
    for (uint32_t part = 0; part < n_parts; part++) {
        int64_t at = part % k * n;
        Interval own;
        for (uint32_t i = 0; deal_interval(deals, cut->deal[d], size, n_parts, part, i, &own);
             i++) {
            const int64_t last = at + own.hi - own.lo - 1;
            if (deal_index(deals, whole->deal[d], size, n_whole, part / k, at) != own.lo ||
                deal_index(deals, whole->deal[d], size, n_whole, part / k, last) != own.hi - 1)
                return false;
            at = last + 1;
        }
        if (at != part % k * n + n) return false;
    }
    return true;
}

bool verify_turned(const Verifier *v, const Shape *a, const Shape *b, int d, uint32_t by)
{
    const Deals *deals = &v->g->deals;
    const uint32_t n = shape_parts(b, &v->plan->mesh, d);
    for (uint32_t part = 0; part < n; part++) {
        const uint32_t of = (part + n - by % n) % n;
        Interval x, y;
        for (uint32_t k = 0;; k++) {
            const bool more = deal_interval(deals, a->deal[d], a->dim[d], n, of, k, &x);
            if (deal_interval(deals, b->deal[d], b->dim[d], n, part, k, &y) != more) return false;
            if (!more) break;
            if (x.lo != y.lo || x.hi != y.hi) return false;
        }
    }
    return true;
}
