/* tandem accuracy on rows that state a rate or a share instead of a time or bytes: FLOP/s,
 * utilisation, percentages of memory. Sources count FLOPs differently, so each is converted by its
 * own convention. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "planner/base/arena.h"
#include "tests/support/published_row.h"

/* Returns the measured value of the row's score whose name begins with `what`; NAN: it has none. */
static double measured(Arena *arena, const char *row, const char *what)
{
    json_t *root = published_row_scored(arena, row);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double value = NAN;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strncmp(json_string_value(json_object_get(s, "what")), what, strlen(what)) == 0)
            value = json_number_value(json_object_get(s, "measured"));
    }
    json_decref(root);
    return value;
}

/* The plain row has 4 layers with a width of 1024 and a hidden width of 4096, and a vocabulary of
 * 4096. Each of 8 devices trains a sequence of 1024 tokens in a step. */
enum { WIDTH = 1024, HIDDEN = 4096, LAYERS = 4, TOKENS = 1024, VOCABULARY = 4096 };
static const double products =
    6. * WIDTH * (LAYERS * (4. * WIDTH + 3. * HIDDEN) + VOCABULARY) * TOKENS;
static const double half_attention = 6. * LAYERS * WIDTH * TOKENS * TOKENS;
static const double embedding = 6. * WIDTH * VOCABULARY * TOKENS;
static const double peak = 989.4e12, GIB = 1073741824.;

#define RATE "step_time_s=;missing=x;framework="

/* A row, the FLOPs of its step on each device by the count of its source, and the FLOP/s that the
 * row states; 0 FLOPs: its step is not scored. */
typedef struct RateRow {
    const char *row;
    double flops, flops_per_s;
} RateRow;

static void steps_agree(const RateRow *rows, size_t n)
{
    Arena *arena = arena_new();
    for (size_t i = 0; i < n; i++) {
        const double wanted = rows[i].flops / rows[i].flops_per_s,
                     found = measured(arena, rows[i].row, "step, from FLOP/s");
        if (wanted == 0 ? !isnan(found) : !(fabs(found - wanted) < 1e-3 * wanted))
            fail_msg("%s: %g, not %g", rows[i].row, found, wanted);
    }
    arena_free(arena);
}

static void stated_flops_give_the_step(void **state)
{
    (void)state;
    const RateRow rows[] = {
        {RATE "Megatron-Core 0.8.0;published_tflops=100", products + 2 * half_attention, 100e12},
        {RATE "Megatron-Core 0.15.0;published_tflops=100", products + half_attention, 100e12},
        {RATE "NeMo 25.04;published_tflops=100 TFLOP/s/GPU", products + 2 * half_attention, 100e12},
        {RATE "Megatron-Core 0.15.0;published_mfu=50%", products + half_attention, peak / 2},
        {RATE "Megatron-Core 0.15.0;published_mfu=50", products + half_attention, peak / 2},
        {RATE "Megatron-Core 0.15.0;published_mfu=0.5", products + half_attention, peak / 2},
        {RATE "composer/llm-foundry;zero_stage=3;tp=1;sp=0;published_tflops=100",
         products + 2 * half_attention + embedding, 100e12},
        {RATE "HF Trainer;tp=1;sp=0;published_tflops=100", 0, 1},
        {RATE "NeMo 25.09;published_tflops=100", products + half_attention, 100e12},
        {RATE "Megatron-LM 2023-10;published_tflops=100", products + 2 * half_attention, 100e12},
        {RATE "Megatron-LM 2025-06;published_tflops=100", products + half_attention, 100e12},
        {RATE "Megatron-LM;framework_month=2025-06;published_tflops=100", products + half_attention,
         100e12},
        {RATE "MaxText 2026-01;tp=1;sp=0;published_tflops=100", products + half_attention, 100e12},
        {RATE "LitGPT;tp=1;sp=0;published_tflops=100", products + 2 * half_attention, 100e12},
        {RATE "Levanter;tp=1;sp=0;published_tflops=100", products + 2 * half_attention, 100e12},
        {RATE "LitGPT;tp=1;sp=0;published_tflops=100 TF", products + 2 * half_attention, 100e12},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=50% MFU", products + 2 * half_attention, peak / 2},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=MFU 50%", products + 2 * half_attention, peak / 2},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=50% HFU", 0, 1},
        /* some releases count recomputed blocks twice */
        {RATE "InternEvo;ac=full;seq=128;published_tflops=100", 0, 1},
        /* the month is open, and the ways to count differ by more than a tenth */
        {RATE "Megatron-LM;published_tflops=100", 0, 1},
        {RATE "MaxText;tp=1;sp=0;published_tflops=100", 0, 1},
        /* nanoGPT gives a share of the A100's peak on every GPU */
        {RATE "nanoGPT;tp=1;sp=0;zero_stage=0;published_mfu=50",
         products + 2 * half_attention + embedding, 312e12 / 2},
        {RATE "Megatron-LM 2021;ac=full;published_tflops=\"1,00\"", 0, 1},
        {RATE "Megatron-Core 0.15.0;precision=fp8;published_mfu=50", 0, 1},
        {RATE "Megatron-Core core_v0.15.0;published_tflops=100", products + half_attention, 100e12},
        {RATE "Megatron-Core core_v0.11.0;published_tflops=100", products + 2 * half_attention,
         100e12},
        {RATE "Megatron-Core 0.2.0;published_tflops=100", products + 2 * half_attention, 100e12},
        {RATE "Megatron-Core 0.15.0;precision=tf32;published_mfu=50", products + half_attention,
         peak / 4},
        {RATE "Megatron-Core 0.15.0;precision=fp32;published_mfu=50", products + half_attention,
         66.9e12 / 2},
        {RATE "Megatron-Core 0.15.0;published_tflops=156 TFLOP/s (HFU)", 0, 1},
    };
    steps_agree(rows, sizeof rows / sizeof *rows);
}

