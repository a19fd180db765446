/* Memory of other frameworks, compared with published closed forms: activations of a layer
 * (Korthikanti et al., arXiv 2205.05198), bytes of a parameter, micro-batches in flight. The test
 * subtracts two plans that differ in one thing. So memory that the closed forms leave out
 * cancels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/memory/zero_memory.h"
#include "sim/sim.h"

typedef struct Case {
    double layers, dim, heads, seq, micro, tp, pp, dp, microbatches;
    const char *passes, *runtime;
} Case;

static const Plan *plan_of(const char *code, Config *config, Arena *arena)
{
    Diag d = diag_in(arena);
    Graph *graph = arena_alloc(arena, sizeof *graph);
    memset(config, 0, sizeof *config);
    memset(graph, 0, sizeof *graph);
    const FrontOptions options = {.n_set = 0};
    if (!front_load_text("plan", code, &options, arena, config, graph, &d))
        fail_msg("%s", d.items.at[0].text);
    const LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(config, graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    return plan;
}

/* Returns the allocated bytes of a GPT under Megatron: of the fullest rank or, if `first`, of the
 * first stage. */
static double allocated(const Case *c, bool first)
{
    Arena *arena = arena_new();
    Config config;
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
    const Plan *plan = plan_of(code, &config, arena);
    config.runtime.reports_rank = first ? MEMORY_RANK_first : MEMORY_RANK_most;
    double bytes =
        (double)sim_held(plan, &config.cluster, &config.runtime).logged[MEMORY_allocated];
    arena_free(arena);
    return bytes;
}

static void near(const char *what, double is, double form, double within)
{
    /* plus optimizer state, which the closed form does not count */
    if (fabs(is - form) > within * form + .7 * 1048576)
        fail_msg("%s: %.2f MiB, the form says %.2f", what, is / 1048576, form / 1048576);
}

static double layer_parameters(const Case *c)
{
    return (12 * c->dim * c->dim + 7 * c->dim) / c->tp + 6 * c->dim;
}

#define SCORES "'megatron2022'"
static const char NO_SCORES[] = "(function() local r = require 'runtimes.megatron2022'\n"
                                "  r.ops.attention.scores = 0 return r end)()";

/* Activations of a layer in three cases, each with and without sequence parallelism: nothing is
 * recomputed, only the attention core is, or everything is. */
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

/* Megatron's bytes for each parameter. One rank has 18. With the distributed optimizer there are 6
 * + 12 / dp, or 4 + 12 / dp if gradients are reduced and summed in bf16. */
static void states_have_megatrons_bytes_per_parameter(void **state)
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

/* The first stage keeps the activations of min(p, m) micro-batches of its L / p layers. Interleaved
 * with v chunks, it keeps L (1 + (p - 1) / (p v)). */
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
        /* The form also counts the head, which is small with so small a vocabulary. */
        double one = allocated(&c, true);
        double layers = v > 1 ? L * (1 + (p - 1) / (p * v)) : L;
        near(pass, full - one, (layers - L / p) * layer, .002);
    }
}

/* The number of fp32 copies of the logits at the peak. A compiled loss without copies is the
 * reference. PyTorch's own loss has three copies, DTensor's parallel loss four. Megatron's loss
 * works in place on one copy. When the logits are freed, it writes the gradient in 16 bits beside
 * this copy. */
static void losses_copy_the_logits_as_often_as_known(void **state)
{
    (void)state;
    const double logits = 2. * 1024 * 131072, gradients = 4. * 2 * 64 * 131072;
    static const struct {
        const char *runtime;
        double copies;
        bool holds; /* the gradients already exist at the loss */
    } cases[] = {{"torchtitan", 0, false},
                 {"torchtitan2024", 3, false},
                 {"torchtitan2024_tp", 4, false},
                 {"megatron", .5, true}};
    double compiled = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Config config;
        const char *code = arena_print(
            arena,
            "return plan { model = require 'models.llama' { size = 'tiny', layers = 2,\n"
            "  vocab = 131072 }, batch = { micro = 2, seq = 1024 },\n"
            "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 1 },\n"
            "precision = { compute = 'bf16' }, parallel = { compile 'block' }, runtime = '%s' }",
            cases[i].runtime);
        const Plan *plan = plan_of(code, &config, arena);
        double bytes = (double)sim_held(plan, &config.cluster, &config.runtime).allocated_bytes;
        if (cases[i].holds) bytes -= gradients;
        if (i == 0) compiled = bytes;
        double copies = (bytes - compiled) / (4 * logits);
        if (fabs(copies - cases[i].copies) > .01)
            fail_msg("%s has %.3f copies, not %g", cases[i].runtime, copies, cases[i].copies);
        arena_free(arena);
    }
}

