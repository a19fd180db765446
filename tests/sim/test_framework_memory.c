/* What other frameworks hold, against their own closed forms: activations a layer (Korthikanti et
 * al., arXiv 2205.05198), bytes a parameter, micro-batches in flight. Two plans that differ in one
 * thing are subtracted, so that what the forms leave out is in both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/passes/passes.h"
#include "sim/sim.h"

typedef struct Case {
    double layers, dim, heads, seq, micro, tp, pp, dp, microbatches;
    const char *passes, *runtime;
} Case;

/* A GPT under Megatron: allocated bytes of the rank that has most, or of the first stage. */
static double allocated(const Case *c, bool first)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {0};
    Graph graph = {0};
    const double ranks = c->pp * c->tp * c->dp;
    const char *code = arena_print(
        arena,
        "return plan { model = require 'models.gpt2' { size = '124m', layers = %d, dim = %d,\n"
        "  heads = %d, positions = %d, vocab = 256 },\n"
        "cluster = require 'clusters.gpu' { gpu = 'A100', nodes = %d, devices_per_node = %d },\n"
        "mesh = { pp = %d, tp = %d, dp_shard = %d },\n"
        "batch = { global = %d, micro = %d, seq = %d }, precision = { compute = 'bf16' },\n"
        "runtime = %s, parallel = { %s } }",
        (int)c->layers, (int)c->dim, (int)c->heads, (int)c->seq, (int)ceil(ranks / 8),
        ranks < 8 ? (int)ranks : 8, (int)c->pp, (int)c->tp, (int)c->dp,
        (int)(c->micro * c->dp * c->microbatches), (int)c->micro, (int)c->seq, c->runtime,
        c->passes);
    FrontOptions options = {.n_set = 0};
    if (!front_load_text("plan", code, &options, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    LowerOptions lower = lower_options_default();
    const Plan *plan = passes_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    config.runtime.reports_rank = first ? MEMORY_RANK_first : MEMORY_RANK_most;
    double bytes =
        (double)sim_held(plan, &config.cluster, &config.runtime).logged[MEMORY_allocated];
    arena_free(arena);
    return bytes;
}

static void near(const char *what, double is, double form, double within)
{
    if (fabs(is - form) > within * form + .7 * 1048576) /* state that the form leaves out */
        fail_msg("%s: %.2f MiB, the form says %.2f", what, is / 1048576, form / 1048576);
}

static double layer_parameters(const Case *c)
{
    return (12 * c->dim * c->dim + 7 * c->dim) / c->tp + 6 * c->dim;
}

#define SCORES "'megatron2022'"
static const char NO_SCORES[] = "(function() local r = require 'runtimes.megatron2022'\n"
                                "  r.ops.attention.scores = 0 return r end)()";

/* A layer's activations: nothing computed again, without and with sequence parallelism; the
 * attention core again; all of it again. */
static void activations_are_those_of_the_formulas(void **state)
{
    (void)state;
    const double s = 1024, b = 2, h = 2048, a = 16;
    for (double t = 2; t <= 8; t *= 2) {
        const double sbh = s * b * h, scores = 5 * a * s / h;
        const struct {
            const char *what, *passes, *runtime;
            double form;
        } cases[] = {
            {"nothing again", "tp {}", SCORES, sbh * (10 + 24 / t + scores / t)},
            {"with sp", "tp { sequence = true }", SCORES, sbh / t * (34 + scores)},
            {"core again", "tp {}", NO_SCORES, sbh * (10 + 24 / t)},
            {"core again with sp", "tp { sequence = true }", NO_SCORES, 34 * sbh / t},
            {"all again", "tp {}, ac 'full'", SCORES, 2 * sbh},
            {"all again with sp", "tp { sequence = true }, ac 'full'", SCORES, 2 * sbh / t},
        };
        for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            Case c = {6, h, a, s, b, t, 1, 1, 1, cases[i].passes, cases[i].runtime};
            double more = allocated(&c, false);
            c.layers = 4;
            double layers = more - allocated(&c, false) - 2 * 18 * layer_parameters(&c);
            near(cases[i].what, layers, 2 * cases[i].form, .003);
        }
    }
}

/* Megatron's bytes a parameter: 18 alone; with the distributed optimizer 6 + 12 / dp, or 4 + 12 /
 * dp where gradients are reduced and summed in bf16. */
