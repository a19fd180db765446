/* Draws configurations of other systems by seed. A dialect either refuses one with a line and a
 * rule, or gives a valid plan. It never fails with a script error. TANDEM_DIALECTS=n draws more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "planner/verify/verify.h"
#include "tests/support/command.h"

enum { MOST_CHOICES = 10, SEED = 20260819 };

/* One key of a section and its possible values. Most drawn configurations leave a key out. */
typedef struct Key {
    const char *name, *choice[MOST_CHOICES];
} Key;
typedef struct Section {
    const char *name; /* NULL: the key belongs to the configuration itself */
    Key keys[24];
} Section;

static const Section automodel[] = {
    {NULL,
     {{"world_size", {"1", "2", "4", "8", "12", "0", "'8'"}},
      {"seq_length", {"16", "24", "15"}},
      {"model",
       {"require 'models.llama' 'tiny'", "require 'models.llama' { size = 'tiny', layers = 4 }",
        "require 'models.gemma' '3-tiny'", "require 'models.qwen' '2.5-tiny'",
        "require 'models.phi' '2-tiny'", "require 'models.phi' '3-tiny'",
        "require 'models.llama' { size = 'tiny', fused = true }",
        "require 'models.phi' { size = '3-tiny', kv_heads = 2, fused = true }",
        "require 'models.gpt2' 'tiny'"}},
      {"as", {"'original'", "'orignal'"}},
      {"api", {"true"}},
      {"clip_grad_norm", {"{ max_norm = 0.5 }", "{}", "1.0"}}}},
    {"distributed",
     {{"strategy", {"'fsdp2'", "'ddp'", "'mfsdp'", "'megatron-fsdp'", "'fsdp'", "3"}},
      {"tp_size", {"1", "2", "3", "4", "0", "-1", "'2'", "2.5"}},
      {"pp_size", {"1", "2", "3", "4"}},
      {"dp_size", {"1", "2", "4", "false"}},
      {"dp_replicate_size", {"1", "2", "3"}},
      {"cp_size", {"1", "2"}},
      {"ep_size", {"1", "2", "3"}},
      {"sequence_parallel", {"true", "false", "1"}},
      {"pipeline",
       {"{}", "{ pp_schedule = 'Interleaved1F1B' }", "{ pp_schedule = 'zbvzerobubble' }",
        "{ pp_schedule = false }", "{ layers_per_stage = 1 }", "{ pp_microbatch_size = 2 }",
        "{ layers_per_stage = 3, round_virtual_stages_to_pp_multiple = 'up' }",
        "{ layers_per_stage = 0 }", "{ module_fqns_per_model_part = { {}, { 7 } } }", "5"}},
      {"activation_checkpointing", {"true", "'full'", "'selective'", "'some'", "{}"}},
      {"activation_checkpointing_scope", {"'all'", "'language+vision'", "{ 'audio' }", "7"}},
      {"tp_plan",
       {"{}", "5", "'plan'", "'llama_nemotron_super_tp_plan'", "{ lm_head = 'colwise_rep' }",
        "{ ['model.layers.*.mlp.up_proj'] = 'colwise', [3] = 'rowwise' }",
        "{ ['model.norm'] = 'sequence_parallel' }"}},
      {"mp_policy",
       {"{}", "{ param_dtype = 'float32' }", "{ reduce_dtype = 'Half' }", "{ param_dtype = 16 }"}},
      {"reshard_after_forward", {"true", "false", "2"}},
      {"defer_fsdp_grad_sync", {"false"}},
      {"enable_fsdp2_prefetch", {"true"}},
      {"enable_compile", {"true"}},
      {"enable_async_tensor_parallel", {"true"}},
      {"zero_dp_strategy", {"0", "1", "2", "3", "4", "'optim'"}},
      {"overlap_grad_reduce", {"false"}},
      {"bucket_cap_mb", {"1", "0.5"}},
      {"pipline", {"{}"}}}},
    {"step_scheduler",
     {{"local_batch_size", {"1", "2", "4", "0", "'4'"}},
      {"global_batch_size", {"4", "8", "16", "24", "7"}},
      {"max_steps", {"3"}}}},
    {"hf",
     {{"torch_dtype", {"'float32'", "'bfloat16'", "'int8'"}},
      {"class", {"'MistralForCausalLM'", "'LlamaForCausalLM'", "'PhiForCausalLM'", "3"}},
      {"num_attention_heads", {"4", "0", "6"}},
      {"num_hidden_layers", {"2", "4"}},
      {"tp_plan", {"{}", "{ lm_head = 'colwise_rep' }"}},
      {"remote_code", {"true"}},
      {"rope_scaling",
       {"{ rope_type = 'linear', factor = 2 }", "{ rope_type = 'dynamic', factor = 2 }",
        "{ rope_type = 'llama3', factor = 8 }", "{ type = 'longrope', short_factor = { 1 } }",
        "{ type = 'yarn', factor = 0.5, original_max_position_embeddings = 8 }", "{}"}},
      {"tie_word_embeddings", {"true", "false"}}}},
    {"optimizer",
     {{"lr", {"1e-3", "'fast'", "0"}},
      {"_target_", {"'torch.optim.AdamW'", "'torch.optim.SGD'", "'Adafactor'"}},
      {"betas", {"{ 0.9, 0.95 }", "{ 0.9 }", "{}"}}}},
};

