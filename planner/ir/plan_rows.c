/* Computes which fraction of its op's output rows an instruction computes (plan_rows_share): for
 * half of a split convolution, and for the tokens of experts. */
#include "planner/ir/layout/rows.h"
#include "planner/ir/plan.h"
#include "planner/ir/window.h"

/* Experts have rooms for more tokens than they usually get (layout/rows.h). Returns which fraction
 * of the rooms has a token if all experts are chosen equally often. Returns 1 for ops without
 * uneven rows. */
static double taken_share(const Plan *plan, const Program *p, const Instr *in)
{
    const OpInfo *info = op_info(in->op);
    const uint32_t n = (uint32_t)info->sig.n_in + info->sig.n_out;
    if (op_counts_arg(in->op) < 0) return 1;
    for (uint32_t i = 0; i < n && i < in->args.n; i++) {
        const Shape *s = plan_shape_at(plan, p->buffers.at[program_arg(p, in, i)].shape);
        double rooms = 1;
        if (!rows_uneven(s, &plan->graph.deals)) continue;
        for (int d = 0; d < ROWS_DIMS; d++)
            rooms *= (double)shape_local_dim(s, &plan->mesh, &plan->graph.deals, d);
        return rows_mean(s, &plan->mesh, &plan->graph.deals) / rooms;
    }
    return 1;
}

/* A field is split along `letter` (h or w), dimension d of input x. Returns which fraction of its
 * output rows or columns a rank can compute before the halo arrives, because their windows read
 * only its own rows. Ranks differ, so returns the smallest fraction. Returns 1 if d is not
 * split. */
static double inner_share(const Plan *plan, const Shape *x, int d, const Binding *b,
                          const Window *w, char letter)
{
    const int out_of = letter, in_of = window_reach(letter);
    const uint32_t parts = shape_parts(x, &plan->mesh, d);
    double least = 1;
    for (uint32_t part = 0; part < parts; part++) {
        Interval own, out;
        if (!deal_interval(&plan->graph.deals, 0, b->size[out_of], parts, part, 0, &out)) continue;
        if (!deal_interval(&plan->graph.deals, 0, b->size[in_of], parts, part, 0, &own))
            own = (Interval){0, 0};
        const Interval inner = window_inner_rows(w, b->size[in_of], own, out);
        const double share = (double)(inner.hi - inner.lo) / (double)(out.hi - out.lo);
        least = share < least ? share : least;
    }
    return least;
}

double plan_rows_share(const Plan *plan, const Program *p, const Instr *in)
{
    const OpKind whole = op_of_rows(in->op);
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    Binding b;
    if (!whole) return taken_share(plan, p, in);
    if (!plan_bind(plan, p, in, 0, &b, NULL, NULL, NULL)) return 1;
    const Shape *x = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 0)].shape);
    const Window h = op_window(in->op, &b, attrs, 'h'), w = op_window(in->op, &b, attrs, 'w');
    const int rows = op_dim(in->op, 0, INDEX_height), columns = op_dim(in->op, 0, INDEX_width);
    const double inner = inner_share(plan, x, rows, &b, &h, 'h');
    if (in->op == op_in_rows(whole).border) return 1 - inner;
    if (attrs->parts == ROWS_all) return inner;
    const double centre = (inner < 1 ? inner / 2 : 1) * inner_share(plan, x, columns, &b, &w, 'w');
    return attrs->parts == ROWS_centre ? centre : inner - centre;
}