/* A source may name a repository or an image instead of the framework, and may write more than the
 * number. */
static void other_names_and_words_give_the_same_step(void **state)
{
    (void)state;
    const RateRow rows[] = {
        /* names of repositories and images count as the framework does */
        {RATE "google/maxtext;framework_month=2026-01;tp=1;sp=0;published_tflops=100",
         products + half_attention, 100e12},
        {RATE "NVIDIA NeMo 24.07;published_tflops=100", products + 2 * half_attention, 100e12},
        {RATE "nvcr.io/nvidia/nemo:25.09;published_tflops=100", products + half_attention, 100e12},
        {RATE "pytorch/torchtitan;tp=1;sp=0;zero_stage=3;published_tflops=100",
         products + 2 * half_attention, 100e12},
        {RATE "NVIDIA/Megatron-LM core_r0.8.0;published_tflops=100", products + 2 * half_attention,
         100e12},
        {RATE "Megatron-LM core_r0.14.0;published_tflops=100", products + half_attention, 100e12},
        /* Automodel counts in a way that we do not know, whatever its name looks like */
        {RATE "nemo-automodel 25.09;tp=1;sp=0;zero_stage=3;published_tflops=100", 0, 1},
        /* the month of an image of PyTorch says nothing about Megatron-LM or MaxText */
        {RATE "Megatron-LM / NGC PyTorch 25.06;published_tflops=100", 0, 1},
        {RATE "Megatron-LM (nvcr.io/nvidia/pytorch:24.01-py3);published_tflops=100", 0, 1},
        {RATE "MaxText (jax-stable-stack 2024.10);tp=1;sp=0;published_tflops=100", 0, 1},
        {RATE "NeMo (NGC PyTorch 25.11);published_tflops=100", 0, 1},
        /* Megatron-LM changed its count within March 2025 */
        {RATE "Megatron-LM;framework_month=2025-03;published_tflops=100", 0, 1},
        {RATE "Megatron-LM;framework_month=2025-02;published_tflops=100",
         products + 2 * half_attention, 100e12},
        {RATE "Megatron-Core 0.15.0;published_tflops=100 (BF16)", products + half_attention,
         100e12},
        {RATE "Megatron-Core 0.15.0;published_tflops=100 model TFLOP/s/GPU",
         products + half_attention, 100e12},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=MFU 50% / HFU 60%", products + 2 * half_attention,
         peak / 2},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=50% (HFU 60.0%)", products + 2 * half_attention,
         peak / 2},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=HFU 60% / MFU 50%", products + 2 * half_attention,
         peak / 2},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=50% of 312", 0, 1},
        {RATE "LitGPT;tp=1;sp=0;published_mfu=50% (of 312)", 0, 1},
        {RATE "Megatron-Core 0.15.0;published_tflops=156 (hardware)", 0, 1},
    };
    steps_agree(rows, sizeof rows / sizeof *rows);
}

/* Narayanan et al., Megatron-DeepSpeed and GPT-NeoX also count the second forward pass of
 * recomputed blocks. */
