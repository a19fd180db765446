/* FSDP2 and HSDP. Parameters are grouped into units, each with one flat buffer (Unit in graph.h): a
 * unit for each block, and for each module that sets fsdp2_shard. If the user lists modules, these
 * are the units instead. All other parameters form the root unit. Between steps, a unit's buffer is
 * divided over dp_shard, and every replica along dp_replicate has the same parts. It is gathered
 * before use. */
#include <assert.h>

#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"

/* Marks the modules that become units: those that the user lists; without a list, the blocks and
 * the modules that set fsdp2_shard. */
static void choose_units(Job *job, const PassConfig *pass, const UnitRule *rule)
{
    const Graph *g = &job->plan->graph;
    bool *is_unit = arena_array(job->arena, g->modules.n + 1, sizeof *is_unit);
    const char *where = pass->name == PASS_zero ? "zero.units" : "fsdp2.units";
    for (uint32_t i = 0; i < rule->units->n; i++)
        pattern_mark(job, where, &rule->units->at[i], is_unit);
    for (ModuleId m = 1; rule->units->n == 0 && !rule->may_be_one && m < g->modules.n; m++)
        is_unit[m] = g->modules.at[m].is_block || g->modules.at[m].fsdp2_shard;
    job->sharding.is_unit = is_unit;
}

/* Returns an array with an entry for each tensor: true for a weight that may be gathered in 8 bits.
 * At least one op quantises it, and all its readers need one scale for the whole weight. */
static bool *find_quantised(Job *job)
{
    const Graph *g = &job->plan->graph;
    bool *is = arena_array(job->scratch, g->tensors.n, sizeof *is);
    bool *plain = arena_array(job->scratch, g->tensors.n, sizeof *plain);
    for (NodeId id = 1; id < g->nodes.n && job->sharding.gathers_bytes; id++) {
        const Node *n = &g->nodes.at[id];
        const bool whole = op_scales_whole(n->op), quantises = op_info(n->op)->flags & OP_QUANTISES;
        for (uint32_t i = 0; i < n->n_in; i++) {
            is[n->in[i]] = is[n->in[i]] || (whole && quantises);
            plain[n->in[i]] = plain[n->in[i]] || !whole;
        }
    }
    for (TensorId t = 1; t < g->tensors.n; t++) is[t] = is[t] && !plain[t];
    return is;
}

/* The root units that have been made: one for each pipeline rank, or several if their size is
 * limited. */
typedef struct Roots {
    UnitId *newest;     /* [pipeline rank] */
    uint64_t *elements; /* [pipeline rank]: elements of its newest root unit */
    uint32_t *n_of;     /* [pipeline rank]: how many root units it has */
    uint32_t n;         /* how many root units there are in all, with units of tied parameters */
} Roots;

static uint64_t elements_of(const Job *job, const Tensor *t)
{
    Shape s = {.n_dims = t->n_dims, .layout = t->use};
    for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
    return (uint64_t)shape_local_elements(&s, &job->plan->mesh, &job->plan->graph.deals);
}

static UnitId root_for(Job *job, TensorId t, const UnitRule *rule, Roots *roots)
{
    uint32_t rank = param_rank(job, t);
    uint64_t own = elements_of(job, &job->plan->graph.tensors.at[t]);
    bool full = rule->root_elements && roots->newest[rank] &&
                roots->elements[rank] + own > rule->root_elements;
    if (!roots->newest[rank] || full) {
        const char *name =
            job->pipe.schedule->n_ranks > 1 ? arena_print(job->arena, "root.%u", rank) : "root";
        if (roots->n_of[rank]++ > 0)
            name = arena_print(job->arena, "%s.%u", name, roots->n_of[rank] - 1);
        roots->newest[rank] = unit_new(job, name, rule->shard, rule->replicate);
        roots->elements[rank] = 0;
        roots->n++;
    }
    roots->elements[rank] += own;
    return roots->newest[rank];
}

