/* tandem accuracy: cells that a row does not state. A default fills the cell if another cell
 * implies one. Otherwise the row is refused, and the message names the cell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"
#include "tests/support/published_row.h"

static const char *reason(Arena *arena, const char *changes)
{
    json_t *root = published_row_scored(arena, changes);
    const json_t *list = json_object_get(json_object_get(root, "runs"), "not_scored");
    assert_int_equal(json_array_size(list), 1);
    const char *text = json_string_value(json_object_get(json_array_get(list, 0), "reason"));
    const char *copy = arena_print(arena, "%s", text);
    json_decref(root);
    return copy;
}

static const char stated[] = "step time", open[] = "step time, not all stated";

/* Each cell with a default is filled. The row is listed under "not all stated". */
static void open_cells_are_filled_and_counted_apart(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const filled[] = {"n_heads=",   "n_kv_heads=n/a", "d_ff=unknown",
                                         "vocab=",     "zero_stage=",    "ac=unstated",
                                         "precision=", "micro_batch=-",  "tp=;pp="};
    assert_true(published_row_predicted(arena, "", stated) > 0);
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        assert_true(published_row_predicted(arena, filled[i], stated) == 0);
        assert_true(published_row_predicted(arena, filled[i], open) > 0);
    }
    arena_free(arena);
}

/* The document lists the assumed values of each row. */
static void assumed_values_are_listed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *root = published_row_scored(arena, "id=r7;ac=;vocab=");
    const json_t *list = json_object_get(json_object_get(root, "runs"), "assumed");
    const char *all = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(one, "row")), "r7");
        all = arena_print(arena, "%s%s\n", all, json_string_value(json_object_get(one, "text")));
    }
    assert_non_null(strstr(all, "ac is not stated; none is assumed"));
    assert_non_null(strstr(all, "vocab is not stated; 128256 is assumed"));
    json_decref(root);
    root = published_row_scored(arena, "");
    list = json_object_get(json_object_get(root, "runs"), "assumed");
    assert_true(json_is_array(list) && json_array_size(list) == 0);
    json_decref(root);
    arena_free(arena);
}

/* The column `missing` lists cells that a row leaves open. Words such as "none" list nothing. */
static void a_list_of_missing_cells_may_be_empty(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const nothing[] = {"missing=none", "missing=-", "missing=nothing"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        assert_true(published_row_predicted(arena, nothing[i], stated) > 0);
    assert_true(published_row_predicted(arena, "missing=not reported: ac", open) > 0);
    arena_free(arena);
}

/* A power limit in the GPU's cell is used. */
static void a_power_limit_slows_the_step(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char large[] = "d_model=8192;n_heads=64;n_kv_heads=64;d_ff=28672;seq=8192;";
    const double usual = published_row_predicted(arena, large, stated);
    const double same = published_row_predicted(
        arena, arena_print(arena, "%sgpu=H100-SXM-80GB-700W", large), stated);
    const double less = published_row_predicted(
        arena, arena_print(arena, "%sgpu=H100-SXM-80GB 350 W", large), stated);
    assert_true(usual > 0 && same == usual && less > 1.1 * usual);
    arena_free(arena);
}

/* 12 GPUs in nodes of 8 are planned as nodes of 6, and the row says so. */
static void partly_filled_nodes_are_planned_as_smaller_nodes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char twelve[] = "n_gpus=12;global_batch_seqs=12";
    const double smaller =
        published_row_predicted(arena, arena_print(arena, "%s;gpus_per_node=6", twelve), stated);
    assert_true(smaller > 0 && published_row_predicted(arena, twelve, open) == smaller);
    arena_free(arena);
}

/* A row with a default has the same prediction as a row that states this value. */
static void a_default_predicts_as_the_stated_value(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char nemo[] = "framework=NVIDIA NeMo Framework Release 25.04;";
    assert_true(published_row_predicted(arena, "zero_stage=", open) ==
                published_row_predicted(arena, "zero_stage=0", stated));
    assert_true(published_row_predicted(arena, "ac=", open) ==
                published_row_predicted(arena, "ac=none", stated));
    assert_true(published_row_predicted(arena, "vocab=", open) ==
                published_row_predicted(arena, "vocab=128256", stated));
    assert_true(published_row_predicted(arena, "n_layers=4 (of 32)", stated) ==
                published_row_predicted(arena, "", stated));
    assert_true(published_row_predicted(arena, "seq=1k", stated) ==
                published_row_predicted(arena, "", stated));
    /* recipes of NeMo use sequence parallelism with tp; Megatron-LM's default is without */
    assert_true(published_row_predicted(arena, "sp=", stated) ==
                published_row_predicted(arena, "sp=0", stated));
    assert_true(published_row_predicted(arena, arena_print(arena, "%ssp=", nemo), open) ==
                published_row_predicted(arena, arena_print(arena, "%ssp=1", nemo), stated));
    arena_free(arena);
}

/* Without the number of GPUs or of sequences, a step time means nothing, but memory can be
 * predicted. */
