/* Expert parallelism: the ranks of ep divide the experts of a layer, SPLIT(experts). The pass sets
 * no other layout. Tokens are split by samples before and after the experts, so lowering inserts an
 * all_to_all at both places, which sends tokens to the ranks of their experts and back.
 *
 * With ep_mode = "folded", experts are also divided over ranks of cp and tp. These ranks have the
 * same sequences, so each computes only the tokens of its own experts; the sums over a token's
 * experts are then partial sums. */
#include <assert.h>

#include "planner/ir/experts.h"
#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/pass.h"

enum { DEFAULT_BOUND = 2, MOST_BOUND = 1024 };

static void refuse(Job *job, const Tensor *weight, int64_t experts, uint32_t size)
{
    const int64_t common = experts_common(&job->plan->graph);
    const bool folded = job->config->ep_mode == EP_folded;
    Str legal = str_in(job->scratch);
    for (int64_t k = 1; k <= common; k++)
        if (common % k == 0 && (!folded || fold_could_be(job->config, (uint32_t)k)))
            str_print(&legal, "%s%lld", legal.n ? ", " : "", (long long)k);
    diag_error(job->diag, FAULT_input, "divides-experts",
               weight->loc.file ? weight->loc : pass_config(job, PASS_ep)->loc,
               "%lld experts cannot be divided evenly over ep = %u (%s)", (long long)experts, size,
               weight->name);
    diag_hint(job->diag, "ep may be %s", str_text(&legal));
}

/* Warns if the option `bound` has no effect: it limits the memory of experts only if no token is
 * dropped (layout/rows.h). Shrunk plans always have the largest bound and get no warning. */
static void warn_of_bound(Job *job)
{
    const Graph *g = &job->plan->graph;
    const PassConfig *pass = pass_config(job, PASS_ep);
    if (pass->ep.bound == DEFAULT_BOUND || pass->ep.bound == MOST_BOUND) return;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (op_counts_rows(g->nodes.at[id].op)) return;
    diag_warning(job->diag, "not-applied", pass->loc,
                 "ep { bound = %.9g } has no effect, because no experts of the model have "
                 "capacity_factor = \"dropless\"",
                 pass->ep.bound);
}

static bool pass_ep(Job *job)
{
    Graph *g = &job->plan->graph;
    const Mesh *mesh = &job->plan->mesh;
    const AxisSet axes = (AxisSet)(pass_axes(job, PASS_ep) | job->context.lent_axes);
    const uint32_t size = mesh_size(mesh, axes), before = job->diag->n_errors;
    uint32_t n_shared = 0;
    if (size == 1) return true;
    for (ExpertsParam p = {0}; experts_next(g, &p) && job->diag->n_errors == before;) {
        Tensor *weight = &g->tensors.at[p.tensor];
        n_shared++;
        if (weight->dim[p.dim] % size != 0) refuse(job, weight, weight->dim[p.dim], size);
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (axes >> a & 1) weight->use.on[a] = SPLIT(p.dim);
    }
    if (n_shared == 0) {
        diag_error(job->diag, FAULT_input, "ep-matched-nothing", pass_config(job, PASS_ep)->loc,
                   "ep = %u, but the model has no experts", size);
        diag_hint(job->diag,
                  "set ep = 1 and use a larger dp_shard, or give the blocks nn.moe { ... }");
    } else {
        warn_of_bound(job);
    }
    return job->diag->n_errors == before;
}

#define SHARED_AGAIN                                                                               \
    "gradients would be summed over ranks that hold different experts, so these gradients would "  \
    "be wrong"
static const PassEdge before[] = {
    {PASS_float8,
     "float8 would convert the linears of all experts, but a rank holds only some experts"},
    {PASS_ac, "the recomputation would use the tokens of other ranks, and would leave out the "
              "exchange of tokens"},
    {PASS_fsdp2, SHARED_AGAIN},
    {PASS_zero, SHARED_AGAIN},
    {PASS_ddp, SHARED_AGAIN},
    {PASS_compile,
     "the code would be compiled for all experts, but a rank holds only some experts"},
    {PASS_cp, "each rank would route only a part of a sequence, but the capacity of experts is "
              "counted over whole sequences"},
    {0, NULL},
};

static const PassOption options[] = {
    OPTION(f64, ep.bound, 1, MOST_BOUND, DEFAULT_BOUND, "times",
           "Only for experts with capacity_factor = \"dropless\": a rank has memory for this "
           "multiple of its mean number of rows. A step in which a rank receives more rows ends "
           "with an error."),
    OPTION_END,
};

static void print(const PassConfig *pass, Str *out)
{
    str_add(out, "ep");
    if (pass->ep.bound != DEFAULT_BOUND) str_print(out, "(bound %.9g)", pass->ep.bound);
}

/* For --verify: sets the largest bound, because few tokens choose experts very unevenly. */
static void shrink(PassConfig *pass, Shrink *s)
{
    (void)s;
    pass->ep.bound = MOST_BOUND;
}

const PassSpec pass_spec_ep = {
    .name = "ep",
    .doc = {"ep", "", "Divides the experts of each layer over the ranks of mesh.ep."},
    .options = options,
    .before = before,
    .reports = true,
    .run = pass_ep,
    .print = print,
    .shrink = shrink,
};