static void recomputation_counts_only_if_the_source_counts_it(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double head = 6. * WIDTH * VOCABULARY * TOKENS, all = products + 2 * half_attention;
    const double once = measured(arena, RATE "Megatron-LM 2021;published_tflops=100", "step, from"),
                 again = measured(arena, RATE "Megatron-LM 2021;ac=full;published_tflops=100",
                                  "step, from");
    assert_true(fabs(again / once - (4 * (all - head) / 3 + head) / all) < 1e-3);
    static const char *const more[] = {"Megatron-DeepSpeed", "GPT-NeoX"};
    for (int i = 0; i < 2; i++) {
        const char *row = arena_print(arena, RATE "%s;published_tflops=100", more[i]);
        const double ratio = measured(arena, arena_print(arena, "%s;ac=full", row), "step, from") /
                             measured(arena, row, "step, from");
        if (!(fabs(ratio - again / once) < 1e-3))
            fail_msg("%s: recomputation multiplies the step by %g", more[i], ratio);
    }
    /* Neither recomputation of some blocks nor a later source counts a second forward pass. */
    static const char *const others[] = {RATE
                                         "Megatron-LM 2021;ac=full block 2;published_tflops=100",
                                         RATE "Megatron-LM 2024;ac=full;published_tflops=100"};
    for (int i = 0; i < 2; i++)
        assert_true(fabs(measured(arena, others[i], "step, from") / once - 1) < 1e-3);
    /* the month of a run may be stated in other cells and words */
    static const char *const early[] = {
        RATE "Megatron-LM;framework_month=2022-05;ac=full;published_"
             "tflops=100",
        RATE "Megatron-LM v2.5;ac=full;published_tflops=100",
        RATE "NVIDIA/Megatron-LM (2021);ac=full;published_tflops=100"};
    for (int i = 0; i < 3; i++)
        if (!(fabs(measured(arena, early[i], "step, from") / again - 1) < 1e-3))
            fail_msg("%s", early[i]);
    arena_free(arena);
}

/* A row with a step time keeps it. A row with only FLOP/s counts as a run that fitted. */
static void a_stated_step_comes_first(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *both = "step_time_s=0.5;published_tflops=100";
    assert_true(measured(arena, both, "step time") == 0.5);
    assert_true(isnan(measured(arena, both, "step, from")));
    assert_true(measured(arena, RATE "Megatron-Core 0.12;peak_mem=;published_mfu=40", "fits") == 1);
    arena_free(arena);
}

/* Rates and sizes with words around them. */
static void words_around_a_number_are_read(void **state)
{
    (void)state;
#define TOKENS_S "step_time_s=;tokens_per_s_per_gpu="
    static const struct {
        const char *row, *what;
        double value;
    } cells[] = {
        {TOKENS_S "TGS 2048", "step time", .5},
        {TOKENS_S "2048 TGS", "step time", .5},
        {TOKENS_S "2048 (per GPU)", "step time", .5},
        {TOKENS_S "2048 tps", "step time", .5},
        {TOKENS_S "2.048k wps", "step time", .5},
        {TOKENS_S "2048 \302\261 3", "step time", .5},
        {TOKENS_S "2047-2049", "step time", .5},
        {TOKENS_S "2k-2.096k", "step time", .5},
        {TOKENS_S "2 048", "step time", .5},
        {TOKENS_S "2'048 (8 nodes)", "step time", .5},
        {"peak_mem=42 949 672 960", "memory allocated", 40 * GIB},
        {"step_time_s=1.5s*", "step time", 1.5},
        {"step_time_s=avg 1.5 s", "step time", 1.5},
        {"peak_mem=max 40 GB", "memory allocated", 40 * GIB},
        {"peak_mem=40GB peak", "memory allocated", 40 * GIB},
        {"peak_mem=\342\211\21040 GB", "memory allocated", 40 * GIB},
        {"peak_mem=40 GB of 80", "memory allocated", 40 * GIB},
        {"peak_mem=40 gigabytes", "memory allocated", 40 * GIB},
        {"peak_mem=\"42,949,672,960\"", "memory allocated", 40 * GIB},
        {"peak_mem=40 GB (reserved);peak_mem_kind=", "memory reserved", 40 * GIB},
        {"peak_mem=40 GB reserved;peak_mem_kind=", "memory reserved", 40 * GIB},
        {"framework=NeMo 25.04;peak_mem=40 GB allocated;peak_mem_kind=", "memory allocated",
         40 * GIB},
        {"peak_mem=max 40960", "memory allocated", 40 * GIB},
        {"peak_mem=40960 peak", "memory allocated", 40 * GIB},
        {"peak_mem=40960*", "memory allocated", 40 * GIB},
        {"step_time_s=OOM", "fits", 0},
        {"peak_mem=OOM (>80 GB);step_time_s=", "fits", 0},
        {TOKENS_S "OOM", "fits", 0},
        {"oom=did not OOM", "fits", 1},
        {"oom=no (fits)", "fits", 1},
        {"oom=OK (41 GB)", "fits", 1},
        {TOKENS_S "2048;step_time_s=see tokens/s", "step time", .5},
        {"peak_mem=40;peak_mem_kind=GB (active)", "memory allocated", 40 * GIB},
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const double found = measured(arena, cells[i].row, cells[i].what);
        if (!(fabs(found - cells[i].value) <= 1e-9 * cells[i].value))
            fail_msg("'%s' is read as %g", cells[i].row, found);
    }
    arena_free(arena);
}

