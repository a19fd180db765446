/* Bounds from two small plans of the same script: one with few layers, and one with one more period
 * of layers on each stage (most models have a period of one layer). Each further period adds at
 * least as much time and memory as the difference between the two plans.
 *
 * The reason: the step time is the longest path through the program. A path can run through equal
 * layers in the same way. So a path stays a path if its piece in one period is repeated. This holds
 * if nothing else uses the network and the devices, and if a kernel's time does not depend on the
 * number of layers. A test compares the bounds with whole plans.
 */
#include "session/bound_layers.h"

#include <inttypes.h>
#include <string.h>

#include "session/bound.h"
#include "session/equal_layers.h"

/* Micro-batches of the two small plans without a pipeline. Times repeat from the second one on. */
enum { FEW_MICROBATCHES = 4 };

/* ---- passes */

/* True if a pattern names a layer by its index, such as "layers.0.*". */
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
           p->pp.layers_per_stage == 0 && !p->pp.empty_first && !p->pp.empty_last;
}

/* True if no unit (FSDP) has parameters of two layers. One collective for several layers takes less
 * time than one for each layer, but the small plans have few layers: their difference could be more
 * than a layer adds to the whole plan. */
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

/* Returns the layers on each stage of the smaller plan, if the whole plan has `per_stage`: the
 * first layers that do not repeat, one period, and the periods that are gathered ahead. At least
 * one period counts as gathered ahead, because the first and the last period may differ from the
 * others. A bound of memory (`sized`) needs one more: the period before, whose gradients are still
 * being reduced. */
static uint32_t few_layers(const Config *c, const EqualLayers *l, uint32_t per_stage, bool sized)
{
    uint32_t ahead = 1;
    for (uint32_t i = 0; i < c->n_passes; i++) {
        if (c->passes[i].fsdp2.prefetch > ahead) ahead = c->passes[i].fsdp2.prefetch;
        if (c->passes[i].zero.prefetch > ahead) ahead = c->passes[i].zero.prefetch;
    }
    uint32_t few = l->lead + (ahead + 1 + sized) * l->period;
    /* both plans must end with the same layer of a period */
    while (few < per_stage && (per_stage - few) % l->period != 0) few++;
    return few;
}

/* Returns the number of stages over all pipeline ranks. */
static uint32_t stages_of(const Config *c)
{
    const PassConfig *pp = config_pass(c, PASS_pp);
    const uint32_t ranks = config_ranks(c, axes_with(AXIS_STAGES));
    return ranks > 1 && pp != NULL && pp->pp.chunks > 1 ? ranks * pp->pp.chunks : ranks;
}

/* ---- the two plans */

typedef struct Sample {
    Ps step_ps; /* step time; 0: unknown */
    uint64_t bytes, usable_bytes;
} Sample;

typedef struct Sampler {
    const char *path;
    const PlanOptions *load;
    const Config *config; /* configuration of the whole plan */
    const EqualLayers *whole;
    uint32_t fewer;
    bool sized; /* the small plans are also used to bound the memory */
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

/* Compiles and simulates the script with --set model.layers=`layers`. Returns false if it then
 * describes a model of another kind, or cannot be compiled. */
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
    /* errors are dropped: compiling the whole plan reports them */
    Diag told = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    *out = (Sample){0};
    if (!session_read(s->path, &o, arena, config, &graph, &told)) return false;
    const EqualLayers l = equal_layers(&graph, arena);
    if (l.n != layers || !equal_layers_continue(&l, s->whole)) return false;
    PlanFile *file = session_compile(config, &graph, &o, arena, &told);
    if (file == NULL || file->plan->programs.n == 0) return false;
    if (!units_stay_in_layers(&file->plan->graph)) return false;
    measure(s, file, arena, &told, out);
    return true;
}

/* Extrapolates linearly: for values a and b of two successive sizes, returns the value `more` sizes
 * after b. */
static uint64_t beyond(uint64_t a, uint64_t b, uint32_t more)
{
    return b <= a ? b : b + (b - a) * more;
}

/* Number of layers of one stage, and the period in which they repeat. */
typedef struct Stage {
    uint32_t layers, period;
} Stage;

/* True if compiling the two small plans is less work than compiling the whole plan. */
static bool is_cheaper(const Config *c, Stage whole, uint32_t few, uint32_t fewer)
{
    const uint32_t n = session_microbatches(c);
    return whole.layers >= few + 2 * whole.period &&
           (2 * few + whole.period) * (fewer > 0 ? fewer : n) <= whole.layers * n;
}

static bool two_samples(const Sampler *s, Stage whole, uint32_t few, uint32_t stages, Arena *arena,
                        LayerBounds *out)
{
    Sample a, b;
    if (!sample(s, few * stages, arena, &a) || !sample(s, (few + whole.period) * stages, arena, &b))
        return false;
    const uint32_t more = (whole.layers - few) / whole.period - 1;
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
    const EqualLayers layers = equal_layers(graph, arena);
    const uint32_t stages = stages_of(config), fewer = fewer_of(config);
    /* if some stages have one layer more than others, bound the plan without these layers */
    const Stage whole = {.layers = layers.n / stages, .period = layers.period};
    if (layers.n == 0 || config->cluster.is_local) return false;
    if (stages > 1 && layers.period > 1 && layers.n % (stages * layers.period) != 0) return false;
    /* a pipeline's memory can be bounded only if programs of any number of micro-batches begin
     * alike */
    bool sized = fewer == 0 || stages == 1 || bound_microbatches(config) > 0;
    if (!is_cheaper(config, whole, few_layers(config, &layers, whole.layers, sized), fewer))
        sized = false;
    const uint32_t few = few_layers(config, &layers, whole.layers, sized);
    if (!is_cheaper(config, whole, few, fewer)) return false;
    Sampler s = {.path = path,
                 .load = load,
                 .config = config,
                 .whole = &layers,
                 .fewer = fewer,
                 .sized = sized};
    if (!two_samples(&s, whole, few, stages, arena, out)) return false;
    if (out->step_ps > 0 || s.fewer == 0 || stages > 1) return true;
    /* the times did not repeat yet, so try more micro-batches */
    s.fewer = session_fewer(config, true);
    return two_samples(&s, whole, few, stages, arena, out);
}