/* A Llama under DeepSpeed with Liger. `edit` is code that changes its profile r. */
static const Plan *deepspeed_plan(int layers, int seq, const char *passes, const char *edit,
                                  Config *config, Arena *arena)
{
    const char *code = arena_print(
        arena,
        "local r = {} for k, v in pairs(require 'runtimes.deepspeed_liger') do r[k] = v end\n"
        "%s\n"
        "return plan { model = require 'models.llama' { size = '3.1-8b', layers = %d, dim = 1024,\n"
        "  heads = 8, kv_heads = 2, hidden = 3584, vocab = 4096 }, runtime = r,\n"
        "cluster = require 'clusters.gpu' { gpu = 'H200', devices_per_node = 8 },\n"
        "mesh = { dp_shard = 8 }, batch = { micro = 1, global = 8, seq = %d },\n"
        "precision = { compute = 'bf16', reduce = 'bf16' }, parallel = { %s } }",
        edit, layers, seq, passes);
    return plan_of(code, config, arena);
}

static double deepspeed_bytes(int layers, int seq, const char *passes, const char *edit)
{
    Arena *arena = arena_new();
    Config config;
    const Plan *plan = deepspeed_plan(layers, seq, passes, edit, &config, arena);
    double bytes = (double)sim_held(plan, &config.cluster, &config.runtime).allocated_bytes;
    arena_free(arena);
    return bytes;
}

#define ZERO3 "ac 'full', zero 'optim_grads_params'"
#define ZERO2 "zero 'optim_grads'"
static const double llama_layer = 1024 * (2 * 1024 + 2 * 256 + 3 * 3584) + 2 * 1024;

/* Bytes for each parameter: weights in 16 bits (2), the optimizer's fp32 state (12), and gradients
 * (2, during the step 4 more). Stage 3 shards all of them. With the optimizer on the host, only the
 * 2 of the weights stay on the device. In stage 2 the weights are whole and gradients exist twice.
 * The tolerance covers blocks that the allocator does not split. In stage 3 a layer also keeps its
 * input, but not at the peak. */
static void zero_states_have_their_bytes_per_parameter(void **state)
{
    (void)state;
    static const char small[] =
        "r.bucket_elements, r.reuse_elements, r.prefetch_elements = 1, 0, 0";
    const struct {
        const char *passes, *edit;
        double bytes;
    } cases[] = {
        {ZERO3, small, 20. / 8},
        {ZERO2, small, 2 + 22. / 8},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double more = deepspeed_bytes(12, 128, cases[i].passes, cases[i].edit);
        double layers = more - deepspeed_bytes(8, 128, cases[i].passes, cases[i].edit);
        near(cases[i].passes, layers, 4 * llama_layer * cases[i].bytes, .04);
    }
    static const char host[] =
        "r.bucket_elements, r.reuse_elements, r.prefetch_elements = 1, 0, 0\n"
        "r.host_optimizer = true";
    double layers = deepspeed_bytes(12, 128, ZERO3, host) - deepspeed_bytes(8, 128, ZERO3, host);
    near("on the host", layers, 4 * (llama_layer * 2 / 8 + 128 * 1024 * 2), .04);
}

/* Under Liger's kernels, a Llama layer keeps these tensors: the input and output of each norm; q,
 * k, v; the output of attention, and one number for each head; gate, up and their product. */
static void liger_keeps_no_silu(void **state)
{
    (void)state;
    static const char host[] = "r.bucket_elements = 1";
    const double seq = 4096, token = 2 * (6 * 1024 + 2 * 256 + 3 * 3584) + 4 * 8 + 2 * 4;
    double more = deepspeed_bytes(6, (int)seq, ZERO2, host);
    double layers = more - deepspeed_bytes(4, (int)seq, ZERO2, host);
    near("a layer under Liger", layers, 2 * (seq * token + llama_layer * (2 + 14. / 8)), .003);
}

static ZeroMemory zero_of(const char *edit, const Program **program, Arena *arena)
{
    Config config;
    const Plan *plan = deepspeed_plan(6, 128, ZERO3, edit, &config, arena);
    ZeroMemory zero;
    *program = &plan->programs.at[0];
    zero_memory(plan, *program, &config.runtime, arena, &zero);
    return zero;
}

static double gathered_at(const ZeroMemory *zero, Pc pc)
{
    double bytes = 0;
    for (uint32_t i = 1; i < zero->tensors.n; i++) {
        const ZeroTensor *t = &zero->tensors.at[i];
        if (t->stream == STREAM_dp_gather && t->from <= pc && pc <= t->to)
            bytes += (double)t->bytes;
    }
    return bytes;
}

static double gathered_most(const ZeroMemory *zero, const Program *p)
{
    double most = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (gathered_at(zero, pc) > most) most = gathered_at(zero, pc);
    return most;
}

