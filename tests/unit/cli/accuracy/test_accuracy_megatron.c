/* tandem accuracy: Megatron's rows. Cells that a row states are used, and each term of memory
 * equals its closed form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"

/* Differences between a row and the small GPT below. */
typedef struct Row {
    const char *framework, *zero, *dropout, *attention, *env, *impl, *vocab, *gpu, *n_gpus, *batch;
    const char *per_node, *fusions_off, *flag;
    /* the cell overlap_tp, with tp = 2 and sequence parallelism; NULL: no tp */
    const char *overlap;
} Row;

static const Row plain = {"Megatron-Core 0.15.0",
                          "0",
                          "0.0",
                          "flash",
                          "",
                          "transformer_engine",
                          "50304",
                          "A100-SXM-80GB",
                          "4",
                          "16",
                          "4",
                          "",
                          "",
                          NULL};

enum { layers = 4, dim = 512, heads = 8, seq = 1024, micro = 4 };

/* Returns the row's predicted value of the quantity `what`. */
static double predicted(const Row *row, const char *what, Arena *arena)
{
    const char *file = command_table(
        arena,
        arena_print(arena,
                    "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,"
                    "gpu,n_gpus,gpus_per_node,interconnect,framework,tp,sp,pp,vp,cp,ep,dp_shard,"
                    "dp_replicate,zero_stage,micro_batch,global_batch_seqs,seq,precision,ac,"
                    "compile,step_time_s,peak_mem,peak_mem_kind,oom,missing,split,hidden_dropout,"
                    "attention_dropout,transformer_impl,attention_backend,env,activation,"
                    "normalization,position_embedding,untie_embeddings,fusions_off,flag,"
                    "overlap_tp\n"
                    "a,s,gpt3,4,512,8,8,2048,%s,,%s,%s,%s,NVLink,%s,%s,1,1,1,1,,,%s,4,%s,1024,"
                    "bf16,none,no,1,1,peak_mem_alloc GiB,,,dev-cal,%s,%s,%s,%s,%s,gelu,LayerNorm,"
                    "learned_absolute,0,%s,%s,%s\n",
                    row->vocab, row->gpu, row->n_gpus, row->per_node, row->framework,
                    row->overlap ? "2,1" : "1,0", row->zero, row->batch, row->dropout, row->dropout,
                    row->impl, row->attention, row->env, row->fusions_off, row->flag,
                    row->overlap ? row->overlap : ""));
    CommandResult r = COMMAND(arena, 60, "accuracy", "--runs", file, "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double is = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strcmp(json_string_value(json_object_get(s, "what")), what) == 0)
            is = json_number_value(json_object_get(s, "predicted"));
    }
    json_decref(root);
    assert_true(is > 0);
    return is;
}

static double allocated(Row row, Arena *arena)
{
    return predicted(&row, "memory allocated", arena);
}

static void is_about(double is, double wanted)
{
    if (fabs(is - wanted) > .02 * fabs(wanted))
        fail_msg("%.4g, and %.4g were expected", is, wanted);
}

/* Unfused attention keeps its scores: 5 bytes each with dropout, 2 without (Korthikanti et al.,
 * 4.1), for each head and layer. */
static void unfused_attention_keeps_its_scores(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double scores = (double)layers * micro * heads * seq * seq;
    Row row = plain, unfused = plain;
    unfused.attention = "unfused";
    /* Flash attention keeps a four-byte number for each query and head. */
    is_about(allocated(unfused, arena) - allocated(row, arena), 2 * scores);
    row.dropout = unfused.dropout = "0.1";
    is_about(allocated(unfused, arena) - allocated(row, arena), 5 * scores);
    Row local = row;
    local.attention = "", local.impl = "local";
    is_about(allocated(local, arena), allocated(unfused, arena));
    /* If kernels must be deterministic, an image older than flash attention's deterministic
     * backward pass uses unfused attention. */
    Row old = row;
    old.attention = "", old.env = "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0";
    is_about(allocated(old, arena), allocated(row, arena));
    old.framework = "Megatron-Core 0.15.0 / NGC PyTorch 24.01 (lts)";
    is_about(allocated(old, arena), allocated(unfused, arena));
    arena_free(arena);
}

/* Dropout keeps a mask of one byte for each element of a layer's two residual sums. */
static void hidden_dropout_keeps_masks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row row = plain, with = plain;
    with.dropout = "0.1";
    is_about(allocated(with, arena) - allocated(row, arena), 2. * layers * micro * seq * dim);
    arena_free(arena);
}

/* With CUBLAS_WORKSPACE_CONFIG=:4096:8, cuBLAS's workspace is 8 times 4 MiB instead of 8.125 MiB.
 * The forward thread and autograd's thread each have one. */
static void the_environment_sets_the_size_of_workspaces(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row row = plain, asks = plain;
    asks.env = "NCCL_ALGO=Ring; CUBLAS_WORKSPACE_CONFIG=:4096:8";
    const double more = allocated(asks, arena) - allocated(row, arena);
    /* The allocator leaves the rest of a segment with its block if that is less than 1 MiB. */
    assert_true(fabs(more - 2 * (32 * 1048576. - 8519680)) < 1.1 * 1048576);
    arena_free(arena);
}

/* On Hopper, Transformer Engine's own workspace is 32 MiB instead of 4, and both of PyTorch's are
 * 32 MiB instead of 8.125. */
static void a_newer_gpu_has_larger_workspaces(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row old = plain, hopper = plain;
    hopper.gpu = "H100-SXM-80GB";
    is_about(allocated(hopper, arena) - allocated(old, arena),
             28 * 1048576. + 2 * (32 * 1048576. - 8519680));
    arena_free(arena);
}

