/* Makes a plan small for --verify: fewer ranks, micro-batches and stages. The small model is then
 * planned like the whole model. This file knows only one property of the model: whether its sizes
 * follow the mesh. */
#include <assert.h>
#include <string.h>

#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"

/* Lets the pass's patterns name layers that do not exist, because the small model has
 * fewer layers. */
static void may_miss(PassConfig *pass)
{
    for (const PassOption *o = pass_specs[pass->name]->options; o && o->field.path; o++) {
        const FieldKind kind = o->field.kind;
        if (kind != FIELD_modules && kind != FIELD_ops && kind != FIELD_styles) continue;
        Patterns *patterns = (Patterns *)(void *)((char *)pass + o->field.offset);
        for (uint32_t i = 0; i < patterns->n; i++) patterns->at[i].may_miss = true;
    }
}

/* Returns the smallest divisor of n above 1. */
static uint32_t least_divisor(uint32_t n)
{
    uint32_t k = 2;
    while (n % k != 0) k++;
    return k;
}

/* Returns the small size of an axis of n ranks. It is 4 if n is a multiple of 4: the ranks then
 * outnumber the KV heads of the small model, so --verify tests that case. If the model keeps its
 * sizes, the result must divide n: then it divides every size that n divides. */
static uint32_t by_fours(uint32_t n, bool sizes_follow)
{
    if (n == 1) return 1;
    if (n % 4 == 0) return 4;
    if (sizes_follow) return n % 2 == 1 ? 3 : 2;
    return least_divisor(n);
}

/* True if axis a must be reduced before axis b. The larger axis comes first. Of equal axes the
 * outermost comes first, except an axis of pipeline stages, which comes last. Without stages,
 * --verify would not test the pipeline. */
static bool is_reduced_before(const Config *c, uint32_t a, uint32_t b)
{
    if (c->axis_size[a] != c->axis_size[b]) return c->axis_size[a] > c->axis_size[b];
    return (axis_info((AxisName)b)->flags & AXIS_STAGES) != 0;
}

/* Until there are at most sixteen ranks, reduces the largest axis to 2, and then to 1. Axes marked
 * in `fixed` stay. */
static void limit_ranks(Config *c, const bool *fixed)
{
    for (;;) {
        uint32_t ranks = 1, largest = AXIS_NAMES;
        for (uint32_t a = 0; a < AXIS_NAMES; a++) {
            ranks *= c->axis_size[a];
            if (fixed[a]) continue;
            if (largest == AXIS_NAMES || is_reduced_before(c, a, largest)) largest = a;
        }
        if (ranks <= 16 || largest == AXIS_NAMES || c->axis_size[largest] == 1) break;
        c->axis_size[largest] = c->axis_size[largest] > 2 ? 2 : 1;
    }
}

/* Returns the small size of an axis, as its row in axes.def says. Sets `stays` if the axis must not
 * shrink further. */
static uint32_t shrunk(const AxisInfo *axis, uint32_t n, bool sizes_follow, bool *stays)
{
    const uint32_t least = n == 1 ? 1 : n % 2 == 1 ? 3 : 2;
    *stays = false;
    switch (axis->shrinks) {
    case SHRINKS_to_least: return least;
    case SHRINKS_to_divisor:
        /* a size that divides evenly over n ranks need not divide over 2 */
        *stays = !sizes_follow && n % 2 == 1;
        return n > 1 && !sizes_follow ? least_divisor(n) : least;
    case SHRINKS_to_divisor_for_good:
        *stays = !sizes_follow;
        return n > 1 && !sizes_follow ? least_divisor(n) : least;
    case SHRINKS_by_fours:
        n = by_fours(n, sizes_follow);
        *stays = !sizes_follow && n % 2 == 1;
        return n;
    }
    assert(0 && "a way to shrink");
    return n;
}

static void shrink_axes(Shrink *s, bool sizes_follow)
{
    uint32_t *n = s->config->axis_size;
    memcpy(s->axis_was, n, sizeof s->axis_was);
    for (int a = 0; a < AXIS_NAMES; a++)
        n[a] = shrunk(axis_info((AxisName)a), n[a], sizes_follow, &s->stays[a]);
}

/* Returns the smallest length of a sequence: five tokens, or blocks of tokens, for each part of the
 * sequence that a rank may hold. */
static int64_t least_tokens(const Config *c, uint32_t block)
{
    int64_t tokens = 5 * (int64_t)block;
    for (int a = 0; a < AXIS_NAMES; a++) {
        const int64_t chunks = axis_info((AxisName)a)->chunks;
        if (c->axis_size[a] > 1 && chunks) tokens *= chunks * c->axis_size[a];
    }
    return tokens;
}

/* Divides experts over ranks of the same axes as before: either all ranks of an axis or a factor of
 * them. The ranks of ep come from the innermost data axis that gave ranks to ep before. */
static void shrink_experts(Config *c, const uint32_t was[AXIS_NAMES])
{
    const AxisName folds = axes_first(axes_with(AXIS_FOLDS));
    uint32_t ep = c->axis_size[folds];
    if (c->ep_mode != EP_folded) return;
    for (int a = AXIS_NAMES - 1; a >= 0; a--) {
        const bool gave = c->axis_before[a] > was[a];
        c->axis_before[a] = a == (int)folds ? 1 : gave ? c->axis_size[a] * ep : c->axis_size[a];
        if (gave) ep = 1;
    }
    for (int a = 0; a < AXIS_NAMES; a++) {
        const uint32_t lent = c->ep_lent[a], n = c->axis_size[a];
        if (lent <= 1) continue;
        uint32_t k = lent == was[a] ? n : 2;
        while (k < n && (n % k != 0 || lent % k != 0)) k++;
        c->ep_lent[a] = k < n || lent % n == 0 || lent == was[a] ? k : 1;
    }
}

/* Every axis of several ranks keeps several ranks, but at most sixteen ranks remain. Then each pass
 * shrinks its own numbers. */
void draft_shrink(Draft *draft, bool sizes_follow)
{
    Config *c = &draft->config;
    Shrink s = {.config = c, .block = 1};
    int64_t data = config_data_ranks(c);
    int64_t n_micro = c->global_batch / (c->micro_batch * data);
    shrink_axes(&s, sizes_follow);
    for (uint32_t i = 0; i < c->n_passes; i++) {
        const PassSpec *spec = pass_specs[c->passes[i].name];
        may_miss(&c->passes[i]);
        if (spec->shrink) spec->shrink(&c->passes[i], &s);
    }
    limit_ranks(c, s.stays);
    shrink_experts(c, s.axis_was);
    data = config_data_ranks(c);
    if (c->micro_batch > 2) c->micro_batch = 2;
    if (s.fills_pipe) /* an interleaved schedule needs a multiple of pp micro-batches */
        n_micro = 2 * (int64_t)config_ranks(c, axes_with(AXIS_STAGES));
    else if (n_micro > 3 && !s.keeps_batch)
        n_micro = 3;
    c->global_batch = c->micro_batch * data * n_micro;
    const int64_t seq = least_tokens(c, s.block);
    if (c->seq > seq && !c->height) c->seq = seq; /* the small model may choose another grid */
    uint32_t ranks = 1;
    for (int a = 0; a < AXIS_NAMES; a++) ranks *= c->axis_size[a];
    c->cluster.nodes = 1;
    c->cluster.devices_per_node = ranks;
    draft->init = 1;
}
