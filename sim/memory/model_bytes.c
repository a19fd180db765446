/* See model_bytes.h. */
#include "sim/memory/model_bytes.h"

#include "planner/ir/graph.h"

double model_weight_part(const Plan *plan, const Program *p, const Runtime *runtime)
{
    const Graph *g = &plan->graph;
    bool has_copies = false;
    double wide = 0, all = 0;
    for (Pc pc = 1; runtime->frozen_base && !has_copies && pc < p->code.n; pc++)
        has_copies = runtime_quantises_weight(p, &p->code.at[pc]);
    for (TensorId t = 1; has_copies && t < g->tensors.n; t++) {
        const Tensor *x = &g->tensors.at[t];
        double elements = 1;
        for (int d = 0; d < x->n_dims; d++) elements *= (double)x->dim[d];
        if (x->role != ROLE_param) continue;
        all += elements;
        if (g->modules.at[x->module].layer == 0) wide += elements;
    }
    return all > 0 ? (wide + all) / (2 * all) : 1;
}

uint64_t model_whole_bytes(const Plan *plan, const Runtime *runtime)
{
    const AxisSet dealt = mesh_axes_of(&plan->mesh, axes_with(AXIS_WEIGHTS | AXIS_STAGES));
    uint64_t bytes = 0;
    for (TensorId t = 1; runtime->starts_whole && dealt == 0 && t < plan->graph.tensors.n; t++) {
        const Tensor *x = &plan->graph.tensors.at[t];
        uint64_t elements = dtype_bytes(x->rest_dtype);
        if (x->role != ROLE_param) continue;
        for (int d = 0; d < x->n_dims; d++) elements *= (uint64_t)x->dim[d];
        bytes += elements;
    }
    return bytes;
}
