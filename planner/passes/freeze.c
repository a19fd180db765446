/* freeze{}: parameters that the step reads but does not train, as in fine-tuning. They get no
 * gradient and no optimizer state, and the backward pass ends where no earlier layer has a trained
 * parameter. They are in units of their own, because a unit is reduced and updated as a whole. */
#include <assert.h>

#include "planner/passes/pass.h"

/* True if `module` is frozen. The patterns may match several of the modules around it; the
 * innermost decides, by whether it is in `frozen` or in `trained`. */
static bool is_frozen(const Graph *g, const bool *frozen, const bool *trained, ModuleId module)
{
    for (ModuleId m = module; m; m = g->modules.at[m].parent) {
        if (trained[m]) return false;
        if (frozen[m]) return true;
    }
    return false;
}

static bool report(Job *job, const PassConfig *pass, uint32_t n_params, uint32_t n_frozen)
{
    if (n_frozen == 0 && pass->freeze.modules.n == 0)
        diag_error(job->diag, FAULT_input, "freeze-nothing", pass->loc,
                   "freeze{} names no modules, so nothing is frozen");
    else if (n_frozen == 0)
        diag_error(job->diag, FAULT_input, "freeze-nothing", pass->loc,
                   "freeze{} freezes nothing: its modules have no parameters, or `except` names "
                   "all of them");
    else
        diag_error(job->diag, FAULT_input, "freeze-all", pass->loc,
                   "freeze{} freezes all %u parameters, so nothing is left to train", n_params);
    diag_hint(job->diag, "name only some modules, as in freeze { modules = { \"encoder\" } }");
    return false;
}

static bool pass_freeze(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_freeze);
    assert(pass);
    Graph *g = &job->plan->graph;
    const FreezeOptions *o = &pass->freeze;
    const uint32_t before = job->diag->n_errors;
    bool *frozen = arena_array(job->scratch, g->modules.n + 1, sizeof *frozen);
    bool *trained = arena_array(job->scratch, g->modules.n + 1, sizeof *trained);
    uint32_t n_params = 0, n_frozen = 0, n_matched = 0;
    for (uint32_t i = 0; i < o->modules.n; i++)
        n_matched += pattern_mark(job, "freeze.modules", &o->modules.at[i], frozen);
    for (uint32_t i = 0; i < o->except.n; i++)
        pattern_mark(job, "freeze.except", &o->except.at[i], trained);
    if (job->diag->n_errors > before) return false;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param) continue;
        n_params++;
        at->frozen = is_frozen(g, frozen, trained, at->module);
        n_frozen += at->frozen;
    }
    /* a model that --verify has shrunk may lack the modules that the patterns match */
    const bool shrunk = o->modules.n > 0 && o->modules.at[0].may_miss && n_matched == 0;
    if (n_frozen == n_params || (n_frozen == 0 && !shrunk))
        return report(job, pass, n_params, n_frozen);
    return true;
}

static const PassOption options[] = {
    OPTION_LIST("freeze.modules", modules, freeze.modules, 0,
                "leave out freeze{} to train all modules", "none", "",
                "Paths of the modules whose parameters are not trained. Modules inside them are "
                "not trained, either."),
    OPTION_LIST("freeze.except", modules, freeze.except, 0, NULL, "none", "",
                "Paths of modules inside frozen modules that are trained nevertheless."),
    OPTION_FLAG(freeze.shard, 1, "",
                "true: fsdp2 and ZeRO-3 also shard frozen parameters. false: every rank holds all "
                "frozen parameters."),
    OPTION_OPEN(dtype, freeze.dtype, 0, 0, NULL, "the type in which they are used", "dtype",
                "The type of frozen parameters between steps. Default: the type in which they are "
                "used."),
    OPTION_END,
};

#define ONE_UNIT                                                                                   \
    "a unit would hold both frozen and trained parameters, and the optimizer would update both"
static const PassEdge before[] = {
    {PASS_fsdp2, ONE_UNIT},
    {PASS_ddp, ONE_UNIT},
    {PASS_zero, ONE_UNIT},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    const FreezeOptions *o = &pass->freeze;
    str_add(out, "freeze(");
    for (uint32_t i = 0; i < o->modules.n; i++)
        str_print(out, "%s%s", i > 0 ? " " : "", o->modules.at[i].path);
    for (uint32_t i = 0; i < o->except.n; i++)
        str_print(out, "%s%s", i > 0 ? " " : " but ", o->except.at[i].path);
    if (!o->shard) str_add(out, ", whole");
    if (o->dtype) str_print(out, ", %s", dtype_name(o->dtype));
    str_add(out, ")");
}

static void warn_options(const Config *config, const PassConfig *pass, Diag *d)
{
    if (!pass->freeze.shard && config_ranks(config, axes_with(AXIS_UNITS)) <= 1)
        diag_warning(d, "not-applied", pass->loc,
                     "freeze { shard = false } has no effect, because mesh.dp_shard is 1");
}

const PassSpec pass_spec_freeze = {
    .name = "freeze",
    .doc = {"freeze", "",
            "Trains only a part of the model. Frozen parameters have no gradient and no optimizer "
            "state."},
    .options = options,
    .before = before,
    .of_model = true,
    .reports = true,
    .run = pass_freeze,
    .print = print,
    .warn_options = warn_options,
};
