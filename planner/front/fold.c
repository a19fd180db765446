/* Experts folded into the ranks of a pipeline stage (ep_mode = "folded"). */
#include "planner/front/fold.h"
#include "planner/front/parent.h"
#include "planner/ir/layout/mesh_view.h"

/* Takes ranks of an axis for ep, the innermost first. Returns how many are still missing; 0: the
 * rest and the axis do not nest. */
static uint32_t take(uint32_t size, uint32_t missing, uint32_t *taken)
{
    *taken = size < missing ? size : missing;
    if (missing % *taken != 0 || size % *taken != 0) return 0;
    return missing / *taken;
}

/* Takes the ranks of ep from tp, from cp, and then from the data axes, innermost first: a group is
 * consecutive ranks. Returns false if parts of these axes do not nest so. */
static bool take_experts(const uint32_t size[AXIS_NAMES], uint32_t ep, uint32_t lent[AXIS_NAMES],
                         uint32_t carved[AXIS_NAMES])
{
    const AxisNames samples = axes_cutting(INDEX_samples) & ~axes_with(AXIS_FOLDS);
    for (int a = AXIS_NAMES - 1; a >= 0; a--) {
        const bool lends = axes_have(axes_with(AXIS_LENDS), (AxisName)a),
                   carves = axes_have(samples, (AxisName)a);
        lent[a] = carved[a] = 1;
        if (size[a] <= 1 || ep == 1 || (!lends && !carves)) {
            if (size[a] > 1 && ep > 1 && !axes_have(axes_with(AXIS_FOLDS), (AxisName)a))
                return false;
            continue;
        }
        ep = take(size[a], ep, lends ? &lent[a] : &carved[a]);
        if (ep == 0) return false;
    }
    return ep == 1;
}

bool fold_could_be(const Config *c, uint32_t ep)
{
    uint32_t size[AXIS_NAMES], lent[AXIS_NAMES], carved[AXIS_NAMES];
    const AxisName folds = axes_first(axes_with(AXIS_FOLDS));
    const AxisNames data = axes_cutting(INDEX_samples) & ~axes_with(AXIS_FOLDS);
    bool given_back = false;
    /* The ranks of the axis ep go back to the innermost data axis, from which they were taken
     * first.
     */
    for (int a = AXIS_NAMES - 1; a >= 0; a--) {
        size[a] = c->axis_size[a];
        if (given_back || !axes_have(data, (AxisName)a)) continue;
        size[a] *= c->axis_size[folds];
        given_back = true;
    }
    size[folds] = 1;
    return take_experts(size, ep, lent, carved);
}

static void refuse_fold(const Draft *draft, uint32_t ep, uint32_t stage)
{
    const Config *c = &draft->config;
    uint32_t lent[AXIS_NAMES], carved[AXIS_NAMES];
    Str axes = str_in(draft->arena), legal = str_in(draft->arena);
    for (int a = AXIS_NAMES - 1; a >= 0; a--)
        if (c->axis_size[a] > 1 && !axes_have(axes_with(AXIS_STAGES), (AxisName)a))
            str_print(&axes, "%s%s %u", axes.n ? ", then " : "", axis_name_text((AxisName)a),
                      c->axis_size[a]);
    for (uint32_t k = 1; k <= stage; k++)
        if (stage % k == 0 && take_experts(c->axis_size, k, lent, carved))
            str_print(&legal, "%s%u", legal.n ? ", " : "", k);
    diag_error(draft->d, FAULT_input, "ep-fold", c->axis_loc[axes_first(axes_with(AXIS_FOLDS))],
               "mesh.ep = %u (folded) takes consecutive ranks, first of %s: %u ranks are not whole "
               "parts of these axes",
               ep, axes.n ? str_text(&axes) : "none", ep);
    diag_hint(draft->d, "ep may be %s, if it divides the experts of each layer", str_text(&legal));
}

/* Folds ep into the ranks of a stage. Ranks of the data axes that share experts are the axis ep;
 * those of cp and tp stay what they are, and share experts too. */
void draft_fold_experts(Draft *draft)
{
    Config *c = &draft->config;
    const AxisName folds = axes_first(axes_with(AXIS_FOLDS));
    uint32_t carved[AXIS_NAMES];
    EpFold fold;
    const uint32_t ep = c->axis_size[folds];
    c->axis_size[folds] = c->ep_folded = 1;
    Mesh mesh = mesh_make(c->axis_size);
    if (!mesh_fold_ep(&mesh, ep, c->axis_loc[folds], draft->d, &fold)) return;
    if (!take_experts(c->axis_size, ep, c->ep_lent, carved)) {
        refuse_fold(draft, ep, fold.ep * fold.ep_shard);
        return;
    }
    for (int a = 0; a < AXIS_NAMES; a++) {
        c->axis_size[a] /= carved[a];
        c->axis_size[folds] *= carved[a];
        if (c->ep_lent[a] > 1) c->ep_folded = ep;
    }
}