static void a_step_time_that_depends_on_an_open_cell_is_not_scored(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const cells[] = {"n_gpus=", "global_batch_seqs="};
    for (size_t i = 0; i < 2; i++) {
        assert_true(published_row_predicted(arena, cells[i], stated) == 0);
        assert_true(published_row_predicted(arena, cells[i], open) == 0);
        assert_true(published_row_predicted(arena, cells[i], "memory allocated") == 0);
        assert_true(published_row_predicted(arena, cells[i], "memory allocated, not all stated") >
                    0);
        assert_true(published_row_predicted(arena, cells[i], "fits") == 0);
        assert_true(published_row_predicted(arena, cells[i], "fits, not all stated") > 0);
    }
    arena_free(arena);
}

/* No default stands for a device, or for a model of another kind. */
static void a_cell_without_a_default_is_refused_by_name(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(reason(arena, "gpu=Gaudi 3"), "Gaudi 3"));
    assert_non_null(strstr(reason(arena, "ac=sometimes"), "sometimes"));
    assert_non_null(strstr(reason(arena, "precision=posit"), "posit"));
    assert_non_null(strstr(reason(arena, "model=rwkv-7b"), "rwkv"));
    assert_non_null(strstr(reason(arena, "model=ours;n_layers="), "ours"));
    assert_true(
        published_row_predicted(arena, "n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=", open) > 0);
    arena_free(arena);
}

/* A batch that does not divide evenly is distributed as evenly as possible. */
static void odd_cells_are_predicted(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_true(published_row_predicted(arena, "global_batch_seqs=7", open) ==
                published_row_predicted(arena, "", stated));
    assert_true(published_row_predicted(arena, "cp=0;vp=None", stated) ==
                published_row_predicted(arena, "", stated));
    assert_true(published_row_predicted(arena, "gpu=;interconnect=DGX H100", open) ==
                published_row_predicted(arena, "", stated));
    arena_free(arena);
}

/* A stand-in for a part of the plan is an assumption, so the row counts as not all stated. */
static void a_row_with_a_stand_in_is_scored_apart(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const rows[] = {"framework=OurTrainer 2",
                                       "framework=OurTrainer 2;zero_stage=3",
                                       "framework=Colossal-AI",
                                       "model=somebody-7b",
                                       "cp=2",
                                       "model=gpt-oss-ours;moe_experts=8;moe_topk=2;tp=1;sp=0",
                                       "model=t5"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(published_row_predicted(arena, rows[i], open) > 0))
            fail_msg("%s is not predicted", rows[i]);
        if (published_row_predicted(arena, rows[i], stated) != 0)
            fail_msg("%s counts as stated", rows[i]);
    }
    assert_true(published_row_predicted(arena, "precision=BF16", stated) ==
                published_row_predicted(arena, "", stated));
    arena_free(arena);
}

/* Returns the memory of a model that the row gives by name alone. */
static double by_name(Arena *arena, const char *name)
{
    static const char rest[] =
        "n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=128256;tp=8;n_gpus=8";
    return published_row_predicted(arena, arena_print(arena, "model=%s;%s", name, rest),
                                   "memory allocated, not all stated");
}

static const char *reason_by_name(Arena *arena, const char *name)
{
    return reason(
        arena, arena_print(arena, "model=%s;n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=", name));
}

/* The whole size in a name is read, so gemma-3-12b is not a 2b. Another variant, such as a vision
 * model, does not take the shape of the model with the same name. */
static void a_name_selects_its_own_model(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const uncovered[] = {"llama-3.2-11b-vision", "deepseek-r1-distill-ours-8b",
                                            "qwen3-next-80b", "gemma-3n-2b"};
    assert_true(by_name(arena, "deepseek-r1-distill-llama-8b") == by_name(arena, "llama3-8b"));
    const double two = by_name(arena, "gemma-2-2b"), twelve = by_name(arena, "gemma-3-12b");
    assert_true(two > 0 && two != by_name(arena, "gemma-2b") && twelve > 2 * two);
    assert_true(by_name(arena, "gemma-3-27b") != by_name(arena, "gemma-2-27b"));
    assert_true(by_name(arena, "phi-4-mini") < .5 * by_name(arena, "phi-4"));
    for (size_t i = 0; i < sizeof uncovered / sizeof *uncovered; i++)
        if (strstr(reason_by_name(arena, uncovered[i]), uncovered[i]) == NULL)
            fail_msg("%s: %s", uncovered[i], reason_by_name(arena, uncovered[i]));
    const char *other = reason_by_name(arena, "llama3-8b;params_b=13");
    if (strstr(other, "8.0 billion") == NULL) fail_msg("%s", other);
    arena_free(arena);
}

/* A row may name only the size of its model. Then it is planned like Llama, or like GPT-3 if its
 * framework is older. An encoder and a decoder of one shape have their own entries. */
