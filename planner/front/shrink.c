/* A plan made small for --verify: what it says of ranks, micro-batches and stages, so that the
 * model, made small too, is planned as the whole one is. Knows nothing of the model but whether its
 * sizes follow the mesh. */
#include "planner/front/parent.h"

static void may_miss(Patterns *patterns)
{
    for (uint32_t i = 0; i < patterns->n; i++) patterns->at[i].may_miss = true;
}

/* The least that divides n and is not 1. */
static uint32_t least_divisor(uint32_t n)
{
    uint32_t k = 2;
    while (n % k != 0) k++;
    return k;
}

/* The least that may stand for tp: where the model keeps its sizes, only what divides tp divides
 * all that tp divides. */
static uint32_t least_tp(uint32_t tp, bool sizes_follow)
{
    if (tp == 1) return 1;
    if (tp % 4 == 0) return 4;
    if (sizes_follow) return tp % 2 == 1 ? 3 : 2;
    return least_divisor(tp);
}

/* Until there are sixteen ranks at most, the largest axis becomes 2, then 1; a fixed one stays. */
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

/* Axes > 1 stay > 1: 3 where the size is odd, else 2; sixteen ranks at most. A tp of several fours
 * becomes 4, for it may have more ranks than there are KV heads; a dp_shard that is resharded to a
 * part of itself becomes 4 in parts of 2. */
void draft_shrink(Draft *draft, bool sizes_follow)
{
    Config *c = &draft->config;
    Fsdp2Options *fsdp2 = NULL;
    PpOptions *pp = NULL;
    for (uint32_t i = 0; i < c->n_passes; i++) {
        if (c->passes[i].name == PASS_fsdp2) fsdp2 = &c->passes[i].fsdp2;
        if (c->passes[i].name == PASS_pp) pp = &c->passes[i].pp;
        may_miss(&c->passes[i].tp.plan);
        may_miss(&c->passes[i].float8.skip);
        may_miss(&c->passes[i].float8.only);
        c->passes[i].float8.any_size = true;
        may_miss(&c->passes[i].ac_modules);
        may_miss(&c->passes[i].ac_ops);
        may_miss(&c->passes[i].fsdp2.units);
        may_miss(&c->passes[i].zero.units);
        if (c->passes[i].tile.pieces > 3) c->passes[i].tile.pieces = 3; /* of five tokens */
        if (c->passes[i].ac_every > 2) c->passes[i].ac_every = 2;       /* two layers are left */
    }
    int64_t data = config_data_ranks(c);
    int64_t n_micro = c->global_batch / (c->micro_batch * data);
    bool in_parts = fsdp2 != NULL && fsdp2->reshard_after_forward == RESHARD_to &&
                    fsdp2->reshard_to > 1 && fsdp2->reshard_to < c->axis_size[AXIS_dp_shard] &&
                    c->axis_size[AXIS_dp_shard] % fsdp2->reshard_to == 0;
    bool fixed = pp != NULL && pp->csv != NULL; /* its ranks and micro-batches are the file's */
    const uint32_t ep = c->axis_size[AXIS_ep], cp = c->axis_size[AXIS_cp];
    uint32_t tp = least_tp(c->axis_size[AXIS_tp], sizes_follow);
    for (int a = 0; a < AXIS_NAMES; a++)
        if (c->axis_size[a] > 1 && !(fixed && a == AXIS_pp))
            c->axis_size[a] = c->axis_size[a] % 2 == 1 ? 3 : 2;
    c->axis_size[AXIS_tp] = tp;
    if (ep > 1 && !sizes_follow)
        c->axis_size[AXIS_ep] = least_divisor(ep); /* of the same experts */
    if (cp > 1 && !sizes_follow) c->axis_size[AXIS_cp] = least_divisor(cp); /* of the same heads */
    if (in_parts) {
        c->axis_size[AXIS_dp_shard] = 4;
        fsdp2->reshard_to = 2;
    }
    bool stays[AXIS_NAMES] = {[AXIS_dp_shard] = in_parts, [AXIS_pp] = fixed};
    stays[AXIS_ep] = !sizes_follow;
    stays[AXIS_cp] = !sizes_follow && cp % 2 == 1;
    stays[AXIS_tp] = !sizes_follow && tp % 2 == 1; /* 2 would not divide what it divides */
    limit_ranks(c, stays);
    data = config_data_ranks(c);
    if (c->micro_batch > 2) c->micro_batch = 2;
    if (n_micro > 3 && !fixed) n_micro = 3;
    if (fixed) pp->n_split = 0;
    if (pp != NULL &&
        !fixed) { /* enough to fill the pipe; interleaved schedules want a multiple of it */
        n_micro = 2 * (int64_t)c->axis_size[AXIS_pp];
        pp->n_split = 0;
        if (pp->chunks > 2) pp->chunks = 2;
        pp->layers_per_stage = 0;
        pp->cap = 0; /* it was for other numbers */
    }
    c->global_batch = c->micro_batch * data * n_micro;
    int64_t seq = 5 * (int64_t)c->axis_size[AXIS_tp] * c->axis_size[AXIS_cp];
    if (c->axis_size[AXIS_cp] > 1) seq *= 2; /* two chunks a rank */
    if (c->seq > seq) c->seq = seq;
    uint32_t ranks = 1;
    for (int a = 0; a < AXIS_NAMES; a++) ranks *= c->axis_size[a];
    c->cluster.nodes = 1;
    c->cluster.devices_per_node = ranks;
    draft->init = 1;
}
