/* Progressive filling: all rates rise together until a link is full or a flow has all that it can
 * use. Those flows keep their rate, and the others rise further. */
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

void maxmin_fill(MaxMin *m)
{
    uint32_t n_rising = m->active.n;
    memset(m->frozen, 0, m->n_links * sizeof *m->frozen);
    memset(m->rising, 0, m->n_links * sizeof *m->rising);
    for (uint32_t k = 0; k < m->active.n; k++) {
        Flow *f = &m->flows.at[m->active.at[k]];
        const FlowShape *shape = &m->shapes.at[f->shape];
        f->level = -1;
        for (uint32_t i = 0; i < shape->n; i++) {
            const LinkUse *use = &m->uses.at[shape->first + i];
            m->rising[use->link] += use->weight * use->count;
        }
        if (shape->n == 0) {
            f->level = 1;
            n_rising--;
        }
    }
    for (uint32_t link = 0; link < m->n_links; link++)
        if (m->rising[link] > 0) m->full[link] = fills_at(m, link);
    while (n_rising > 0) {
        double rate = INFINITY;
        for (uint32_t k = 0; k < m->active.n; k++) {
            Flow *f = &m->flows.at[m->active.at[k]];
            if (f->level >= 0) continue;
            f->limit = lowest(m, &m->shapes.at[f->shape]);
            rate = fmin(rate, f->limit);
        }
        /* Decide which flows are limited before fixing any rate, so that order does not matter. */
        for (uint32_t k = 0; k < m->active.n; k++) {
            Flow *f = &m->flows.at[m->active.at[k]];
            if (f->level >= 0 || f->limit > rate) continue;
            f->level = -2;
        }
        for (uint32_t k = 0; k < m->active.n; k++) {
            Flow *f = &m->flows.at[m->active.at[k]];
            if (f->level > -1.5) continue;
            double full = (double)m->shapes.at[f->shape].rate;
            freeze(m, f, fmax(fmin(rate / full, 1), 1e-6));
            n_rising--;
        }
    }
}
