/* See even_rows.h. */
#include "sim/compute/even_rows.h"

#include <math.h>
#include <string.h>

#include "planner/ir/layout/rows.h"

static bool has_room_for_more(const Plan *plan)
{
    const Deals *deals = &plan->graph.deals;
    for (uint32_t id = 1; id < deals->deals.n; id++)
        if (deal_is_rows(deals, id) && deals->deals.at[id].bound > ROWS_MEAN) return true;
    return false;
}

static void *copied(Arena *arena, const void *from, uint32_t n, size_t each)
{
    void *to = arena_array(arena, n + 1, each);
    if (n > 0) memcpy(to, from, n * each);
    return to;
}

/* Returns the bytes of a buffer with the mean rows. */
static uint64_t bytes_of_mean(const Plan *plan, const Buffer *b)
{
    const Deals *deals = &plan->graph.deals;
    const Shape *s = plan_shape_at(plan, b->shape);
    if (!rows_uneven(s, deals)) return b->bytes;
    const double mean = rows_mean(s, &plan->mesh, deals),
                 room = (double)rows_local(s, &plan->mesh, deals);
    return (uint64_t)ceil((double)b->bytes * fmin(1, mean / room));
}

const Plan *even_rows_plan(const Plan *plan, Arena *arena)
{
    if (!has_room_for_more(plan)) return plan;
    Plan *own = arena_alloc(arena, sizeof *own);
    *own = *plan;
    own->programs.at = copied(arena, plan->programs.at, plan->programs.n, sizeof(Program));
    for (uint32_t i = 0; i < own->programs.n; i++) {
        Program *p = &own->programs.at[i];
        p->buffers.at = copied(arena, p->buffers.at, p->buffers.n, sizeof(Buffer));
        for (BufferId id = 1; id < p->buffers.n; id++)
            p->buffers.at[id].bytes = bytes_of_mean(plan, &p->buffers.at[id]);
    }
    Deals *deals = &own->graph.deals;
    deals->deals.at = copied(arena, deals->deals.at, deals->deals.n, sizeof(Deal));
    for (uint32_t id = 1; id < deals->deals.n; id++)
        if (deal_is_rows(deals, id)) deals->deals.at[id].bound = ROWS_MEAN;
    return own;
}
