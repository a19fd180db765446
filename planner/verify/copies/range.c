/* Checks that all indices of a plan are in range. The proofs of structure check the same and report
 * faults, but they run later, and only on the shorter plan. */
#include "planner/verify/copies/copies.h"

static bool nodes_in_range(const Graph *g)
{
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->op >= OP_COUNT || n->n_in > MAX_IN || n->n_out > MAX_OUT ||
            n->forward >= g->nodes.n || n->attrs >= g->attrs.n ||
            (n->module && n->module >= g->modules.n))
            return false;
        for (uint32_t i = 0; i < MAX_IN; i++)
            if (n->in[i] >= g->tensors.n || (i < n->n_in && !n->in[i])) return false;
        for (uint32_t j = 0; j < MAX_OUT; j++)
            if (n->out[j] >= g->tensors.n || (j < n->n_out && !n->out[j])) return false;
    }
    return true;
}

static bool graph_in_range(const Graph *g)
{
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->name == NULL || at->producer >= g->nodes.n || at->grad >= g->tensors.n ||
            at->grad_of >= g->tensors.n || (at->unit && at->unit >= g->units.n))
            return false;
    }
    for (UnitId u = 1; u < g->units.n; u++)
        for (uint32_t i = 0; i < g->units.at[u].params.n; i++)
            if (!g->units.at[u].params.at[i] || g->units.at[u].params.at[i] >= g->tensors.n)
                return false;
    return nodes_in_range(g) && g->n_forward < g->nodes.n && g->loss < g->tensors.n;
}

static bool buffers_in_range(const Plan *plan, const Program *p)
{
    const Graph *g = &plan->graph;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent >= p->buffers.n || p->buffers.at[at->parent].parent ||
            at->tensor >= g->tensors.n || (at->unit && at->unit >= g->units.n) ||
            at->first >= p->code.n || at->last >= p->code.n || at->shape >= plan->shapes.n ||
            at->bytes > UINT64_C(1) << 62)
            return false;
    }
    return true;
}

static bool code_in_range(const Plan *plan, const Program *p)
{
    const Graph *g = &plan->graph;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op >= OP_COUNT || in->stream >= STREAM_COUNT || in->phase >= PHASE_COUNT ||
            in->origin >= g->nodes.n || (in->unit && in->unit >= g->units.n) ||
            in->attrs >= g->attrs.n || in->match >= plan->n_match || in->args.n > MAX_ARGS ||
            in->n_in > in->args.n || (uint64_t)in->args.first + in->args.n > p->args.n ||
            (uint64_t)in->after.first + in->after.n > p->after.n)
            return false;
        for (uint32_t i = 0; i < in->args.n; i++)
            if (!p->args.at[in->args.first + i] || p->args.at[in->args.first + i] >= p->buffers.n)
                return false;
        for (uint32_t k = 0; k < in->after.n; k++)
            if (!p->after.at[in->after.first + k] || p->after.at[in->after.first + k] >= pc)
                return false;
    }
    return true;
}

bool copies_in_range(const Plan *plan)
{
    const Graph *g = &plan->graph;
    if (g->tensors.n == 0 || g->nodes.n == 0 || g->units.n == 0 || g->attrs.n == 0) return false;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        if (p->code.n == 0 || p->buffers.n == 0 || p->buffers.at[0].parent) return false;
        if (plan->n_match > p->code.n + 1) return false;
        if (!buffers_in_range(plan, p) || !code_in_range(plan, p)) return false;
    }
    return graph_in_range(g);
}
