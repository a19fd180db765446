/* Whole plans whose products use the library's calls, with fused ops (on the double of the library
 * and of CUDA). They must give the losses and norms of loopback, and the same bits with and without
 * graphs. If ranks measure opposite times, they must still use the same calls on replicated
 * data. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product/products.h"
#include "tests/cuda/backend/ranks.h"
#include "tests/cuda/cublas/cublas_double.h"
#include "tests/support/plans/tiny.h"

static uint64_t workspace(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args)
{
    return kernel_cuda_workspace(op, dtype, elements, n_args);
}

static Tiny gpt2(void)
{
    Tiny t = tiny_default();
    t.gpt2 = t.compile = true;
    t.groups = 4, t.head_dim = 4, t.dim = 16, t.hidden = 24, t.vocab = 40;
    t.microbatches = 3;
    t.clip = 1;
    return t;
}

static Plan *plan_of(const Tiny *t, const char *arch, Arena *arena)
{
    Diag d = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    options.workspace = workspace;
    options.unpadded = t->unpadded;
    tiny_build(t, arena, config, &graph);
    config->cluster.device.arch = arch;
    Plan *plan = plan_compile(config, &graph, &options, NULL, arena, &d);
    if (plan) return plan;
    Str s = str_in(arena);
    diag_print(&d, &s);
    fail_msg("%s", str_text(&s));
    return NULL;
}

/* The launches of each rank, in shared memory; a rank writes them when it asks for data. */
typedef struct Launched {
    uint32_t products, with_epilogue, eight_bit, rowwise, unaligned;
} Launched;
typedef struct Watch {
    DataSource inner;
    Launched *of; /* [RANKS_MOST] */
} Watch;

static void watch_fill(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                       int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Watch *w = self;
    const char *rank = getenv("RANK");
    w->of[rank ? strtol(rank, NULL, 10) : 0] =
        (Launched){cublas_double.products, cublas_double.with_epilogue, cublas_double.eight_bit,
                   cublas_double.rowwise, cublas_double.unaligned};
    w->inner.fill(w->inner.self, step, microbatch, first_sample, n_samples, seq, tokens, labels);
}

static Watch watch(int64_t vocab, Arena *arena)
{
    Launched *of = mmap(NULL, RANKS_MOST * sizeof *of, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return (Watch){*data_synthetic(3, vocab, 0.1, arena), of};
}

static void check_fine(const RanksRun *run, const char *name, uint32_t n)
{
    for (Rank r = 0; r < n; r++)
        if (!run->rank[r].fine)
            fail_msg("%s, rank %u (code %d, signal %d): %s%s", name, r, run->rank[r].exit_code,
                     run->rank[r].signal, run->rank[r].said, run->errors);
}

/* Each rank must launch at least so many products with an epilogue, products of 8-bit operands, and
 * 8-bit products with a scale for each row. */
static void check_launched(const char *name, const Launched *at, const Launched *least)
{
    if (at->with_epilogue < least->with_epilogue || at->products <= least->with_epilogue ||
        at->eight_bit < least->eight_bit || at->rowwise < least->rowwise)
        fail_msg("%s: of %u products %u with an epilogue, %u of 8 bits, %u of rows", name,
                 at->products, at->with_epilogue, at->eight_bit, at->rowwise);
}

/* The sums have another order, and fused ops are rounded once where loopback rounds twice. An 8-bit
 * number that is rounded the other way is off by a sixteenth, which takes some steps to show. */
static double tolerance_of(const Tiny *t, int step)
{
    if (t->use_float8) return step < 3 ? 2e-5 : 5e-2;
    return t->compute == DT_bf16 ? 2e-2 : 2e-5;
}

/* The device for which the plan is made, and the device that runs it. */
typedef struct Devices {
    const char *arch;
    int capability; /* compute capability; 0: 90 */
} Devices;

static void equals_loopback(const char *name, const Tiny *t, Devices on, Launched least)
{
    Arena *arena = arena_new();
    Plan *plan = plan_of(t, on.arch, arena);
    const int capability = on.capability ? on.capability : 90;
    char script[64];
    snprintf(script, sizeof script, "seed=3 memory=1073741824 capability=%d", capability);
    Diag d = diag_in(arena);
    Plan *cpu = tiny_plan(t, false, arena, &d);
    Watch w = watch(t->vocab, arena);
    const DataSource data = {.self = &w, .fill = watch_fill};
    RanksRun reference = {.plan = cpu, .data = &data}, run = {.plan = plan, .data = &data};
    run.script = script;
    if (t->use_float8) reference.lr = run.lr = 1e-3;
    ranks_loopback(&reference, arena);
    check_fine(&reference, "loopback", 1);
    run.options.poison = true;
    Hash128 bits[RANKS_MOST] = {{0, 0}};
    static const CudaGraphs modes[] = {CUDA_GRAPHS_none, CUDA_GRAPHS_whole, CUDA_GRAPHS_cut};
    for (int m = 0; m < 3; m++) {
        cublas_double_reset();
        cublas_double.capability = (uint32_t)capability;
        run.cuda.graphs = modes[m];
        ranks_run(&run, arena);
        check_fine(&run, name, plan->mesh.n_ranks);
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            if (m == 0) bits[r] = run.rank[r].bits;
            assert_memory_equal(&bits[r], &run.rank[r].bits, sizeof bits[r]);
            check_launched(name, &w.of[r], &least);
        }
        const RankReport *a = &run.rank[0], *b = &reference.rank[0];
        assert_int_equal(a->n_steps, RANKS_STEPS);
        for (int k = 0; k < RANKS_STEPS; k++) {
            const double tolerance = tolerance_of(t, k);
            if (!(fabs(a->loss[k] - b->loss[k]) <= tolerance * fabs(b->loss[k])) ||
                !(fabs(a->norm[k] - b->norm[k]) <= tolerance * fabs(b->norm[k])))
                fail_msg("%s: step %d: loss %.9g, norm %.9g; loopback %.9g, %.9g", name, k,
                         a->loss[k], a->norm[k], b->loss[k], b->norm[k]);
        }
    }
    munmap(w.of, RANKS_MOST * sizeof *w.of);
    arena_free(arena);
}

