/* Reports mesh axes that no pass uses: their ranks would silently repeat the same work. */
#include <string.h>

#include "planner/ir/experts.h"
#include "planner/passes/pass.h"

/* Facts about the list `parallel` that check_axis needs. */
typedef struct Listed {
    AxisNames own;   /* axes that the listed passes use */
    uint32_t n_data; /* how many passes of data parallelism (ddp, fsdp2, zero) are listed */
    bool shards;     /* one of these shards parameters or optimizer state */
} Listed;

static Listed passes_of(const Config *config)
{
    Listed is = {0, 0, false};
    bool seen[PASS_NAME_COUNT] = {false};
    for (uint32_t i = 0; i < config->n_passes; i++) {
        const PassConfig *pass = &config->passes[i];
        const PassSpec *spec = pass_specs[pass->name];
        is.own |= axes_of_pass(pass_word(pass->name));
        /* the rule pass-twice reports a pass that is listed twice */
        is.n_data += spec->is_data && !seen[pass->name];
        seen[pass->name] = true;
        is.shards = is.shards || (spec->shards && spec->shards(pass));
    }
    return is;
}

/* Returns the axes that some pass of this version uses, for messages: "pp, dp_replicate and tp". */
static const char *used_axes(Arena *arena)
{
    Str s = str_in(arena);
    uint32_t left = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        left += axis_info((AxisName)a)->unused || axis_info((AxisName)a)->apart;
    for (uint32_t a = 0; a < AXIS_NAMES; a++) {
        const AxisInfo *axis = axis_info((AxisName)a);
        if (!axis->unused && !axis->apart) continue;
        str_print(&s, "%s%s", axis->name, --left > 1 ? ", " : left == 1 ? " and " : "");
    }
    return str_text(&s);
}

/* Returns how many ranks use an axis. For ep: over how many ranks experts are divided. With ep_mode
 * = "folded", these are not only the ranks of the mesh axis, but also ranks of cp and tp. */
static uint32_t ranks_along(const Config *config, AxisName name)
{
    return axis_info(name)->trades == INDEX_experts ? config_expert_ranks(config)
                                                    : config->axis_size[name];
}

static void refuse(const Config *config, AxisName name, const char *rule, const char *why,
                   const char *hint, Diag *d)
{
    diag_error(d, FAULT_input, rule, config->axis_loc[name], "mesh.%s = %u%s%s",
               axis_name_text(name), ranks_along(config, name), why[0] == ':' ? "" : " ", why);
    diag_hint(d, "%s", hint);
}

/* Returns how the user can do without an axis, for hints: "remove ep from the mesh and set dp_shard
 * = 8". Gives the ranks to a data axis, if the batch divides evenly over the new number of
 * ranks. */
static const char *without_axis(const Config *config, AxisName name, Arena *arena)
{
    const char *word = axis_name_text(name);
    if (config->ep_mode == EP_folded && axis_info(name)->trades == INDEX_experts)
        /* with folded experts, ep has no ranks of its own that another axis could get */
        return "remove ep and ep_mode from the mesh";
    const Listed listed = passes_of(config);
    const AxisName to = listed.shards                   ? axes_first(axes_with(AXIS_UNITS))
                        : config_pass(config, PASS_ddp) ? axes_first(axes_cutting(INDEX_samples))
                                                        : AXIS_NAMES;
    const int64_t size = config->axis_size[name],
                  readers = axis_info(name)->cuts == INDEX_samples ? 1 : size,
                  samples = config_data_ranks(config) * readers * config->micro_batch;
    if (to == AXIS_NAMES || samples < 1 || config->global_batch % samples != 0)
        return arena_print(arena, "remove %s from the mesh", word);
    return arena_print(arena, "remove %s from the mesh and set %s = %lld", word, axis_name_text(to),
                       (long long)(size * config->axis_size[to]));
}

/* True if the model has something that the axis can divide, such as experts for ep. */
static bool can_split(const Graph *g, AxisName name)
{
    const AxisInfo *axis = axis_info(name);
    if (axis->lacks == NULL) return true;
    if (axis->trades == INDEX_experts) return experts_most(g) > 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const OpKind op = g->nodes.at[id].op;
        if (axis->cuts == INDEX_tokens
                ? op_mixes_tokens(op) || op_scans_tokens(op)
                : op_info(op)->flags & OP_SOURCE && op_letter(op, axis->cuts))
            return true;
    }
    return false;
}

/* Reports "axis-unused". The hint names the missing pass and its place in `parallel`, if the model
 * has something to divide, and says how to do without the axis. */
static void refuse_unused(const Config *config, const Graph *g, AxisName name, Diag *d)
{
    const AxisInfo *axis = axis_info(name);
    const char *why = axis->unused, *hint = axis->use;
    if (axis->pass != NULL) {
        const char *without = without_axis(config, name, d->arena);
        const PassConfig *next = NULL;
        for (int p = 0; p < PASS_NAME_COUNT; p++)
            if (strcmp(pass_word((PassName)p), axis->pass) == 0)
                next = order_first_after(config, (PassName)p);
        hint = next ? arena_print(d->arena, "%s, before %s{}; or %s", hint, pass_word(next->name),
                                  without)
                    : arena_print(d->arena, "%s, or %s", hint, without);
        if (!can_split(g, name)) why = arena_print(d->arena, "but %s", axis->lacks), hint = without;
    }
    refuse(config, name, "axis-unused", why, hint, d);
}

/* Reports an axis of several ranks that no listed pass uses. The messages are in axes.def. */
static void check_axis(const Config *config, const Graph *g, AxisName name, const Listed *listed,
                       Diag *d)
{
    const AxisInfo *axis = axis_info(name);
    if (ranks_along(config, name) <= 1) return;
    if (!axis->unused && !axis->apart) {
        refuse(config, name, "axis-unsupported",
               arena_print(d->arena, ", but this version has no pass for the axis %s", axis->name),
               arena_print(d->arena, "set %s = 1, or use one of these axes: %s", axis->name,
                           used_axes(d->arena)),
               d);
        return;
    }
    const bool used = axis->flags & AXIS_UNITS ? listed->shards : axes_have(listed->own, name);
    if (axis->unused && !used) refuse_unused(config, g, name, d);
    if (axis->apart && config->axis_size[name] > 1 && listed->n_data == 0)
        refuse(config, name, "data-none", axis->apart, axis->sum, d);
}

bool passes_check_axes(const Config *config, const Graph *g, Diag *d)
{
    uint32_t before = d->n_errors;
    const Listed listed = passes_of(config);
    for (uint32_t a = 0; a < AXIS_NAMES; a++) check_axis(config, g, (AxisName)a, &listed, d);
    if (listed.n_data > 1) {
        diag_error(d, FAULT_input, "data-twice", config->mesh_loc,
                   "parallel lists more than one of ddp{}, fsdp2{} and zero{}, so gradients would "
                   "be reduced twice");
        diag_hint(d, "keep one of them; fsdp2{} with dp_replicate > 1 is already HSDP");
    }
    warn_not_applied(config, d);
    zero_check_options(config, d);
    return d->n_errors == before;
}
