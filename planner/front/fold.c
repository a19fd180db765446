/* ep_mode = "folded": divides experts over ranks of tp, cp and the data axes. fold.h has an
 * example. */
#include "planner/front/fold.h"

#include <string.h>

#include "planner/front/parent.h"

/* Takes ranks of one axis for expert groups. size: ranks of the axis. missing: how many times
 * larger the groups must still become. Sets *taken to the ranks that are taken, the innermost ones.
 * Returns what is missing afterwards (1: nothing), or 0 if `size` and `missing` do not divide
 * evenly. Example: size 4, missing 8 takes 4 and returns 2. */
static uint32_t take(uint32_t size, uint32_t missing, uint32_t *taken)
{
    *taken = size < missing ? size : missing;
    if (missing % *taken != 0 || size % *taken != 0) return 0;
    return missing / *taken;
}

/* Builds expert groups of `ep` ranks: takes ranks first from tp, then from cp (lent), then from the
 * data axes (carved), the innermost axis first, so each group has consecutive ranks. lent[axis],
 * carved[axis]: ranks taken; 1: none. Returns false if the sizes of the axes do not allow groups of
 * `ep` ranks. */
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

bool fold_lends(const Config *c, uint32_t ep, uint32_t lent[AXIS_NAMES])
{
    uint32_t carved[AXIS_NAMES];
    return take_experts(c->axis_before, ep, lent, carved);
}

bool fold_could_be(const Config *c, uint32_t ep)
{
    uint32_t lent[AXIS_NAMES];
    return fold_lends(c, ep, lent);
}

bool config_lends_experts(const Config *c)
{
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (c->ep_lent[a] > 1) return true;
    return false;
}

uint32_t config_expert_ranks(const Config *c)
{
    uint32_t n = config_ranks(c, axes_trading(INDEX_experts));
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (c->ep_lent[a] > 1) n *= c->ep_lent[a];
    return n;
}

void config_nest_experts(const Config *c, Mesh *mesh)
{
    const AxisSet ep = mesh_axes_of(mesh, axes_trading(INDEX_experts));
    if (ep && config_lends_experts(c)) mesh_nest_last(mesh, (uint32_t)__builtin_ctz(ep));
}

Mesh config_mesh(const Config *c)
{
    Mesh mesh = mesh_make(c->axis_size);
    config_nest_experts(c, &mesh);
    return mesh;
}

const char *config_mesh_text(Arena *arena, const Config *c)
{
    Str text = str_in(arena);
    for (int a = 0; a < AXIS_NAMES; a++)
        if (c->axis_before[a] > 1)
            str_print(&text, "%s%s %u", text.n ? " x " : "", axis_name_text((AxisName)a),
                      c->axis_before[a]);
    return text.n ? str_text(&text) : "1";
}

const char *config_folded_text(Arena *arena, const Config *c)
{
    Str text = str_in(arena);
    for (int a = AXIS_NAMES - 1; a >= 0; a--) {
        const uint32_t size = c->axis_before[a], lent = c->ep_lent[a] > 1 ? c->ep_lent[a] : 1,
                       n = lent * (size / c->axis_size[a]);
        if (size <= 1 || n <= 1) continue;
        str_print(&text, text.n ? ", " : "");
        if (n < size) str_print(&text, "%u of ", n);
        str_print(&text, "%s %u", axis_name_text((AxisName)a), size);
    }
    return text.n ? str_text(&text) : NULL;
}

static void refuse_fold(const Draft *draft, uint32_t ep)
{
    const Config *c = &draft->config;
    const uint32_t stage = config_ranks(c, ~axes_with(AXIS_STAGES));
    Str axes = str_in(draft->arena), legal = str_in(draft->arena);
    for (int a = AXIS_NAMES - 1; a >= 0; a--)
        if (c->axis_size[a] > 1 && !axes_have(axes_with(AXIS_STAGES), (AxisName)a))
            str_print(&axes, "%s%s %u", axes.n ? ", then " : "", axis_name_text((AxisName)a),
                      c->axis_size[a]);
    const uint32_t experts = draft->experts;
    for (uint32_t k = 1; k <= stage; k++)
        if (fold_could_be(c, k) && experts % k == 0)
            str_print(&legal, "%s%u", legal.n ? ", " : "", k);
    diag_error(draft->d, FAULT_input, "ep-fold", c->axis_loc[axes_first(axes_with(AXIS_FOLDS))],
               "mesh.ep = %u (folded) does not fit the mesh: ranks are taken first from %s, but %u "
               "ranks are not whole parts of these axes",
               ep, axes.n ? str_text(&axes) : "none", ep);
    diag_hint(draft->d, "ep may be %s%s", str_text(&legal),
              experts ? "" : ", if the number of experts is a multiple of it");
}

/* Replaces the user's mesh by the folded mesh. The ranks that ep takes from a data axis become
 * ranks of the axis ep. The ranks of tp and cp over which experts are divided stay ranks of tp and
 * cp (config.ep_lent counts them). */
void draft_fold_experts(Draft *draft)
{
    Config *c = &draft->config;
    const AxisName folds = axes_first(axes_with(AXIS_FOLDS));
    uint32_t carved[AXIS_NAMES];
    const uint32_t ep = c->axis_size[folds];
    c->axis_size[folds] = 1;
    memcpy(c->axis_before, c->axis_size, sizeof c->axis_before);
    if (!take_experts(c->axis_size, ep, c->ep_lent, carved)) {
        refuse_fold(draft, ep);
        return;
    }
    for (int a = 0; a < AXIS_NAMES; a++) {
        c->axis_size[a] /= carved[a];
        c->axis_size[folds] *= carved[a];
    }
}
