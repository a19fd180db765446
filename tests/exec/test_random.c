/* Plans drawn by seed over meshes, passes, schedules and options. Each one must pass every proof
 * and, in fp64 on loopback, compute the result of one rank. A failure is shrunk to the smallest
 * plan that still fails. TANDEM_SEED and TANDEM_PLANS choose another draw;
 * with TANDEM_FIRST it begins at that plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/base/rng.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

#ifdef __SANITIZE_ADDRESS__
enum { N_PLANS = 50, SEED = 20261124 }; /* slower builds draw fewer */
#else
enum { N_PLANS = 300, SEED = 20261121 };
#endif
enum { MOST_RANKS = 16 };
static const double tolerance = 1e-10;

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- drawing */

typedef struct Draw {
    uint64_t seed, stream, n;
} Draw;

static uint32_t draw(Draw *d, uint32_t n)
{
    return (uint32_t)rng_below(d->seed, d->stream, d->n++, n);
}

/* Draws options of zero{} that are legal with its strategy. */
static void draw_zero(Draw *d, Tiny *t)
{
    ZeroOptions *o = &t->zero_options;
    bool sharded = t->zero == ZERO_optim || t->zero == ZERO_optim_grads;
    o->bucket_size = draw(d, 2) ? 0 : 100 + draw(d, 400);
    o->disable_bucketing = o->bucket_size == 0 && draw(d, 2);
    if (sharded && draw(d, 2)) o->gather = ZERO_GATHER_eager;
    if (sharded && draw(d, 3) == 0) o->overlap_param_gather = CHOICE_no;
    if (t->zero <= ZERO_optim && draw(d, 3) == 0) o->overlap_grad_reduce = CHOICE_no;
    if (t->zero >= ZERO_optim_grads && t->fsdp2.prefetch <= 1 && t->pp == 1)
        o->fsdp_double_buffer = draw(d, 2);
}

static void print_zero(const Tiny *t)
{
    const ZeroOptions *o = &t->zero_options;
    print_error("  zero %d strategy %d bucket %lld of a unit %d eager %d waits %d %d double %d\n",
                t->use_zero, (int)t->zero, (long long)o->bucket_size, o->disable_bucketing,
                (int)o->gather, (int)o->overlap_grad_reduce, (int)o->overlap_param_gather,
                o->fsdp_double_buffer);
}

static void draw_pipeline(Draw *d, Tiny *t)
{
    t->pp_options.schedule = (ScheduleKind)draw(d, SCHEDULE_COUNT);
    t->pp_options.chunks = schedule_traits(t->pp_options.schedule).least_chunks;
    if (draw(d, 4) == 0) {
        t->own_seed = 1 + draw(d, 1 << 30);
        t->pp_options = (PpOptions){.chunks = 1 + draw(d, 3)};
    }
    bool divides = t->pp_options.schedule == SCHEDULE_interleaved_1f1b,
         twice = t->pp_options.schedule == SCHEDULE_dualpipe_v;
    t->microbatches = t->pp * (1 + twice + draw(d, 2)) + (divides ? 0 : draw(d, 2));
    uint32_t n_stages = t->pp * t->pp_options.chunks;
    t->layers = n_stages + draw(d, 3);
    if (draw(d, 2)) { /* the blocks that remain after one for each stage go to any stages */
        t->pp_options.n_split = n_stages;
        for (uint32_t s = 0; s < n_stages; s++) t->pp_options.split[s] = 1;
        for (uint32_t i = n_stages; i < t->layers; i++) t->pp_options.split[draw(d, n_stages)]++;
    }
}

/* Drawn last, so that the draws before it stay the same. */
static void draw_fsdp2(Draw *d, Tiny *t)
{
    t->fsdp2.reshard_last = draw(d, 2);
    t->fsdp2.keep_gathered = draw(d, 5) == 0;
    t->fsdp2.copy = draw(d, 3) == 0;
    t->fsdp2.offload = draw(d, 3) == 0;
    /* the planner refuses offload if stages share a table */
    if (t->pp > 1 && t->gpt2) t->fsdp2.offload = false;
    if (draw(d, 4) == 0) t->fsdp2.mp.param = DT_bf16, t->fsdp2.mp.output = DT_f32;
    if (t->fsdp2.keep_gathered) {
        t->fsdp2.reshard_root = false;
        t->fsdp2.reshard_after_forward = RESHARD_true;
    }
}

