/* Builds the mesh. A named axis becomes several mesh axes if an option concerns only some of its
 * ranks:
 *
 *   dp_shard  reshard_after_forward is a number of ranks
 *   tp        there are more ranks than KV heads
 *   cp        a ring connects groups of ranks
 *             ranks share a group of heads of a state-space layer (cp_scan.c)
 *             ranks share a group of heads of a state-space layer (cp_scan.c)
 *   tp, cp    folded experts are divided over some of the ranks */
#include <assert.h>

#include "planner/ir/experts.h"
#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/pass.h"

static bool refine_for_reshard(Job *job, const PassConfig *fsdp2)
{
    Mesh *mesh = &job->plan->mesh;
    const AxisName units = axes_first(axes_with(AXIS_UNITS));
    const Config *c = job->config;
    const uint32_t size = c->axis_size[units], whole = c->axis_before[units];
    const uint32_t to = fsdp2->fsdp2.reshard_to;
    if (to < 2 || to >= size || size % to != 0) {
        Str legal = str_in(job->scratch);
        for (uint32_t k = 2; k < size; k++)
            if (size % k == 0) str_print(&legal, "%s%u", legal.n ? ", " : "", k);
        diag_error(job->diag, FAULT_input, "reshard-divides", fsdp2->loc,
                   "reshard_after_forward = %u must be a divisor of %s = %u, but neither 1 nor all "
                   "ranks%s",
                   to, axis_name_text(units), size,
                   whole <= size
                       ? ""
                       : arena_print(job->scratch, " (of its %u ranks, ep takes all but %u)", whole,
                                     size));
        diag_hint(job->diag, "use one of: true, false%s%s", legal.n ? ", " : "", str_text(&legal));
        return false;
    }
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (mesh->axis[a].name == units) {
            mesh_refine(mesh, job->arena, a, to);
            return true;
        }
    assert(0 && "an axis of size > 1 is in the mesh");
    return false;
}

/* True if folded experts could be divided over `ep` ranks: the splits of axes that this needs must
 * be compatible with those that `mesh` already has. */
static bool cuts_nest(const Job *job, Mesh mesh, uint32_t ep)
{
    uint32_t lent[AXIS_NAMES];
    if (!fold_lends(job->config, ep, lent)) return false;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (lent[a] > 1 && !mesh_cut(&mesh, job->scratch, (AxisName)a, lent[a])) return false;
    return true;
}

/* Reports "ep-fold": folded experts cannot use `lent` of the ranks of axis `name`. The hint lists
 * the sizes of ep that divide the experts and for which cuts_nest is true. `mesh` has no splits for
 * experts yet. */
static void refuse_cut(Job *job, const Mesh *mesh, AxisName name, uint32_t lent)
{
    const uint32_t ep = config_expert_ranks(job->config), size = job->config->axis_size[name];
    const int64_t experts = experts_common(&job->plan->graph);
    Str legal = str_in(job->scratch);
    for (uint32_t k = 1; k <= mesh->n_ranks; k++)
        if (experts % k == 0 && cuts_nest(job, *mesh, k))
            str_print(&legal, "%s%u", legal.n ? ", " : "", k);
    diag_error(job->diag, FAULT_input, "ep-fold",
               job->config->axis_loc[axes_first(axes_with(AXIS_FOLDS))],
               "mesh.ep = %u (folded) takes %u of the %u ranks of %s, which does not fit the "
               "division of %s by attention heads",
               ep, lent, size, axis_name_text(name), axis_name_text(name));
    diag_hint(job->diag, "ep may be %s", str_text(&legal));
}

/* Splits cp and tp, if necessary, so that folded experts are divided over whole mesh axes. Heads,
 * and groups of a ring, may have split cp and tp before. Adds these axes to context.lent_axes. */
static bool cut_for_experts(Job *job)
{
    const Mesh uncut = job->plan->mesh;
    for (uint32_t a = 0; a < AXIS_NAMES; a++) {
        const uint32_t lent = job->config->ep_lent[a];
        if (lent <= 1) continue;
        const AxisSet axes = mesh_cut(&job->plan->mesh, job->arena, (AxisName)a, lent);
        if (!axes) {
            refuse_cut(job, &uncut, (AxisName)a, lent);
            return false;
        }
        job->context.lent_axes = (AxisSet)(job->context.lent_axes | axes);
    }
    return true;
}

bool pass_mesh(Job *job)
{
    job->plan->mesh = config_mesh(job->config);
    const PassConfig *fsdp2 = pass_config(job, PASS_fsdp2);
    bool ok = !fsdp2 || fsdp2->fsdp2.reshard_after_forward != RESHARD_to ||
              refine_for_reshard(job, fsdp2);
    if (pass_config(job, PASS_tp)) tp_refine(job);
    if (pass_config(job, PASS_cp)) cp_refine(job);
    ok = cut_for_experts(job) && ok;
    job->data_axes = mesh_axes_of(&job->plan->mesh, axes_cutting_batch());
    /* the mesh is complete even after an error, so that later passes can report their own errors */
    return ok;
}