static void plans_match_loopback(void **state)
{
    (void)state;
    /* The expected number is a minimum, counted while graphs are captured. Each block has 4
     * products of attention and 2 of the feed-forward. Their gradients have 6 products with the
     * sums of a bias, and 1 with GELU's gradient. */
    Tiny t = gpt2();
    equals_loopback("GPT-2", &t, (Devices){0}, (Launched){.with_epilogue = 13 * t.layers});
    t.compute = DT_bf16, t.reduce = DT_f32;
    equals_loopback("GPT-2 in bf16", &t, (Devices){0}, (Launched){.with_epilogue = 13 * t.layers});
    t = gpt2();
    t.dp_shard = 2, t.ac = AC_full;
    equals_loopback("GPT-2, FSDP, recomputed", &t, (Devices){0},
                    (Launched){.with_epilogue = 13 * t.layers});
    t = tiny_default();
    t.compile = true, t.microbatches = 2, t.clip = 1, t.vocab = 40;
    equals_loopback("Llama", &t, (Devices){0}, (Launched){.with_epilogue = 2 * t.layers});
}

/* Returns the launches of one rank up to its last request for data. */
static Launched launched_by(const Tiny *t, CudaGraphs graphs, bool trace)
{
    Arena *arena = arena_new();
    Watch w = watch(t->vocab, arena);
    const DataSource data = {.self = &w, .fill = watch_fill};
    RanksRun run = {.plan = plan_of(t, NULL, arena), .data = &data, .trace = trace};
    run.script = "seed=3 memory=1073741824";
    run.cuda.graphs = graphs;
    cublas_double_reset();
    ranks_run(&run, arena);
    check_fine(&run, "one rank", 1);
    assert_true(w.of[0].products > 0);
    const Launched launched = w.of[0];
    munmap(w.of, RANKS_MOST * sizeof *w.of);
    arena_free(arena);
    return launched;
}

/* ---- a traced step ---- */

/* A traced step is captured again, segment by segment. Where the graph of a segment also serves
 * other segments, the traced segment must be launched like that graph, with the same fused ops. */
static void a_traced_step_fuses_like_other_steps(void **state)
{
    (void)state;
    Tiny t = gpt2();
    t.microbatches = 6;
    const Launched none = launched_by(&t, CUDA_GRAPHS_none, false);
    const Launched cut = launched_by(&t, CUDA_GRAPHS_cut, false);
    const Launched traced = launched_by(&t, CUDA_GRAPHS_cut, true);
    const double products = traced.products - cut.products;
    const double fused = (traced.with_epilogue - cut.with_epilogue) / products;
    const double usual = (double)none.with_epilogue / none.products;
    if (!(fabs(fused - usual) < 0.02))
        fail_msg("%.3f of the products are fused with others, in a traced step %.3f", usual, fused);
}

/* ---- odd sizes ---- */

