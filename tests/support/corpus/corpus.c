/* The corpus, except for mixtures of experts, sequences split over cp, and frozen models. It covers
 * meshes of up to 8 ranks, kinds of checkpointing, micro-batches, options, pipelines and ZeRO. */
#include "tests/support/corpus/corpus.h"

#include "planner/base/str.h"

static Tiny sizes(bool gpt2)
{
    Tiny t = tiny_default();
    t.gpt2 = gpt2;
    t.groups = 8;
    t.head_dim = 2;
    t.dim = 15;
    t.hidden = 24;
    t.vocab = 37;
    return t;
}

typedef struct Visit {
    void (*visit)(void *self, const Tiny *t);
    void *self;
} Visit;

static void each_mode(const Visit *v, Tiny t)
{
    for (int sequence = 0; sequence <= (t.tp > 1); sequence++)
        for (int ac = AC_none; ac <= AC_selective; ac++)
            for (uint32_t m = 1; m <= 3; m += 2) {
                t.tp_options.sequence = sequence;
                t.ac = (AcMode)ac;
                t.microbatches = m;
                v->visit(v->self, &t);
            }
}

static void each_mesh(const Visit *v, bool gpt2)
{
    for (uint32_t data = 1; data <= 8; data *= 2)
        for (uint32_t tp = 1; tp * data <= 8; tp *= 2) {
            Tiny t = sizes(gpt2);
            t.tp = tp;
            t.dp_shard = data;
            each_mode(v, t);
            t.dp_shard = 1;
            t.dp_replicate = data;
            if (data > 1) each_mode(v, t);
        }
    for (uint32_t tp = 1; tp <= 2; tp++) {
        Tiny t = sizes(gpt2);
        t.dp_shard = t.dp_replicate = 2;
        t.tp = tp;
        each_mode(v, t);
    }
}

/* Dropout, smoothed labels, z-loss and denominators, under data, tensor and pipeline parallelism.
 */
static void each_loss(const Visit *v)
{
    for (int k = 0; k < 2 * DENOMINATOR_COUNT; k++)
        for (int inside = 0; inside < 4; inside++) {
            Tiny t = sizes(k & 1 && inside < 3);
            t.denominator = (Denominator)(k / 2);
            t.dropout = k & 1 ? 0.25 : 0;
            t.smoothing = inside & 1 ? 0.1 : 0;
            t.z_loss = inside & 1 ? 0.01 : 0;
            t.micro = t.microbatches = 2;
            t.dp_shard = inside == 0 || inside == 2 ? 2 : 1;
            t.tp = inside == 1 || inside == 2 ? 2 : 1;
            t.pp = inside == 3 ? 2 : 1;
            t.ac = k & 1 ? AC_full : AC_none;
            v->visit(v->self, &t);
        }
}

