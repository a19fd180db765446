/* tandem accuracy: how frameworks share states among ranks, and frameworks without a profile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"
#include "tests/support/published_row.h"

static const char stated[] = "step time", open[] = "step time, not all stated";
#define DATA "tp=1;"

/* Returns the memory of a row, whether all its settings are stated or not. */
static double memory(Arena *arena, const char *changes)
{
    const double own = published_row_predicted(arena, changes, "memory allocated");
    if (own > 0) return own;
    return published_row_predicted(arena, changes, "memory allocated, not all stated");
}

/* Returns the step time of such a row. */
static double step(Arena *arena, const char *changes)
{
    const double own = published_row_predicted(arena, changes, stated);
    return own > 0 ? own : published_row_predicted(arena, changes, open);
}

/* A stage that a row states is planned, or the row is refused. Each further stage needs no more
 * memory. */
static void every_framework_plans_the_stated_stage(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const frameworks[] = {
        "Megatron-LM",    "NeMo 24.09",    "Megatron-DeepSpeed",
        "DeepSpeed",      "nanotron",      "MaxText",
        "Levanter",       "HF Trainer",    "composer/llm-foundry",
        "GPT-NeoX",       "OLMo",          "LitGPT",
        "NeMo Automodel", "PyTorch FSDP1", "fms-fsdp",
        "Bagua",          "OurTrainer 2"};
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++) {
        double bytes[4];
        for (int stage = 0; stage < 4; stage++)
            bytes[stage] = memory(arena, arena_print(arena, DATA "sp=0;framework=%s;zero_stage=%d",
                                                     frameworks[i], stage));
        if (!(bytes[3] > 0) || bytes[0] < 1.4 * bytes[3] || bytes[0] < 1.01 * bytes[1] ||
            bytes[1] < bytes[2] || bytes[2] < bytes[3])
            fail_msg("%s: %g %g %g %g", frameworks[i], bytes[0], bytes[1], bytes[2], bytes[3]);
    }
    static const char *const sharded[] = {"torchtitan", "KempnerForge"};
    for (size_t i = 0; i < 2; i++)
        assert_true(memory(arena, arena_print(arena, DATA "sp=0;framework=%s;zero_stage=1",
                                              sharded[i])) == 0);
    arena_free(arena);
}

/* Ranks of Ulysses hold the same weights, so they share states. */
static void ranks_of_ulysses_share_states(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const frameworks[] = {"DeepSpeed", "Megatron-DeepSpeed 2024"};
    for (size_t i = 0; i < 2; i++) {
        const char *row = arena_print(arena, DATA "framework=%s;sp=ulysses 8", frameworks[i]);
        assert_true(memory(arena, arena_print(arena, "%s;zero_stage=3", row)) <
                    .9 * memory(arena, arena_print(arena, "%s;zero_stage=0", row)));
    }
    /* a plan cannot tile the head of such ranks, so it computes the head at once */
    assert_true(step(arena, DATA "framework=DeepSpeed + Liger;zero_stage=3;sp=ulysses 8") > 0);
    arena_free(arena);
}

#define STAGES "tp=1;sp=0;pp=4;zero_stage=3;global_batch_seqs=16;"

/* A pipeline needs several micro-batches. If torchtitan's local batch is the whole batch of a rank,
 * the pipeline cuts it into sequences. */
static void a_local_batch_is_cut_for_the_pipeline(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const frameworks[] = {"torchtitan 2025-06", "PyTorch FSDP2"};
    for (size_t i = 0; i < 2; i++) {
        const char *row = arena_print(arena, STAGES "framework=%s;micro_batch=", frameworks[i]);
        const double own = step(arena, arena_print(arena, "%s1", row));
        assert_true(own > 0 && step(arena, row) == own);
    }
    assert_true(step(arena, STAGES "framework=torchtitan 2025-06;micro_batch=8") ==
                step(arena, STAGES "framework=torchtitan 2025-06;micro_batch=1"));
    assert_true(memory(arena, STAGES "framework=torchtitan 2025-06;micro_batch=4") >
                1.2 * memory(arena, STAGES "framework=torchtitan 2025-06;micro_batch=1"));
    arena_free(arena);
}