/* Draws the options of the loss, and dropout. */
static void draw_loss(Draw *d, Tiny *t)
{
    t->denominator = draw(d, 2) ? DENOMINATOR_kept : (Denominator)draw(d, DENOMINATOR_COUNT);
    t->dropout = draw(d, 3) == 0 ? 0.25 : 0;
    t->smoothing = draw(d, 3) == 0 ? 0.1 : 0;
    t->z_loss = draw(d, 3) == 0 ? 0.01 : 0;
}

/* tp may have more ranks than there are KV heads. The ranks that share a KV head then divide its
 * query heads. */
static void draw_heads(Draw *d, Tiny *t)
{
    t->groups = 1 << draw(d, 3);
    if (t->groups < t->tp) t->repeat *= t->tp / t->groups;
    t->biases = draw(d, 3) == 0;
    t->qk_norm = draw(d, 3) == 0;
    t->tp_options.sync_replicated_gradients = draw(d, 3) == 0;
    t->fused = draw(d, 3) == 0;
}

/* Draws experts, divided over the ranks that the other axes leave. */
static void draw_experts(Draw *d, Tiny *t)
{
    static const uint32_t sizes[] = {1, 2, 2, 3, 4};
    const uint32_t n_ranks = t->pp * t->dp_replicate * t->dp_shard * t->tp;
    if (draw(d, 3) != 0) return;
    do {
        t->ep = sizes[draw(d, 5)];
    } while (t->ep * n_ranks > MOST_RANKS);
    t->experts = t->ep * (1 + draw(d, 3));
    if (t->experts == 1) t->experts = 5;
    t->top_k = 1 + draw(d, t->experts < 3 ? (uint32_t)t->experts : 3);
    t->capacity = draw(d, 2) ? 1 + draw(d, (uint32_t)t->seq) : 0;
    t->normalise = draw(d, 2);
    /* the sums of experts are scattered by features, so tp must divide them */
    while (t->dim % t->tp) t->dim++;
    t->use_ddp = draw(d, 3) == 0;
    t->aux_loss = draw(d, 2) ? 0.1 : 0;
    t->fsdp2.over_ep = t->ep == 1 || draw(d, 3) > 0;
    t->router_z = draw(d, 3) == 0 ? 0.05 : 0;
    t->balance_rate = draw(d, 3) == 0 ? 0.01 : 0;
    if (!t->use_zero || t->ep == 1 || t->dp_shard > 1) return;
    t->zero = (ZeroStrategy)draw(d, ZERO_COUNT); /* ZeRO can shard over ep alone, too */
    t->zero_options = (ZeroOptions){0};
    draw_zero(d, t);
    if (t->use_float8) t->float8.fsdp_gather = false;
}

/* Draws sequences shared over cp, for models with whole heads. */
static void draw_context(Draw *d, Tiny *t)
{
    const uint32_t n_ranks = t->pp * t->dp_replicate * t->dp_shard * t->tp * t->ep;
    if (draw(d, 2) != 0 || t->tile) return;
    t->cp_options.mode = (CpMode)draw(d, CP_MODE_COUNT);
    /* tp's sequence parallelism and an exchange of cp cannot both divide the tokens */
    const bool tokens_cut = t->tp > 1 && t->tp_options.sequence;
    if (tokens_cut && t->cp_options.mode == CP_all_to_all) t->cp_options.mode = CP_all_gather;
    t->cp = 2 + draw(d, 3);
    while (t->cp > 1 && t->cp * n_ranks > MOST_RANKS) t->cp--;
    if (t->cp == 1) return;
    if (t->cp == 4 && !tokens_cut && t->cp_options.mode == CP_ring && !t->experts && draw(d, 2))
        t->cp_options.all_to_all = 2, t->groups = 2 * t->tp * (1 + draw(d, 2));
    t->seq = 2 * t->cp * t->tp * (1 + draw(d, 2));
    if (t->cp_options.mode == CP_all_to_all) t->groups = t->cp * t->tp * (1 + draw(d, 2));
    t->use_ddp = draw(d, 3) == 0;
    if (t->capacity) t->capacity = 1 + draw(d, (uint32_t)t->seq);
}

