/* The user's options for a pass, and whether the mesh lets the pass act. */
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

void warn_axis(const Config *config, PassName pass, AxisName axis, Diag *d)
{
    const bool folded = axis == AXIS_ep && config->ep_folded > 1;
    if (config->axis_size[axis] <= 1 && !folded)
        diag_warning(d, "not-applied", config->mesh_loc, "%s{} is asked for but mesh.%s is 1",
                     pass_word(pass), axis_name_text(axis));
}
