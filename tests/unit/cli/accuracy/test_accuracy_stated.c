/* tandem accuracy: rows may name their configuration file, their library's version, their
 * pipeline's groups or their machine. Each of these facts must change the prediction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"

typedef struct Cell {
    const char *column, *value;
} Cell;

/* A small GPT on four GPUs. */
static const Cell base[] = {{"id", "a"},
                            {"source", "s"},
                            {"model", "gpt3"},
                            {"n_layers", "4"},
                            {"d_model", "512"},
                            {"n_heads", "8"},
                            {"n_kv_heads", "8"},
                            {"d_ff", "2048"},
                            {"vocab", "32768"},
                            {"moe_experts", ""},
                            {"gpu", "H100-SXM-80GB"},
                            {"n_gpus", "4"},
                            {"gpus_per_node", ""},
                            {"interconnect", ""},
                            {"framework", "Megatron-Core 0.15.0"},
                            {"tp", "1"},
                            {"sp", "0"},
                            {"pp", "1"},
                            {"vp", "1"},
                            {"cp", "1"},
                            {"ep", "1"},
                            {"dp_shard", ""},
                            {"dp_replicate", ""},
                            {"zero_stage", "0"},
                            {"micro_batch", "1"},
                            {"global_batch_seqs", "8"},
                            {"seq", "1024"},
                            {"precision", "bf16"},
                            {"ac", "none"},
                            {"compile", "no"},
                            {"step_time_s", "1"},
                            {"peak_mem", "1"},
                            {"peak_mem_kind", "peak_mem_alloc GiB"},
                            {"oom", ""},
                            {"missing", ""},
                            {"split", "dev-cal"},
                            {"hidden_dropout", "0.0"},
                            {"attention_dropout", "0.0"},
                            {"transformer_impl", "transformer_engine"},
                            {"attention_backend", "flash"},
                            {"activation", "gelu"},
                            {"normalization", "LayerNorm"},
                            {"position_embedding", "learned_absolute"},
                            {"untie_embeddings", "1"},
                            {"platform", ""},
                            {"notes", ""},
                            {"config_from", ""},
                            {"hybrid_pattern", ""},
                            {"flag", ""}};
enum { N_CELLS = sizeof base / sizeof *base, N_OWN = 16 };

static const char *table_of(const Cell *own, Arena *arena)
{
    Str s = str_in(arena);
    for (int i = 0; i < N_CELLS; i++) str_print(&s, "%s%s", i == 0 ? "" : ",", base[i].column);
    str_add(&s, "\n");
    for (int i = 0; i < N_CELLS; i++) {
        const char *value = base[i].value;
        for (int k = 0; k < N_OWN && own[k].column != NULL; k++)
            if (strcmp(own[k].column, base[i].column) == 0) value = own[k].value;
        str_print(&s, "%s%s", i == 0 ? "" : ",", value);
    }
    str_add(&s, "\n");
    return command_table(arena, str_text(&s));
}

/* Returns the prediction for the base with the cells of `own`. `set` is a change of its plan, or
 * NULL. */
static double predicted(const Cell own[N_OWN], const char *what, const char *set, Arena *arena)
{
    const char *file = table_of(own, arena);
    CommandResult r = set ? COMMAND(arena, 60, "accuracy", "--runs", file, "--json", "--set", set)
                          : COMMAND(arena, 60, "accuracy", "--runs", file, "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double is = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        const char *name = json_string_value(json_object_get(s, "what"));
        if (strncmp(name, what, strlen(what)) == 0)
            is = json_number_value(json_object_get(s, "predicted"));
    }
    json_decref(root);
    assert_true(is > 0);
    return is;
}

static void is_about(double is, double wanted)
{
    if (fabs(is - wanted) > .02 * fabs(wanted))
        fail_msg("%.4g, and %.4g were expected", is, wanted);
}

#define TRAINER "HF Trainer + no FSDP (transformers "
#define TRAINER_ROW(version)                                                                       \
    {"framework", TRAINER version}, {"model", "llama"}, {"n_gpus", "1"}, {"micro_batch", "8"},     \
        {"global_batch_seqs", "8"}, {"precision", "pure bf16"}, {"ac", "full"},                    \
        {"vocab", "131072"},                                                                       \
    {                                                                                              \
        "n_layers", "2"                                                                            \
    }