/* Returns 1, 2 (if 2 divides n) or n. */
static uint32_t part_of(Draw *d, uint32_t n)
{
    const uint32_t k = draw(d, 3);
    return k == 0 ? 1 : k == 1 && n % 2 == 0 ? 2 : n;
}

/* Divides experts over ranks of tp, and then of cp. Ranks of cp take part only if all ranks of tp
 * do. */
static void draw_fold(Draw *d, Tiny *t)
{
    if (!t->experts || draw(d, 2)) return;
    t->tp_lent = t->ep > 1 ? t->tp : part_of(d, t->tp);
    t->cp_lent = t->tp_lent < t->tp ? 1 : t->ep > 1 ? t->cp : part_of(d, t->cp);
    t->experts *= t->tp_lent * t->cp_lent;
}

static Tiny draw_plan(uint64_t seed, uint64_t index)
{
    static const uint32_t sizes[] = {1, 1, 2, 2, 3, 4};
    Draw d = {seed, index, 0};
    Tiny t = tiny_default();
    do {
        t.pp = sizes[draw(&d, 6)], t.dp_replicate = sizes[draw(&d, 6)];
        t.dp_shard = sizes[draw(&d, 6)], t.tp = 1u << draw(&d, 3);
    } while (t.pp * t.dp_replicate * t.dp_shard * t.tp > MOST_RANKS);
    t.gpt2 = draw(&d, 2);
    t.variant = draw(&d, 2) ? TINY_plain : (TinyVariant)draw(&d, TINY_VARIANTS);
    t.layers = 1 + draw(&d, 3);
    t.repeat = 1 + draw(&d, 2);
    t.dim = 10 + draw(&d, 5);
    t.hidden = 4 * (3 + draw(&d, 3));
    t.vocab = 17 + draw(&d, 20);
    t.micro = 1 + draw(&d, 2);
    t.microbatches = 1 + draw(&d, 3);
    t.ac = (AcMode)draw(&d, 3);
    t.tp_options.sequence = draw(&d, 2);
    t.tp_options.loss_parallel = draw(&d, 4) > 0;
    t.tp_options.keep_gathered = draw(&d, 2);
    t.tp_options.share_gathers = draw(&d, 3) > 0;
    t.fsdp2.prefetch = draw(&d, 3);
    t.fsdp2.reshard_root = draw(&d, 2);
    t.fsdp2.defer_grad_sync = draw(&d, 2);
    t.fsdp2.reshard_after_forward = draw(&d, 2) ? RESHARD_true : RESHARD_false;
    if (t.dp_shard == 4 && draw(&d, 2))
        t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 2;
    t.use_zero = draw(&d, 4) == 0;
    t.zero = t.dp_shard > 1 ? (ZeroStrategy)(1 + draw(&d, 3)) : ZERO_no_shard;
    t.compile = draw(&d, 3) == 0;
    t.compile_per = (CompilePer)draw(&d, COMPILE_PER_COUNT);
    if (t.use_zero) draw_zero(&d, &t);
    t.sgd = draw(&d, 3) == 0;
    t.clip = (double[]){0, 0.02, 1}[draw(&d, 3)];
    if (t.pp > 1) draw_pipeline(&d, &t);
    draw_fsdp2(&d, &t);
    draw_loss(&d, &t);
    draw_heads(&d, &t);
    t.use_float8 = draw(&d, 4) == 0;
    t.float8.recipe = (Float8Recipe)draw(&d, FLOAT8_RECIPE_COUNT);
    t.float8.head = draw(&d, 3) == 0;
    t.float8.fsdp_gather = t.float8.recipe == FLOAT8_tensorwise && draw(&d, 2);
    if (t.use_float8) t.fsdp2.mp.param = t.fsdp2.mp.output = DT_none; /* float8 refuses fsdp2.mp */
    /* 8-bit gathers refuse copy, offload and eager gathers */
    if (t.use_float8 && t.float8.fsdp_gather) {
        t.fsdp2.copy = t.fsdp2.offload = false;
        t.zero_options.gather = ZERO_GATHER_lazy;
        /* fsdp_double_buffer needs modules of one unit; with prefetch, a module has two */
        if (t.fsdp2.prefetch) t.zero_options.fsdp_double_buffer = false;
    }
    if (t.ac == AC_full && draw(&d, 2)) t.ac_ops = draw(&d, 1U << TINY_AC_OPS);
    t.whole_table = draw(&d, 4) == 0;
    t.unequal = draw(&d, 3) == 0;
    t.spectral = draw(&d, 4) == 0;
    if (draw(&d, 3) == 0 && !(t.use_float8 && t.float8.head))
        t.tile = 2 + (t.whole_table ? 0 : draw(&d, 3));
    draw_experts(&d, &t);
    draw_context(&d, &t);
    draw_fold(&d, &t);
    if (t.cp > 1 && t.cp_options.mode != CP_all_to_all && t.float8.recipe >= FLOAT8_mxfp8)
        t.float8.recipe = FLOAT8_rowwise; /* block scales refuse sequences in chunks */
    if (draw(&d, 5) == 0 && !t.spectral) t.freeze = 1 + draw(&d, (1U << TINY_FROZEN) - 1);
    t.freeze_whole = t.freeze && draw(&d, 3) == 0;
    t.dropless = t.experts && (t.cp == 1 || t.cp_lent == t.cp) && draw(&d, 2);
    if (t.dropless && !t.tile && draw(&d, 2))
        t.seq = 2 * t.cp * t.tp; /* few tokens, so that some experts get none */
    t.float8.gather_first = t.float8.recipe == FLOAT8_rowwise && draw(&d, 2);
    return t;
}