static const Section credit[] = {
    {NULL,
     {{"world_size", {"1", "2", "4", "8", "6", "-2"}},
      {"seq_length", {"16", "24"}},
      {"model",
       {"require 'models.wxformer' 'tiny'", "require 'models.llama' 'tiny'",
        "require 'models.wxformer' { size = 'tiny', dim = { 16 }, depth = { 2 } }"}},
      {"as", {"'original'", "7"}},
      {"seed", {"5", "'x'"}}}},
    {"trainer",
     {{"parallelism",
       {"{ data = 'fsdp2' }", "{ data = 'fsdp2', tensor = 2 }", "{ data = 'ddp', tensor = 2 }",
        "{ tensor = '2' }", "{ data = 'none', tensor = 4 }", "{ domain = 2 }", "'fsdp2'",
        "{ data = 3, tensor = 1.5 }", "{}"}},
      {"mode", {"'fsdp'", "'ddp'", "'domain_parallel'", "'fsdp+domain_parallel'", "2"}},
      {"domain_parallel_size", {"1", "2"}},
      {"amp", {"true", "'yes'"}},
      {"fsdp2_mp_policy", {"{}", "{ param_dtype = 'Half' }", "{ reduce_dtype = 'floof32' }", "3"}},
      {"activation_checkpoint", {"true"}},
      {"grad_accum_every", {"1", "2", "0"}},
      {"train_batch_size", {"1", "2"}},
      {"use_spectral_norm", {"true", "false"}},
      {"cpu_offload", {"true"}},
      {"seed_by_dp_rank", {"'before_build'", "'after_build'", "1"}},
      {"grad_max_norm", {"1.0", "'dynamic'", "{}"}}}},
};

typedef struct Draw {
    uint64_t stream, n;
} Draw;

static uint32_t draw(Draw *d, uint32_t n)
{
    return (uint32_t)rng_below(SEED, d->stream, d->n++, n);
}

static void add_keys(Draw *d, const Section *section, Str *out)
{
    for (const Key *key = section->keys; key->name != NULL; key++) {
        uint32_t n = 0;
        while (n < MOST_CHOICES && key->choice[n] != NULL) n++;
        bool needed = section->name == NULL || strcmp(key->name, "parallelism") == 0;
        needed = needed && strcmp(key->name, "as") != 0 && strcmp(key->name, "api") != 0;
        if (!needed && draw(d, 7) != 0) continue;
        /* The first values are the sensible ones, so they are drawn more often. */
        uint32_t pick = draw(d, 6) ? draw(d, n / 2 + 1) % n : draw(d, n);
        str_print(out, "%s = %s, ", key->name, key->choice[pick]);
    }
}

static const char *script_of(Arena *arena, const char *dialect, const Section *sections, size_t n,
                             uint64_t stream)
{
    Draw d = {stream, 0};
    Str s = str_in(arena);
    str_print(&s, "return require 'dialects.%s' {\n  ", dialect);
    for (size_t i = 0; i < n; i++) {
        if (sections[i].name != NULL) str_print(&s, "\n  %s = { ", sections[i].name);
        add_keys(&d, &sections[i], &s);
        if (sections[i].name != NULL) str_add(&s, "},");
    }
    str_add(&s, "\n}\n");
    return str_text(&s);
}

/* Evaluates the script. Returns true if it gives a plan. Ends the test if it neither gives a plan
 * nor is refused with a line and a rule. */
static bool judge(const char *script)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    LowerOptions options = lower_options_default();
    const Plan *plan = NULL;
    memset(&graph, 0, sizeof graph);
    command_write_file("script.lua", script);
    if (front_load("script.lua", NULL, arena, &config, &graph, &d))
        plan = plan_compile(&config, &graph, &options, NULL, arena, &d);
    bool holds = plan == NULL || verify_plan(plan, VERIFY_all, false, &d);
    bool strange = !holds || (plan == NULL && diag_exit_code(&d) != 3);
    for (uint32_t i = 0; i < d.items.n; i++) {
        const Diagnostic *item = &d.items.at[i];
        strange = strange || strcmp(item->rule, "lua-error") == 0 || item->loc.line == 0;
    }
    if (strange) {
        Str text = str_in(arena);
        diag_print(&d, &text);
        fail_msg("%s%s", script, str_text(&text));
    }
    arena_free(arena);
    return plan != NULL;
}