/* Each weight is read from its own tensor. Weights that were gathered together are first copied out
 * of the gathered tensor. Norms are too small to be sharded. */
static void weights_are_read_from_their_own_tensors(void **state)
{
    (void)state;
    static const char *const edits[] = {
        "r.prefetch_elements, r.reuse_elements, r.persist_elements = 0, 0, 1024",
        "r.prefetch_elements, r.reuse_elements, r.persist_elements = 0, 1e12, 1024",
        "r.prefetch_elements, r.live_elements, r.reuse_elements = 8e6, 16e6, 0\n"
        "r.persist_elements = 1024",
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const Program *p;
        Arena *arena = arena_new();
        const ZeroMemory zero = zero_of(edits[i], &p, arena);
        uint32_t n_reads = 0;
        for (Pc pc = 1; pc < p->code.n; pc++)
            for (uint32_t k = 0; k < p->code.at[pc].n_in; k++) {
                const Buffer *b = &p->buffers.at[program_arg(p, &p->code.at[pc], k)];
                const uint64_t bytes = b->bytes / dtype_bytes(b->dtype) * 2;
                if (b->category != CATEGORY_gathered || !b->tensor || bytes <= 2048) continue;
                bool lies = false;
                for (uint32_t t = 1; t < zero.tensors.n; t++) {
                    const ZeroTensor *at = &zero.tensors.at[t];
                    lies = lies || (at->stream == STREAM_dp_gather && at->bytes == bytes &&
                                    at->from <= pc && pc <= at->to);
                }
                if (!lies) fail_msg("%s: instruction %u reads from nowhere", edits[i], pc);
                n_reads++;
            }
        /* forward; again in recomputation, without the last; backward */
        assert_true(n_reads >= 6 * (7 + 6 + 7));
        arena_free(arena);
    }
}

/* Without prefetching and without reuse, a weight exists only while its module runs, except for the
 * head's weight. If all weights may be reused, all exist in the end, each once. Prefetching alone
 * adds at most its bucket and the copies of it. */
static void prefetching_and_reuse_bound_gathered_weights(void **state)
{
    (void)state;
    const double head = 2. * 4096 * 1024;
    const double all = 2 * (6 * (llama_layer - 2048) + 2. * 4096 * 1024);
    const Program *p;
    Arena *arena = arena_new();
    ZeroMemory alone =
        zero_of("r.prefetch_elements, r.reuse_elements, r.persist_elements = 0, 0, 1024\n"
                "r.bucket_elements, r.host_optimizer = 1, true",
                &p, arena);
    near("a layer", gathered_most(&alone, p), head + 2 * (llama_layer - 2048), 0);
    ZeroMemory kept = zero_of(
        "r.prefetch_elements, r.reuse_elements, r.persist_elements = 0, 1e12, 1024", &p, arena);
    near("all weights", gathered_most(&kept, p), all, 0);
    ZeroMemory ahead =
        zero_of("r.prefetch_elements, r.live_elements, r.reuse_elements = 8e6, 16e6, 0\n"
                "r.persist_elements = 1024",
                &p, arena);
    /* At the peak, the weights exist twice: separately, and in the tensor into which they were
     * gathered. */
    double most = gathered_most(&ahead, p);
    assert_true(most > head + head);
    assert_true(most <= 2 * (2 * 16e6 + head));
    ZeroMemory none = zero_of("r.bucket_elements = 0", &p, arena);
    assert_int_equal(none.tensors.n, 1);
    arena_free(arena);
}

/* Each gradient exists until it is reduced. The bucket holds three of the largest gradients. At
 * most the bucket, or one larger gradient, exists a second time as a flat tensor on the reduction
 * stream. */
static void gradients_wait_for_their_reduction(void **state)
{
    (void)state;
    const double largest = 3584 * 1024;
    const Program *p;
    Arena *arena = arena_new();
    ZeroMemory zero =
        zero_of("r.bucket_elements = 3 * 3584 * 1024; r.host_optimizer = true", &p, arena);
    uint32_t n_reductions = 0, n_waiting = 0;
    for (uint32_t i = 1; i < zero.tensors.n; i++) {
        const ZeroTensor *t = &zero.tensors.at[i];
        if (t->stream == STREAM_dp_reduce) {
            assert_true((double)t->bytes <= 2 * 3 * largest);
            n_reductions++;
        }
        if (t->stream != STREAM_compute || t->only_at_first) continue;
        bool reduced = false;
        for (uint32_t k = 1; k < zero.tensors.n && !reduced; k++)
            reduced =
                zero.tensors.at[k].stream == STREAM_dp_reduce && zero.tensors.at[k].from == t->to;
        assert_true(reduced);
        n_waiting++;
    }
    assert_true(n_reductions > 3 * 5);
    assert_int_equal(n_waiting, 6 * 9 + 3);
    assert_int_equal(zero.resident_bytes[1], 2 * 3 * 3584 * 1024);
    arena_free(arena);
}