/* ---- one plan ---- */

/* Returns true if 8-bit products are rounded as on one rank. Everything else is in fp64, so results
 * agree closely only if the scales are the same. */
static bool rounds_as_one_rank(const Tiny *t, const DataSource *data, const BackendOptions *options,
                               Arena *arena, VerifyResult *result, Diag *d)
{
    Tiny one = tiny_one_rank(t);
    DTypeMap dtypes = dtype_map_but_eight_bits(DT_f64);
    const Plan *plan = tiny_plan_in(t, dtypes, arena, d);
    const Plan *reference = tiny_plan_in(&one, dtypes, arena, d);
    return plan && reference && verify_plan(plan, VERIFY_all, false, d) &&
           exec_verify(plan, reference, data, options, tolerance, arena, result, d);
}

/* Returns a description of the fault, in `arena`; "" if there is none. */
static const char *fault_of(const Tiny *t, uint64_t order_seed, Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny one = tiny_one_rank(t);
    /* fp64 loses nothing in 8-bit scaling, so this tests that gradients pass through unchanged */
    one.use_float8 = false;
    Str s = str_in(arena);
    const Plan *plan = tiny_plan(t, true, arena, &d), *reference = tiny_plan(&one, true, arena, &d);
    VerifyResult result = {0};
    BackendOptions options = {.poison = true, .order_seed = order_seed, .timeout_s = 20};
    const DataSource *data = data_ragged(order_seed, t->vocab, arena);
    bool ok = plan && reference && verify_plan(plan, VERIFY_all, false, &d) &&
              exec_verify(plan, reference, data, &options, tolerance, arena, &result, &d);
    if (ok && t->use_float8) ok = rounds_as_one_rank(t, data, &options, arena, &result, &d);
    if (ok && result.highest_touched != result.predicted_bytes)
        str_print(&s, "touched %llu bytes, predicted %llu",
                  (unsigned long long)result.highest_touched,
                  (unsigned long long)result.predicted_bytes);
    if (ok && result.host_touched != result.host_predicted)
        str_print(&s, "touched %llu bytes of host memory, predicted %llu",
                  (unsigned long long)result.host_touched,
                  (unsigned long long)result.host_predicted);
    if (!ok) {
        str_print(&s, "gradient %g of %s: ", result.worst_gradient,
                  result.worst_tensor ? result.worst_tensor : "-");
        diag_print(&d, &s);
    }
    return str_text(&s);
}