/* Products that overlap with tp's communication have three workspaces beside the usual one. */
static void an_overlap_has_workspaces_of_its_own(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const struct {
        const char *gpu;
        double mib;
    } gpus[] = {{"A100-SXM-80GB", 4}, {"H100-SXM-80GB", 32}};
    for (int i = 0; i < 2; i++) {
        Row apart = plain, over = plain;
        apart.gpu = over.gpu = gpus[i].gpu;
        apart.overlap = "0", over.overlap = "1";
        is_about(allocated(over, arena) - allocated(apart, arena), 3 * gpus[i].mib * 1048576);
    }
    arena_free(arena);
}

/* A fused product adds to the gradient's buffer and also returns a tensor that no code reads.
 * Transformer Engine keeps one such tensor for each size: here dim x dim and dim x 4 dim, 2 bytes
 * an element. */
static void fused_gradients_keep_one_unread_tensor_for_each_size(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row apart = plain, fused = plain;
    apart.fusions_off = "no-gradient-accumulation-fusion";
    is_about(allocated(fused, arena) - allocated(apart, arena), 2. * (1 + 4) * dim * dim);
    arena_free(arena);
}

/* Under LoRA, the frozen base keeps only 2 of the 18 bytes for a weight, and no inputs of
 * products. */
static void a_frozen_base_has_no_optimizer_states(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row row = plain, lora = plain;
    lora.flag = "LoRA (rank 16; frozen base)";
    const double weights = 50304. * dim + 12. * layers * dim * dim;
    const double saved = allocated(row, arena) - allocated(lora, arena);
    if (saved < 16 * weights || saved > 22 * weights)
        fail_msg("LoRA saves %g bytes for %g weights", saved, weights);
    arena_free(arena);
}

/* Stages 1 to 3 over eight ranks shard moments and fp32 weights, then gradients, then weights. A
 * row without a stage has its framework's default: 0 for Megatron-LM. */
static void a_stated_stage_is_honoured(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const stages[] = {"0", "1", "2", "3"};
    static const char *const names[] = {"Megatron-Core 0.15.0", "Megatron-DeepSpeed"};
    for (int k = 0; k < 2; k++) {
        double last = 0;
        for (int i = 0; i < 4; i++) {
            Row row = plain;
            row.framework = names[k], row.zero = stages[i], row.batch = "64", row.n_gpus = "8",
            row.per_node = "8";
            const double is = allocated(row, arena);
            if (i > 0 && is >= last)
                fail_msg("%s: stage %d takes %g bytes, the stage before %g", names[k], i, is, last);
            last = is;
        }
    }
    Row none = plain, zero = plain;
    none.zero = "";
    assert_true(predicted(&none, "memory allocated, not all stated", arena) ==
                allocated(zero, arena));
    arena_free(arena);
}

/* ZeRO-1 shards 12 bytes of a weight. The reduced part of a gradient is inside the buffer of the
 * whole gradient (param_and_grad_buffer.py), so it needs no memory of its own. The first step
 * allocates 8 of the 12 bytes from segments that exist already. A block keeps the remainder of its
 * segment if it is below 1 MiB. */
static void reduced_parts_of_gradients_need_no_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row two = plain, eight = plain;
    two.zero = eight.zero = "1";
    two.n_gpus = two.per_node = "2", two.batch = "8";
    eight.n_gpus = eight.per_node = "8", eight.batch = "32";
    const double weights = (50304. + seq) * dim + 12. * layers * dim * dim;
    const double less = 12 * weights * (1. / 2 - 1. / 8);
    const double is = allocated(two, arena) - allocated(eight, arena);
    if (fabs(is / less - 1) > .03) fail_msg("%.4g, and %.4g were expected", is, less);
    arena_free(arena);
}

/* A larger vocabulary takes 18 bytes for each parameter of the embedding, and 6 bytes of the loss
 * for each logit. */
static void a_stated_vocabulary_is_honoured(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row small = plain, large = plain;
    small.framework = large.framework = "Megatron-DeepSpeed";
    small.vocab = "25600", large.vocab = "51200";
    assert_true(allocated(large, arena) - allocated(small, arena) > 25600. * (18 * dim));
    arena_free(arena);
}

/* Two trays of GB200 form one NVLink domain, so they are as fast as one node of eight. */
static void trays_of_gb200_form_one_nvlink_domain(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row trays = plain, node = plain;
    trays.gpu = node.gpu = "GB200", trays.n_gpus = node.n_gpus = "8",
    trays.batch = node.batch = "32";
    node.per_node = "8";
    assert_true(predicted(&trays, "step time", arena) == predicted(&node, "step time", arena));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unfused_attention_keeps_its_scores),
        cmocka_unit_test(hidden_dropout_keeps_masks),
        cmocka_unit_test(the_environment_sets_the_size_of_workspaces),
        cmocka_unit_test(a_newer_gpu_has_larger_workspaces),
        cmocka_unit_test(an_overlap_has_workspaces_of_its_own),
        cmocka_unit_test(fused_gradients_keep_one_unread_tensor_for_each_size),
        cmocka_unit_test(a_frozen_base_has_no_optimizer_states),
        cmocka_unit_test(a_stated_stage_is_honoured),
        cmocka_unit_test(reduced_parts_of_gradients_need_no_memory),
        cmocka_unit_test(a_stated_vocabulary_is_honoured),
        cmocka_unit_test(trays_of_gb200_form_one_nvlink_domain),
    };
    return cmocka_run_group_tests_name("rows of Megatron", tests, NULL, NULL);
}
