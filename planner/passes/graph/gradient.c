/* The gradient tensor that belongs to a tensor, for all passes that append gradient nodes. */
#include <string.h>

#include "planner/passes/pass.h"

/* Returns "grad(NAME)". */
static const char *name_of(Arena *arena, const char *name)
{
    static const char head[] = "grad(";
    const size_t n = strlen(name), before = sizeof head - 1;
    char *text = arena_alloc(arena, before + n + 2);
    memcpy(text, head, before);
    memcpy(text + before, name, n);
    text[before + n] = ')';
    return text;
}

TensorId gradient_of(Job *job, TensorId id)
{
    Graph *g = &job->plan->graph;
    if (g->tensors.at[id].grad) return g->tensors.at[id].grad;
    Tensor t = g->tensors.at[id];
    const char *name = name_of(job->arena, t.name);
    DType dtype = t.role == ROLE_param ? t.reduce_dtype : t.dtype;
    TensorId grad = graph_tensor(g, job->arena, name, ROLE_gradient, dtype, t.n_dims, t.dim, t.loc);
    Tensor *at = &g->tensors.at[grad];
    at->use = t.use;
    for (int d = 0; d < t.n_dims; d++) at->deal[d] = t.deal[d];
    at->module = t.module;
    at->grad_of = id;
    g->tensors.at[id].grad = grad;
    return grad;
}