/* Options of tp and fsdp2 in pseudo-random combinations. */
static void each_option(const Visit *v)
{
    for (uint32_t bits = 0; bits < 256; bits++) {
        /* This keeps only a sample of the combinations. */
        if (bits * 2654435761u >> 28 > 3) continue;
        Tiny t = sizes(bits & 1);
        t.dp_shard = 2, t.tp = 2, t.microbatches = bits & 2 ? 3 : 2, t.layers = bits & 4 ? 3 : 1;
        t.tp_options.sequence = bits & 8;
        t.tp_options.loss_parallel = bits & 16;
        t.tp_options.keep_gathered = bits & 32;
        t.tp_options.share_gathers = !(bits & 64);
        t.fsdp2.reshard_root = bits & 128;
        t.fsdp2.prefetch = bits % 3;
        t.fsdp2.defer_grad_sync = bits % 5 == 1;
        t.fsdp2.reshard_after_forward = bits % 7 > 3 ? RESHARD_false : RESHARD_true;
        t.sgd = bits % 11 == 3;
        t.compile = bits % 13 < 5;
        t.compile_per = bits & 4 ? COMPILE_model : COMPILE_block;
        v->visit(v->self, &t);
    }
    for (uint32_t k = 0; k < 4; k++) {
        Tiny t = sizes(k & 1);
        t.dp_shard = 2, t.layers = 3, t.microbatches = 2, t.tp = 1 + k / 2;
        t.fsdp2.reshard_last = k % 2;
        t.fsdp2.keep_gathered = k % 2;
        v->visit(v->self, &t);
        t.fsdp2.copy = true;
        v->visit(v->self, &t);
        t.fsdp2.offload = true;
        v->visit(v->self, &t);
        t.fsdp2.copy = false;
        v->visit(v->self, &t);
        t.dp_replicate = 2;
        v->visit(v->self, &t);
        t.fsdp2.copy = true, t.fsdp2.offload = false;
        t.fsdp2.keep_gathered = false;
        t.compute = k % 2 ? DT_bf16 : DT_f32;
        v->visit(v->self, &t);
    }
    for (uint32_t k = 0; k < 8; k++) {
        Tiny t = sizes(k & 1);
        t.dp_shard = 2, t.layers = 2, t.microbatches = 3, t.pp = 1 + (k & 1), t.tp = 1 + k / 4;
        t.fsdp2.pipeline_stage = true, t.fsdp2.copy = k & 2, t.fsdp2.keep_gathered = k == 5;
        t.fsdp2.reshard_root = k == 3 || k == 4;
        v->visit(v->self, &t);
    }
    for (uint32_t tp = 1; tp <= 2; tp++) {
        Tiny t = sizes(false);
        t.dp_shard = 4, t.layers = 3, t.microbatches = 2, t.tp = tp;
        t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 2;
        v->visit(v->self, &t);
    }
}

/* In a V schedule, a stage passes its result, cast to another dtype, to the next stage on the same
 * rank. */
static void each_cast_between_stages(const Visit *v)
{
    for (int copy = 0; copy < 2; copy++) {
        Tiny t = sizes(false);
        t.pp = 2, t.dp_shard = 2, t.layers = 4, t.microbatches = 4;
        t.pp_options.schedule = SCHEDULE_zb_v, t.pp_options.chunks = 2;
        t.fsdp2.mp.param = DT_bf16, t.fsdp2.mp.output = DT_f32;
        t.fsdp2.copy = copy;
        v->visit(v->self, &t);
    }
}

/* Each schedule on two and four stages, with data and tensor parallelism inside. */
static void each_pipeline(const Visit *v)
{
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++)
        for (uint32_t inside = 0; inside < 5; inside++)
            for (uint32_t pp = 2; pp <= 4; pp += 2) {
                Tiny t =
                    /* true: the model has a tied head */
                    sizes(inside == 3 || (pp == 4 && schedule == SCHEDULE_1f1b));
                if (pp == 4 && inside) continue;
                t.pp = pp;
                t.pp_options.schedule = (ScheduleKind)schedule;
                t.pp_options.chunks = schedule_traits((ScheduleKind)schedule).least_chunks;
                t.layers = pp * t.pp_options.chunks;
                t.microbatches = pp * (inside % 2 + 1 + (schedule == SCHEDULE_dualpipe_v));
                if (t.microbatches < t.layers) t.microbatches = t.layers;
                t.dp_shard = inside == 1 || inside == 3 ? 2 : 1;
                t.dp_replicate = inside == 2 ? 2 : 1;
                t.tp = inside >= 3 ? 2 : 1;
                t.ac = inside % 2 ? AC_full : AC_none;
                v->visit(v->self, &t);
            }
}

static void each_zero(const Visit *v)
{
    for (int zero = 0; zero < ZERO_COUNT; zero++)
        for (uint32_t tp = 1; tp <= 2; tp++)
            for (uint32_t m = 1; m <= 3; m += 2) {
                Tiny t = sizes(tp == 2);
                t.use_zero = true;
                t.zero = (ZeroStrategy)zero;
                t.zero_options = (ZeroOptions){.bucket_size = 250};
                t.dp_shard = zero == ZERO_no_shard ? 1 : 4;
                t.dp_replicate = zero == ZERO_no_shard ? 4 : 1;
                t.tp = tp;
                t.microbatches = m;
                v->visit(v->self, &t);
            }
}