static void draw_all(const char *dialect, const Section *sections, size_t n_sections)
{
    const char *more = getenv("TANDEM_DIALECTS");
    uint64_t n = more != NULL ? strtoull(more, NULL, 10) : 150, planned = 0;
    for (uint64_t i = 0; i < n; i++) {
        Arena *arena = arena_new();
        planned += judge(script_of(arena, dialect, sections, n_sections, i));
        arena_free(arena);
    }
    print_message("%s: %llu of %llu configurations plan\n", dialect, (unsigned long long)planned,
                  (unsigned long long)n);
    assert_true(planned >= n / 20 && planned <= n - n / 20);
}

static void automodel_plans_or_refuses(void **state)
{
    (void)state;
    draw_all("automodel", automodel, sizeof automodel / sizeof *automodel);
}

static const Tensor *named(const Plan *plan, const char *name)
{
    for (TensorId t = 1; t < plan->graph.tensors.n; t++)
        if (strcmp(plan->graph.tensors.at[t].name, name) == 0) return &plan->graph.tensors.at[t];
    fail_msg("no %s", name);
    return NULL;
}

/* Automodel's plans name both fused and separate projections; a model has one kind. Columns are
 * split by heads. Phi-3's fused q, k, v is split by its inputs, and the partial sums are added at
 * once. */
