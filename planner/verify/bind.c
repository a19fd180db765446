/* Binds ops to the shapes of their arguments. Layers repeat, so a result is stored and used for all
 * instructions with the same op and the same shapes. */
#include <string.h>

#include "planner/verify/value/value.h"

static uint32_t bound_key(const Verifier *v, const Instr *in, uint32_t key[2 + MAX_ARGS])
{
    uint32_t n = verify_n_args(in);
    key[0] = (uint32_t)in->op;
    key[1] = (uint32_t)in->n_in << 16 | n;
    for (uint32_t i = 0; i < n; i++) key[2 + i] = v->p->buffers.at[program_arg(v->p, in, i)].shape;
    return 2 + n;
}

static uint32_t bound_slot(const Verifier *v, const uint32_t *key, uint32_t n)
{
    uint32_t s = (uint32_t)hash_bytes(key, n * sizeof *key).lo & (v->n_bound_slots - 1);
    for (; v->bound_slots[s]; s = (s + 1) & (v->n_bound_slots - 1))
        if (memcmp(v->bounds.at[v->bound_slots[s]]->key, key, n * sizeof *key) == 0) break;
    return s;
}

static void grow_bound_slots(Verifier *v)
{
    v->n_bound_slots = v->n_bound_slots ? 2 * v->n_bound_slots : 512;
    v->bound_slots = arena_array(v->arena, v->n_bound_slots, sizeof *v->bound_slots);
    for (uint32_t i = 1; i < v->bounds.n; i++)
        v->bound_slots[bound_slot(v, v->bounds.at[i]->key, v->bounds.at[i]->n_key)] = i;
}

Bound *verify_bound(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    uint32_t key[2 + MAX_ARGS] = {0}, n = bound_key(v, in, key);
    list_reserve_none(v->arena, &v->bounds);
    /* micro-batches repeat, so in most cases the node was bound to these shapes before */
    if (!v->bound_of_node)
        v->bound_of_node = arena_array(v->arena, v->g->nodes.n + 1, sizeof *v->bound_of_node);
    Bound **newest = in->origin < v->g->nodes.n ? &v->bound_of_node[in->origin] : NULL;
    if (newest && *newest && (*newest)->n_key == n && !memcmp((*newest)->key, key, n * sizeof *key))
        return *newest;
    if (2 * v->bounds.n >= v->n_bound_slots) grow_bound_slots(v);
    uint32_t slot = bound_slot(v, key, n);
    if (v->bound_slots[slot]) {
        Bound *found = v->bounds.at[v->bound_slots[slot]];
        if (newest) *newest = found;
        return found;
    }
    Bound *made = arena_alloc(v->arena, sizeof *made);
    memcpy(made->key, key, sizeof key);
    made->n_key = n;
    Dims dims[MAX_ARGS];
    for (uint32_t i = 0; i + 2 < n; i++) {
        const Shape *s = &v->plan->shapes.at[key[2 + i]];
        dims[i] = (Dims){s->n_dims, s->dim};
    }
    Diag why = diag_in(v->arena);
    if (!op_bind(in->op, dims, in->n_in, dims + in->n_in, n - 2 - in->n_in, &made->binding,
                 (Loc){NULL, 0}, &why))
        made->fault = why.items.n ? why.items.at[0].text : op_info(in->op)->signature;
    v->bound_slots[slot] = (uint32_t)list_push(v->arena, &v->bounds, made);
    if (newest) *newest = made;
    return made;
}
