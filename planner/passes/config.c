/* Looks up options in the configuration: those of a pass, and the number of ranks along its
 * axes. */
#include "planner/passes/pass.h"

const PassConfig *pass_config(const Job *job, PassName name)
{
    for (uint32_t i = 0; i < job->config->n_passes; i++)
        if (job->config->passes[i].name == name) return &job->config->passes[i];
    return NULL;
}

const char *pass_word(PassName name)
{
    static const char *const names[PASS_NAME_COUNT] = {
#define PASS(name) #name,
#include "planner/front/passes.def"
    };
    return names[name];
}

AxisSet pass_axes(const Job *job, PassName name)
{
    return mesh_axes_of(&job->plan->mesh, axes_of_pass(pass_word(name)));
}

uint32_t pass_ranks(const Config *config, PassName name)
{
    return config_ranks(config, axes_of_pass(pass_word(name)));
}
