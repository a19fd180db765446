/* Progressive filling: the rates of all flows rise together until a link is full, or a flow has its
 * full speed. The flows of that link (or that flow) keep their rate from then on, and the rates of
 * all other flows rise further.
 *
 * Some links can carry all their flows at full speed. Such a link never becomes full: if another
 * link slows down one of its flows, it has even more capacity left. Only the other links, called
 * overloaded, limit rates. A flow that uses no overloaded link runs at full speed.
 *
 * Two flows on one overloaded link depend on each other. Flows can also depend on each other
 * through a chain of such pairs. Flows without such a chain between them do not, so each connected
 * set of flows can be filled separately with the same result. Only sets in which a flow began or
 * ended are filled again. */
#include <math.h>
#include <string.h>

#include "sim/net/net_private.h"

static bool is_overloaded(const MaxMin *m, uint32_t link)
{
    return m->wanted[link] > m->capacity[link];
}

/* Returns the rate at which a link becomes full, if all of its flows that still rise have this
 * rate. */
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
        if (!is_overloaded(m, use->link)) continue;
        m->frozen[use->link] += (int64_t)((double)use->rate * level) * use->count;
        m->rising[use->link] -= use->weight * use->count;
        if (m->rising[use->link] > 0) m->full[use->link] = fills_at(m, use->link);
    }
}

static double lowest(const MaxMin *m, const FlowShape *shape)
{
    double rate = (double)shape->rate;
    for (uint32_t i = 0; i < shape->n; i++) {
        const uint32_t link = m->uses.at[shape->first + i].link;
        if (is_overloaded(m, link) && m->full[link] < rate) rate = m->full[link];
    }
    return rate;
}

/* Adds the flows of a link to the set of flows that is being filled. */
static void join(MaxMin *m, uint32_t link)
{
    for (uint32_t at = m->on[link]; at != 0; at = m->entries.at[at].next) {
        const uint32_t id = m->entries.at[at].flow;
        if (m->flows.at[id].seen == m->n_fillings) continue;
        m->flows.at[id].seen = m->n_fillings;
        list_push(m->arena, &m->part, id);
    }
}

/* Sorts the flows of the set by their order in `active`, so that flows that end at the same instant
 * keep their order. */
static void sort_part(MaxMin *m)
{
    for (uint32_t gap = m->part.n / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < m->part.n; i++) {
            const uint32_t id = m->part.at[i], index = m->index.at[id];
            uint32_t k = i;
            for (; k >= gap && m->index.at[m->part.at[k - gap]] > index; k -= gap)
                m->part.at[k] = m->part.at[k - gap];
            m->part.at[k] = id;
        }
    }
}

/* Finds all flows whose rates may change because some link changed. */
static void find_part(MaxMin *m)
{
    m->n_fillings++;
    m->part.n = m->narrow.n = m->risers.n = 0;
    for (uint32_t i = 0; i < m->changed.n; i++) join(m, m->changed.at[i]);
    for (uint32_t k = 0; k < m->part.n; k++) {
        const FlowShape *shape = &m->shapes.at[m->flows.at[m->part.at[k]].shape];
        for (uint32_t i = 0; i < shape->n; i++) {
            const uint32_t link = m->uses.at[shape->first + i].link;
            if (!is_overloaded(m, link) || m->seen[link] == m->n_fillings) continue;
            m->seen[link] = m->n_fillings;
            m->frozen[link] = m->rising[link] = 0;
            list_push(m->arena, &m->narrow, link);
            join(m, link);
        }
    }
    sort_part(m);
}

/* Lists the flows of the set that use an overloaded link. All others run at full speed. */
static void find_rising(MaxMin *m)
{
    for (uint32_t k = 0; k < m->part.n; k++) {
        Flow *f = &m->flows.at[m->part.at[k]];
        const FlowShape *shape = &m->shapes.at[f->shape];
        bool rises = false;
        for (uint32_t i = 0; i < shape->n; i++) {
            const LinkUse *use = &m->uses.at[shape->first + i];
            if (!is_overloaded(m, use->link)) continue;
            m->rising[use->link] += use->weight * use->count;
            rises = true;
        }
        f->level = rises ? -1 : 1;
        if (rises) list_push(m->arena, &m->risers, m->part.at[k]);
    }
}

void maxmin_fill(MaxMin *m)
{
    find_part(m);
    find_rising(m);
    for (uint32_t i = 0; i < m->narrow.n; i++)
        m->full[m->narrow.at[i]] = fills_at(m, m->narrow.at[i]);
    for (uint32_t n_rising = m->risers.n; n_rising > 0;) {
        double rate = INFINITY;
        for (uint32_t k = 0; k < m->risers.n; k++) {
            Flow *f = &m->flows.at[m->risers.at[k]];
            if (f->level >= 0) continue;
            f->limit = lowest(m, &m->shapes.at[f->shape]);
            rate = fmin(rate, f->limit);
        }
        /* first find all flows that are limited to this rate, then fix their rates, so that the
         * order does not matter */
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