static bool fails(const Tiny *t, uint64_t order_seed)
{
    Arena *arena = arena_new();
    bool bad = fault_of(t, order_seed, arena)[0] != 0;
    arena_free(arena);
    return bad;
}

/* Tries one simplification after the other. Keeps each one with which the plan still fails. */
static Tiny shrink(Tiny t, uint64_t order_seed)
{
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (int k = 0; k < 27; k++) {
            Tiny s = t;
            switch (k) {
            case 0: s.pp = 1, s.own_seed = 0, s.pp_options = tiny_default().pp_options; break;
            case 1: s.tp = 1, s.tp_lent = 0; break;
            case 2: s.dp_shard = 1; break;
            case 3: s.dp_replicate = 1; break;
            case 4: s.layers = s.pp * s.pp_options.chunks, s.pp_options.n_split = 0; break;
            case 5:
                s.microbatches = s.pp_options.schedule == SCHEDULE_dualpipe_v ? 2 * s.pp : s.pp;
                break;
            case 6: s.micro = 1; break;
            case 7: s.ac = AC_none; break;
            case 8: s.gpt2 = false, s.variant = TINY_plain; break;
            case 9: s.tp_options = tiny_default().tp_options; break;
            case 10: s.fsdp2 = tiny_default().fsdp2, s.use_zero = false; break;
            case 11: s.compile = false; break;
            case 12: s.dropout = 0; break;
            case 13: s.smoothing = s.z_loss = 0; break;
            case 14: s.denominator = DENOMINATOR_kept; break;
            case 15: s.groups = 4, s.repeat = 1; break;
            case 16: s.biases = s.qk_norm = s.fused = s.whole_table = s.unequal = false; break;
            case 19: s.spectral = false; break;
            case 17: s.use_float8 = false; break;
            case 18: s.ac_ops = 0; break;
            case 20: s.tile = 0; break;
            case 21: s.ep = 1; break;
            case 23: s.cp = 1, s.cp_lent = 0; break;
            case 25: s.tp_lent = s.cp_lent = 0; break;
            case 24: s.freeze = 0, s.freeze_whole = false; break;
            case 22:
                s.dropless = false, s.ep = 1, s.experts = s.capacity = 0,
                s.aux_loss = s.router_z = s.balance_rate = 0, s.normalise = s.use_ddp = false;
                break;
            default: s.sgd = false, s.clip = 1; break;
            }
            if (memcmp(&s, &t, sizeof s) == 0 || !fails(&s, order_seed)) continue;
            t = s;
            smaller = true;
        }
    }
    return t;
}

static void print_fsdp2(const Fsdp2Options *o)
{
    print_error("  fsdp2 last %d keep %d copy %d offload %d over ep %d mp %d %d\n", o->reshard_last,
                o->keep_gathered, o->copy, o->offload, o->over_ep, (int)o->mp.param,
                (int)o->mp.output);
}

