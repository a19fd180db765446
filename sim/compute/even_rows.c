/* See even_rows.h. */
#include "sim/compute/even_rows.h"

#include <math.h>
#include <string.h>

#include "planner/ir/layout/rows.h"

/* Returns true if some rank has room for more than `least` thousandths of the mean number of
 * rows. */
static bool has_room(const Plan *plan, uint32_t least)
{
    const Deals *deals = &plan->graph.deals;
    for (uint32_t id = 1; id < deals->deals.n; id++)
        if (deal_is_rows(deals, id) && deals->deals.at[id].bound > least) return true;
    return false;
}

static void *copied(Arena *arena, const void *from, uint32_t n, size_t each)
{
    void *to = arena_array(arena, n + 1, each);
    if (n > 0) memcpy(to, from, n * each);
    return to;
}

/* Returns the bytes of a buffer that has room for `factor` times the mean number of rows. */
static uint64_t bytes_of(const Plan *plan, const Buffer *b, double factor)
{
    const Deals *deals = &plan->graph.deals;
    const Shape *s = plan_shape_at(plan, b->shape);
    if (!rows_uneven(s, deals)) return b->bytes;
    const double room = (double)rows_local(s, &plan->mesh, deals),
                 most = (double)rows_most(s, &plan->mesh, deals);
    const double rows = fmin(factor * rows_mean(s, &plan->mesh, deals), factor > 1 ? most : room);
    return (uint64_t)ceil((double)b->bytes * (rows / room));
}

static const Plan *with_rows(const Plan *plan, double factor, Arena *arena)
{
    Plan *own = arena_alloc(arena, sizeof *own);
    *own = *plan;
    own->programs.at = copied(arena, plan->programs.at, plan->programs.n, sizeof(Program));
    for (uint32_t i = 0; i < own->programs.n; i++) {
        Program *p = &own->programs.at[i];
        p->buffers.at = copied(arena, p->buffers.at, p->buffers.n, sizeof(Buffer));
        for (BufferId id = 1; id < p->buffers.n; id++)
            p->buffers.at[id].bytes = bytes_of(plan, &p->buffers.at[id], factor);
    }
    Deals *deals = &own->graph.deals;
    deals->deals.at = copied(arena, deals->deals.at, deals->deals.n, sizeof(Deal));
    for (uint32_t id = 1; id < deals->deals.n; id++)
        if (deal_is_rows(deals, id)) deals->deals.at[id].bound = ROWS_MEAN;
    return own;
}

const Plan *even_rows_plan(const Plan *plan, Arena *arena)
{
    return has_room(plan, ROWS_MEAN) ? with_rows(plan, 1, arena) : plan;
}

const Plan *uneven_rows_plan(const Plan *plan, double factor, Arena *arena)
{
    if (!(factor > 1)) return even_rows_plan(plan, arena);
    return has_room(plan, 0) ? with_rows(plan, factor, arena) : plan;
}
