/* Predicted memory under Megatron's profiles. Strategies that shard more must take less, and
 * differences between plans must be the bytes that Megatron keeps for experts, frozen bases and
 * updates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/sim.h"

/* Returns the bytes that the profile allocates for a plan on eight H100. `values` replaces values
 * of the profile r. `model` and `passes` are Lua expressions. */
static uint64_t allocated(const char *profile, const char *values, const char *model,
                          const char *passes)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {.n_passes = 0};
    Graph graph;
    memset(&graph, 0, sizeof graph);
    const char *code = arena_print(
        arena,
        "local r = {} for k, v in pairs(require 'runtimes.%s') do r[k] = v end\n"
        "local ops = {} for k, v in pairs(r.ops) do ops[k] = v end r.ops = ops\n"
        "%s\n"
        "return plan { model = %s, runtime = r, mesh = { dp_shard = 8 },\n"
        "  cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 8 },\n"
        "  batch = { global = 16, micro = 1, seq = 1024 }, precision = { compute = 'bf16' },\n"
        "  parallel = { %s } }",
        profile, values, model, passes);
    const FrontOptions options = {.n_set = 0};
    if (!front_load_text("plan", code, &options, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    const LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    if (plan == NULL) fail_msg("%s", d.items.at[0].text);
    const uint64_t bytes = sim_held(plan, &config.cluster, &config.runtime).allocated_bytes;
    arena_free(arena);
    return bytes;
}

static const char dense[] = "require 'models.llama' { size = 'tiny', layers = 8, dim = 512,\n"
                            "  heads = 8, kv_heads = 8, hidden = 2048, vocab = 1024 }";

/* Each stage of ZeRO shards more. Only the first stage has a buffer of whole gradients. Under fsdp2
 * such a buffer exists only if gradients are reduced once a step. */
static void a_stage_that_shards_more_takes_less(void **state)
{
    (void)state;
    static const char *const profiles[] = {"megatron", "megatron_core", "nanotron"};
    /* Weights of 8 layers: each has 4 of dim x dim and 3 of dim x hidden. Gradients are in fp32. */
    const uint64_t gradients = UINT64_C(8) * (4 * 512 * 512 + 3 * 512 * 2048) * 4;
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        const char *p = profiles[i];
        const uint64_t one = allocated(p, "", dense, "zero 'optim'"),
                       two = allocated(p, "", dense, "zero 'optim_grads'"),
                       three = allocated(p, "", dense, "zero 'optim_grads_params'"),
                       fsdp = allocated(p, "", dense, "fsdp2 {}"),
                       once = allocated(p, "", dense, "fsdp2 { defer_grad_sync = true }");
        if (one < two + gradients / 2) fail_msg("%s: ZeRO-1 %zu, ZeRO-2 %zu", p, one, two);
        if (two < three) fail_msg("%s: ZeRO-2 %zu, ZeRO-3 %zu", p, two, three);
        if (once < fsdp + gradients / 2) fail_msg("%s: once %zu, each %zu", p, once, fsdp);
    }
}

#define MIXTRAL(capacity)                                                                          \
    "require 'models.mixtral' { size = 'tiny', layers = 6, dim = 512, heads = 8, kv_heads = 8,\n"  \
    "  hidden = 512, vocab = 1024, capacity_factor = " capacity " }"

static const char keeps[] = "ops.combine_weights = { kernels = 1, passes = 1 }";
static const char frozen[] = "r.frozen_base = true";
static const char frozen_keeps[] =
    "r.frozen_base = true ops.combine_weights = { kernels = 1, passes = 1 }";

/* The output of the experts' second product is not kept. It has top_k rows for each token, in 16
 * bits. Even and uneven rows are tested, each also with a frozen base. */
static void experts_keep_no_output(void **state)
{
    (void)state;
    static const char *const model[] = {MIXTRAL("1.0"), MIXTRAL("'dropless'")};
    const uint64_t output = UINT64_C(1024) * 2 * 512 * 2;
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        const char *zero = "zero 'optim'";
        const uint64_t all = allocated("megatron", keeps, model[i], zero) -
                             allocated("megatron", "", model[i], zero);
        const uint64_t base = allocated("megatron", frozen_keeps, model[i], zero) -
                              allocated("megatron", frozen, model[i], zero);
        if (all < 4 * output || all > 7 * output)
            fail_msg("model %zu: %zu bytes of outputs, each has %zu", i, all, output);
        if (base < 4 * output || base > 7 * output)
            fail_msg("model %zu, frozen: %zu bytes, each output has %zu", i, base, output);
    }
}

