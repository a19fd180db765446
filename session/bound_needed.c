/* Which results the gradients of a node need, and whether the backward pass computes them again. */
#include <string.h>

#include "session/bound.h"

void bound_mark_needed(const Node *n, bool *needed)
{
    const OpInfo *op = op_info(n->op);
    for (uint8_t b = 0; b < op->n_backward; b++)
        for (uint8_t i = 0; i < op->backward[b].n_in; i++) {
            const Wire *w = &op->backward[b].in[i];
            if (w->kind == WIRE_i) needed[n->in[w->index]] = true;
            if (w->kind == WIRE_o) needed[n->out[w->index]] = true;
        }
}

bool bound_in_region(const Config *c, const Graph *g, const Node *n)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    if (ac == NULL || ac->ac == AC_none) return false;
    if (ac->ac == AC_full) return n->layer > 0;
    for (ModuleId m = n->module; m != 0; m = g->modules.at[m].parent)
        if (ac->ac == AC_modules || strcmp(g->modules.at[m].class_, "attention") == 0) return true;
    return false;
}