/* The options of zero{} that change the program, each in a plan that allows it. */
static void each_zero_option(const Visit *v)
{
    for (uint32_t k = 0; k < 9; k++) {
        Tiny t = sizes(k % 2);
        ZeroOptions *o = &t.zero_options;
        t.use_zero = true;
        t.zero = k < 3 ? ZERO_optim : k < 6 ? ZERO_optim_grads : ZERO_optim_grads_params;
        t.dp_shard = 2, t.dp_replicate = k % 2 + 1, t.tp = k % 3 == 1 ? 2 : 1;
        t.layers = 3, t.microbatches = 2;
        o->gather = k % 3 == 0 && k < 6 ? ZERO_GATHER_eager : ZERO_GATHER_lazy;
        o->overlap_grad_reduce = k == 1 ? CHOICE_no : CHOICE_unset;
        o->overlap_param_gather = k == 2 || k == 4 ? CHOICE_no : CHOICE_unset;
        o->fsdp_double_buffer = k == 5 || k == 6;
        o->nccl_ub = k == 7;
        t.ac = k % 2 ? AC_none : AC_full;
        o->disable_bucketing = k % 4 == 0;
        v->visit(v->self, &t);
    }
    /* In these plans, one parameter fills its bucket to the last element. */
    for (uint32_t k = 0; k < 3; k++) {
        Tiny t = sizes(false);
        t.dim = 128, t.layers = 1, t.microbatches = 2, t.use_zero = true;
        t.zero_options.bucket_size = 1;
        t.zero = k == 0 ? ZERO_no_shard : k == 1 ? ZERO_optim : ZERO_optim_grads_params;
        t.dp_shard = k ? 2 : 1, t.dp_replicate = k ? 1 : 2;
        v->visit(v->self, &t);
    }
    Tiny t = sizes(false);
    t.use_zero = true, t.zero = ZERO_no_shard, t.dp_replicate = 2;
    t.zero_options = (ZeroOptions){.disable_bucketing = true, .overlap_grad_reduce = CHOICE_no};
    v->visit(v->self, &t);
    t.dp_replicate = 1, t.dp_shard = 2, t.zero = ZERO_optim_grads_params;
    /* without named units, so the root is the only unit */
    t.zero_options = (ZeroOptions){.has_units = true};
    v->visit(v->self, &t);
}

static void each_variant(const Visit *v)
{
    for (int variant = 0; variant < TINY_VARIANTS; variant++)
        for (int sequence = 0; sequence <= 1; sequence++) {
            Tiny t = sizes(false);
            t.variant = (TinyVariant)variant;
            t.dp_shard = t.tp = t.microbatches = 2;
            t.repeat = 2;
            t.tp_options.sequence = sequence;
            v->visit(v->self, &t);
        }
}

/* Plans with fewer KV heads than ranks, down to one KV head, with biases and norms of heads. */
static void each_grouping(const Visit *v)
{
    for (int64_t groups = 1; groups <= 2; groups++)
        for (int sequence = 0; sequence <= 1; sequence++) {
            Tiny t = sizes(false);
            t.groups = groups;
            t.repeat = 8 / groups;
            t.tp = 4;
            t.dp_shard = t.microbatches = 2;
            t.biases = t.qk_norm = true;
            t.tp_options.sequence = sequence;
            v->visit(v->self, &t);
            t.gpt2 = t.tp_options.sync_replicated_gradients = true;
            v->visit(v->self, &t);
            t.tp = (uint32_t)t.groups; /* as many ranks as KV heads */
            if (t.tp > 1) v->visit(v->self, &t);
        }
}