/* Adds the unit for the experts in module m. ep (`own`) already divides experts, so this unit is
 * sharded over the other axes only. In a unit with the block's other parameters, the reduction of
 * the unit's gradients would lie between the two exchanges of tokens in the block's backward pass.
 * Only some of the ranks take part in such a reduction. */
static UnitId experts_unit(Job *job, ModuleId m, const UnitRule *rule, AxisSet own)
{
    const char *path = m ? job->plan->graph.modules.at[m].path : "root";
    return unit_new(job, arena_print(job->arena, "experts of %s", path),
                    (AxisSet)(rule->shard & ~own), (AxisSet)(rule->replicate & ~own));
}

bool units_by_block(Job *job, const PassConfig *pass, const UnitRule *rule)
{
    Graph *g = &job->plan->graph;
    uint32_t n_ranks = job->pipe.schedule->n_ranks, before = job->diag->n_errors;
    UnitId *of_module =
        arena_array(job->scratch, (size_t)(g->modules.n + 1) * n_ranks, sizeof *of_module);
    UnitId *in_bytes =
        arena_array(job->scratch, (size_t)(g->modules.n + 1) * n_ranks, sizeof *in_bytes);
    UnitId *of_experts =
        arena_array(job->scratch, (size_t)(g->modules.n + 1) * n_ranks, sizeof *of_experts);
    const bool *quantised = find_quantised(job);
    Roots roots = {.newest = arena_array(job->scratch, n_ranks, sizeof *roots.newest),
                   .elements = arena_array(job->scratch, n_ranks, sizeof *roots.elements),
                   .n_of = arena_array(job->scratch, n_ranks, sizeof *roots.n_of)};
    choose_units(job, pass, rule);
    if (job->diag->n_errors > before) return false;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param) continue;
        if (param_second_rank(job, t) != UINT32_MAX) {
            unit_take(job, unit_new(job, g->tensors.at[t].name, rule->shard, rule->replicate), t);
            roots.n++;
            continue;
        }
        ModuleId m = unit_module(job, g->tensors.at[t].module);
        uint32_t rank = param_rank(job, t);
        UnitId *bytes = &in_bytes[m * n_ranks + rank];
        /* weights that are gathered in 8 bits form a unit of their own */
        if (m && rule->shard && quantised[t]) {
            const char *path = g->modules.at[m].path;
            if (!*bytes)
                *bytes = unit_new(job, arena_print(job->arena, "%s in 8 bits", path), rule->shard,
                                  rule->replicate);
            unit_take(job, *bytes, t);
            g->units.at[*bytes].dtype = DT_e4m3;
            continue;
        }
        if (own_axes(job, t)) {
            UnitId *of = &of_experts[m * n_ranks + rank];
            if (!*of) *of = experts_unit(job, m, rule, own_axes(job, t));
            unit_take(job, *of, t);
            continue;
        }
        /* one unit for each pipeline rank that has layers of the module */
        UnitId *of = &of_module[m * n_ranks + rank];
        if (m && !*of) *of = unit_new(job, g->modules.at[m].path, rule->shard, rule->replicate);
        unit_take(job, m ? *of : root_for(job, t, rule, &roots), t);
    }
    /* a model that --verify has shrunk may lack the listed layers */
    bool shrunk = rule->units->n > 0 && rule->units->at[0].may_miss;
    if (g->units.n == roots.n + 1 && rule->shard && !shrunk && !rule->may_be_one) {
        diag_error(job->diag, FAULT_input, "fsdp2-matched-nothing", pass->loc,
                   "fsdp2{}: %s, so the whole model would be gathered at once",
                   rule->units->n > 0 ? "the listed units have no parameters"
                                      : "no block was found");
        diag_hint(job->diag, "mark the repeated module with nn.block or fsdp2_shard = true");
        return false;
    }
    return true;
}