/* Only Megatron-FSDP reduces gradients after each micro-batch of a pipeline. */
static void a_pipeline_reduces_gradients_once_a_step(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char rest[] = "tp=1;sp=0;pp=2;global_batch_seqs=32;";
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "MegaScale" : "Megatron-LM";
        const char *row = arena_print(arena, "%sframework=%s;zero_stage=", rest, name);
        const double one = step(arena, arena_print(arena, "%s1", row)),
                     two = step(arena, arena_print(arena, "%s2", row));
        if (one <= 0 || (i == 0 ? one != two : one >= two)) fail_msg("%s: %g %g", name, one, two);
    }
    arena_free(arena);
}

/* Models of Hugging Face write attention's scores before transformers 4.36, and so do frameworks
 * that are older than flash attention in PyTorch. */
static void old_attention_writes_its_scores(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const slow[] = {"framework=DeepSpeed 0.9",
                                       "framework=HF Trainer (transformers 4.35)",
                                       "framework=DeepSpeed (2022)",
                                       "framework=HF Trainer;gpu=V100-SXM2-32GB;precision=fp16",
                                       "framework=Bagua",
                                       "framework=Alpa"};
    static const char *const fast[] = {
        "framework=DeepSpeed 0.9 + flash attention",
        "framework=HF Trainer (transformers 4.36)",
        "framework=DeepSpeed (2024)",
        "framework=HF Trainer;gpu=V100-SXM2-32GB;precision=fp16;attention_backend=sdpa",
        "framework=Bagua (2025)",
        "framework=Alpa (flash attention)"};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        const char *rest = "tp=1;sp=0;seq=4096;zero_stage=3";
        const double more = memory(arena, arena_print(arena, "%s;%s", slow[i], rest)),
                     less = memory(arena, arena_print(arena, "%s;%s", fast[i], rest));
        if (!(less > 0) || more < 1.5 * less) fail_msg("%s: %g, %g", slow[i], more, less);
    }
    arena_free(arena);
}

/* Megatron-DeepSpeed writes scores unless a row says otherwise, or cannot have done so. */
static void scores_that_cannot_exist_are_not_planned(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char a100[] = "tp=1;sp=0;gpu=A100-SXM-80GB;framework=Megatron-DeepSpeed";
    const double written = memory(arena, arena_print(arena, "seq=4096;%s", a100));
    const double flash =
        memory(arena, arena_print(arena, "seq=4096;attention_backend=flash;%s", a100));
    assert_true(flash > 0 && written > 1.5 * flash);
    /* in Ulysses, on a newer GPU, and if they do not fit */
    static const char *const rows[] = {"seq=4096;sp=ulysses 2", "seq=4096;gpu=H100-SXM-80GB",
                                       "seq=131072"};
    for (size_t i = 0; i < 3; i++) {
        const char *row = arena_print(arena, "%s;%s", rows[i], a100);
        assert_true(published_row_predicted(arena, row, open) > 0);
        assert_true(step(arena, row) ==
                    step(arena, arena_print(arena, "%s;attention_backend=flash", row)));
    }
    /* GPT-NeoX trains without dropout, so a score needs less memory */
    assert_true(
        memory(arena, arena_print(arena, "seq=4096;model=gpt-1b;%s", a100)) >
        1.1 *
            memory(arena, arena_print(arena, "seq=4096;model=gpt-1b;framework=GPT-NeoX;%s", a100)));
    arena_free(arena);
}