/* Fused projections, both whole and cut by tp. */
static void each_fused(const Visit *v)
{
    for (int gpt2 = 0; gpt2 <= 1; gpt2++)
        for (int sequence = 0; sequence <= 1; sequence++) {
            Tiny t = sizes(gpt2);
            t.fused = t.biases = true;
            t.tp = t.dp_shard = t.microbatches = 2;
            t.tp_options.sequence = sequence;
            v->visit(v->self, &t);
            /* Now there are fewer KV heads than query heads. */
            t.groups = 2, t.repeat = gpt2 ? 4 : 2;
            t.unequal = true;
            v->visit(v->self, &t);
            /* Now there are also fewer KV heads than ranks. */
            t.tp = 4, t.qk_norm = true, t.dp_shard = 1;
            v->visit(v->self, &t);
        }
}

/* All recipes of 8-bit products, with every way in which their scales are shared and recomputed. */
static void each_float8(const Visit *v)
{
    for (int recipe = 0; recipe < FLOAT8_RECIPE_COUNT; recipe++)
        for (uint32_t bits = 0; bits < 8; bits++) {
            Tiny t = sizes(bits == 5);
            t.use_float8 = true;
            t.float8.recipe = (Float8Recipe)recipe;
            t.float8.fsdp_gather = recipe == FLOAT8_tensorwise && bits >= 4;
            t.float8.keep_quantised = recipe != FLOAT8_tensorwise && bits != 1 && bits != 2;
            t.layers = t.microbatches = bits & 1 ? 2 : 1;
            t.tp = bits & 2 ? 2 : 1;
            t.tp_options.sequence = bits & 1;
            t.tp_options.share_gathers = bits != 7;
            t.dp_shard = bits & 4 ? 2 : 1;
            t.dp_replicate = bits == 0 ? 2 : 1;
            t.ac = (AcMode)(bits % 3);
            if (bits == 3) t.pp = 2, t.layers = 2, t.pp_options.schedule = SCHEDULE_zb_h1;
            if (bits == 1) t.variant = TINY_parallel;
            v->visit(v->self, &t);
        }
}

/* Blocks that keep the outputs of some of their ops, combined with meshes, pipelines and 8-bit
 * products. */
static void each_kept_op(const Visit *v)
{
    static const uint32_t ops[] = {1, 3, 2, 0x155, 0x2aa, (1 << TINY_AC_OPS) - 1};
    for (uint32_t k = 0; k < sizeof ops / sizeof *ops; k++)
        for (int gpt2 = 0; gpt2 < 2; gpt2++) {
            Tiny t = sizes(gpt2);
            t.ac = AC_full, t.ac_ops = ops[k];
            t.layers = t.microbatches = 2;
            t.dp_shard = k < 4 ? 2 : 1;
            t.tp = k & 1 ? 2 : 1;
            t.tp_options.sequence = k & 2;
            t.use_float8 = k > 2 && !gpt2;
            t.dropout = gpt2 ? 0.2 : 0;
            if (k > 3) t.pp = 2, t.pp_options.schedule = SCHEDULE_zb_h1;
            v->visit(v->self, &t);
        }
}

/* Spectral norms of weights, both whole and cut, combined with micro-batches, recomputation, stages
 * and 8-bit products. */
static void each_spectral(const Visit *v)
{
    for (uint32_t k = 0; k < 12; k++) {
        Tiny t = sizes(k == 5);
        t.spectral = true;
        t.layers = k == 6 || k == 7 ? 2 : 1;
        t.microbatches = k == 2 ? 1 : 2;
        t.dp_shard = k & 1 ? 2 : 1;
        t.dp_replicate = k == 2 || k == 3 ? 2 : 1;
        t.tp = k == 3 || k >= 8 ? 2 : 1;
        t.tp_options.sequence = k & 1;
        t.ac = k % 3 == 1 ? AC_full : AC_none;
        t.biases = k == 8;
        t.fused = k == 9;
        if (k == 4 || k == 5) t.use_zero = true, t.zero = k == 4 ? ZERO_no_shard : ZERO_optim_grads;
        if (k == 4) t.dp_replicate = 2;
        if (k == 6) t.pp = 2, t.pp_options.schedule = SCHEDULE_zb_h1;
        if (k == 7) t.pp = 2, t.ac = AC_full;
        if (k == 10) t.tp = 4, t.groups = 2, t.repeat = 4, t.qk_norm = true;
        if (k == 8) t.fused = t.unequal = true;
        if (k == 11) t.use_float8 = true;
        v->visit(v->self, &t);
    }
}