/* Refuses keep_gathered together with options that reshard: weights that stay gathered for the
 * whole step are never freed within it. */
static void check_kept(Job *job, const PassConfig *pass)
{
    const Fsdp2Options *o = &pass->fsdp2;
    bool in_parts = o->reshard_after_forward == RESHARD_to;
    if (!o->keep_gathered || (!in_parts && !o->reshard_root)) return;
    const char *other = in_parts
                            ? arena_print(job->scratch, "reshard_after_forward = %u", o->reshard_to)
                            : "reshard_root = true";
    diag_error(job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
               "fsdp2{}: keep_gathered = true keeps gathered weights for the whole step, but %s "
               "frees them after each forward pass",
               other);
    diag_hint(job->diag, "leave out %s or keep_gathered",
              in_parts ? "reshard_after_forward" : "reshard_root");
}

/* Refuses offload if two pipeline stages share a parameter: they sum its reduced gradients on the
 * device, but offload moves these to the host. */
static void check_offload(Job *job, const PassConfig *pass)
{
    const Graph *g = &job->plan->graph;
    if (!pass->fsdp2.offload) return;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param || param_second_rank(job, t) == UINT32_MAX)
            continue;
        diag_error(
            job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
            "offload = true does not work with %s, because two pipeline ranks hold this parameter",
            g->tensors.at[t].name);
        diag_hint(job->diag, "untie the head from the embedding, or leave out offload");
        return;
    }
}

/* Refuses options that contradict float8{}, which sets the dtypes of the products that it converts,
 * and has its own option for gathers in 8 bits. */
static void check_float8(Job *job, const PassConfig *pass)
{
    const PassConfig *float8 = pass_config(job, PASS_float8);
    const Fsdp2Options *o = &pass->fsdp2;
    if (!float8) return;
    if (o->mp.param || o->mp.reduce || o->mp.output) {
        diag_error(job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
                   "fsdp2.mp does not work with float8{}, because both set the types of linears");
        diag_hint(job->diag, "leave out mp, and set the types with precision");
        return;
    }
    if (!float8->float8.fsdp_gather || (!o->copy && !o->offload)) return;
    diag_error(
        job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
        "fsdp2.%s does not work with float8.fsdp_gather, which needs the shards in device memory",
        o->offload ? "offload" : "copy");
    diag_hint(job->diag, "leave out fsdp_gather, or %s", o->offload ? "offload" : "copy");
}

static bool pass_fsdp2(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_fsdp2);
    uint32_t before = job->diag->n_errors;
    check_kept(job, pass);
    check_offload(job, pass);
    check_float8(job, pass);
    job->sharding.options = pass->fsdp2;
    if (!mesh_shard_axes(&job->plan->mesh)) job->sharding.options.offload = false;
    if (pass->fsdp2.keep_gathered) {
        job->sharding.resident = job->sharding.options.defer_grad_sync = true;
        job->sharding.options.reshard_after_forward = RESHARD_false;
    }
    if (pass->fsdp2.pipeline_stage) job->sharding.options.defer_grad_sync = true;
    const MpPolicy *mp = &pass->fsdp2.mp;
    bool has_policy = job->data_axes && (mp->param || mp->reduce || mp->output);
    const AxisSet left_out =
        pass->fsdp2.over_ep ? 0 : mesh_axes_of(&job->plan->mesh, axes_trading(INDEX_experts));
    UnitRule rule = {.shard = (AxisSet)(mesh_shard_axes(&job->plan->mesh) & ~left_out),
                     .units = &pass->fsdp2.units};
    rule.replicate = (AxisSet)(job->data_axes & ~rule.shard);
    if (!units_by_block(job, pass, &rule) || job->diag->n_errors > before) return false;
    return !has_policy || mixed_precision(job, mp);
}