static void states_are_so_many_bytes_a_parameter(void **state)
{
    (void)state;
    const struct {
        const char *passes;
        double fixed, shared;
    } cases[] = {
        {"tp {}, ac 'full', zero { strategy = 'optim', grad_reduce_in_fp32 = true }", 6, 12},
        {"tp {}, ac 'full', zero { strategy = 'optim', grad_reduce_in_fp32 = false }", 4, 12},
    };
    Case alone = {8, 2048, 16, 256, 1, 2, 1, 1, 4, "tp {}, ac 'full'", "'megatron2022'"};
    double all = allocated(&alone, false);
    alone.layers = 4;
    near("18 bytes", all - allocated(&alone, false) - 4 * 2 * 256 * 2048,
         4 * 18 * layer_parameters(&alone), .01);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (double dp = 2; dp <= 8; dp *= 2) {
            Case c = {8, 2048, 16, 256, 1, 2, 1, dp, 4, cases[i].passes, "'megatron2022'"};
            double more = allocated(&c, false);
            c.layers = 4;
            double state_bytes = more - allocated(&c, false) - 4 * 2 * 256 * 2048;
            near(cases[i].passes, state_bytes,
                 4 * layer_parameters(&c) * (cases[i].fixed + cases[i].shared / dp), .001);
        }
}

/* The first stage keeps min(p, m) micro-batches of its L / p layers; interleaved with v chunks
 * L (1 + (p - 1) / (p v)). */
static void the_first_stage_keeps_what_is_in_flight(void **state)
{
    (void)state;
    const double s = 1024, b = 1, h = 1024, a = 8, L = 16, p = 4;
    const double layer = s * b * h * (34 + 5 * a * s / h) / 2;
    for (double v = 1; v <= 2; v++) {
        const char *pass = v > 1 ? "pp { schedule = 'interleaved_1f1b', chunks = 2 }, "
                                   "tp { sequence = true }"
                                 : "pp { schedule = '1f1b' }, tp { sequence = true }";
        Case c = {L, h, a, s, b, 2, p, 1, 16, pass, SCORES};
        double full = allocated(&c, true);
        c.pp = 1, c.layers = L / p, c.microbatches = 1, c.passes = "tp { sequence = true }";
        double one = allocated(&c, true); /* and its head: a little, with so small a vocabulary */
        double layers = v > 1 ? L * (1 + (p - 1) / (p * v)) : L;
        near(pass, full - one, (layers - L / p) * layer, .002);
    }
}

/* With so large a vocabulary the peak is at the loss. Eager: logits in bf16, their fp32 copy's
 * log-softmax, its gradient and the one it reads (4 bytes each), then the gradient in bf16;
 * compiled none of the three in fp32 are. The logits and their gradient, 2 bytes each, remain. */
static void a_compiled_loss_keeps_no_copies_of_the_logits(void **state)
{
    (void)state;
    const double logits = 2. * 1024 * 131072;
    double bytes[2];
    static const char *const runtimes[2] = {"torchtitan2024", "torchtitan"};
    for (int i = 0; i < 2; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Config config = {0};
        Graph graph = {0};
        const char *code = arena_print(
            arena,
            "return plan { model = require 'models.llama' { size = 'tiny', layers = 2,\n"
            "  vocab = 131072 }, batch = { micro = 2, seq = 1024 },\n"
            "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 1 },\n"
            "precision = { compute = 'bf16' }, parallel = { compile 'block' }, runtime = '%s' }",
            runtimes[i]);
        FrontOptions options = {.n_set = 0};
        if (!front_load_text("plan", code, &options, arena, &config, &graph, &d))
            fail_msg("%s", d.items.at[0].text);
        LowerOptions lower = lower_options_default();
        const Plan *plan = passes_compile(&config, &graph, &lower, NULL, arena, &d);
        assert_non_null(plan);
        bytes[i] = (double)sim_held(plan, &config.cluster, &config.runtime).allocated_bytes;
        arena_free(arena);
    }
    near("what the loss keeps", bytes[0] - bytes[1], 3 * 4 * logits, .001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_those_of_the_formulas),
        cmocka_unit_test(states_are_so_many_bytes_a_parameter),
        cmocka_unit_test(the_first_stage_keeps_what_is_in_flight),
        cmocka_unit_test(a_compiled_loss_keeps_no_copies_of_the_logits),
    };
    return cmocka_run_group_tests_name("framework memory", tests, NULL, NULL);
}