/* A loss holds 14 bytes of each logit at once since transformers 4.46, and 12 before. With a fused
 * loss, whose gradient replaces the copy, these are 10 and 8. Liger's head and loss make few logits
 * at a time. GPTBigCode casts no logits, so it holds 8 bytes. */
static void the_version_decides_the_bytes_of_a_loss(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const Cell rows[][N_OWN] = {{TRAINER_ROW("4.48.1)")},
                                       {TRAINER_ROW("4.45.2)")},
                                       {TRAINER_ROW("4.48.1); plugin foak-fast-kernels")},
                                       {TRAINER_ROW("4.45.2); plugin foak-fast-kernels")},
                                       {TRAINER_ROW("4.48.1); plugin foak-fast-kernels-liger")}};
    double is[5];
    for (int i = 0; i < 5; i++) is[i] = predicted(rows[i], "memory allocated", NULL, arena);
    const double logits = 8. * 1024 * 131072;
    is_about(is[0] - is[1], 2 * logits);
    is_about(is[0] - is[2], 4 * logits);
    is_about(is[2] - is[3], 2 * logits);
    assert_true(is[2] - is[4] > 7 * logits);
    arena_free(arena);
}

/* Beside the product of queries, PEFT's adapter moves 19 times its bytes in each of two passes: 12
 * of its own, and half of the 14 of the gradients. */
static void adapters_move_bytes_beside_a_product(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const double tokens = 8 * 4096, wide = 4096, layers = 4;
    const Cell row[N_OWN] = {{"framework", TRAINER "4.48.1)"},
                             {"model", "llama"},
                             {"n_gpus", "1"},
                             {"gpu", "A100-SXM-80GB"},
                             {"micro_batch", "8"},
                             {"global_batch_seqs", "8"},
                             {"precision", "pure bf16"},
                             {"ac", "full"},
                             {"d_model", "4096"},
                             {"n_heads", "32"},
                             {"seq", "4096"},
                             {"flag", "LoRA r=16 (q k v o)"}};
    const double with = predicted(row, "step time", NULL, arena),
                 without = predicted(row, "step time", "runtime.ops.linear_q.passes=1", arena);
    const double bytes = 2 * (2 * tokens * wide + wide * wide);
    is_about(with - without, layers * 2 * 19 * bytes / (.78 * 2039e9));
    arena_free(arena);
}

/* The files that the row names must all agree on the mesh. Their majority decides whether products
 * have 4 bits.
 */
static void a_named_file_states_mesh_and_precision(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define SIZES                                                                                      \
    {"n_layers", "8"}, {"d_model", "8192"}, {"n_heads", "64"},                                     \
    {                                                                                              \
        "d_ff", "28672"                                                                            \
    }
#define RUN                                                                                        \
    SIZES, {"model", "llama2 (MLPerf v5.1)"}, {"gpu", "NVIDIA B200"}, {"n_gpus", "8"},             \
        {"framework", "NeMo NVIDIA Release 25.09"}, {"sp", "1"},                                   \
    {                                                                                              \
        "seq", "8192"                                                                              \
    }
    static const Cell named[N_OWN] = {RUN,
                                      {"tp", ""},
                                      {"pp", ""},
                                      {"cp", ""},
                                      {"precision", ""},
                                      {"notes", "candidates: config_A_1x8x1xtp2pp1cp4.sh; "
                                                "config_B_1x8x1xtp2pp1cp4.sh"}};
    static const Cell fours[N_OWN] = {
        RUN,        {"tp", ""},        {"pp", ""},
        {"cp", ""}, {"precision", ""}, {"config_from", "x/config_A_1x8x1xtp2pp1cp4_fp4.sh"}};
    static const Cell stated[N_OWN] = {RUN, {"tp", "2"}, {"cp", "4"}, {"precision", "fp8"}};
    static const Cell stated_fours[N_OWN] = {RUN, {"tp", "2"}, {"cp", "4"}, {"precision", "nvfp4"}};
#undef RUN
#undef SIZES
    static const char *const set = "runtime.overlaps_tp=true";
    const double eight = predicted(stated, "step time", set, arena),
                 four = predicted(stated_fours, "step time", set, arena);
    assert_true(fabs(four / eight - 1) > .05);
    is_about(predicted(named, "step time", set, arena), eight);
    is_about(predicted(fours, "step time", set, arena), four);
    arena_free(arena);
}

