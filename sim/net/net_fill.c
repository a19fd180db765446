/* Progressive filling: all rates rise together until a link is full or a flow has its full
 * speed. The flows of that link, or that flow, keep their rate. The others rise further.
 *
 * Some links can carry all their flows at full speed. Such a link never fills: if another link
 * slows a flow, more room is left. Only the remaining links, the overloaded ones, limit rates. A
 * flow that uses no overloaded link runs at full speed. */
#include <math.h>
#include <string.h>

#include "sim/net/net_private.h"

/* Returns the common rate at which a link becomes full. */
static double fills_at(const MaxMin *m, uint32_t link)
{
    int64_t room = m->capacity[link] - m->frozen[link];
    if (room < 0) room = 0;
    return (double)room * 0x1p20 / (double)m->rising[link];
}

static void freeze(MaxMin *m, Flow *f, double level)
{
    const FlowShape *shape = &m->shapes.at[f->shape];
    f->level = level;
    for (uint32_t i = 0; i < shape->n; i++) {
        const LinkUse *use = &m->uses.at[shape->first + i];
        m->frozen[use->link] += (int64_t)((double)use->rate * level) * use->count;
        m->rising[use->link] -= use->weight * use->count;
        if (m->rising[use->link] > 0) m->full[use->link] = fills_at(m, use->link);
    }
}

static double lowest(const MaxMin *m, const FlowShape *shape)
{
    double rate = (double)shape->rate;
    for (uint32_t i = 0; i < shape->n; i++) {
        double at = m->full[m->uses.at[shape->first + i].link];
        if (at < rate) rate = at;
    }
    return rate;
}

static bool is_overloaded(const MaxMin *m, uint32_t link)
{
    return m->wanted[link] > m->capacity[link];
}

/* Lists the flows that use an overloaded link; all others have their full speed. */
static void find_rising(MaxMin *m)
{
    m->risers.n = 0;
    for (uint32_t k = 0; k < m->active.n; k++) {
        Flow *f = &m->flows.at[m->active.at[k]];
        const FlowShape *shape = &m->shapes.at[f->shape];
        bool rises = false;
        for (uint32_t i = 0; i < shape->n; i++) {
            const LinkUse *use = &m->uses.at[shape->first + i];
            if (!is_overloaded(m, use->link)) continue;
            m->rising[use->link] += use->weight * use->count;
            rises = true;
        }
        f->level = rises ? -1 : 1;
        if (rises) list_push(m->arena, &m->risers, m->active.at[k]);
    }
}

void maxmin_fill(MaxMin *m)
{
    memset(m->frozen, 0, m->n_links * sizeof *m->frozen);
    memset(m->rising, 0, m->n_links * sizeof *m->rising);
    find_rising(m);
    for (uint32_t link = 0; link < m->n_links; link++)
        m->full[link] = m->rising[link] > 0 ? fills_at(m, link) : INFINITY;
    for (uint32_t n_rising = m->risers.n; n_rising > 0;) {
        double rate = INFINITY;
        for (uint32_t k = 0; k < m->risers.n; k++) {
            Flow *f = &m->flows.at[m->risers.at[k]];
            if (f->level >= 0) continue;
            f->limit = lowest(m, &m->shapes.at[f->shape]);
            rate = fmin(rate, f->limit);
        }
        /* Decide which flows are limited before fixing any rate, so that order does not matter. */
        for (uint32_t k = 0; k < m->risers.n; k++) {
            Flow *f = &m->flows.at[m->risers.at[k]];
            if (f->level >= 0 || f->limit > rate) continue;
            f->level = -2;
        }
        for (uint32_t k = 0; k < m->risers.n; k++) {
            Flow *f = &m->flows.at[m->risers.at[k]];
            if (f->level > -1.5) continue;
            double full = (double)m->shapes.at[f->shape].rate;
            freeze(m, f, fmax(fmin(rate / full, 1), 1e-6));
            n_rising--;
        }
    }
}