/* "Yes" means the only stage that a framework has. If it has several, the row is refused. */
static void a_stage_without_a_number_is_the_only_one(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const same[][3] = {{"Megatron-LM", "yes", "1"},
                                          {"Megatron-LM", "zero_stage=Yes", "1"},
                                          {"PyTorch FSDP2", "on", "3"},
                                          {"Galvatron", "SDP", "3"},
                                          {"FairScale", "SDP", "2"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        double bytes[2];
        for (int k = 0; k < 2; k++)
            bytes[k] = memory(arena, arena_print(arena, DATA "sp=0;framework=%s;zero_stage=%s",
                                                 same[i][0], same[i][1 + k]));
        if (!(bytes[0] > 0) || bytes[0] != bytes[1]) fail_msg("%s %s", same[i][0], same[i][1]);
    }
    assert_true(memory(arena, DATA "sp=0;framework=DeepSpeed;zero_stage=yes") == 0);
    assert_true(memory(arena, DATA "sp=0;framework=OurTrainer 2;zero_stage=SDP") == 0);
    arena_free(arena);
}

/* Offloaded activations leave the device. A row may also offload the optimizer. */
static void offloaded_activations_leave_the_device(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char long_run[] =
        "tp=1;sp=0;framework=DeepSpeed;zero_stage=3;seq=65536;n_layers=32;d_ff=1024;";
    const double kept = memory(arena, arena_print(arena, "%sac=full", long_run));
    const double gone = memory(arena, arena_print(arena, "%sac=full + offload", long_run));
    const double states =
        memory(arena, arena_print(arena, "%sac=full;flag=optimizer offload", long_run));
    const double both =
        memory(arena, arena_print(arena, "%sac=full;flag=optimizer offload and activation offload",
                                  long_run));
    assert_true(gone > 0 && gone < .97 * kept && states < kept && both < gone && both < states);
    assert_true(memory(arena, arena_print(arena, "%sac=full (no offload)", long_run)) == kept);
    assert_true(memory(arena, arena_print(arena, "%sac=full;flag=offload optimizer and activations",
                                          long_run)) == both);
    /* only the optimizer is offloaded; the activations are recomputed */
    assert_true(memory(arena, arena_print(arena, "%sac=full (optimizer offload)", long_run)) ==
                kept);
    const double words = memory(
        arena, arena_print(arena, "%sac=full;flag=optimizer offload + activation checkpointing",
                           long_run));
    assert_true(words == states);
    arena_free(arena);
}

/* If two blocks are missing, the first chunk has only the embedding and the last one only the head.
 * A row whose chunks cannot be planned says so. */
static void chunks_without_blocks_have_an_end_of_the_model(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char rest[] = "tp=1;sp=0;pp=2;global_batch_seqs=64;vp=";
    const char *six = arena_print(arena, "n_layers=6;%s", rest);
    const double chunks = published_row_predicted(arena, arena_print(arena, "%s4", six), stated);
    assert_true(chunks > 0 && chunks != step(arena, arena_print(arena, "%s1", six)));
    const char *five = arena_print(arena, "n_layers=5;%s", rest);
    const double one = published_row_predicted(arena, arena_print(arena, "%s4", five), open);
    assert_true(one > 0 && one == step(arena, arena_print(arena, "%s1", five)));
    arena_free(arena);
}

/* MLPerf's results name a container. Elsewhere "PyTorch" is the framework. */
static void a_container_is_no_framework(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "tp=1;sp=0;ac=full;framework=PyTorch;";
    const double own = step(arena, row);
    const double inside = step(arena, arena_print(arena, "%ssource=MLPerf Training results", row));
    assert_true(own > 0 && inside > 0 && own != inside);
    arena_free(arena);
}

/* LitGPT pretrains with PyTorch's HYBRID_SHARD: the weights are sharded over the GPUs of a node. */
static void litgpt_shards_within_a_node(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "sp=0;tp=1;n_gpus=32;global_batch_seqs=32;framework=LitGPT;";
    const double open_row = memory(arena, arena_print(arena, "%szero_stage=", row));
    const double by_node =
        memory(arena, arena_print(arena, "%szero_stage=3;dp_shard=8;dp_replicate=4", row));
    const double over_all = memory(arena, arena_print(arena, "%szero_stage=3", row));
    assert_true(open_row > 0 && open_row == by_node && over_all < .9 * by_node);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_framework_plans_the_stated_stage),
        cmocka_unit_test(ranks_of_ulysses_share_states),
        cmocka_unit_test(a_local_batch_is_cut_for_the_pipeline),
        cmocka_unit_test(a_pipeline_reduces_gradients_once_a_step),
        cmocka_unit_test(old_attention_writes_its_scores),
        cmocka_unit_test(scores_that_cannot_exist_are_not_planned),
        cmocka_unit_test(a_stage_without_a_number_is_the_only_one),
        cmocka_unit_test(litgpt_shards_within_a_node),
        cmocka_unit_test(offloaded_activations_leave_the_device),
        cmocka_unit_test(chunks_without_blocks_have_an_end_of_the_model),
        cmocka_unit_test(a_container_is_no_framework),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