/* The head and the loss in even and uneven pieces. These are combined with ways to cut and gather
 * the head's weight, its bias and norm, losses, stages, and 8-bit products elsewhere. */
static void each_tile(const Visit *v)
{
    for (uint32_t k = 0; k < 24; k++) {
        Tiny t = sizes(k & 1);
        t.tile = 2 + k % 3;
        t.layers = t.microbatches = 2;
        t.dp_shard = k % 4 < 2 ? 2 : 1, t.dp_replicate = k % 4 == 2 ? 2 : 1;
        t.tp = k % 5 < 2 ? 2 : 1;
        t.tp_options.sequence = k & 2;
        t.tp_options.loss_parallel = k % 7 != 1;
        t.tp_options.share_gathers = k % 7 != 3;
        t.whole_table = k == 6 || k == 10 || k == 15;
        /* With sequence parallelism, the gradient of a whole table would be gathered twice. */
        if (t.whole_table) t.tp_options.sequence = false;
        t.fsdp2.reshard_root = k & 4, t.fsdp2.copy = k % 8 == 5, t.fsdp2.offload = k % 8 == 1;
        t.use_zero = k % 6 == 4, t.zero = t.dp_shard > 1 ? ZERO_optim : ZERO_no_shard;
        t.denominator = (Denominator)(k % DENOMINATOR_COUNT);
        t.smoothing = k & 8 ? 0.1 : 0, t.z_loss = k & 4 ? 0.01 : 0;
        t.dropout = k == 9 ? 0.2 : 0;
        t.biases = k & 2, t.spectral = k == 3 || k == 12, t.use_float8 = k == 8 || k == 13;
        t.compile = k & 4;
        t.ac = (AcMode)(k % 3);
        if (k >= 16) {
            t.pp = 2, t.dp_replicate = 1, t.use_zero = t.fsdp2.offload = false;
            t.pp_options.schedule = (ScheduleKind)(k - 16);
            t.pp_options.chunks = schedule_traits((ScheduleKind)(k - 16)).least_chunks;
            t.layers = t.pp * t.pp_options.chunks, t.microbatches = 4;
        }
        v->visit(v->self, &t);
    }
}

void corpus_each(void (*visit)(void *self, const Tiny *t), void *self)
{
    Visit v = {visit, self};
    each_mesh(&v, false);
    each_mesh(&v, true);
    each_option(&v);
    each_zero(&v);
    each_zero_option(&v);
    each_variant(&v);
    each_grouping(&v);
    each_fused(&v);
    each_pipeline(&v);
    each_loss(&v);
    each_cast_between_stages(&v);
    each_float8(&v);
    each_kept_op(&v);
    each_spectral(&v);
    each_tile(&v);
    corpus_frozen(visit, self);
    corpus_experts(visit, self);
    corpus_context(visit, self);
}

static const char *float8_words(const Tiny *t, Arena *arena)
{
    static const char *const words[] = {
#define X(name) " float8 " #name,
        FLOAT8_RECIPES(X)
#undef X
    };
    if (!t->use_float8) return "";
    return arena_print(arena, "%s%s", words[t->float8.recipe],
                       t->float8.keep_quantised ? " kept" : "");
}

static const char *head_words(const Tiny *t, Arena *arena)
{
    return arena_print(
        arena, " heads %lld x %lld%s%s%s%s%s", (long long)t->groups, (long long)t->repeat,
        t->spectral ? " spectral"
        : t->scans  ? " scans"
                    : "",
        t->fused ? t->unequal ? " fused unequal" : " fused" : "", t->biases ? " biases" : "",
        t->qk_norm ? " qk-norm" : "", t->tp_options.sync_replicated_gradients ? " pinned" : "");
}

