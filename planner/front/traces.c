/* The models that a held script has traced (its process answers many requests). Each distinct model
 * is traced once. */
#include <string.h>

#include "planner/front/parent.h"

static TraceKey key_of(const Config *c, const Draft *draft)
{
    TraceKey key;
    memset(&key, 0, sizeof key);
    key.batch = c->micro_batch * config_data_ranks(c);
    key.seq = c->seq;
    key.channels = c->channels, key.targets = c->targets;
    key.height = c->height, key.width = c->width;
    key.global_batch = c->global_batch;
    key.group = c->group;
    key.compute = c->compute, key.param = c->param, key.reduce = c->reduce;
    key.init = draft->init;
    key.denominator = c->denominator;
    return key;
}

bool traces_find(Traces *traces, const Draft *draft, bool shares, Rebuild *b)
{
    const Config *c = &draft->config;
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == PASS_pp && c->passes[i].pp.is_own) shares = false;
    if (!shares) return false;
    const TraceKey key = key_of(c, draft);
    for (uint32_t i = 0; i < traces->list.n; i++) {
        const KeptTrace *t = traces->list.at[i];
        if (!t->complete || memcmp(&t->key, &key, sizeof key) != 0) continue;
        if (strcmp(t->model, traces->model) != 0) continue;
        *b->graph = t->graph;
        b->known = true;
        return true;
    }
    b->kept = arena_alloc(traces->arena, sizeof *b->kept);
    b->kept->key = key;
    b->kept->model = arena_dup(traces->arena, traces->model);
    b->arena = traces->arena;
    graph_init(b->graph, b->arena);
    return false;
}

void traces_keep(Traces *traces, Rebuild *b)
{
    Graph *g = b->graph;
    for (TensorId i = 1; i < g->tensors.n; i++)
        g->tensors.at[i].loc.file = texts_keep(&traces->texts, g->tensors.at[i].loc.file);
    for (NodeId i = 1; i < g->nodes.n; i++)
        g->nodes.at[i].loc.file = texts_keep(&traces->texts, g->nodes.at[i].loc.file);
    for (ModuleId i = 1; i < g->modules.n; i++)
        g->modules.at[i].loc.file = texts_keep(&traces->texts, g->modules.at[i].loc.file);
    b->kept->graph = *g;
    b->kept->complete = true;
    list_push(traces->arena, &traces->list, b->kept);
}
