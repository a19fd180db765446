/* Makes a plan small for --verify: fewer ranks, micro-batches and stages. The small model is then
 * planned like the whole one. Of the model it only knows whether its sizes follow the mesh. */
#include <string.h>

#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"

/* The patterns of a pass may name layers that the small model does not have. */
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

/* Returns the smallest tp that can stand for `tp`. If the model keeps its sizes, it must divide tp:
 * a size that divides evenly over tp also divides evenly over every divisor of tp. */
static uint32_t least_tp(uint32_t tp, bool sizes_follow)
{
    if (tp == 1) return 1;
    if (tp % 4 == 0) return 4;
    if (sizes_follow) return tp % 2 == 1 ? 3 : 2;
    return least_divisor(tp);
}

/* Reduces the largest axis to 2, then to 1, until there are at most sixteen ranks; fixed axes
 * stay. */
static void limit_ranks(Config *c, const bool *fixed)
{
    for (;;) {
        uint32_t ranks = 1, largest = AXIS_NAMES;
        for (uint32_t a = 0; a < AXIS_NAMES; a++) {
            ranks *= c->axis_size[a];
            if (fixed[a]) continue;
            if (largest == AXIS_NAMES || c->axis_size[a] > c->axis_size[largest]) largest = a;
        }
        if (ranks <= 16 || largest == AXIS_NAMES || c->axis_size[largest] == 1) break;
        c->axis_size[largest] = c->axis_size[largest] > 2 ? 2 : 1;
    }
}

/* An odd axis becomes 3, an even one 2. A tp with several factors 4 becomes 4, because it may have
 * more ranks than there are KV heads. If the model keeps its sizes, ep and cp must still divide
 * them. */
static void shrink_axes(Shrink *s, bool sizes_follow)
{
    uint32_t *n = s->config->axis_size;
    memcpy(s->axis_was, n, sizeof s->axis_was);
    const uint32_t tp = least_tp(n[AXIS_tp], sizes_follow), ep = n[AXIS_ep], cp = n[AXIS_cp];
    for (int a = 0; a < AXIS_NAMES; a++)
        if (n[a] > 1) n[a] = n[a] % 2 == 1 ? 3 : 2;
    n[AXIS_tp] = tp;
    if (ep > 1 && !sizes_follow) n[AXIS_ep] = least_divisor(ep); /* the number of experts stays */
    if (cp > 1 && !sizes_follow) n[AXIS_cp] = least_divisor(cp); /* the number of heads stays */
    s->stays[AXIS_ep] = !sizes_follow;
    s->stays[AXIS_cp] = !sizes_follow && cp % 2 == 1;
    /* 2 need not divide a size that an odd tp divides */
    s->stays[AXIS_tp] = !sizes_follow && tp % 2 == 1;
}

/* Axes > 1 stay > 1, with at most sixteen ranks; then each pass shrinks its own numbers. */
void draft_shrink(Draft *draft, bool sizes_follow)
{
    Config *c = &draft->config;
    Shrink s = {.config = c};
    int64_t data = config_data_ranks(c);
    int64_t n_micro = c->global_batch / (c->micro_batch * data);
    shrink_axes(&s, sizes_follow);
    for (uint32_t i = 0; i < c->n_passes; i++) {
        const PassSpec *spec = pass_specs[c->passes[i].name];
        may_miss(&c->passes[i]);
        if (spec->shrink) spec->shrink(&c->passes[i], &s);
    }
    limit_ranks(c, s.stays);
    data = config_data_ranks(c);
    if (c->micro_batch > 2) c->micro_batch = 2;
    if (s.fills_pipe) /* interleaved schedules need a multiple of pp */
        n_micro = 2 * (int64_t)c->axis_size[AXIS_pp];
    else if (n_micro > 3 && !s.keeps_batch)
        n_micro = 3;
    c->global_batch = c->micro_batch * data * n_micro;
    int64_t seq = 5 * (int64_t)c->axis_size[AXIS_tp] * c->axis_size[AXIS_cp];
    if (c->axis_size[AXIS_cp] > 1) seq *= 2; /* two chunks for each rank */
    if (c->seq > seq) c->seq = seq;
    uint32_t ranks = 1;
    for (int a = 0; a < AXIS_NAMES; a++) ranks *= c->axis_size[a];
    c->cluster.nodes = 1;
    c->cluster.devices_per_node = ranks;
    draft->init = 1;
}
