/* Requests of a plan that have no effect: passes whose axis has one rank, and options that the rest
 * of the plan never uses. Each pass checks its own options against the plan. */
#include "planner/passes/pass.h"

void warn_not_applied(const Config *config, Diag *d)
{
    for (uint32_t i = 0; i < config->n_passes; i++) {
        const PassConfig *pass = &config->passes[i];
        if (pass_specs[pass->name]->warn_axes) pass_specs[pass->name]->warn_axes(config, pass, d);
    }
    for (uint32_t i = 0; i < config->n_passes; i++) {
        const PassConfig *pass = &config->passes[i];
        if (pass_specs[pass->name]->warn_options)
            pass_specs[pass->name]->warn_options(config, pass, d);
    }
}