/* If a frozen base uses 8-bit products, the weights of its blocks have 8 bits. The embeddings lie
 * outside the blocks, so they keep 16 bits. So a larger vocabulary takes the same additional bytes
 * with and without 8-bit products. */
static void embeddings_of_a_frozen_base_stay_16_bits(void **state)
{
    (void)state;
    static const char model[] = "require 'models.llama' { size = 'tiny', layers = 8, dim = 4096,\n"
                                "  heads = 8, kv_heads = 8, hidden = 8192, vocab = %d }";
    static const char *const passes[] = {"zero 'optim'",
                                         "float8 { recipe = 'rowwise' }, zero 'optim'"};
    const uint64_t weights = UINT64_C(2) * 4096 * 32768; /* of the embedding and of the head */
    uint64_t more[2];
    Arena *arena = arena_new();
    for (size_t k = 0; k < 2; k++)
        more[k] = allocated("megatron", frozen, arena_print(arena, model, 65536), passes[k]) -
                  allocated("megatron", frozen, arena_print(arena, model, 32768), passes[k]);
    if (more[1] + weights / 50 < more[0] || more[1] > more[0] + weights / 50)
        fail_msg("%zu bytes with 8-bit products, %zu without; %zu weights", more[1], more[0],
                 weights);
    arena_free(arena);
}

/* A profile can state other values for ops on uneven rows. */
static void uneven_rows_can_differ(void **state)
{
    (void)state;
    const char *own = "ops.combine_uneven_weights = { reads_none = false }";
    assert_int_equal(allocated("megatron", own, MIXTRAL("'dropless'"), "zero 'optim'"),
                     allocated("megatron", keeps, MIXTRAL("'dropless'"), "zero 'optim'"));
}

/* The optimizer takes 64 bytes for each number that it updates, which is more than a step's
 * activations. During the update, these also exist: the whole weights in 16 bits, the whole
 * gradients in fp32, and an eighth of the fp32 weights and of two fp32 moments. A master weight can
 * take two bytes. */
static void an_update_has_whole_weights_beside_it(void **state)
{
    (void)state;
    static const char wide[] = "require 'models.llama' { size = 'tiny', layers = 8, dim = 2048,\n"
                               "  heads = 16, kv_heads = 16, hidden = 8192, vocab = 1024 }";
    /* 8 layers, each with 4 of dim x dim and 3 of dim x hidden; the embedding and the head */
    const double n = 8 * (4 * 2048. * 2048 + 3 * 2048. * 8192) + 2 * 1024. * 2048;
    const char *both = "r.update_bytes = 64 r.master_bytes = 2";
    const double wanted = n * (2 + 4 + (4 + 8 + 64) / 8.),
                 is = (double)allocated("megatron", "r.update_bytes = 64", wide, "zero 'optim'"),
                 less = (double)allocated("megatron", both, wide, "zero 'optim'");
    if (is < .99 * wanted || is > 1.01 * wanted) fail_msg("%g, not %g", is, wanted);
    if (is - less < .99 * n / 4 || is - less > 1.01 * n / 4) fail_msg("%g less", is - less);
}

/* A moment of one byte takes three bytes less than an fp32 moment. Each weight of a rank has
 * two. */
static void moments_can_take_a_byte(void **state)
{
    (void)state;
    static const char wide[] = "require 'models.llama' { size = 'tiny', layers = 8, dim = 2048,\n"
                               "  heads = 16, kv_heads = 16, hidden = 8192, vocab = 1024 }";
    const double n = 8 * (4 * 2048. * 2048 + 3 * 2048. * 8192) + 2 * 1024. * 2048,
                 is = (double)allocated("megatron", "", wide, "zero 'optim'"),
                 less = (double)allocated("megatron", "r.moment_bytes = 1", wide, "zero 'optim'");
    if (is - less < .99 * n * 6 / 8 || is - less > 1.01 * n * 6 / 8) fail_msg("%g", is - less);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_that_shards_more_takes_less),
        cmocka_unit_test(experts_keep_no_output),
        cmocka_unit_test(embeddings_of_a_frozen_base_stay_16_bits),
        cmocka_unit_test(uneven_rows_can_differ),
        cmocka_unit_test(an_update_has_whole_weights_beside_it),
        cmocka_unit_test(moments_can_take_a_byte),
    };
    return cmocka_run_group_tests_name("Megatron's memory", tests, NULL, NULL);
}