static void automodel_plans_name_fused_projections(void **state)
{
    (void)state;
    static const struct {
        const char *model, *param;
        TpStyle style;
        int dim;
    } cases[] = {
        {"llama' { size = 'tiny', fused = true }", "layers.0.attention.wqkv.weight", TP_column, 1},
        {"llama' { size = 'tiny', fused = true }", "layers.1.feed_forward.w13.weight", TP_column,
         2},
        {"qwen' { size = '2.5-tiny', fused = true }", "layers.0.attention.wqkv.bias", TP_column, 0},
        {"phi' { size = '2-tiny', fused = true }", "layers.0.attention.wqkv.weight", TP_column, 1},
        {"phi' { size = '3-tiny', fused = true }", "layers.0.attention.wqkv.weight", TP_row, 0},
        {"phi' { size = '3-tiny', fused = true }", "layers.1.mlp.gate_up.weight", TP_column, 2},
        {"llama' 'tiny'", "layers.0.attention.wq.weight", TP_column, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Config config;
        Graph graph;
        LowerOptions options = lower_options_default();
        memset(&graph, 0, sizeof graph);
        command_write_file("fused.lua",
                           arena_print(arena,
                                       "return require 'dialects.automodel' { world_size = 2, "
                                       "seq_length = 16, model = require 'models.%s,\n"
                                       "distributed = { strategy = 'fsdp2', tp_size = 2 } }\n",
                                       cases[i].model));
        bool fine = front_load("fused.lua", NULL, arena, &config, &graph, &d);
        const Plan *plan = fine ? plan_compile(&config, &graph, &options, NULL, arena, &d) : NULL;
        assert_non_null(plan);
        const Tensor *t = named(plan, cases[i].param);
        assert_int_equal(t->tp, cases[i].style);
        assert_int_equal(layout_axes_split(&t->use, cases[i].dim), mesh_axes(&plan->mesh, AXIS_tp));
        arena_free(arena);
    }
}

/* Returns the id of the plan for this model. `hf` has keys of Hugging Face's configuration. */
static const char *rope_plan(Arena *arena, const char *model, const char *hf)
{
    command_write_file("rope.lua",
                       arena_print(arena,
                                   "return require 'dialects.automodel' { world_size = 2, "
                                   "seq_length = 16, model = require 'models.%s,\n"
                                   "hf = { torch_dtype = 'float32', %s } }\n",
                                   model, hf));
    CommandResult r = COMMAND(arena, 60, "check", "rope.lua");
    if (r.exit_code != 0) fail_msg("%s, %s: %s%s", model, hf, r.out, r.err);
    const char *id = strstr(r.out, "plan ");
    assert_non_null(id);
    id += strspn(id + 4, " ") + 4;
    return arena_print(arena, "%.*s", (int)strcspn(id, " "), id);
}

/* Each kind of Hugging Face's rope_scaling gives the plan of the model with the same scaling. The
 * model without it gives another plan. */
static void automodel_scales_rotary_positions(void **state)
{
    (void)state;
    static const struct {
        const char *model, *hf, *scaling;
    } cases[] = {
        {"llama' { size = 'tiny', rope_scaling = ",
         "{ rope_type = 'llama3', factor = 4.0, low_freq_factor = 1.0, high_freq_factor = 2.0, "
         "original_max_position_embeddings = 512 }",
         "{ factor = 4, low = 1, high = 2, context = 512 }"},
        {"llama' { size = 'tiny', rope_scaling = ", "{ type = 'linear', factor = 2 }",
         "{ factor = 2, low = 1e30, high = 1e30, context = 8192 }"},
        {"qwen' { size = '2.5-tiny', rope_scaling = ",
         "{ type = 'yarn', factor = 4.0 }, max_position_embeddings = 32",
         "{ kind = 'yarn', factor = 4, context = 32 }"},
        {"qwen' { size = '2.5-tiny', rope_scaling = ",
         "{ rope_type = 'yarn', factor = 8, original_max_position_embeddings = 16, beta_fast = 16, "
         "beta_slow = 2, truncate = false, mscale = 1.0, mscale_all_dim = 0.8 }",
         "{ kind = 'yarn', factor = 8, context = 16, fast = 16, slow = 2, truncate = false, "
         "mscale = 1, mscale_all_dim = 0.8 }"},
        {"llama' { size = 'tiny', head_dim = 4, rope_scaling = ",
         "{ type = 'longrope', short_factor = { 1.1, 2 }, long_factor = { 1.5, 3 } }, "
         "original_max_position_embeddings = 8, max_position_embeddings = 64",
         "{ kind = 'longrope', context = 8, length = 64, short = { 1.1, 2 }, long = { 1.5, 3 } }"},
        {"llama' { size = 'tiny', head_dim = 4, rope_scaling = ",
         "{ type = 'su', rope_type = 'longrope', factor = 8, short_factor = { 1.1, 2 }, "
         "long_factor = { 1.5, 3 } }, max_position_embeddings = 8",
         "{ kind = 'longrope', context = 8, length = 64, short = { 1.1, 2 }, long = { 1.5, 3 } }"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        const char *without = arena_print(arena, "%sfalse }", cases[i].model),
                   *with = arena_print(arena, "%s%s }", cases[i].model, cases[i].scaling);
        const char *by_keys =
            rope_plan(arena, without, arena_print(arena, "rope_scaling = %s", cases[i].hf));
        assert_string_equal(by_keys, rope_plan(arena, with, ""));
        assert_string_not_equal(by_keys, rope_plan(arena, without, ""));
        /* The word in the configuration decides, even if it says that there is no scaling. */
        assert_string_equal(rope_plan(arena, with, "rope_scaling = { rope_type = 'default' }"),
                            rope_plan(arena, without, ""));
        arena_free(arena);
    }
}

/* models.qwen2_vl always rotates by these sections, so they change nothing, in either spelling. A
 * length that has no effect is reported. */
static void known_sections_change_nothing_and_idle_lengths_are_reported(void **state)
{
    (void)state;
    static const char *const sections[] = {
        "rope_scaling = { type = 'mrope', mrope_section = { 2, 2, 2 } }",
        "rope_scaling = { type = 'default', rope_type = 'default', mrope_section = { 2, 2, 2 } }"};
    static const char *const lengths[][2] = {
        {"max_position_embeddings = 10, original_max_position_embeddings = 10",
         "it is read with hf.rope_scaling only"},
        {"max_position_embeddings = 10, original_max_position_embeddings = 10, rope_scaling = { "
         "type = 'linear', factor = 2 }",
         "this rope_scaling does not read it"}};
    Arena *arena = arena_new();
    const char *plain = rope_plan(arena, "qwen2_vl' 'tiny'", "");
    for (int i = 0; i < 2; i++)
        assert_string_equal(rope_plan(arena, "qwen2_vl' 'tiny'", sections[i]), plain);
    for (int i = 0; i < 2; i++) {
        rope_plan(arena, "llama' 'tiny'", lengths[i][0]);
        CommandResult r = COMMAND(arena, 60, "check", "rope.lua");
        const char *first = strstr(r.err, "hf.max_position_embeddings = 10 has no effect: ");
        const char *second =
            strstr(r.err, "hf.original_max_position_embeddings = 10 has no effect");
        if (first == NULL || second == NULL || strstr(second, lengths[i][1]) == NULL)
            fail_msg("%s", r.err);
    }
    arena_free(arena);
}

static void credit_plans_or_refuses(void **state)
{
    (void)state;
    draw_all("credit", credit, sizeof credit / sizeof *credit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(automodel_plans_or_refuses),
        cmocka_unit_test(automodel_plans_name_fused_projections),
        cmocka_unit_test(automodel_scales_rotary_positions),
        cmocka_unit_test(known_sections_change_nothing_and_idle_lengths_are_reported),
        cmocka_unit_test(credit_plans_or_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
