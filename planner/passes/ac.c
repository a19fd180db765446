/* Activation checkpointing: marks recompute regions. full: each block is a region, only its input
 * is kept. selective: each attention module is one. What a region's backward needs and was not kept
 * is recomputed on demand by the lowering, with the same inputs and no state. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

static ModuleId region_of(const Graph *g, ModuleId module, AcMode mode)
{
    for (ModuleId m = module; m; m = g->modules.at[m].parent) {
        const Module *at = &g->modules.at[m];
        if (mode == AC_full && at->is_block) return m;
        if (mode == AC_selective && strcmp(at->class_, "attention") == 0) return m;
    }
    return 0;
}

bool pass_ac(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_ac);
    assert(pass);
    if (pass->ac == AC_none) return true;
    Graph *g = &job->plan->graph;
    uint32_t n_matched = 0;
    for (NodeId n = 1; n < g->nodes.n; n++) {
        ModuleId region = region_of(g, g->nodes.at[n].module, pass->ac);
        g->nodes.at[n].region = region;
        n_matched += region != 0;
    }
    if (n_matched) return true;
    diag_error(job->diag, FAULT_input, "ac-matched-nothing", pass->loc,
               "ac \"%s\" matched no module: nothing would be recomputed",
               pass->ac == AC_full ? "full" : "selective");
    diag_hint(job->diag, pass->ac == AC_full ? "mark the repeated module with nn.block"
                                             : "selective recomputes modules made by nn.attention");
    return false;
}
