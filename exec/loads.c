#include "exec/loads.h"

#include <assert.h>
#include <string.h>

#include "exec/backend.h"

/* Returns true for the op that reads the ids of the chosen experts and assigns a slot to each
 * choice, or drops the choice. */
static bool assigns_slots(OpKind op)
{
    return op_info(op)->flags & OP_INDEXES && op_index_args(op) & 1 && !op_counts_rows(op);
}

LoadCounts *loads_new(const Plan *plan, Arena *arena)
{
    const Graph *g = &plan->graph;
    LoadCounts *l = arena_alloc(arena, sizeof *l);
    uint32_t *layer_of = arena_array(arena, g->nodes.n + 1, sizeof *layer_of);
    *l = (LoadCounts){.layer_of = layer_of};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        if (!assigns_slots(g->nodes.at[id].op)) continue;
        const int64_t n = graph_attrs_at(g, g->nodes.at[id].attrs)->experts;
        if (n > l->n_experts) l->n_experts = (uint32_t)n;
        layer_of[id] = ++l->n_layers;
    }
    if (l->n_layers == 0) return NULL;
    l->chosen = arena_array(arena, (size_t)l->n_layers * l->n_experts, sizeof *l->chosen);
    l->dropped = arena_array(arena, l->n_layers, sizeof *l->dropped);
    return l;
}

static bool is_first_of_equals(const Plan *plan, Rank rank, const Node *n)
{
    for (uint32_t a = 0; a < plan->mesh.n_axes; a++) {
        const bool stages = axis_info(plan->mesh.axis[a].name)->flags & AXIS_STAGES;
        if (!stages && !n->split[a] && mesh_coordinate(&plan->mesh, rank, a) > 0) return false;
    }
    return true;
}

uint32_t loads_layer(const LoadCounts *l, const Plan *plan, Rank rank, const Instr *in)
{
    const uint32_t layer = in->origin ? l->layer_of[in->origin] : 0;
    if (layer == 0 || !assigns_slots(in->op) || in->phase != PHASE_forward) return 0;
    return is_first_of_equals(plan, rank, &plan->graph.nodes.at[in->origin]) ? layer : 0;
}

void loads_count(LoadCounts *l, const Plan *plan, Rank rank, const Instr *in,
                 const KernelArgs *args)
{
    const uint32_t layer = loads_layer(l, plan, rank, in);
    if (layer == 0) return;
    const int32_t *ids = args->ptr[0], *slots = args->ptr[1];
    uint64_t *chosen = l->chosen + (size_t)(layer - 1) * l->n_experts;
    for (int64_t i = 0; i < args->elements[0]; i++) {
        assert(ids[i] >= 0 && (uint32_t)ids[i] < l->n_experts);
        chosen[ids[i]]++;
        l->dropped[layer - 1] += slots[i] < 0;
    }
}

static void summarise(const Plan *plan, const LoadCounts *l, ExpertLoads *out)
{
    const Graph *g = &plan->graph;
    uint64_t all = 0, dropped = 0;
    out->idlest = (double)l->n_experts; /* the largest possible ratio, as a start for a minimum */
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const uint32_t layer = l->layer_of[id];
        const uint64_t *chosen = layer ? l->chosen + (size_t)(layer - 1) * l->n_experts : NULL;
        const int64_t n = layer ? graph_attrs_at(g, g->nodes.at[id].attrs)->experts : 0;
        uint64_t of_layer = 0;
        for (int64_t e = 0; e < n; e++) of_layer += chosen[e];
        for (int64_t e = 0; e < n && of_layer > 0; e++) {
            out->n_experts++, out->n_empty += chosen[e] == 0;
            const double part = (double)chosen[e] * (double)n / (double)of_layer;
            if (part > out->busiest) out->busiest = part, out->module = g->nodes.at[id].module;
            if (part < out->idlest) out->idlest = part;
        }
        all += of_layer;
        dropped += layer ? l->dropped[layer - 1] : 0;
    }
    out->dropped_part = all > 0 ? (double)dropped / (double)all : 0;
}

bool loads_gather(Backend *backend, const Plan *plan, Arena *arena, ExpertLoads *out, Diag *d)
{
    Rank first;
    uint32_t n_ranks, own;
    *out = (ExpertLoads){.busiest = 0};
    if (backend->loads == NULL) return true;
    LoadCounts *sum = loads_new(plan, arena);
    if (sum == NULL) return true;
    const uint32_t n_processes = backend->processes(backend, &own);
    const size_t n_chosen = (size_t)sum->n_layers * sum->n_experts, n = n_chosen + sum->n_layers;
    uint64_t *mine = arena_array(arena, n, sizeof *mine);
    uint64_t *all = arena_array(arena, n * n_processes, sizeof *all);
    backend->ranks(backend, &first, &n_ranks);
    for (Rank r = first; r < first + n_ranks; r++) {
        const LoadCounts *one = backend->loads(backend, r);
        for (size_t i = 0; one != NULL && i < n; i++)
            mine[i] += i < n_chosen ? one->chosen[i] : one->dropped[i - n_chosen];
    }
    if (!backend->exchange(backend, mine, n * sizeof *mine, all, d)) return false;
    for (uint32_t p = 0; p < n_processes; p++)
        for (size_t i = 0; i < n; i++)
            *(i < n_chosen ? &sum->chosen[i] : &sum->dropped[i - n_chosen]) += all[p * n + i];
    summarise(plan, sum, out);
    out->counts = sum;
    return true;
}
