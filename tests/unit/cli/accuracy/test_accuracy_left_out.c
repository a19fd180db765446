/* tandem accuracy: a stated cell changes the prediction, or the row is refused by name, or a note
 * says that the cell does not change the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"
#include "tests/support/published_row.h"

#define TITAN     "framework=torchtitan 2025-06;zero_stage=3;compile=yes;"
#define DEEPSPEED "framework=DeepSpeed 0.14;zero_stage=2;tp=1;sp=0;"
#define TRAINER   "framework=HF Trainer;zero_stage=3;tp=1;sp=0;"

/* Each pair differs in one cell. */
static void a_stated_part_of_a_block_is_planned(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"seq=1024", "untie_embeddings=0"},
        {"seq=1024", "activation=gelu"},
        {"seq=1024", "position_embedding=learned_absolute"},
        {"seq=1024", "normalization=LayerNorm;activation=gelu"},
        {"activation=gelu;seq=1024", "activation=gelu;normalization=LayerNorm"},
        {TITAN "seq=1024", TITAN "untie_embeddings=0"},
        {TITAN "seq=1024", TITAN "activation=gelu"},
        {TITAN "seq=1024", TITAN "position_embedding=learned_absolute"},
        {DEEPSPEED "seq=1024", DEEPSPEED "untie_embeddings=0"},
        {TRAINER "seq=1024", TRAINER "activation=gelu"},
        {"model=gpt2-x;seq=1024", "model=gpt2-x;untie_embeddings=1"},
        {"model=gpt2-x;seq=1024", "model=gpt2-x;position_embedding=rope"},
        {"hidden_dropout=0.0;seq=1024", "hidden_dropout=0.1"},
        {"attention_backend=unfused;attention_dropout=0.0",
         "attention_backend=unfused;attention_dropout=0.1"},
        {TITAN "seq=1024", TITAN "attention_backend=unfused"},
        {TRAINER "seq=1024", TRAINER "attention_backend=eager"},
        {"n_gpus=16;gpus_per_node=8;seq=1024", "n_gpus=16;gpus_per_node=8;dp_replicate=2"},
    };
    spelled_rows_differ(pairs, sizeof pairs / sizeof *pairs);
}

/* Options in the notes or flags have the effect of the cells with the same meaning. */
static void an_option_is_planned(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"seq=1024", "notes=--optimizer-cpu-offload"},
        {"seq=1024", "notes=optimizer_cpu_offload=True"},
        {"seq=1024", "flag=--cpu-offloading-num-layers 2"},
        {"seq=1024", "notes=cpu-offloading-num-layers=2"},
        {"flag=--cpu-offloading-num-layers 2", "flag=optimizer offload"},
        {"zero_stage=1", "zero_stage=;notes=data-parallel-sharding-strategy=optim_grads_params"},
    };
    spelled_rows_differ(pairs, sizeof pairs / sizeof *pairs);
}

static void a_contradiction_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"normalization=BatchNorm", "normalization"},
        {"activation=tanh", "activation"},
        {TITAN "position_embedding=spiral", "position_embedding"},
        {"notes=data-parallel-sharding-strategy=optim_grads_params", "zero_stage"},
        {"zero_stage=;notes=--use-megatron-fsdp", "use-megatron-fsdp"},
        {"notes=optimizer-cpu-offload=1 optimizer-offload-fraction=0.5",
         "optimizer-offload-fraction"},
        {DEEPSPEED "notes=cpu-offloading-num-layers=2", "cpu-offloading-num-layers"},
        {"framework=KempnerForge;zero_stage=3;activation=gelu", "activation"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        json_t *root = published_row_scored(arena, rows[i][0]);
        const json_t *list = json_object_get(json_object_get(root, "runs"), "not_scored");
        const char *why = json_string_value(json_object_get(json_array_get(list, 0), "reason"));
        if (why == NULL || strstr(why, rows[i][1]) == NULL)
            fail_msg("'%s' is not refused by name: '%s'", rows[i][0], why == NULL ? "" : why);
        json_decref(root);
        arena_free(arena);
    }
}

/* Returns true if a note of the row contains the text. */
static bool has_note(const json_t *root, const char *text)
{
    const json_t *list = json_object_get(json_object_get(root, "runs"), "assumed");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strstr(json_string_value(json_object_get(json_array_get(list, i), "text")), text) !=
            NULL)
            return true;
    return false;
}

/* Such a row is scored like a row without the cell. */
static void a_cell_without_effect_gets_a_note(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"notes=--use-megatron-fsdp", "use-megatron-fsdp is left out"},
        {"notes=--fp8-param-gather", "fp8-param-gather = 1 is left out: no product"},
        {"precision=fp8;notes=--fp8-param-gather", "weights are planned in 16 bits"},
        {"params_b=13", "params_b = 13 is left out"},
        {"zero_stage=0;dp_replicate=2", "dp_replicate = 2 is left out"},
        {"moe_ffn=512", "moe_ffn = 512 is left out: the model has no experts"},
        {"vp=2", "vp = 2 is left out: there is no pipeline"},
        {"attention_dropout=0.1", "attention_dropout = 0.1 is left out"},
        {TITAN "hidden_dropout=0.1", "hidden_dropout = 0.1 is left out"},
        {"recompute_granularity=full", "the cell ac says none"},
        {"fp8_recipe=mxfp8", "fp8_recipe = mxfp8 is left out"},
        {"notes=num-query-groups=2", "n_kv_heads = 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        json_t *root = published_row_scored(arena, rows[i][0]);
        if (!has_note(root, rows[i][1])) fail_msg("no note: '%s'", rows[i][0]);
        json_decref(root);
        assert_true(published_row_predicted(arena, rows[i][0], "step time") > 0);
        arena_free(arena);
    }
}

/* If a row gives no sizes, the number of parameters chooses the model. */
static void a_number_of_parameters_chooses_the_model(void **state)
{
    (void)state;
    static const char *const rows[] = {"model=", "model=llama"};
    Arena *arena = arena_new();
    static const char sizes[] =
        "n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;params_b=13;zero_stage=3;tp=8";
    for (size_t i = 0; i < 2; i++) {
        const char *row = arena_print(arena, "%s;%s", rows[i], sizes);
        if (!(published_row_predicted(arena, row, "step time, not all stated") > 0))
            fail_msg("refused: %s", rows[i]);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stated_part_of_a_block_is_planned),
        cmocka_unit_test(an_option_is_planned),
        cmocka_unit_test(a_contradiction_is_refused_by_name),
        cmocka_unit_test(a_cell_without_effect_gets_a_note),
        cmocka_unit_test(a_number_of_parameters_chooses_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