/* Estimates, sums over devices, and more memory than a device has are no measurements. */
static void memory_that_no_device_used_is_not_scored(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "peak_mem_kind=estimated GiB",          "peak_mem_kind=simulated",
        "peak_mem_kind=total over 8 GPUs (GB)", "peak_mem_kind=GB (sum of all GPUs)",
        "peak_mem=40 GB (theoretical)",         "peak_mem=499 GB"};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!isnan(measured(arena, rows[i], "memory"))) fail_msg("scored: %s", rows[i]);
    /* 84 GiB do not fit H100, but 84 GB do */
    assert_true(fabs(measured(arena, "peak_mem=84;peak_mem_kind=GB", "memory") - 84e9) < 1);
    assert_true(fabs(measured(arena, "peak_mem=70;peak_mem_kind=GB", "memory") - 70 * GIB) < 1);
    assert_true(fabs(measured(arena, "peak_mem=84 GiB;peak_mem_kind=GB", "memory") - 84 * GIB) < 1);
    arena_free(arena);
}

/* A number with other marks than those between thousands is not read. Nor is a range whose second
 * number lacks the unit of the first, nor a rate of several devices. */
static void doubtful_numbers_are_not_read(void **state)
{
    (void)state;
    static const char *const rows[] = {
        TOKENS_S "2k-2.1",
        TOKENS_S "1024 256",
        TOKENS_S "\"1024,256\"",
        TOKENS_S "\"0,853\"",
        TOKENS_S "16384 tok/s total",
        TOKENS_S "16384 (total)",
        TOKENS_S "16384 (per node)",
        TOKENS_S "16384/node",
        "step_time_s=\"0,853\"",
        "step_time_s=1024 256",
        RATE "Megatron-Core 0.15.0;published_tflops=800 TFLOP/s total",
        RATE "Megatron-Core 0.15.0;published_tflops=800 TFLOP/s per node",
        RATE "Megatron-Core 0.15.0;published_mfu=\"0,041\"",
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double found = measured(arena, rows[i], "step");
        if (!isnan(found)) fail_msg("'%s' is read as %g, instead of not at all", rows[i], found);
    }
    arena_free(arena);
}

static void a_percentage_of_memory_is_a_share_of_the_device(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double device = 81000. * 1048576;
    assert_true(fabs(measured(arena, "peak_mem=40%", "memory") / device - .4) < 1e-9);
    assert_true(fabs(measured(arena, "peak_mem=~40.5 %", "memory") / device - .405) < 1e-9);
    assert_true(isnan(measured(arena, "peak_mem=140%", "memory")));
    assert_true(fabs(measured(arena, "peak_mem=40% (32 GiB)", "memory") / device - .4) < 1e-9);
    assert_true(fabs(measured(arena, "peak_mem=40% of 80 GB", "memory") / device - .4) < 1e-9);
    static const char *const parts[] = {"peak_mem=81 % of reserved", "peak_mem=85% of 14.5 GiB",
                                        "peak_mem=12.3 GiB of 14.5 GiB", "peak_mem=12.3 of 14.5"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!isnan(measured(arena, parts[i], "memory")))
            fail_msg("the memory of '%s' is scored", parts[i]);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stated_flops_give_the_step),
        cmocka_unit_test(other_names_and_words_give_the_same_step),
        cmocka_unit_test(recomputation_counts_only_if_the_source_counts_it),
        cmocka_unit_test(a_stated_step_comes_first),
        cmocka_unit_test(words_around_a_number_are_read),
        cmocka_unit_test(doubtful_numbers_are_not_read),
        cmocka_unit_test(a_percentage_of_memory_is_a_share_of_the_device),
        cmocka_unit_test(memory_that_no_device_used_is_not_scored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
