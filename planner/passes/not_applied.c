/* Warns of settings that have no effect: passes whose axes have one rank, and options that nothing
 * in the plan uses. Each pass checks its own options (PassSpec). */
#include "planner/passes/pass.h"

/* Warns of a pass if all of its axes have only one rank. */
static void warn_of_axis(const Config *config, const PassConfig *pass, Diag *d)
{
    const AxisNames axes = axes_of_pass(pass_word(pass->name));
    const bool folded = axes & axes_with(AXIS_FOLDS) && config_expert_ranks(config) > 1;
    Str names = str_in(d->arena);
    if (axes == 0 || config_ranks(config, axes) > 1 || folded) return;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(axes, (AxisName)a))
            str_print(&names, "%smesh.%s", names.n ? " and " : "", axis_name_text((AxisName)a));
    diag_warning(d, "not-applied", config->mesh_loc, "%s{} has no effect, because %s is 1",
                 pass_word(pass->name), str_text(&names));
}

/* True if `parallel` lists the pass of entry i earlier. That is an error, which order_check
 * reports; here it avoids a second warning. */
static bool is_listed_before(const Config *config, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (config->passes[k].name == config->passes[i].name) return true;
    return false;
}

void warn_not_applied(const Config *config, Diag *d)
{
    for (uint32_t i = 0; i < config->n_passes; i++) {
        const PassConfig *pass = &config->passes[i];
        if (is_listed_before(config, i)) continue;
        warn_of_axis(config, pass, d);
        if (pass_specs[pass->name]->warn_axes) pass_specs[pass->name]->warn_axes(config, pass, d);
    }
    for (uint32_t i = 0; i < config->n_passes; i++) {
        const PassConfig *pass = &config->passes[i];
        if (pass_specs[pass->name]->warn_options)
            pass_specs[pass->name]->warn_options(config, pass, d);
    }
}