/* Returns the number of products that the library would compute by its slow kernels. */
static uint32_t unaligned_of(const Tiny *t)
{
    return launched_by(t, CUDA_GRAPHS_none, false).unaligned;
}

/* Without padding, the three products of the head would be unaligned. */
static void an_odd_vocabulary_is_padded_for_products(void **state)
{
    (void)state;
    Tiny t = gpt2();
    t.compute = DT_bf16, t.reduce = DT_f32;
    t.vocab = 203;
    assert_int_equal(unaligned_of(&t), 0);
    equals_loopback("GPT-2, an odd vocabulary", &t, (Devices){0},
                    (Launched){.with_epilogue = 13 * t.layers});
    t.unpadded = true;
    assert_true(unaligned_of(&t) >= 3 * (t.microbatches - 1));
}

/* ---- 8 bits ---- */

static Tiny eight_bits(void)
{
    Tiny t = tiny_default();
    t.use_float8 = true;
    t.float8.any_size = false;
    t.groups = 4, t.head_dim = 8, t.dim = 32, t.hidden = 64, t.vocab = 40, t.seq = 16;
    t.microbatches = 2;
    t.clip = 1;
    return t;
}

/* Each block has 7 products of 8 bits (GPT-2: 6), and twice as many for their gradients. The plan
 * transposes operands that are not contiguous along the summed index. If the plan was made for a
 * device that needs no transposed operands, the product transposes them in its scratch. On such a
 * device, nothing is transposed. */