static const char *expert_words(const Tiny *t, Arena *arena)
{
    if (!t->experts) return "";
    return arena_print(arena, " experts %lld of %lld capacity %lld%s%s%s ep %u%s",
                       (long long)t->top_k, (long long)t->experts, (long long)t->capacity,
                       t->dropless ? " dropless" : "", t->normalise ? " normalised" : "",
                       t->aux_loss > 0 ? " balanced" : "", t->ep, t->use_ddp ? " ddp" : "");
}

static const char *context_words(const Tiny *t, Arena *arena)
{
    if (t->cp == 1) return "";
    return arena_print(arena, " cp %u %s%s", t->cp,
                       t->cp_options.mode == CP_all_gather ? "gathered"
                       : t->cp_options.all_to_all > 1      ? "in a ring of groups"
                       : t->cp_options.mode == CP_ring     ? "in a ring"
                                                           : "exchanged",
                       t->use_ddp ? " ddp" : "");
}

static const char *fsdp2_words(const Fsdp2Options *o, Arena *arena)
{
    return arena_print(arena, "%s%s%s", o->copy ? " copy" : "", o->offload ? " offload" : "",
                       o->over_ep ? "" : " not-over-ep");
}

static const char *zero_words(const Tiny *t, Arena *arena)
{
    const ZeroOptions *o = &t->zero_options;
    return arena_print(arena, "%s%s%s%s%s", o->gather ? " eager" : "",
                       o->overlap_grad_reduce ? " reduce-waits" : "",
                       o->overlap_param_gather ? " gather-waits" : "",
                       o->fsdp_double_buffer || o->nccl_ub ? " double-buffer" : "",
                       o->disable_bucketing ? " no-buckets" : "");
}

const char *corpus_name(const Tiny *t, Arena *arena)
{
    static const char *const ac[] = {"none", "full", "selective"};
    static const char *const zero[] = {
#define X(name) #name,
        ZERO_STRATEGIES(X)
#undef X
    };
    static const char *const reshard[] = {"true", "false", "to"};
    const char *name = arena_print(
        arena,
        "%s layers %u micro-batches %u dp_replicate %u dp_shard %u tp %u%s%s%s%s ac %s reshard "
        "%s%s "
        "prefetch %u%s%s%s%s%s%s%s%s%s variant %d loss by %d drop %g smooth %g",
        t->gpt2 ? "gpt2" : "llama", t->layers, t->microbatches, t->dp_replicate, t->dp_shard, t->tp,
        t->tp_options.sequence ? " sequence" : "", t->tp_options.loss_parallel ? "" : " whole-loss",
        t->tp_options.keep_gathered ? " keep-gathered" : "",
        t->tp_options.share_gathers ? "" : " unshared",
        t->ac_ops ? arena_print(arena, "%s keeps %x", ac[t->ac], t->ac_ops) : ac[t->ac],
        reshard[t->fsdp2.reshard_after_forward], t->fsdp2.reshard_root ? " reshard-root" : "",
        t->fsdp2.prefetch, t->fsdp2.defer_grad_sync ? " defer" : "",
        t->fsdp2.reshard_last ? "" : " keep-last", t->fsdp2.keep_gathered ? " keep" : "",
        t->fsdp2.pipeline_stage ? " stage" : "", t->sgd ? " sgd" : "", t->use_zero ? " zero " : "",
        t->use_zero ? zero[t->zero] : "", t->pp > 1 ? arena_print(arena, " pp %u ", t->pp) : "",
        t->pp > 1 ? schedule_traits(t->pp_options.schedule).name : "", (int)t->variant,
        (int)t->denominator, t->dropout, t->smoothing);
    return arena_print(
        arena, "%s%s%s%s%s%s%s", name, expert_words(t, arena), context_words(t, arena),
        head_words(t, arena), float8_words(t, arena),
        arena_print(arena, "%s%s",
                    t->freeze ? arena_print(arena, " frozen %x%s", t->freeze,
                                            t->freeze_whole ? " whole" : "")
                              : "",
                    t->tile ? arena_print(arena, " in %u pieces", t->tile) : ""),
        arena_print(arena, "%s%s", fsdp2_words(&t->fsdp2, arena), zero_words(t, arena)));
}
