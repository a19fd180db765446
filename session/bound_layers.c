/* Bounds from two plans of the same script: one of few layers, and one with one layer more on each
 * stage. If all layers are equal, each further layer adds at least as much time and memory as the
 * difference between the two plans. The reason: the time of a step is the length of the longest
 * path through its program. A path passes equal layers in the same way. So it remains a path if its
 * part in one layer is repeated or left out. This holds only if nothing else uses the network and
 * the devices. A test compares the bounds with whole plans. */
#include "session/bound_layers.h"

#include <inttypes.h>
#include <string.h>

#include "planner/base/hash.h"
#include "session/bound.h"

/* For a plan without pipeline stages: the number of micro-batches. The times repeat from the second
 * micro-batch on. */
enum { FEW_MICROBATCHES = 4 };

/* ---- equal layers */

/* Adds an input or output of a node to a hash. A tensor of the node's own layer counts by its place
 * in the layer, so that equal layers get equal hashes. */
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

typedef struct Layers {
    uint32_t n;             /* number of layers; 0: they differ */
    uint64_t each, outside; /* each: hash of one layer; outside: hash of all nodes outside layers */
} Layers;

static Layers layers_of(const Graph *g, Arena *scratch)
{
    Layers l = {.n = g->info.n_layers};
    uint64_t *hash = arena_array(scratch, l.n + 1, sizeof *hash);
    uint32_t *n_nodes = arena_array(scratch, l.n + 1, sizeof *n_nodes);
    /* [node]: the node's position in its layer */
    uint32_t *place = arena_array(scratch, g->nodes.n, sizeof *place);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const uint32_t layer = g->nodes.at[id].layer;
        if (layer > l.n) return (Layers){0};
        place[id] = n_nodes[layer]++;
        hash[layer] = mix_node(hash[layer], g, place, id);
    }
    for (uint32_t i = 2; i <= l.n; i++)
        if (hash[i] != hash[1]) return (Layers){0};
    if (l.n == 0) return l;
    l.each = hash[1];
    l.outside = hash[0];
    return l;
}

/* ---- passes */

/* True if a path of the pattern names a layer by its number. */
static bool names_a_layer(const Patterns *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        for (const char *c = p->at[i].path; *c != 0; c++)
            if (*c >= '0' && *c <= '9' && (c == p->at[i].path || c[-1] == '.')) return true;
    return false;
}

static bool treats_layers_alike(const PassConfig *p)
{
    const Patterns *const lists[] = {&p->tp.plan,       &p->ac_modules,  &p->freeze.modules,
                                     &p->freeze.except, &p->fsdp2.units, &p->zero.units,
                                     &p->float8.skip,   &p->float8.only};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (names_a_layer(lists[i])) return false;
    return p->ac_every <= 1 && !p->pp.is_own && !p->pp.has_split && p->pp.round == 0 &&
           p->pp.layers_per_stage == 0;
}

/* True if no unit has parameters of two layers. One collective for several layers takes less time
 * than one collective for each layer, but both small plans have few layers. So their difference
 * could be larger than the time that a layer adds in the whole plan. */
static bool units_stay_in_layers(const Graph *g)
{
    for (UnitId u = 1; u < g->units.n; u++) {
        uint32_t of = 0;
        for (uint32_t i = 0; i < g->units.at[u].params.n; i++) {
            const Tensor *t = &g->tensors.at[g->units.at[u].params.at[i]];
            const uint32_t layer = g->modules.at[t->module].layer;
            if (layer == 0 || layer == of) continue;
            if (of != 0) return false;
            of = layer;
        }
    }
    return true;
}

/* Returns the number of layers on each stage of the smaller plan: the current layer and those that
 * are gathered ahead. These are at least two, because the first and the last layer may differ from
 * the others. A bound of memory (`sized`) needs one more: the layer before, whose gradients are
 * still being reduced. */
static uint32_t few_layers(const Config *c, bool sized)
{
    uint32_t ahead = 1;
    for (uint32_t i = 0; i < c->n_passes; i++) {
        if (c->passes[i].fsdp2.prefetch > ahead) ahead = c->passes[i].fsdp2.prefetch;
        if (c->passes[i].zero.prefetch > ahead) ahead = c->passes[i].zero.prefetch;
    }
    return ahead + 1 + sized;
}

/* Returns the number of stages. All stages have the same number of layers. */
static uint32_t stages_of(const Config *c)
{
    const PassConfig *pp = config_pass(c, PASS_pp);
    const uint32_t ranks = config_ranks(c, axes_with(AXIS_STAGES));
    return ranks > 1 && pp != NULL && pp->pp.chunks > 1 ? ranks * pp->pp.chunks : ranks;
}

/* ---- the two plans */

typedef struct Sample {
    Ps step_ps; /* time of the plan's step; 0: unknown */
    uint64_t bytes, usable_bytes;
} Sample;

typedef struct Sampler {
    const char *path;
    const PlanOptions *load;
    const Config *config; /* the configuration of the whole plan */
    const Layers *whole;
    uint32_t fewer;
    bool sized; /* true if the small plans also bound the memory */
} Sampler;

