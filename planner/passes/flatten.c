/* Order and offsets of parameters in their flat units: first those that tp cuts, then those whose
 * gradients are partial sums on tp (they lie together, to be summed over tp at once), then the
 * rest. */
#include <assert.h>

#include "planner/passes/pass.h"

enum {
    FLAT_ALIGN_ELEMENTS = 64
}; /* 256 bytes of fp32, 128 of bf16: vector loads and TMA stay aligned */

enum { CLASS_split, CLASS_partial, CLASS_whole, CLASS_COUNT };

static uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* partial[p]: the axes, other than data, on which p's gradient contributions are partial sums. */
static bool find_partial(Job *job, AxisSet *partial)
{
    const Graph *g = &job->plan->graph;
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Binding b;
        if (!graph_bind(g, n, &b, job->diag)) return false;
        for (uint32_t j = 0; j < n->n_out; j++) {
            TensorId p = g->tensors.at[n->out[j]].grad_of;
            if (!p || g->tensors.at[p].role != ROLE_param) continue;
            for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++)
                if (!(job->data_axes >> a & 1) &&
                    layout_is_partial(op_axis_layout(n->op, &b, n->n_in + j, n->split[a])))
                    partial[p] = (AxisSet)(partial[p] | 1u << a);
        }
    }
    return true;
}

static int class_of(const Tensor *t, AxisSet partial, AxisSet data)
{
    if (partial) return CLASS_partial;
    return (layout_axes_split(&t->use, -1) & ~data) ? CLASS_split : CLASS_whole;
}

static void place(Job *job, Unit *u, const AxisSet *partial)
{
    Graph *g = &job->plan->graph;
    uint32_t n = u->params.n, at = 0;
    TensorId *sorted = arena_array(job->arena, n, sizeof *sorted);
    uint64_t offset = 0;
    for (int class_ = 0; class_ < CLASS_COUNT; class_++) {
        uint64_t lo = offset;
        for (uint32_t i = 0; i < n; i++) {
            TensorId id = u->params.at[i];
            Tensor *t = &g->tensors.at[id];
            if (class_of(t, partial[id], job->data_axes) != class_) continue;
            Shape s = {.n_dims = t->n_dims, .layout = t->use};
            for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
            t->flat_offset = offset;
            offset =
                align_up(offset + (uint64_t)shape_local_elements(&s, &job->plan->mesh, &g->deals),
                         FLAT_ALIGN_ELEMENTS);
            sorted[at++] = id;
            if (class_ == CLASS_partial) u->partial_axes = (AxisSet)(u->partial_axes | partial[id]);
        }
        if (class_ == CLASS_partial) u->partial_lo = lo, u->partial_hi = offset;
    }
    assert(at == n);
    for (uint32_t i = 0; i < n; i++) u->params.at[i] = sorted[i];
    u->elements = offset;
    u->padded =
        align_up(offset, (uint64_t)FLAT_ALIGN_ELEMENTS * mesh_size(&job->plan->mesh, u->shard));
}

bool pass_flatten(Job *job)
{
    Graph *g = &job->plan->graph;
    AxisSet *partial = arena_array(job->scratch, g->tensors.n, sizeof *partial);
    if (!find_partial(job, partial)) return false;
    for (UnitId u = 1; u < g->units.n; u++) place(job, &g->units.at[u], partial);
    return true;
}