#define PIPELINE(pp_, vp_, layers)                                                                 \
    {"pp", pp_}, {"vp", vp_}, {"n_layers", layers},                                                \
    {                                                                                              \
        "n_gpus", pp_                                                                              \
    }
/* Groups of as many micro-batches as stages are Megatron's usual order. Larger groups keep more
 * activations. */
static void stated_groups_of_microbatches_are_planned(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const group = "microbatch-group-size-per-virtual-pipeline-stage=";
    double memory[3], step[3];
    static const char *const size[] = {NULL, "2", "8"};
    for (int i = 0; i < 3; i++) {
        const char *notes = size[i] ? arena_print(arena, "%s%s", group, size[i]) : "";
        const Cell row[N_OWN] = {PIPELINE("2", "2", "4"), {"notes", notes}};
        memory[i] = predicted(row, "memory allocated", NULL, arena);
        step[i] = predicted(row, "step time", NULL, arena);
    }
    assert_true(memory[0] == memory[1] && step[0] == step[1]);
    assert_true(memory[2] > memory[0]);
    /* Megatron refuses seven micro-batches on two stages unless the row states their groups. */
    const Cell odd[N_OWN] = {PIPELINE("2", "2", "4"),
                             {"global_batch_seqs", "7"},
                             {"notes", arena_print(arena, "%s7", group)}};
    assert_true(predicted(odd, "memory allocated", NULL, arena) > memory[0]);
    arena_free(arena);
}

/* If the embedding and the loss count as blocks, the first and the last chunk have no other block.
 * The last rank then keeps its one block for four micro-batches, where 1F1B keeps it for one. A
 * block keeps about 34 bytes an element (Korthikanti et al., 4.1). */
static void a_chunk_may_have_the_loss_alone(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char counts[] = "account-for-embedding-in-pipeline-split";
    const Cell chunks[N_OWN] = {PIPELINE("4", "2", "6"), {"notes", counts}};
    const Cell stages[N_OWN] = {PIPELINE("4", "1", "6"), {"notes", counts}};
    const double more = predicted(chunks, "memory allocated", NULL, arena) -
                        predicted(stages, "memory allocated", NULL, arena);
    const double block = 34. * 1024 * 512;
    if (more < 2.5 * block || more > 3.5 * block)
        fail_msg("%g bytes more, where a block has %g", more, block);
    arena_free(arena);
}

/* Megatron's log prints the last stage's peak. A tool that measures processes shows the fullest
 * one. Here this is the first stage: it holds four micro-batches, and the last stage one. */
static void memory_of_processes_is_that_of_the_fullest_rank(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Cell tool[N_OWN] = {PIPELINE("4", "1", "8"),
                              {"seq", "8192"},
                              {"vocab", "4096"},
                              {"peak_mem_kind", "process GiB"}};
    const double is = predicted(tool, "memory of process", NULL, arena),
                 last = predicted(tool, "memory of process", "runtime.reports_rank=last", arena);
    const double block = 34. * 8192 * 512;
    if (is - last < 2 * 2 * block || is - last > 2 * 3 * block + 64e6)
        fail_msg("%g bytes more, where a block has %g", is - last, block);
    arena_free(arena);
}

#define TESTS                                                                                      \
    {                                                                                              \
        "source", "Megatron-LM functional tests"                                                   \
    }
static const char by_loader[] = "step time, set by a loader";

/* In Megatron-LM's tests, one data loader feeds a tray of GPUs and sets the step's time, however
 * many stages there are. */
static void a_step_on_a_tray_waits_for_its_data_loader(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Cell tray[N_OWN] = {
        PIPELINE("4", "1", "4"), {"gpu", "GB200"}, {"platform", "dev_dgx_gb200"}, TESTS};
    const double wait_s = predicted(tray, by_loader, "runtime.input_s=2", arena);
    is_about(wait_s, 8 * 2.);
    const double own = predicted(tray, by_loader, NULL, arena);
    assert_true(own >= 8 * .05 && own < 8 * .07);
    const Cell shared[N_OWN] = {{"gpu", "GB200"}, {"platform", "dev_dgx_gb200"}, TESTS};
    is_about(predicted(shared, by_loader, "runtime.input_s=2", arena), 2 * 2.);
    /* Other runs on such a tray do not wait. */
    const Cell others[N_OWN] = {
        PIPELINE("4", "1", "4"), {"gpu", "GB200"}, {"platform", "dev_dgx_gb200"}};
    assert_true(predicted(others, "step time", NULL, arena) < own / 2);
    arena_free(arena);
}