static void plans_of_eight_bits_match_loopback(void **state)
{
    (void)state;
    static const struct Case {
        const char *name;
        uint32_t shard, tp;
        Float8Recipe recipe;
        bool gathers, gpt2, in_bf16;
        AcMode ac;
        Devices on;
    } cases[] = {
        {"tensorwise", 1, 1, .recipe = FLOAT8_tensorwise},
        {"tensorwise in bf16", 1, 1, .recipe = FLOAT8_tensorwise, .gpt2 = true, .in_bf16 = true},
        {"rowwise", 1, 1, .recipe = FLOAT8_rowwise},
        {"rowwise in bf16", 1, 1, .recipe = FLOAT8_rowwise, .in_bf16 = true},
        {"tensorwise, FSDP, recomputed", 2, 1, .recipe = FLOAT8_tensorwise, .ac = AC_full},
        {"tensorwise, gathered in 8 bits", 2, 1, .recipe = FLOAT8_tensorwise, .gathers = true},
        {"rowwise, FSDP in bf16", 2, 1, .recipe = FLOAT8_rowwise, .in_bf16 = true},
        {"tensorwise, tensor x FSDP, gathered in 8 bits", 2, 2, .recipe = FLOAT8_tensorwise,
         .gathers = true},
        {"rowwise, tensor", 1, 2, .recipe = FLOAT8_rowwise},
        {"tensorwise, turned in the scratch", 1, 1, .recipe = FLOAT8_tensorwise,
         .on = {"Blackwell", 90}},
        {"rowwise, FSDP, turned in the scratch", 2, 1, .recipe = FLOAT8_rowwise,
         .on = {"Blackwell", 90}},
        {"tensorwise, not turned", 1, 1, .recipe = FLOAT8_tensorwise, .on = {"Blackwell", 100}},
        {"rowwise, FSDP, not turned", 2, 1, .recipe = FLOAT8_rowwise, .on = {"Blackwell", 100}},
        {"rowwise on 8.9", 1, 1, .recipe = FLOAT8_rowwise, .on = {"Ada", 89}},
        {"rowwise, tensor, on 12.0", 1, 2, .recipe = FLOAT8_rowwise, .on = {"Blackwell", 120}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct Case *c = &cases[i];
        Tiny t = eight_bits();
        t.dp_shard = c->shard, t.tp = c->tp;
        t.float8.recipe = c->recipe;
        t.float8.fsdp_gather = c->gathers;
        t.gpt2 = c->gpt2;
        t.ac = c->ac;
        if (c->in_bf16) t.compute = DT_bf16;
        /* with a fused residual, one rounding less makes a visible difference here */
        t.compile = !c->in_bf16;
        const uint32_t n = (c->gpt2 ? 6u : 7u) * 3 * t.layers;
        /* only capability 9.0 applies a scale for each row; elsewhere, a kernel does */
        const bool rows =
            c->recipe == FLOAT8_rowwise && (c->on.capability == 0 || c->on.capability == 90);
        equals_loopback(c->name, &t, c->on, (Launched){.eight_bit = n, .rowwise = rows ? n : 0});
    }
}

/* ---- ranks that measure opposite times ---- */

typedef struct Speeds {
    bool disagree;
} Speeds;

/* The backend calls this before it times anything, so the test sets this rank's times here. */
static bool speeds_get(void *self, const char *device, const char *call, void *choice, size_t bytes)
{
    const Speeds *speeds = self;
    const char *rank = getenv("RANK");
    bool first = rank == NULL || strtol(rank, NULL, 10) == 0;
    (void)device, (void)call, (void)choice, (void)bytes;
    cublas_double.epilogue_ms = !speeds->disagree || first ? -.25 : 1;
    cublas_double.ms[DOUBLE_WAY_backwards] = !speeds->disagree || first ? 3 : 1;
    return false;
}

static void speeds_put(void *self, const char *device, const char *call, const void *choice,
                       size_t bytes, int64_t median_ps)
{
    (void)self, (void)device, (void)call, (void)choice, (void)bytes, (void)median_ps;
}

/* Both ranks of tp hold the whole table and multiply by it. They neither compare nor add its
 * gradients. If they used different algorithms, their tables would drift apart. Rank 1 must end
 * with the same state as in a run in which both ranks measure rank 0's times. */
static void ranks_use_the_same_algorithms(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = gpt2();
    t.layers = 1, t.microbatches = 2;
    t.tp = 2, t.whole_table = true;
    Hash128 bits[2];
    Watch w = watch(t.vocab, arena);
    const DataSource data = {.self = &w, .fill = watch_fill};
    for (int k = 0; k < 2; k++) {
        Speeds speeds = {.disagree = k == 1};
        const KernelChoices choices = {&speeds, speeds_get, speeds_put};
        RanksRun run = {.plan = plan_of(&t, NULL, arena), .data = &data};
        run.script = "seed=5 memory=1073741824";
        run.cuda.graphs = CUDA_GRAPHS_none;
        run.options.choices = &choices;
        run.options.timeout_s = 60;
        run.patience_s = 200;
        cublas_double_reset();
        ranks_run(&run, arena);
        check_fine(&run, "two ranks", 2);
        assert_true(w.of[0].with_epilogue > 0);
        bits[k] = run.rank[1].bits;
    }
    assert_memory_equal(&bits[0], &bits[1], sizeof bits[0]);
    munmap(w.of, RANKS_MOST * sizeof *w.of);
    arena_free(arena);
}

/* ---- a plan that fills the device ---- */

static bool none_kept(void *self, const char *device, const char *call, void *choice, size_t bytes)
{
    (void)self, (void)device, (void)call, (void)choice, (void)bytes;
    return false;
}

static void count_timed(void *self, const char *device, const char *call, const void *choice,
                        size_t bytes, int64_t median_ps)
{
    uint32_t *n = self;
    (void)device, (void)call, (void)choice, (void)bytes;
    if (median_ps > 0) ++*n;
}

/* Timing needs its own memory: operands, and 128 MiB to clear the cache. Beside the arena, 64 KiB
 * are missing for them. Calls are timed nevertheless, because they are timed before the arena is
 * allocated. */
static void calls_of_a_full_plan_are_timed(void **state)
{
    (void)state;
    enum { CACHE = 128 << 20 };
    Arena *arena = arena_new();
    Tiny t = gpt2();
    t.vocab = 640, t.seq = 64;
    uint32_t *n = mmap(NULL, sizeof *n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const KernelChoices choices = {n, none_kept, count_timed};
    char script[64];
    RanksRun run = {.plan = plan_of(&t, NULL, arena), .data = data_synthetic(3, 640, 0.1, arena)};
    const uint64_t bytes = plan_program(run.plan, 0)->bytes;
    assert_true(bytes > 1 << 20);
    snprintf(script, sizeof script, "seed=5 memory=%llu",
             (unsigned long long)(CACHE + bytes - (64 << 10)));
    run.script = script;
    run.cuda.graphs = CUDA_GRAPHS_none;
    run.options.choices = &choices;
    cublas_double_reset();
    ranks_run(&run, arena);
    check_fine(&run, "a full device", 1);
    assert_true(*n > 0);
    munmap(n, sizeof *n);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_a_full_plan_are_timed),
        cmocka_unit_test(plans_match_loopback),
        cmocka_unit_test(a_traced_step_fuses_like_other_steps),
        cmocka_unit_test(an_odd_vocabulary_is_padded_for_products),
        cmocka_unit_test(plans_of_eight_bits_match_loopback),
        cmocka_unit_test(ranks_use_the_same_algorithms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
