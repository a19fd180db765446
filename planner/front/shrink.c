/* Makes a plan small for --verify: fewer ranks, stages and micro-batches, shorter sequences. The
 * result is planned like any other plan. Of the model, this file knows only whether it has a
 * function `shrink`, so that its sizes follow the mesh (sizes_follow). */
#include <assert.h>
#include <string.h>

#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"

/* Allows the pass's patterns to match nothing, because the small model has fewer layers. */
static void may_miss(PassConfig *pass)
{
    for (const PassOption *o = pass_specs[pass->name]->options; o && o->field.path; o++) {
        const FieldKind kind = o->field.kind;
        if (kind != FIELD_modules && kind != FIELD_ops && kind != FIELD_styles) continue;
        Patterns *patterns = (Patterns *)(void *)((char *)pass + o->field.offset);
        for (uint32_t i = 0; i < patterns->n; i++) patterns->at[i].may_miss = true;
    }
}

/* Returns the smallest divisor of n that is larger than 1. */
static uint32_t least_divisor(uint32_t n)
{
    uint32_t k = 2;
    while (n % k != 0) k++;
    return k;
}

/* Returns the small size of the axis tp or cp, which has n ranks. It is 4 if n is a multiple of 4:
 * these are more ranks than the small model has KV heads, so --verify also tests that case. If the
 * model keeps its sizes, the result must divide n: then it also divides every size that n divides.
 */
static uint32_t by_fours(uint32_t n, bool sizes_follow)
{
    if (n == 1) return 1;
    if (n % 4 == 0) return 4;
    if (sizes_follow) return n % 2 == 1 ? 3 : 2;
    return least_divisor(n);
}

/* True if axis `a` must be reduced before axis `b`: the larger axis first; of two equal axes the
 * outer one, but the axis of pipeline stages last, so that --verify still tests a pipeline. */
static bool is_reduced_before(const Config *c, uint32_t a, uint32_t b)
{
    if (c->axis_size[a] != c->axis_size[b]) return c->axis_size[a] > c->axis_size[b];
    return (axis_info((AxisName)b)->flags & AXIS_STAGES) != 0;
}

/* While there are more than 16 ranks, reduces the largest axis to 2, or from 2 to 1. Axes marked in
 * `fixed` stay. */
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

/* Returns the small size of an axis of n ranks, by the rule `shrinks` of its row in axes.def. Sets
 * *stays if the axis must then keep this size. */
static uint32_t shrunk(const AxisInfo *axis, uint32_t n, bool sizes_follow, bool *stays)
{
    const uint32_t least = n == 1 ? 1 : n % 2 == 1 ? 3 : 2;
    *stays = false;
    switch (axis->shrinks) {
    case SHRINKS_to_least: return least;
    case SHRINKS_to_divisor:
        /* the model's sizes need not be even: a size that n = 3 divides, such as 9, cannot be
         * divided by 2 */
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

/* Returns the sequence length of the small plan: 5 tokens for each rank and chunk among which a
 * sequence is divided. block: tokens that share a float8 scale; it multiplies the length. */
static int64_t least_tokens(const Config *c, uint32_t block)
{
    int64_t tokens = 5 * (int64_t)block;
    for (int a = 0; a < AXIS_NAMES; a++) {
        const int64_t chunks = axis_info((AxisName)a)->chunks;
        if (c->axis_size[a] > 1 && chunks) tokens *= chunks * c->axis_size[a];
    }
    return tokens;
}

/* For folded experts (fold.h), recomputes axis_before and ep_lent for the small mesh. was: the
 * sizes of the axes in the user's plan. Axes that lent ranks, or gave ranks to ep, do so again; the
 * axis ep is taken from the innermost data axis that gave ranks before. */
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

/* Reduces first the mesh axes, then the options of each pass, then the batch and the sequence. More
 * than 16 ranks remain only on axes that must keep their size (Shrink.stays). */
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
    if (s.fills_pipe) /* interleaved schedules need a multiple of pp micro-batches */
        n_micro = 2 * (int64_t)config_ranks(c, axes_with(AXIS_STAGES));
    else if (n_micro > 3 && !s.keeps_batch)
        n_micro = 3;
    c->global_batch = c->micro_batch * data * n_micro;
    const int64_t seq = least_tokens(c, s.block);
    /* with fields, the model's `shrink` chooses the grid */
    if (c->seq > seq && !c->height) c->seq = seq;
    uint32_t ranks = 1;
    for (int a = 0; a < AXIS_NAMES; a++) ranks *= c->axis_size[a];
    c->cluster.nodes = 1;
    c->cluster.devices_per_node = ranks;
    draft->init = 1;
}