/* Since NVIDIA's image 25.09, the host takes less time for messages that are sent one by one, as in
 * interleaved pipelines. Other pipelines send them in batches. */
static void the_image_decides_the_host_time_of_single_messages(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define IMAGE(version)                                                                             \
    {                                                                                              \
        "framework", "Megatron-Core 0.15.0 / NGC PyTorch " version " (dev)"                        \
    }
    const Cell before[N_OWN] = {PIPELINE("2", "2", "4"), IMAGE("25.05")};
    const Cell after[N_OWN] = {PIPELINE("2", "2", "4"), IMAGE("25.09")};
    const double old_s = predicted(before, "step time", NULL, arena);
    const double new_s = predicted(after, "step time", NULL, arena);
    assert_true(new_s < old_s);
    assert_true(predicted(before, "step time", "runtime.message_s=0.0006", arena) == new_s);
    assert_true(predicted(after, "step time", "runtime.message_s=0.0009", arena) == old_s);
    const Cell batches_before[N_OWN] = {PIPELINE("2", "1", "4"), IMAGE("25.05")};
    const Cell batches_after[N_OWN] = {PIPELINE("2", "1", "4"), IMAGE("25.09")};
    assert_true(predicted(batches_before, "step time", NULL, arena) ==
                predicted(batches_after, "step time", NULL, arena));
    arena_free(arena);
}

/* "Power limited" without a number of watts is an assumption about the step time alone. */
static void a_limit_without_watts_is_an_assumption(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define LARGE                                                                                      \
    {"d_model", "4096"}, {"d_ff", "16384"}, {"n_heads", "32"},                                     \
    {                                                                                              \
        "seq", "8192"                                                                              \
    }
    const Cell open[N_OWN] = {LARGE, {"gpu", "B200 (power limited)"}},
               stated[N_OWN] = {LARGE, {"gpu", "B200 700W (power limited)"}};
    assert_true(predicted(open, "step time, power not stated", NULL, arena) <
                predicted(stated, "step time", NULL, arena));
    assert_true(predicted(open, "memory allocated", NULL, arena) ==
                predicted(stated, "memory allocated", NULL, arena));
    arena_free(arena);
}

/* torchtitan uses cuDNN's attention on Blackwell. On Hopper it uses FlashAttention-2 until
 * September 2025. Other frameworks with torchtitan's profile leave the choice to PyTorch. */