/* PyTorch on ROCm has no expandable segments, even if the launcher requests them. */
static void rocm_has_no_expandable_segments(void **state)
{
    (void)state;
    uint64_t reserved[2];
    for (int i = 0; i < 2; i++) {
        Arena *arena = arena_new();
        Config config;
        const char *code = arena_print(
            arena, "return plan { model = require 'models.llama' 'tiny', runtime = 'torchtitan',\n"
                   "cluster = require 'clusters.gpu' { gpu = 'MI300X', devices_per_node = 1 },\n"
                   "batch = { micro = 4, seq = 1024 } }");
        const Plan *plan = plan_of(code, &config, arena);
        assert_true(config.runtime.expandable);
        if (i == 1) config.cluster.device.arch = "Hopper";
        reserved[i] = sim_held(plan, &config.cluster, &config.runtime).reserved_bytes;
        arena_free(arena);
    }
    /* segments of 20 MiB, instead of pages of one segment */
    assert_true(reserved[0] > reserved[1]);
}

/* The bytes that the first or the last of two stages allocates in a step of `n` micro-batches. */
static double staged_bytes(int n, MemoryRank rank, bool keeps_sent, bool keeps_received)
{
    Arena *arena = arena_new();
    Config config;
    const char *code = arena_print(
        arena,
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 2,\n"
        "  vocab = 131072, dim = 512, heads = 8, kv_heads = 8 },\n"
        "batch = { global = %d, micro = 1, seq = 1024 },\n"
        "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 2 },\n"
        "mesh = { pp = 2 }, precision = { compute = 'bf16' }, parallel = { pp '1f1b' },\n"
        "runtime = 'torchtitan' }",
        n);
    const Plan *plan = plan_of(code, &config, arena);
    assert_true(config.runtime.reports_rank == MEMORY_RANK_last);
    assert_true(config.runtime.keeps_outputs && config.runtime.keeps_received);
    assert_false(config.runtime.keeps_sent);
    config.runtime.reports_rank = rank;
    config.runtime.keeps_sent = keeps_sent;
    config.runtime.keeps_received = keeps_received;
    double bytes =
        (double)sim_held(plan, &config.cluster, &config.runtime).logged[MEMORY_allocated];
    arena_free(arena);
    return bytes;
}

/* PyTorch's schedules keep the outputs of the last stage: the logits of each micro-batch. A stage
 * receives each micro-batch into another tensor. The first stage receives gradients. The last stage
 * receives activations, and keeps their gradients too. Until 2025, all stages kept their
 * outputs. */
static void a_schedule_keeps_the_outputs(void **state)
{
    (void)state;
    const double logits = 2. * 1024 * 131072, passed = 2. * 1024 * 512;
    const MemoryRank first = MEMORY_RANK_first, last = MEMORY_RANK_last;
    assert_true(staged_bytes(4, first, false, false) < staged_bytes(4, last, false, false) / 2);
    const struct {
        MemoryRank rank;
        bool sent, received;
        double each;
    } cases[] = {{last, false, false, logits},
                 {last, false, true, logits + 2 * passed},
                 {last, true, true, logits + 2 * passed},
                 {first, false, false, 0},
                 {first, false, true, passed},
                 {first, true, false, passed},
                 {first, true, true, 2 * passed}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double four = staged_bytes(4, cases[i].rank, cases[i].sent, cases[i].received);
        double eight = staged_bytes(8, cases[i].rank, cases[i].sent, cases[i].received);
        double is = (eight - four) / 4;
        if (fabs(is - cases[i].each) > .01 * passed)
            fail_msg("case %zu: a micro-batch adds %.0f bytes, not %.0f", i, is, cases[i].each);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schedule_keeps_the_outputs),
        cmocka_unit_test(rocm_has_no_expandable_segments),
        cmocka_unit_test(zero_states_have_their_bytes_per_parameter),
        cmocka_unit_test(liger_keeps_no_silu),
        cmocka_unit_test(prefetching_and_reuse_bound_gathered_weights),
        cmocka_unit_test(weights_are_read_from_their_own_tensors),
        cmocka_unit_test(gradients_wait_for_their_reduction),
        cmocka_unit_test(activations_are_those_of_the_formulas),
        cmocka_unit_test(states_have_megatrons_bytes_per_parameter),
        cmocka_unit_test(the_first_stage_keeps_what_is_in_flight),
        cmocka_unit_test(losses_copy_the_logits_as_often_as_known),
    };
    return cmocka_run_group_tests_name("framework memory", tests, NULL, NULL);
}
