/* The passes from the configuration to a graph that is ready to be lowered, in the order in which
 * they run. Each pass is one idea in one file. planner/lower/compile.c runs them. */
#include "planner/passes/passes.h"

#include "planner/passes/pass.h"

static const Pass all_passes[] = {
    {"mesh", false, true, pass_mesh},
    {"pp", false, true, pass_pp},
    {"meta", true, true, pass_meta},
    {"tp", true, true, pass_tp},
    {"ep", true, true, pass_ep},
    {"cp", true, true, pass_cp},
    {"float8", true, true, pass_float8},
    {"ac", true, true, pass_ac},
    {"fsdp2", true, true, pass_fsdp2},
    {"ddp", true, true, pass_ddp},
    {"zero", true, true, pass_zero},
    {"compile", true, true, pass_compile},
    {"materialize", true, true, pass_materialize},
    {"initialise", false, true, pass_initialise},
    {"units", false, false, pass_units},
    {"propagate", false, false, pass_propagate},
    {"tile", true, false, pass_tile},
    {"backward", false, false, pass_backward},
    {"turn", false, false, pass_turn},
    {"flatten", false, false, pass_flatten},
};
const Pass *const passes_list = all_passes;
const uint32_t passes_count = sizeof all_passes / sizeof all_passes[0];
