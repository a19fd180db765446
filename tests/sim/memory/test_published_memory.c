/* Memory of KempnerForge's published runs, term by term. Compares the memory of a rank by its
 * closed form with that of a plan with the same options. Where the two differ, the table gives
 * both:
 *
 *   term                     published form       ours
 *   parameters and moments   6 P / dp             the same; bf16 each
 *   gradients                4 P                  the same; unsharded fp32 sums over micro-batches
 *   logits                   4 x b s V 2          1 (tp: 2) x b s V 2; the gradient replaces them
 *   saved inputs             b s d 2 L / tp       the same; one for each block, full recomputation
 *   gathered                 0                    embedding, head; without tp a block too
 *   a block at work, gaps    0.2 to 1.4 GiB       computed separately
 *
 * With tp, logits are gathered from all ranks. Each rank holds them twice: as received, and in
 * order. The peak is at the loss: reduced gradients (4 P / dp) are allocated only after it. P is
 * the number of parameters that a rank holds; tp does not divide the embedding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/sim.h"
#include "tests/support/command.h"

#define GIB (1024. * 1024 * 1024)

typedef struct Row {
    const char *name;
    uint32_t layers, dim, heads, hidden, micro, accumulate, dp, tp, pp;
    double measured_gib; /* torch.cuda.max_memory_reserved on rank 0 of the run */
} Row;

static const Row rows[] = {
    {"7B, dp 2", 32, 4096, 32, 14336, 2, 4, 2, 1, 1, 62.4},
    {"7B, dp 4", 32, 4096, 32, 14336, 4, 2, 4, 1, 1, 61.1},
    {"7B, dp 2 x tp 2", 32, 4096, 32, 14336, 4, 2, 2, 2, 1, 45.9},
    {"7B, dp 2 x tp 4", 32, 4096, 32, 14336, 4, 2, 2, 4, 1, 32.7},
    {"13B, dp 8", 40, 5120, 40, 17920, 4, 4, 8, 1, 1, 88.5},
    {"13B, dp 2 x tp 4", 40, 5120, 40, 17920, 4, 4, 2, 4, 1, 45.1},
    {"13B, dp 4 x tp 4", 40, 5120, 40, 17920, 4, 4, 4, 4, 1, 39.2},
    {"13B, dp 8 x tp 4", 40, 5120, 40, 17920, 4, 4, 8, 4, 1, 36.3},
    {"70B, dp 8 x tp 4", 80, 8192, 64, 28672, 2, 4, 8, 4, 1, 93.2},
};
enum { N_ROWS = sizeof rows / sizeof *rows };
static const Row pipelines[] = {
    {"13B, pp 2", 40, 5120, 40, 17920, 4, 4, 4, 4, 2, 24.0},
    {"29B, pp 2", 56, 6144, 48, 21504, 1, 8, 4, 4, 2, 32.8},
    {"70B, pp 4", 80, 8192, 64, 28672, 1, 4, 2, 4, 4, 51.0},
};
enum { N_PIPELINES = sizeof pipelines / sizeof *pipelines };
static const double vocab = 128256, seq = 4096, head_dim = 128, kv_heads = 8;

static Plan *plan_of(const Row *r, Arena *arena)
{
    const char *path = "published_memory.lua";
    command_write_file(
        path, arena_print(arena,
                          "return require \"dialects.kempnerforge\" {\n"
                          "  world = %u,\n"
                          "  model = { dim = %u, n_layers = %u, n_heads = %u, n_kv_heads = 8,\n"
                          "    vocab_size = 128256, ffn_hidden_dim = %u, max_seq_len = 4096 },\n"
                          "  train = { batch_size = %u, seq_len = 4096, grad_accum_steps = %u,\n"
                          "    activation_checkpointing = \"full\", compile_model = false },\n"
                          "  distributed = { tp = %u, dp_shard = %u, pp = %u },\n"
                          "}\n",
                          r->dp * r->tp * r->pp, r->dim, r->layers, r->heads, r->hidden, r->micro,
                          r->accumulate, r->tp, r->dp, r->pp));
    Diag d = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    memset(&graph, 0, sizeof graph);
    FrontOptions front = {.n_set = 0};
    LowerOptions lower = lower_options_default();
    bool ok = front_load(path, &front, arena, config, &graph, &d);
    remove(path);
    Plan *plan = ok ? plan_compile(config, &graph, &lower, NULL, arena, &d) : NULL;
    if (plan) return plan;
    Str text = str_in(arena);
    diag_print(&d, &text);
    fail_msg("%s: %s", r->name, str_text(&text));
    return NULL;
}

typedef struct Terms {
    double state, gradients, logits, inputs, gathered;
} Terms;

static double layer_parameters(const Row *r)
{
    double d = r->dim, attention = 2 * d * d + 2 * d * kv_heads * head_dim, mlp = 3 * d * r->hidden;
    return (attention + mlp) / r->tp + 2 * d;
}

static double local_parameters(const Row *r)
{
    double d = r->dim;
    return r->layers * layer_parameters(r) + vocab * d + vocab * d / r->tp + d;
}

/* Returns the bytes of each term by the published form. */
static Terms published(const Row *r)
{
    double p = local_parameters(r), tokens = r->micro * seq;
    return (Terms){6 * p / r->dp, 4 * p, 4 * tokens * vocab * 2,
                   tokens * r->dim * 2 * r->layers / r->tp, 0};
}

static Terms ours(const Row *r)
{
    Terms t = published(r);
    t.logits /= r->tp > 1 ? 2 : 4;
    t.gathered = 2 * (vocab * r->dim + vocab * r->dim / r->tp);
    if (r->tp == 1) t.gathered += 2 * layer_parameters(r);
    return t;
}