static void print_plan(const Tiny *t)
{
    print_error("%s variant %d layers %u micro %lld x %u, pp %u (schedule %d x %u, own %llu) "
                "dp_replicate %u "
                "dp_shard "
                "%u tp %u\n",
                t->gpt2 ? "gpt2" : "llama", (int)t->variant, t->layers, (long long)t->micro,
                t->microbatches, t->pp, (int)t->pp_options.schedule, t->pp_options.chunks,
                (unsigned long long)t->own_seed, t->dp_replicate, t->dp_shard, t->tp);
    print_error(
        "  tp sequence %d loss_parallel %d keep %d share %d; ac %d ops %x; fsdp2 reshard %d to %u "
        "root %d prefetch %u "
        "defer %d; compile %d; sgd %d dim %lld hidden %lld vocab %lld repeat %lld\n",
        t->tp_options.sequence, t->tp_options.loss_parallel, t->tp_options.keep_gathered,
        t->tp_options.share_gathers, (int)t->ac, t->ac_ops, (int)t->fsdp2.reshard_after_forward,
        t->fsdp2.reshard_to, t->fsdp2.reshard_root, t->fsdp2.prefetch, t->fsdp2.defer_grad_sync,
        t->compile ? 1 + (int)t->compile_per : 0, t->sgd, (long long)t->dim, (long long)t->hidden,
        (long long)t->vocab, (long long)t->repeat);
    if (t->freeze) print_error("  frozen %x whole %d\n", t->freeze, t->freeze_whole);
    if (t->cp > 1)
        print_error("  cp %u mode %d ddp %d seq %lld\n", t->cp, (int)t->cp_options.mode, t->use_ddp,
                    (long long)t->seq);
    if (t->experts)
        print_error("  experts %lld of %lld capacity %lld dropless %d normalise %d aux %g ep %u "
                    "folded %u %u ddp %d\n",
                    (long long)t->top_k, (long long)t->experts, (long long)t->capacity, t->dropless,
                    t->normalise, t->aux_loss, t->ep, t->tp_lent, t->cp_lent, t->use_ddp);
    print_fsdp2(&t->fsdp2);
    print_zero(t);
    print_error("  loss by %d, smoothing %g, z %g, dropout %g\n", (int)t->denominator, t->smoothing,
                t->z_loss, t->dropout);
    print_error("  groups %lld biases %d qk_norm %d pinned %d fused %d unequal %d whole table %d "
                "spectral %d tile %u\n",
                (long long)t->groups, t->biases, t->qk_norm,
                t->tp_options.sync_replicated_gradients, t->fused, t->unequal, t->whole_table,
                t->spectral, t->tile);
    if (t->use_float8)
        print_error("  float8 recipe %d gather %d gather_first %d\n", (int)t->float8.recipe,
                    t->float8.fsdp_gather, t->float8.gather_first);
}

static void every_plan_computes_the_same(void **state)
{
    (void)state;
    uint64_t seed = number_of("TANDEM_SEED", SEED), n = number_of("TANDEM_PLANS", N_PLANS),
             first = number_of("TANDEM_FIRST", 0), n_piped = 0, n_experts = 0, n_context = 0,
             n_folded = 0, n_exchanges = 0;
    for (uint64_t i = first; i < n; i++) {
        Arena *arena = arena_new();
        Tiny t = draw_plan(seed, i);
        n_piped += t.pp > 1, n_experts += t.ep > 1, n_context += t.cp > 1;
        n_folded += t.tp_lent > 1 || t.cp_lent > 1;
        n_exchanges += t.cp > 1 && t.tp > 1 &&
                       (t.cp_options.mode == CP_all_to_all || t.cp_options.all_to_all > 1);
        const char *fault = fault_of(&t, seed + i, arena);
        if (fault[0]) {
            print_error("plan %llu of seed %llu: %s\n", (unsigned long long)i,
                        (unsigned long long)seed, fault);
            Tiny small = shrink(t, seed + i);
            print_plan(&small);
            arena_free(arena);
            fail();
        }
        arena_free(arena);
    }
    print_message(
        "%llu plans of seed %llu, %llu of them pipelines, %llu with experts on ep, %llu with "
        "experts folded over tp or cp, %llu that exchange heads beside tp\n",
        (unsigned long long)(n - first), (unsigned long long)seed, (unsigned long long)n_piped,
        (unsigned long long)n_experts, (unsigned long long)n_folded,
        (unsigned long long)n_exchanges);
    n -= first;
    assert_true(n < 200 || (n_piped > n / 4 && n_experts > n / 10 && n_context > n / 40 &&
                            n_folded > n / 40 && n_exchanges > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_computes_the_same)};
    return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