static uint32_t fewer_of(const Config *c)
{
    const uint32_t n = session_microbatches(c);
    if (config_ranks(c, axes_with(AXIS_STAGES)) > 1) return session_fewer(c, true);
    return n > FEW_MICROBATCHES + 1 ? FEW_MICROBATCHES : 0;
}

static void measure(const Sampler *s, PlanFile *file, Arena *arena, Diag *told, Sample *out)
{
    const SimOptions how = {.steps = 1, .alone = true, .no_memory = true};
    SimReport report;
    if (session_simulate(file, &file->config.cluster, &how, arena, &report, told) &&
        !report.aperiodic)
        out->step_ps = report.step_ps;
    const Capacity c = session_capacity(file, arena);
    if (c.device_bytes == 0 || !s->sized) return;
    out->bytes = bound_bytes(file->plan, s->fewer == 0);
    out->usable_bytes = usable_bytes(c.device_bytes, c.reserved_bytes);
}

/* Compiles the script with `layers` layers. Returns false if the script then describes a model of
 * another kind. */
static bool sample(const Sampler *s, uint32_t layers, Arena *arena, Sample *out)
{
    PlanOptions o = *s->load;
    const char **set = arena_array(arena, o.n_set + 1, sizeof *set);
    for (uint32_t i = 0; i < o.n_set; i++) set[i] = o.set[i];
    set[o.n_set++] = arena_print(arena, "model.layers=%" PRIu32, layers);
    o.set = set;
    o.made_of = NULL;
    o.unproven = o.unplaced = true;
    o.fewer = s->fewer;
    o.by_period = true;
    /* errors are dropped here, because the whole plan reports them, too */
    Diag told = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    *out = (Sample){0};
    if (!session_read(s->path, &o, arena, config, &graph, &told)) return false;
    const Layers l = layers_of(&graph, arena);
    if (l.n != layers || l.each != s->whole->each || l.outside != s->whole->outside) return false;
    PlanFile *file = session_compile(config, &graph, &o, arena, &told);
    if (file == NULL || file->plan->programs.n == 0) return false;
    if (!units_stay_in_layers(&file->plan->graph)) return false;
    measure(s, file, arena, &told, out);
    return true;
}

/* Continues the line through the values `a` and `b`: returns the value `more` steps after `b`. */
static uint64_t beyond(uint64_t a, uint64_t b, uint32_t more)
{
    return b <= a ? b : b + (b - a) * more;
}

/* True if the two small plans together take less work than the whole plan. */
static bool is_cheaper(const Config *c, uint32_t layers, uint32_t few, uint32_t fewer)
{
    const uint32_t n = session_microbatches(c);
    return layers >= few + 2 && (2 * few + 1) * (fewer > 0 ? fewer : n) <= layers * n;
}

static bool two_samples(const Sampler *s, uint32_t few, uint32_t stages, Arena *arena,
                        LayerBounds *out)
{
    Sample a, b;
    if (!sample(s, few * stages, arena, &a) || !sample(s, (few + 1) * stages, arena, &b))
        return false;
    const uint32_t more = s->whole->n / stages - few - 1;
    if (a.step_ps > 0 && b.step_ps > 0)
        out->step_ps = (Ps)beyond((uint64_t)a.step_ps, (uint64_t)b.step_ps, more);
    out->bytes = beyond(a.bytes, b.bytes, more);
    out->usable_bytes = b.usable_bytes > a.usable_bytes ? b.usable_bytes : a.usable_bytes;
    return true;
}

bool bound_layers(const char *path, const PlanOptions *load, const Config *config,
                  const Graph *graph, Arena *arena, LayerBounds *out)
{
    *out = (LayerBounds){0};
    for (uint32_t i = 0; i < config->n_passes; i++)
        if (!treats_layers_alike(&config->passes[i])) return false;
    const Layers whole = layers_of(graph, arena);
    const uint32_t stages = stages_of(config), fewer = fewer_of(config);
    if (whole.n == 0 || whole.n % stages != 0 || config->cluster.is_local) return false;
    /* memory can be bounded only if programs begin in the same way for any number
     * of micro-batches */
    bool sized = fewer == 0 || stages == 1 || bound_microbatches(config) > 0;
    if (!is_cheaper(config, whole.n / stages, few_layers(config, sized), fewer)) sized = false;
    const uint32_t few = few_layers(config, sized);
    if (!is_cheaper(config, whole.n / stages, few, fewer)) return false;
    Sampler s = {.path = path,
                 .load = load,
                 .config = config,
                 .whole = &whole,
                 .fewer = fewer,
                 .sized = sized};
    if (!two_samples(&s, few, stages, arena, out)) return false;
    if (out->step_ps > 0 || s.fewer == 0 || stages > 1) return true;
    /* the times did not repeat yet, so try more micro-batches */
    s.fewer = session_fewer(config, true);
    return two_samples(&s, few, stages, arena, out);
}
