/* The config of a tiny model: its mesh, its batch, and its passes in order. */
#include <assert.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/front/fold.h"
#include "tests/support/plans/schedules.h"
#include "tests/support/plans/tiny.h"

static ZeroOptions zero_options(const Tiny *t)
{
    ZeroOptions o = t->zero_options;
    o.strategy = t->zero;
    o.prefetch = t->fsdp2.prefetch;
    return o;
}

const char *const tiny_ac_ops[TINY_AC_OPS] = {
    "attention", "linear", "rmsnorm", "layernorm", "rope",    "silu", "quantise", "add",
    "mul",       "gelu",   "bias",    "segment",   "dropout", "amax", "part"};

const char *const tiny_frozen[TINY_FROZEN] = {"embedding", "layers.0", "layers.*.attention",
                                              "layers.*.feed_forward", "layers.*"};

static PassConfig freeze_of(const Tiny *t, Arena *arena)
{
    PassConfig pass = {.name = PASS_freeze, .freeze = {.shard = !t->freeze_whole}};
    for (uint32_t i = 0; i < TINY_FROZEN; i++) {
        Pattern module = {.path = tiny_frozen[i]};
        if (t->freeze >> i & 1) list_push(arena, &pass.freeze.modules, module);
    }
    return pass;
}

static PassConfig ac_of(const Tiny *t, Arena *arena)
{
    PassConfig pass = {.name = PASS_ac, .ac = t->ac};
    for (uint32_t i = 0; i < TINY_AC_OPS; i++) {
        Pattern op = {.path = tiny_ac_ops[i], .may_miss = true};
        if (t->ac_ops >> i & 1) list_push(arena, &pass.ac_ops, op);
        pass.ac_alternate = t->ac_alternate;
    }
    return pass;
}

int64_t tiny_data_ranks(const Tiny *t)
{
    return (int64_t)t->dp_shard * t->dp_replicate * t->ep;
}

static void add_passes(const Tiny *t, Arena *arena, Config *config)
{
    uint32_t n = 0;
    if (t->pp > 1) {
        config->passes[n] = (PassConfig){.name = PASS_pp, .pp = t->pp_options};
        PpOptions *pp = &config->passes[n++].pp;
        pp->is_own = t->own_seed != 0;
        if (pp->is_own)
            pp->own = schedule_random(t->own_seed, t->pp, pp->chunks, t->microbatches, arena);
    }
    if (t->tp > 1) config->passes[n++] = (PassConfig){.name = PASS_tp, .tp = t->tp_options};
    if (config_expert_ranks(config) > 1)
        config->passes[n++] = (PassConfig){.name = PASS_ep, .ep = {t->bound > 0 ? t->bound : 1024}};
    if (t->cp > 1) config->passes[n++] = (PassConfig){.name = PASS_cp, .cp = t->cp_options};
    if (t->use_float8) config->passes[n++] = (PassConfig){.name = PASS_float8, .float8 = t->float8};
    if (t->ac != AC_none) config->passes[n++] = ac_of(t, arena);
    if (t->freeze) config->passes[n++] = freeze_of(t, arena);
    const int64_t sums = tiny_data_ranks(t) * t->cp;
    if (t->use_zero && sums > 1)
        config->passes[n++] = (PassConfig){.name = PASS_zero, .zero = zero_options(t)};
    else if (t->dp_shard > 1 || ((t->ep > 1 || t->cp > 1) && !t->use_ddp))
        config->passes[n++] = (PassConfig){.name = PASS_fsdp2, .fsdp2 = t->fsdp2};
    else if (sums > 1)
        config->passes[n++] = (PassConfig){.name = PASS_ddp, .ddp = {.bucket_mib = 0.001}};
    if (t->compile)
        config->passes[n++] = (PassConfig){.name = PASS_compile, .compile = t->compile_per};
    if (t->tile) config->passes[n++] = (PassConfig){.name = PASS_tile, .tile = {t->tile}};
    config->n_passes = n;
}

void tiny_config(const Tiny *t, Arena *arena, Config *config)
{
    memset(config, 0, sizeof *config);
    config->file = "tiny.lua";
    for (int a = 0; a < AXIS_NAMES; a++) config->axis_size[a] = 1;
    config->axis_size[AXIS_dp_shard] = t->dp_shard;
    config->axis_size[AXIS_dp_replicate] = t->dp_replicate;
    config->axis_size[AXIS_cp] = t->cp;
    config->axis_size[AXIS_ep] = t->ep;
    config->axis_size[AXIS_tp] = t->tp;
    config->axis_size[AXIS_pp] = t->pp;
    memcpy(config->axis_before, config->axis_size, sizeof config->axis_before);
    config->ep_lent[AXIS_tp] = t->tp_lent, config->ep_lent[AXIS_cp] = t->cp_lent;
    if (t->tp_lent > 1 || t->cp_lent > 1) config->ep_mode = EP_folded;
    config->micro_batch = t->micro;
    config->global_batch = t->micro * tiny_data_ranks(t) * t->microbatches;
    config->seq = t->seq;
    config->denominator = t->denominator;
    if (t->denominator == DENOMINATOR_microbatch_mean)
        config->group = t->group ? t->group : t->micro;
    config->param = t->param;
    config->reduce = t->reduce;
    config->compute = t->compute;
    config->optimizer = (Optimizer){.kind = t->sgd ? OPTIMIZER_sgd : OPTIMIZER_adamw,
                                    .lr = 1e-2,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    /* The gradient of a key bias consists only of rounding. With
                                     * 1e-8, Adam would turn the rounding into steps. */
                                    .eps = 1e-6,
                                    .weight_decay = 0.1,
                                    .state = t->state,
                                    .rounding = t->rounding,
                                    .clip_norm = t->clip};
    config->seed = 7;
    add_passes(t, arena, config);
}