static const PassOption options[] = {
    OPTION_LIST("fsdp2.units", modules, fsdp2.units, 0,
                "leave out units to make each block a unit; zero { units = {} } makes the whole "
                "model one unit",
                "the blocks", "", "Paths of the modules that are units. Default: each block."),
    {.field = {"fsdp2.reshard_after_forward", FIELD_reshard, offsetof(PassConfig, fsdp2), 1, 131072,
               NULL},
     .preset = NAN,
     .open = "true",
     .doc = {NULL, "ranks",
             "true: gathered weights are freed after the forward pass of their unit. false: they "
             "are kept for its backward pass. N: they are kept for its backward pass, sharded over "
             "N ranks."}},
    OPTION_FLAG(fsdp2.reshard_root, 0, "",
                "true: the weights of the root unit are freed after the forward pass, too. The "
                "root unit holds all parameters outside other units."),
    OPTION_FLAG(
        fsdp2.reshard_last, 1, "",
        "false: the weights of the last block of each stage are kept for its backward pass."),
    OPTION_FLAG(fsdp2.keep_gathered, 0, "",
                "true: each step gathers weights once and reduces gradients once, however many "
                "micro-batches it has."),
    OPTION_AS("fsdp2.offload", offload, fsdp2.offload, 0, 1, NULL, 0, "",
              "true: parameters, gradients and optimizer state are kept in host memory, and the "
              "host updates the parameters."),
    OPTION_FLAG(
        fsdp2.copy, 0, "",
        "true: the plan contains the copies that PyTorch makes before and after each collective."),
    OPTION_FLAG(fsdp2.over_ep, 1, "",
                "true: parameters other than experts are sharded over ep, too. false: every rank "
                "of ep holds them."),
    {.field = {"fsdp2.mp", FIELD_table, 0, 0, 0, NULL},
     .preset = NAN,
     .open = "as precision says",
     .doc = {NULL, "", "The number types of all units, like PyTorch's MixedPrecisionPolicy."}},
    OPTION_OPEN(dtype, fsdp2.mp.param, 0, 0, NULL, "precision.compute", "dtype",
                "The type of gathered parameters. Default: precision.compute."),
    OPTION_OPEN(dtype, fsdp2.mp.reduce, 0, 0, NULL, "precision.reduce", "dtype",
                "The type in which gradients are reduced. Default: precision.reduce."),
    OPTION_OPEN(dtype, fsdp2.mp.output, 0, 0, NULL, "as computed", "dtype",
                "The type of a unit's output. Default: the type in which it is computed."),
    OPTION_FLAG(fsdp2.mp.cast_forward_inputs, 1, "",
                "true: the inputs of a unit are cast to mp.param."),
    OPTION(u32, fsdp2.prefetch, 0, 64, 1, "units",
           "The number of units whose weights are gathered before they are needed."),
    OPTION_FLAG(fsdp2.defer_grad_sync, 0, "",
                "true: gradients are reduced only after the last micro-batch of a step. Until then "
                "each rank holds whole gradients."),
    OPTION_FLAG(fsdp2.pipeline_stage, 0, "",
                "true: as in PyTorch's PipelineStage, weights stay gathered after a backward pass "
                "until the next forward pass frees them, and all gradients are reduced together "
                "after the last backward pass."),
    OPTION_END,
};

static void print(const PassConfig *pass, Str *out)
{
    const Fsdp2Options *o = &pass->fsdp2;
    str_add(out, "fsdp2(");
    switch (o->reshard_after_forward) {
    case RESHARD_true:
        str_add(out, o->keep_gathered ? "keep for the step" : "reshard");
        if (!o->reshard_last && !o->keep_gathered) str_add(out, " but the last");
        break;
    case RESHARD_false: str_add(out, o->keep_gathered ? "keep for the step" : "keep"); break;
    case RESHARD_to: str_print(out, "reshard to %u", o->reshard_to); break;
    }
    if (o->copy) str_add(out, ", copies");
    if (o->offload) str_add(out, ", offload");
    if (!o->over_ep) str_add(out, ", not over ep");
    if (o->pipeline_stage) str_add(out, ", as a pipeline stage");
    str_add(out, ")");
}