static void a_size_alone_selects_a_usual_shape(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double seven = by_name(arena, "7B");
    assert_true(seven > 0 && seven == by_name(arena, "llama-2-7b"));
    assert_true(by_name(arena, "13B;framework=Megatron-LM 2021") ==
                by_name(arena, "gpt3-13b;framework=Megatron-LM 2021"));
    assert_non_null(strstr(reason_by_name(arena, "9.9B"), "9.9B"));
    const double three = by_name(arena, "t5-3b");
    assert_true(three > 0 && by_name(arena, "t5-11b") > 2 * three);
    /* 384 experts on each rank take more than a thousand calls */
    assert_true(by_name(arena, "kimi-k2") > 0);
    arena_free(arena);
}

/* MLPerf's pipelines count the embedding and the loss as blocks: of 6 blocks the first stage has 1
 * instead of 2. It is the stage with most micro-batches in flight, so less memory is needed. */
static void the_embedding_and_the_loss_count_as_blocks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char what[] = "memory allocated";
    static const char rest[] =
        "framework=NVIDIA NeMo;n_layers=6;pp=4;tp=1;sp=0;global_batch_seqs=16";
    const double even = published_row_predicted(arena, rest, what);
    const double asymmetric = published_row_predicted(
        arena, arena_print(arena, "%s;notes=ASYM_PP_EMBED=True ASYM_PP_LOSS=True", rest), what);
    assert_true(asymmetric > 0 && asymmetric < .9 * even);
    arena_free(arena);
}

/* A frozen base in 8 bits has a byte for each weight, and saves a byte for each input of SwiGLU. */
static void a_frozen_base_keeps_bytes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char rest[] =
        "framework=NVIDIA NeMo;flag=LoRA;precision=fp8;tp=1;sp=0;n_layers=16";
    const double tokens = 1024, more = 4096, weights = 3 * 1024 * more;
    const double narrow = published_row_predicted(arena, rest, "memory allocated");
    const double wide = published_row_predicted(arena, arena_print(arena, "%s;d_ff=8192", rest),
                                                "memory allocated");
    const double wanted = 16 * (weights + 2 * tokens * more);
    assert_true(fabs(wide - narrow - wanted) < .12 * wanted);
    arena_free(arena);
}

/* DeepEP sends a token once to each node, so an exchange between nodes takes less time than NCCL's.
 * Within a node only the dispatcher's calls differ. With overlap most of an exchange is hidden, but
 * it takes multiprocessors. */
static void an_exchange_sends_a_token_once_to_each_node(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char two[] =
        "moe_experts=16;moe_topk=8;tp=1;sp=0;ep=16;n_gpus=16;global_batch_seqs=64;seq=8192;"
        "n_layers=8;framework=NVIDIA NeMo;ac=full";
    static const char one[] =
        "moe_experts=16;moe_topk=8;tp=1;sp=0;ep=8;global_batch_seqs=32;seq=8192;n_layers=8;"
        "framework=NVIDIA NeMo;ac=full";
    const char *flex = "moe_dispatcher=flex deepep", *nccl = "moe_dispatcher=alltoall";
    double s[2][2];
    for (int i = 0; i < 2; i++) {
        const char *rest = i == 0 ? two : one;
        s[i][0] = published_row_predicted(arena, arena_print(arena, "%s;%s", rest, flex), stated);
        s[i][1] = published_row_predicted(arena, arena_print(arena, "%s;%s", rest, nccl), stated);
    }
    assert_true(s[0][0] > 0 && s[0][0] < .9 * s[0][1]);
    assert_true(s[1][0] > 0 && s[1][0] <= s[1][1] && s[1][1] < 1.02 * s[1][0]);
    for (int k = 0; k < 2; k++) {
        const char *row = arena_print(arena, "%s;%s;overlap_ep=1", two, k == 0 ? flex : nccl);
        const double hidden = published_row_predicted(arena, row, stated);
        assert_true(hidden > 0 && hidden < .95 * s[0][k]);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_cells_are_filled_and_counted_apart),
        cmocka_unit_test(assumed_values_are_listed),
        cmocka_unit_test(a_list_of_missing_cells_may_be_empty),
        cmocka_unit_test(a_power_limit_slows_the_step),
        cmocka_unit_test(partly_filled_nodes_are_planned_as_smaller_nodes),
        cmocka_unit_test(a_default_predicts_as_the_stated_value),
        cmocka_unit_test(a_step_time_that_depends_on_an_open_cell_is_not_scored),
        cmocka_unit_test(a_cell_without_a_default_is_refused_by_name),
        cmocka_unit_test(odd_cells_are_predicted),
        cmocka_unit_test(a_row_with_a_stand_in_is_scored_apart),
        cmocka_unit_test(a_name_selects_its_own_model),
        cmocka_unit_test(a_size_alone_selects_a_usual_shape),
        cmocka_unit_test(the_embedding_and_the_loss_count_as_blocks),
        cmocka_unit_test(a_frozen_base_keeps_bytes),
        cmocka_unit_test(an_exchange_sends_a_token_once_to_each_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