static void framework_and_architecture_decide_the_attention_kernel(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const struct {
        const char *framework, *gpu;
        bool flash;
    } rows[] = {{"torchtitan 2025-09", "H100-SXM-80GB", true},
                {"torchtitan 2024", "H100-SXM-80GB", true},
                {"torchtitan 2025-10", "H100-SXM-80GB", false},
                {"torchtitan", "H100-SXM-80GB", false},
                {"torchtitan 2025-06", "B200", false},
                {"torchtune 0.6", "H100-SXM-80GB", true},
                {"torchtune with PyTorch 2.8", "B200", true},
                {"PyTorch 2.11 FSDP2", "H100-SXM-80GB", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Cell row[N_OWN] = {{"framework", rows[i].framework},
                                 {"model", "llama"},
                                 {"zero_stage", "3"},
                                 {"seq", "8192"},
                                 {"global_batch_seqs", "4"},
                                 {"attention_backend", ""},
                                 {"gpu", rows[i].gpu}};
        const double is = predicted(row, "step time", NULL, arena),
                     flash = predicted(row, "step time", "runtime.attention=flash2", arena),
                     cudnn = predicted(row, "step time", "runtime.attention=cudnn", arena);
        assert_true(cudnn < flash);
        assert_true(is == (rows[i].flash ? flash : cudnn));
    }
    arena_free(arena);
}

/* NeMo's recipe of Llama 2 13B has ten chunks a rank. A row that leaves its chunks open follows
 * that recipe. */
static void open_chunks_follow_the_recipe(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define NEMO(vp_)                                                                                  \
    {"framework", "NeMo/Megatron-Core"}, {"model", "llama2-13b"}, {"activation", ""},              \
        {"normalization", ""}, PIPELINE("4", vp_, "40")
    const Cell open[N_OWN] = {NEMO("")}, ten[N_OWN] = {NEMO("10")}, one[N_OWN] = {NEMO("1")};
#undef NEMO
    const double own = predicted(open, "step time", NULL, arena);
    is_about(own, predicted(ten, "step time", NULL, arena));
    assert_true(own < .9 * predicted(one, "step time", NULL, arena));
    arena_free(arena);
}

/* A Mamba-2 mixer takes longer than a gated MLP with as many weights, because it scans. Under cp,
 * each rank scans some heads of a whole sequence, which takes as long as a smaller batch on each
 * rank. */
static void mixers_of_hybrid_models_take_longer_than_mlps(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define HYBRID(pattern, n)                                                                         \
    {"hybrid_pattern", pattern}, {"n_gpus", n}, {"micro_batch", "2"},                              \
    {                                                                                              \
        "tp", "2"                                                                                  \
    }
    const Cell mixers[N_OWN] = {HYBRID("MMMM", "2")}, mlps[N_OWN] = {HYBRID("----", "2")};
    const Cell shared[N_OWN] = {HYBRID("MMMM", "4"), {"cp", "2"}};
    const Cell more[N_OWN] = {HYBRID("MMMM", "4"), {"micro_batch", "1"}};
#undef HYBRID
    assert_true(predicted(mixers, "step time", NULL, arena) >
                1.5 * predicted(mlps, "step time", NULL, arena));
    is_about(predicted(shared, "step time", NULL, arena),
             predicted(more, "step time", NULL, arena));
    arena_free(arena);
}

/* For each token, a Mamba-2 mixer keeps the layer's input and its norm, the product's output (x, z,
 * B, C and the step), the scan's output, and the gated norm. It recomputes convolutions and the
 * step. */
static void mixers_keep_no_outputs_of_convolutions(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define MIXERS(n, pattern, micro)                                                                  \
    {"hybrid_pattern", pattern}, {"n_layers", n}, {"n_gpus", "1"}, {"global_batch_seqs", "2"},     \
    {                                                                                              \
        "micro_batch", micro                                                                       \
    }
    const Cell four[N_OWN] = {MIXERS("4", "MMMM", "1")},
               eight[N_OWN] = {MIXERS("8", "MMMMMMMM", "1")};
    const Cell more[N_OWN] = {MIXERS("4", "MMMM", "2")},
               most[N_OWN] = {MIXERS("8", "MMMMMMMM", "2")};
#undef MIXERS
    const char *what = "memory allocated";
    const double kept = predicted(most, what, NULL, arena) - predicted(eight, what, NULL, arena) -
                        (predicted(more, what, NULL, arena) - predicted(four, what, NULL, arena));
    const double dim = 512, inner = 2 * dim, shared = 8 * 128, heads = inner / 64;
    is_about(kept / (4 * 1024), 2 * (2 * dim + (2 * inner + 2 * shared + heads) + 2 * inner));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_decides_the_bytes_of_a_loss),
        cmocka_unit_test(adapters_move_bytes_beside_a_product),
        cmocka_unit_test(a_named_file_states_mesh_and_precision),
        cmocka_unit_test(stated_groups_of_microbatches_are_planned),
        cmocka_unit_test(a_chunk_may_have_the_loss_alone),
        cmocka_unit_test(open_chunks_follow_the_recipe),
        cmocka_unit_test(mixers_keep_no_outputs_of_convolutions),
        cmocka_unit_test(mixers_of_hybrid_models_take_longer_than_mlps),
        cmocka_unit_test(memory_of_processes_is_that_of_the_fullest_rank),
        cmocka_unit_test(a_step_on_a_tray_waits_for_its_data_loader),
        cmocka_unit_test(the_image_decides_the_host_time_of_single_messages),
        cmocka_unit_test(a_limit_without_watts_is_an_assumption),
        cmocka_unit_test(framework_and_architecture_decide_the_attention_kernel),
    };
    return cmocka_run_group_tests_name("what rows state", tests, NULL, NULL);
}