static bool shards(const PassConfig *pass)
{
    (void)pass;
    return true;
}

/* For --verify: if weights are resharded over only some ranks of dp_shard, shrinks dp_shard to 4
 * and their count to 2. */
static void shrink(PassConfig *pass, Shrink *s)
{
    Fsdp2Options *o = &pass->fsdp2;
    const AxisName units = axes_first(axes_with(AXIS_UNITS));
    const uint32_t shard = s->axis_was[units];
    if (o->reshard_after_forward != RESHARD_to || o->reshard_to <= 1 || o->reshard_to >= shard ||
        shard % o->reshard_to != 0)
        return;
    s->config->axis_size[units] = 4;
    s->stays[units] = true;
    o->reshard_to = 2;
}

/* Warns if nothing is sharded, so that every rank stores all parameters. With a single data rank,
 * the mixed-precision policy has no effect, either. */
static void warn_axes(const Config *config, const PassConfig *pass, Diag *d)
{
    const Fsdp2Options *o = &pass->fsdp2;
    const AxisNames states = axes_with(AXIS_STATES), experts = axes_trading(INDEX_experts);
    const uint32_t own = config_ranks(config, states & ~experts),
                   shard = o->over_ep ? config_ranks(config, states) : own,
                   replicate = config_ranks(config, axes_cutting_batch() & ~axes_with(AXIS_UNITS));
    const bool policy = (o->mp.param || o->mp.reduce || o->mp.output) && replicate <= 1;
    if (shard <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "fsdp2{} does not shard parameters, because mesh.dp_shard is 1%s%s",
                     policy ? "; precision sets the types instead of fsdp2.mp" : "",
                     o->offload ? "; offload has no effect, either" : "");
    if (shard > 1 && own <= 1 && o->offload)
        diag_warning(
            d, "not-applied", config->mesh_loc,
            "fsdp2 { offload = true } leaves experts in device memory, because mesh.dp_shard is 1");
}

static void warn_options(const Config *config, const PassConfig *pass, Diag *d)
{
    const Fsdp2Options *o = &pass->fsdp2;
    const AxisNames experts = axes_trading(INDEX_experts);
    const bool is_sharding = config_ranks(config, axes_with(AXIS_STATES) & ~experts) > 1,
               keeps = o->reshard_after_forward == RESHARD_false && !o->keep_gathered;
    static const char *const kept =
        "reshard_after_forward = false keeps every unit gathered until its backward pass";
    if (config_ranks(config, experts) <= 1 && !o->over_ep)
        diag_warning(d, "not-applied", pass->loc,
                     "fsdp2 { over_ep = false } has no effect, because mesh.ep is 1");
    if (is_sharding && keeps && o->reshard_root)
        diag_warning(d, "not-applied", pass->loc, "fsdp2 { reshard_root = true } has no effect: %s",
                     kept);
    if (is_sharding && keeps && !o->reshard_last)
        diag_warning(d, "not-applied", pass->loc,
                     "fsdp2 { reshard_last = false } has no effect: %s", kept);
}

const PassSpec pass_spec_fsdp2 = {
    .name = "fsdp2",
    .doc = {"fsdp2", "",
            "Shards parameters, gradients and optimizer state over mesh.dp_shard. The weights of a "
            "unit are gathered while the unit is computed."},
    .options = options,
    .reports = true,
    .is_data = true,
    .shards = shards,
    .run = pass_fsdp2,
    .trials =
        OPTION_WORDS("parallel.fsdp2.prefetch=2", "parallel.fsdp2.reshard_after_forward=false",
                     "parallel.fsdp2.keep_gathered=true", "parallel.fsdp2.defer_grad_sync=true"),
    .print = print,
    .shrink = shrink,
    .warn_axes = warn_axes,
    .warn_options = warn_options,
};
