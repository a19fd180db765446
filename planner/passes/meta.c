/* Meta materialisation. meta: the model is built without storage; materialize: each rank creates
 * the parts that it keeps, in place, when everything that cuts weights has been applied. Tandem's
 * executor always does so: the two words only say it, and let an order be checked. What is created
 * must be written: an allocation without an initialiser holds whatever was there before. */
#include <assert.h>

#include "planner/passes/pass.h"

bool pass_meta(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_meta);
    assert(pass);
    if (pass_config(job, PASS_materialize)) return true;
    diag_error(job->diag, FAULT_input, "meta-materialize", pass->loc,
               "meta{} is listed without materialize{}: no parameter would ever get storage");
    diag_hint(job->diag, "end the list with materialize{}, or leave out both: parts are created in "
                         "place anyway");
    return false;
}

bool pass_materialize(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_materialize);
    assert(pass);
    if (pass_config(job, PASS_meta)) return true;
    diag_error(job->diag, FAULT_input, "meta-materialize", pass->loc,
               "materialize{} is listed without meta{}: the parameters have storage already, and "
               "what was loaded into it would be lost");
    diag_hint(job->diag, "begin the list with meta{}, or leave out both");
    return false;
}

/* As many initialisers as parameters: each is named that has none. */
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
                   "%s has no initialiser: it would start with whatever its memory held", at->name);
        diag_hint(job->diag,
                  "init = nn.normal(0, 0.02), nn.ones, nn.zeros or nn.uniform(from, to)");
    }
    if (n_missing > MOST_NAMED)
        diag_error(job->diag, FAULT_input, "init-missing", (Loc){job->config->file, 0},
                   "%u of %u parameters have no initialiser", n_missing, n_params);
    return job->diag->n_errors == before;
}
