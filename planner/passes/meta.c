/* meta{} and materialize{}: creation of parameters as in PyTorch. meta builds the model without
 * memory for parameters; materialize lets each rank create only its own parts, after all passes
 * that split weights. Tandem's executor always does this, so the two passes change nothing. They
 * exist so that their order in `parallel` is checked. Every parameter must have an initialiser,
 * because new memory contains arbitrary values. */
#include <assert.h>

#include "planner/passes/pass.h"

/* Refuses meta{} with frozen modules: materialize{} would give them random values, which no step
 * would train. */
static bool check_frozen(Job *job, const PassConfig *pass)
{
    const PassConfig *freeze = pass_config(job, PASS_freeze);
    if (freeze == NULL || freeze->freeze.modules.n == 0) return true;
    diag_error(job->diag, FAULT_input, "meta-frozen", pass->loc,
               "meta{} does not work with frozen modules (%s), because their trained weights would "
               "be replaced by random ones",
               freeze->freeze.modules.at[0].path);
    diag_hint(job->diag,
              "leave out meta{} and materialize{}; each rank creates only its own parts anyway");
    return false;
}

static bool pass_meta(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_meta);
    assert(pass);
    if (!check_frozen(job, pass)) return false;
    if (pass_config(job, PASS_materialize)) return true;
    diag_error(job->diag, FAULT_input, "meta-materialize", pass->loc,
               "meta{} is listed without materialize{}, so parameters would get no storage");
    diag_hint(job->diag, "end the list with materialize{}, or leave out both");
    return false;
}

static bool pass_materialize(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_materialize);
    assert(pass);
    if (pass_config(job, PASS_meta)) return true;
    diag_error(job->diag, FAULT_input, "meta-materialize", pass->loc,
               "materialize{} is listed without meta{}, so it would overwrite loaded weights");
    diag_hint(job->diag, "begin the list with meta{}, or leave out both");
    return false;
}

/* Reports each parameter without an initialiser. */
bool pass_initialise(Job *job)
{
    const Graph *g = &job->plan->graph;
    uint32_t n_params = 0, n_missing = 0, before = job->diag->n_errors;
    enum { MOST_NAMED = 4 };
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param) continue;
        n_params++;
        if (at->init.kind != INIT_none || n_missing++ >= MOST_NAMED) continue;
        diag_error(job->diag, FAULT_input, "init-missing", at->loc,
                   "%s has no initialiser, so its first values would be undefined", at->name);
        diag_hint(job->diag,
                  "init = nn.normal(0, 0.02), nn.ones, nn.zeros or nn.uniform(from, to)");
    }
    if (n_missing > MOST_NAMED)
        diag_error(job->diag, FAULT_input, "init-missing", (Loc){job->config->file, 0},
                   "%u of %u parameters have no initialiser", n_missing, n_params);
    return job->diag->n_errors == before;
}

#define NO_STORAGE                                                                                 \
    "meta{} builds the model anew, so the effect of earlier passes on parameters would be lost"
static const PassEdge meta_before[] = {
    {PASS_tp, NO_STORAGE},   {PASS_fsdp2, NO_STORAGE},       {PASS_ddp, NO_STORAGE},
    {PASS_zero, NO_STORAGE}, {PASS_materialize, NO_STORAGE}, {PASS_ep, NO_STORAGE},
    {PASS_cp, NO_STORAGE},   {PASS_float8, NO_STORAGE},      {0, NULL},
};

#define LATE "every device would get storage for the whole model, and could run out of memory"
static const PassEdge materialize_after[] = {
    {PASS_pp, LATE},    {PASS_tp, LATE},  {PASS_ep, LATE},   {PASS_cp, LATE},
    {PASS_fsdp2, LATE}, {PASS_ddp, LATE}, {PASS_zero, LATE}, {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    str_add(out, pass_word(pass->name));
}

const PassSpec pass_spec_meta = {
    .name = "meta",
    .doc = {"meta", "",
            "Builds the model without storage for parameters, like PyTorch's meta device. It has "
            "no options."},
    .before = meta_before,
    .reports = true,
    .run = pass_meta,
    .print = print,
};

const PassSpec pass_spec_materialize = {
    .name = "materialize",
    .doc = {"materialize", "",
            "Gives parameters their storage and their initial values. It has no options."},
    .after = materialize_after,
    .reports = true,
    .run = pass_materialize,
    .print = print,
};