static double total(Terms t)
{
    return t.state + t.gradients + t.logits + t.inputs + t.gathered;
}

static void near(const char *name, const char *what, double is, double expected, double within)
{
    if (is - expected > within || expected - is > within)
        fail_msg("%s: %s is %.2f GiB, the form says %.2f", name, what, is / GIB, expected / GIB);
}

static double live_at_peak(const Program *p, Arena *arena, MemoryPeak *peak)
{
    double live = 0;
    memory_peak(p, arena, peak);
    for (int c = 0; c < CATEGORY_COUNT; c++) live += (double)peak->at[c];
    return live;
}

static void every_term_matches_the_published_form(void **state)
{
    (void)state;
    print_message("%-18s %8s %8s %8s %8s %8s %8s\n", "GiB", "planned", "live", "holes", "form",
                  "theirs", "measured");
    for (int i = 0; i < N_ROWS; i++) {
        const Row *r = &rows[i];
        Arena *arena = arena_new();
        const Plan *plan = plan_of(r, arena);
        const Program *p = &plan->programs.at[0];
        MemoryPeak peak;
        const double live = live_at_peak(p, arena, &peak);
        const uint64_t *at = peak.at;
        const Terms t = ours(r);
        print_message("%-18s %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n", r->name,
                      (double)p->bytes / GIB, live / GIB, ((double)p->bytes - live) / GIB,
                      total(t) / GIB, total(published(r)) / GIB, r->measured_gib);
        double resident = (double)(at[CATEGORY_parameter] + at[CATEGORY_optimizer]);
        near(r->name, "state", resident, t.state, .01 * GIB);
        near(r->name, "gradients", (double)at[CATEGORY_gradient], t.gradients, .01 * GIB);
        near(r->name, "what lives", live, total(t), .5 * GIB);
        arena_free(arena);
    }
}

/* Returns the number of parameters of a pipeline's stage. tp divides neither embedding nor head. */
static double stage_parameters(const Row *r, uint32_t stage)
{
    double d = r->dim, attention = 2 * d * d + 2 * d * kv_heads * head_dim, mlp = 3 * d * r->hidden;
    double p = r->layers / r->pp * ((attention + mlp) / r->tp + 2 * d);
    return p + (stage == 0 ? vocab * d : 0) + (stage == r->pp - 1 ? vocab * d + d : 0);
}

/* Returns the bytes of a stage by the published form for pipelines. Unlike above, weights stay
 * gathered (2 P), and tp does not divide saved inputs. A stage saves the inputs of pp - stage
 * micro-batches, or of all if the step has fewer. Only the last stage has logits. Only rank 0 was
 * measured, although the last stage needs more by this form; the worst stage must fit. */
static double stage_published(const Row *r, uint32_t stage)
{
    double p = stage_parameters(r, stage), tokens = r->micro * seq;
    double in_flight = r->pp - stage, saved = in_flight < r->accumulate ? in_flight : r->accumulate;
    return 6 * p / r->dp + 4 * p + 2 * p + saved * tokens * r->dim * 2 * r->layers / r->pp +
           (stage == r->pp - 1 ? 4 * tokens * vocab * 2 : 0);
}

static void every_stage_matches_the_published_form(void **state)
{
    (void)state;
    print_message("%-12s %6s %8s %8s %8s %8s\n", "GiB", "stage", "planned", "live", "theirs",
                  "measured");
    for (int i = 0; i < N_PIPELINES; i++) {
        const Row *r = &pipelines[i];
        Arena *arena = arena_new();
        const Plan *plan = plan_of(r, arena);
        uint64_t worst = 0;
        /* Weights that the published run has gathered at our peak, but our plan has not. In our
         * plan, the first stage of the 70B has already released its embedding then (2.0 GiB), and
         * needs .925 of the measured memory. */
        double released = 0;
        for (uint32_t stage = 0; stage < r->pp; stage++) {
            const Program *p = &plan->programs.at[stage];
            MemoryPeak peak;
            double live = live_at_peak(p, arena, &peak), theirs = stage_published(r, stage);
            const uint64_t *at = peak.at;
            double P = stage_parameters(r, stage);
            print_message("%-12s %6u %8.1f %8.1f %8.1f %8s\n", r->name, stage,
                          (double)p->bytes / GIB, live / GIB, theirs / GIB,
                          stage ? "" : arena_print(arena, "%.1f", r->measured_gib));
            double resident = (double)(at[CATEGORY_parameter] + at[CATEGORY_optimizer]);
            near(r->name, "state", resident, 6 * P / r->dp, .01 * GIB);
            near(r->name, "gradients", (double)at[CATEGORY_gradient], 4 * P, .01 * GIB);
            assert_true((double)at[CATEGORY_gathered] <= 2 * P + .01 * GIB);
            if (stage == 0) released = (2 * P - (double)at[CATEGORY_gathered]) / GIB;
            assert_true((double)p->bytes < 1.04 * live);
            if (p->bytes > worst) worst = p->bytes;
        }
        double rank_0 = (double)plan->programs.at[0].bytes / GIB;
        assert_true(rank_0 + released > .96 * r->measured_gib);
        assert_true(rank_0 < 1.07 * r->measured_gib);
        print_message("%-12s    max %8.1f\n", r->name, (double)worst / GIB);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_term_matches_the_published_form),
                                       cmocka_unit_test(every_stage_matches_the_published_form)};
    return cmocka_run_group_tests_name("published memory", tests, NULL, NULL);
}
