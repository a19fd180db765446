/* See update_memory.h. An optimizer that updates a list of tensors at once makes a temporary tensor
 * for each of them. Sources: torch.optim (_multi_tensor_adamw), Transformer Engine's fused_adam.py
 * (get_unscaled_state), Megatron-LM's distrib_optimizer.py (_copy_model_grads_to_main_grads). The
 * allocator can put such tensors into gaps that freed activations left, where a single large tensor
 * would not fit. */
#include "sim/memory/update_memory.h"

#include <string.h>

#include "planner/ir/graph.h"
#include "planner/ir/op/op.h"

static double elements_of(const Tensor *t)
{
    double n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (double)t->dim[d];
    return n;
}

/* Adds one tensor for each parameter of the unit. They divide `bytes` in proportion to the
 * parameters' elements. A unit without parameters gets a single tensor. */
static void add_tensors(UpdateMemory *m, const Graph *g, UnitId unit, double bytes, Arena *arena)
{
    double all = 0;
    for (TensorId t = 1; unit != 0 && t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->role == ROLE_param && at->unit == unit) all += elements_of(at);
    }
    if (all <= 0) list_push(arena, &m->tensors, (uint64_t)bytes);
    for (TensorId t = 1; all > 0 && t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param || at->unit != unit) continue;
        list_push(arena, &m->tensors, (uint64_t)(bytes * elements_of(at) / all));
    }
}

UpdateMemory update_memory(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena)
{
    UpdateMemory m;
    memset(&m, 0, sizeof m);
    for (Pc pc = 1; runtime->update_bytes > 0 && !runtime->frozen_base && pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!op_is_optimizer(in->op)) continue;
        const Buffer *b = &p->buffers.at[program_arg(p, in, 0)];
        const double bytes = (double)b->bytes / dtype_bytes(b->dtype) * runtime->update_bytes;
        add_tensors(&m, &plan->graph, in->unit, bytes, arena);
        if (m.first == 0) m.first = pc;
        m.last = pc;
    }
    return m;
}
