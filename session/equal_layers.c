#include "session/equal_layers.h"

#include <string.h>

#include "planner/base/hash.h"

/* Longest period that is tried. The layers of Gemma 3 repeat every 6. */
enum { MOST_PERIOD = 8 };

/* Adds input or output `t` of node `id` to the hash h. If the tensor comes from the same layer,
 * adds not its id but its producer's distance in nodes, so that equal layers get equal hashes.
 * place: [node] position in its layer. */
static uint64_t mix_tensor(uint64_t h, const Graph *g, const uint32_t *place, NodeId id, TensorId t)
{
    const Tensor *tensor = &g->tensors.at[t];
    const NodeId by = tensor->producer;
    h = hash_mix(h, tensor->role);
    h = hash_mix(h, tensor->dtype);
    for (uint8_t d = 0; d < tensor->n_dims; d++) h = hash_mix(h, (uint64_t)tensor->dim[d]);
    if (by == 0 || by == id) return hash_mix(h, by == id);
    const bool same = g->nodes.at[by].layer == g->nodes.at[id].layer;
    return hash_mix(h, same ? 2 + (place[id] - place[by]) : 1);
}

static uint64_t mix_node(uint64_t h, const Graph *g, const uint32_t *place, NodeId id)
{
    const Node *n = &g->nodes.at[id];
    const Attrs *attrs = graph_attrs_at(g, n->attrs);
    h = hash_mix(h, n->op);
    for (uint32_t a = 0; a < ATTRS; a++) {
        const double value = attr_get(attrs, a);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        h = hash_mix(h, bits);
    }
    for (uint32_t i = 0; i < attr_rope_pairs(attrs); i++) {
        uint64_t bits;
        memcpy(&bits, &attrs->rope_pair[i], sizeof bits);
        h = hash_mix(h, bits);
    }
    for (uint8_t i = 0; i < n->n_in; i++) h = mix_tensor(h, g, place, id, n->in[i]);
    for (uint8_t i = 0; i < n->n_out; i++) h = mix_tensor(h, g, place, id, n->out[i]);
    return h;
}

/* Returns the number of layers at the start that do not repeat with this period. hash: [layer],
 * from 1. */
static uint32_t lead_of(const uint64_t *hash, uint32_t n, uint32_t period)
{
    uint32_t lead = n - period;
    while (lead > 0 && hash[lead] == hash[lead + period]) lead--;
    return lead;
}

static void find_period(const uint64_t *hash, EqualLayers *l)
{
    uint32_t lead = l->n; /* without a period, no layer repeats */
    for (uint32_t p = 1; p <= MOST_PERIOD && p < l->n; p++) {
        const uint32_t with = lead_of(hash, l->n, p);
        /* at least two periods must fit, otherwise nothing repeats */
        if (with + 2 * p > l->n || with + p >= lead + l->period) continue;
        lead = with;
        l->period = p;
    }
    l->lead = lead;
}

EqualLayers equal_layers(const Graph *g, Arena *scratch)
{
    EqualLayers l = {.n = g->info.n_layers};
    uint64_t *hash = arena_array(scratch, l.n + 1, sizeof *hash);
    uint32_t *n_nodes = arena_array(scratch, l.n + 1, sizeof *n_nodes);
    /* [node]: the node's position in its layer */
    uint32_t *place = arena_array(scratch, g->nodes.n, sizeof *place);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const uint32_t layer = g->nodes.at[id].layer;
        if (layer > l.n) return (EqualLayers){0};
        place[id] = n_nodes[layer]++;
        hash[layer] = mix_node(hash[layer], g, place, id);
    }
    find_period(hash, &l);
    if (l.period == 0) return (EqualLayers){0};
    for (uint32_t i = 1; i <= l.lead; i++) l.first = hash_mix(l.first, hash[i]);
    for (uint32_t i = 1; i <= l.period; i++) l.each = hash_mix(l.each, hash[l.lead + i]);
    l.outside = hash[0];
    return l;
}

bool equal_layers_continue(const EqualLayers *a, const EqualLayers *b)
{
    return a->lead == b->lead && a->period == b->period && a->first == b->first &&
           a->each == b->each && a->outside == b->outside;
}
