/* tandem accuracy: the memory of Megatron's blocks, experts and losses. Expected bytes are closed
 * forms. The bytes of a block are a quarter of the difference between models of eight and of four
 * layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"
#include "tests/support/published_row.h"

enum { TOKENS = 4096, DIM = 1024, HIDDEN = 4096, EXPERT = 1536 };

/* Cells of a row of Megatron-Core or Megatron-Bridge. NULL or 0 stands for the default in
 * table_of. */
typedef struct Row {
    const char *framework, *gpu, *precision, *recompute, *fusion, *notes;
    int tp, ep, etp, n_gpus, kv_heads, experts, top_k, latent, vocab, batch, pp, vp;
} Row;

static const char * or (const char *text, const char *other)
{
    return text != NULL ? text : other;
}

static int least(int n, int other)
{
    return n > 0 ? n : other;
}

static const char *experts_of(const Row *r, Arena *arena)
{
    if (r->experts == 0) return ",,,,";
    const char *latent = r->latent > 0 ? arena_print(arena, "%d", r->latent) : "";
    return arena_print(arena, "%d,%d,%d,%d,%s", r->experts, r->top_k, EXPERT, least(r->etp, 1),
                       latent);
}

static const char *table_of(const Row *r, int layers, Arena *arena)
{
    const int tp = least(r->tp, 1), n_gpus = least(r->n_gpus, 1), pp = least(r->pp, 1);
    Str s = str_in(arena);
    str_print(&s,
              "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,moe_topk,"
              "moe_ffn,etp,moe_latent,gpu,n_gpus,framework,tp,sp,pp,vp,cp,ep,zero_stage,"
              "micro_batch,global_batch_seqs,seq,precision,ac,step_time_s,peak_mem,peak_mem_kind,"
              "oom,missing,split,flag,transformer_impl,activation,normalization,position_embedding,"
              "cross_entropy_fusion,notes\n"
              "a,s,llama,%d,%d,16,%d,%d,%d,%s,%s,%d,%s,%d,%d,%d,%d,1,%d,1,1,%d,%d,%s,%s,1,1,"
              "allocated,,,dev-cal,,transformer_engine,swiglu,RMSNorm,rope,%s,%s\n",
              layers, DIM, least(r->kv_heads, 16), HIDDEN, least(r->vocab, 8192),
              experts_of(r, arena), or (r->gpu, "H100-SXM-80GB"), n_gpus,
              or (r->framework, "Megatron-Core 0.15.0"), tp, tp > 1, pp, least(r->vp, 1),
              least(r->ep, 1), least(r->batch, 2 * n_gpus / tp), TOKENS, or (r->precision, "bf16"),
              or (r->recompute, "none"), or (r->fusion, ""), or (r->notes, ""));
    return command_table(arena, str_text(&s));
}

/* Returns the predicted bytes, or seconds, of the table's only row. */
static double predicted(const char *table, const char *what, const char *set, Arena *arena)
{
    const CommandResult r = COMMAND(arena, 60, "accuracy", "--runs", table, "--json", "--set", set);
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double is = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strncmp(json_string_value(json_object_get(s, "what")), what, strlen(what)) == 0)
            is = json_number_value(json_object_get(s, "predicted"));
    }
    json_decref(root);
    if (!(is > 0)) fail_msg("no %s: %s%s", what, r.out, r.err);
    return is;
}

#define SAME "batch.seq=4096"

static double bytes_of(Row row, int layers, Arena *arena)
{
    return predicted(table_of(&row, layers, arena), "memory", SAME, arena);
}

/* Returns the bytes of one block. */
static double block_of(Row row, Arena *arena)
{
    return (bytes_of(row, 8, arena) - bytes_of(row, 4, arena)) / 4;
}

static void is_about(double is, double wanted)
{
    if (fabs(is - wanted) > .03 * fabs(wanted))
        fail_msg("%.5g, and %.5g were expected", is, wanted);
}

/* A norm of the keys keeps its input. That is a view, so the whole product of queries, keys and
 * values stays. If there are fewer keys than queries, the queries are copied first, so their norm
 * keeps this copy, too. */
static void norms_of_heads_keep_the_product(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Row heads = {.kv_heads = 16}, groups = {.kv_heads = 4};
    Row normed = heads, normed_groups = groups;
    normed.notes = normed_groups.notes = "qk-layernorm";
    is_about(block_of(normed, arena) - block_of(heads, arena), 2. * TOKENS * 3 * DIM);
    is_about(block_of(normed_groups, arena) - block_of(groups, arena),
             2. * TOKENS * (2 * DIM + DIM / 4 + DIM / 4));
    arena_free(arena);
}

/* If the norms before attention and before the MLP are recomputed, their outputs are not kept. */
static void recomputed_norms_keep_no_outputs(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Row keeps = {.tp = 0}, again = {.recompute = "selective(layernorm)"};
    is_about(block_of(keeps, arena) - block_of(again, arena), 2. * TOKENS * 2 * DIM);
    arena_free(arena);
}

/* Transformer Engine's fused loss writes its gradient into the 16-bit logits. The other loss keeps
 * a softmax in fp32. With the fused loss, memory peaks after the loss, when the product for the
 * head's gradient returns a 16-bit tensor. Recipes of Megatron-Bridge use the fused loss unless the
 * row says otherwise. */
static void recipes_fuse_the_loss(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row row = {.framework = "Megatron-Bridge", .vocab = 65536};
    const double fused = bytes_of(row, 2, arena);
    row.fusion = "0";
    is_about(bytes_of(row, 2, arena) - fused, 65536. * (4 * TOKENS - 2 * DIM));
    row.framework = NULL, row.fusion = "";
    const double open = bytes_of(row, 2, arena);
    row.fusion = "0";
    is_about(bytes_of(row, 2, arena), open);
    arena_free(arena);
}

/* In 4 bits, the inputs of three products of a block take 9/16 bytes for each number. The product
 * after attention keeps attention's own output instead. (Blocks of PyTorch's allocator are a little
 * larger than tensors of 9/16 bytes, so the closed form is tested with half a byte.) */
static void four_bits_take_half_a_byte(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const set[] = {"runtime.quantised_bytes=1", "runtime.quantised_bytes=0.5",
                                      "runtime.quantised_bytes=0.5625", SAME};
    const Row row = {.gpu = "B200", .precision = "nvfp4"};
    const char *few = table_of(&row, 4, arena), *more = table_of(&row, 8, arena);
    double is[4];
    for (int i = 0; i < 4; i++)
        is[i] = predicted(more, "memory", set[i], arena) - predicted(few, "memory", set[i], arena);
    is_about(is[0] - is[1], 4. * TOKENS * (2 * DIM + HIDDEN) / 2);
    assert_true(is[2] == is[3] && is[3] > is[1] && is[3] < is[0]);
    arena_free(arena);
}

/* Returns the bytes that a block keeps for each expert that a token chooses. */
static double choice_of(Row row, Arena *arena)
{
    row.experts = 16, row.top_k = 2;
    const double two = block_of(row, arena);
    row.top_k = 4;
    return (block_of(row, arena) - two) / 2;
}

/* For each of its tokens, an expert keeps its input, the two factors of its gate, and their
 * product. If tp does not cut experts, each rank of tp has only its own part of the tokens. */
static void ranks_of_tp_that_do_not_cut_experts_have_own_tokens(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Row whole = {.n_gpus = 4, .ep = 4, .etp = 1, .tp = 0},
              parts = {.n_gpus = 8, .ep = 4, .etp = 1, .tp = 2};
    is_about(choice_of(whole, arena), 2. * TOKENS * (DIM + 3 * EXPERT));
    is_about(choice_of(parts, arena), 2. * TOKENS / 2 * (DIM + 3 * EXPERT));
    arena_free(arena);
}

/* With 8-bit products, an expert saves its input and the product of its gate in 8 bits. */
static void experts_with_8_bit_products_keep_8_bits(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Row row = {.n_gpus = 4, .ep = 4, .precision = "fp8"};
    is_about(choice_of(row, arena), 1. * TOKENS * (DIM + 5 * EXPERT));
    arena_free(arena);
}

/* Experts with a latent width read tokens of that width. */
static void latent_experts_read_narrow_tokens(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Row row = {.n_gpus = 4, .ep = 4, .latent = 256};
    is_about(choice_of(row, arena), 2. * TOKENS * (256 + 3 * EXPERT));
    arena_free(arena);
}

/* A step whose program would be too large is predicted from fewer micro-batches. */
static void a_long_step_is_predicted_from_fewer_micro_batches(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Row row = {.framework = "Megatron-Bridge", .n_gpus = 4, .pp = 4, .batch = 8192};
    const double one = predicted(table_of(&row, 8, arena), "step time", SAME, arena);
    row.batch = 16384;
    const double two = predicted(table_of(&row, 8, arena), "step time", SAME, arena);
    is_about(two / one, 2);
    arena_free(arena);
}

/* Tools print GB for 2^30 bytes, but LitGPT and Composer divide by 10^9. */
static void gigabytes_are_those_of_the_tool(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        double bytes;
    } cells[] = {{"peak_mem=2 GB", 2. * (1 << 30)},
                 {"peak_mem=2 GB;framework=LitGPT;tp=1;sp=0;zero_stage=3", 2e9},
                 {"peak_mem=2;peak_mem_kind=GB (max_memory_allocated / 1e9)", 2e9},
                 {"peak_mem=2;peak_mem_kind=memory/peak_allocated_mem gigabytes", 2e9},
                 {"peak_mem=2048;peak_mem_kind=max allocated MB", 2. * (1 << 30)}};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        json_t *root = published_row_scored(arena, cells[i].row);
        const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
        double measured = 0;
        for (size_t k = 0; k < json_array_size(scores); k++) {
            const json_t *s = json_array_get(scores, k);
            if (strstr(json_string_value(json_object_get(s, "what")), "memory") != NULL)
                measured = json_number_value(json_object_get(s, "measured"));
        }
        if (measured != cells[i].bytes)
            fail_msg("'%s' is read as %.17g bytes", cells[i].row, measured);
        json_decref(root);
    }
    arena_free(arena);
}

/* If the number of GPUs was derived from measured memory, the row does not test memory, so it is
 * scored apart. */
static void memory_that_gave_the_number_of_gpus_is_scored_apart(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *row = "n_gpus=;d_model=4096;n_heads=32;n_kv_heads=32;d_ff=16384;n_layers=2;"
                      "vocab=32000;tp=4;global_batch_seqs=512;activation=gelu;peak_mem=5";
    const char *held = arena_print(arena, "%s;mem_allocated_gib=2", row);
    const char *apart = "memory allocated, GPUs from measured memory";
    const char *others = "memory allocated, not all stated";
    assert_true(published_row_predicted(arena, held, apart) > 0);
    assert_true(published_row_predicted(arena, held, others) == 0);
    assert_true(published_row_predicted(arena, row, others) > 0);
    arena_free(arena);
}

/* Returns the bytes of memory for each parameter of a block with matrices of 12 x 4096 x 4096
 * elements. */
static double bytes_per_parameter(Arena *arena, const char *cells)
{
    double bytes[2];
    for (int k = 0; k < 2; k++)
        bytes[k] = published_row_predicted(
            arena,
            arena_print(arena,
                        "%s;tp=1;sp=0;n_layers=%d;d_model=4096;n_heads=32;n_kv_heads=32;"
                        "seq=128;ac=full",
                        cells, 4 * (k + 1)),
            "memory allocated");
    return (bytes[1] - bytes[0]) / (4 * 12. * 4096 * 4096);
}

/* Megatron-DeepSpeed in fp16 keeps weights and gradients of 2 bytes, and master weights, two
 * moments and the step's copy of the gradients of 4 bytes each. ZeRO shares these 16 bytes among
 * the ranks. */
static void deepspeed_keeps_16_bit_gradients(void **state)
{
    (void)state;
#define FP16 "framework=Megatron-DeepSpeed 2024 (flash);model=gpt;precision=fp16;d_ff=16384;"
    Arena *arena = arena_new();
    is_about(bytes_per_parameter(arena, FP16 "zero_stage=0;n_gpus=1"), 20);
    is_about(bytes_per_parameter(arena, FP16 "zero_stage=0;n_gpus=8"), 20);
    is_about(bytes_per_parameter(arena, FP16 "zero_stage=1;n_gpus=8"), 2 + 2 + 16. / 8);
    arena_free(arena);
}

/* In bf16, BF16_Optimizer sums gradients in 4 bytes and also keeps gradients of 2 bytes. It shares
 * master weights and moments of 4 bytes among the ranks, also without ZeRO. With ZeRO stage 1,
 * DeepSpeed uses it if gradients are summed in fp32, and the rows of pipelines are assumed to use
 * it. */
static void deepspeed_keeps_gradients_of_both_kinds(void **state)
{
    (void)state;
#define BF16 "framework=Megatron-DeepSpeed 2024 (flash);model=gpt;d_ff=16384;"
    Arena *arena = arena_new();
    const double whole = 2 + 4 + 2 + 12. / 8, half = (2 + 4 + 2 + 12. / 4) / 2;
    is_about(bytes_per_parameter(arena, BF16 "zero_stage=0;n_gpus=8"), whole);
    is_about(bytes_per_parameter(arena, BF16 "zero_stage=0;pp=2;n_gpus=8"), half);
    is_about(bytes_per_parameter(arena, BF16 "zero_stage=1;pp=2;n_gpus=8"), half);
    is_about(bytes_per_parameter(arena, BF16 "zero_stage=1;flag=grad_accum_dtype: fp32;n_gpus=8"),
             whole);
    /* Without sums in fp32, or with the optimizer on the host, less is kept. */
    const double own = bytes_per_parameter(arena, BF16 "zero_stage=1;n_gpus=8"),
                 off = bytes_per_parameter(
                     arena, BF16 "zero_stage=1;pp=2;n_gpus=8;flag=optimizer offload to CPU");
    assert_true(own > 0 && own < whole - 1.5 && off < half - .8);
    arena_free(arena);
}

/* Pure bf16 in Hugging Face's Trainer keeps 2 bytes each for a weight, a gradient, two moments, and
 * a copy during the step. A gated block with a hidden width of 8/3 x 4096 has as many
 * parameters. */
static void the_trainer_takes_16_bits_for_its_step(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    is_about(bytes_per_parameter(arena, "framework=HF Trainer;model=llama;precision=pure bf16;"
                                        "d_ff=10923;zero_stage=0;n_gpus=1"),
             2 + 2 + 2 * 2 + 2);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepspeed_keeps_16_bit_gradients),
        cmocka_unit_test(deepspeed_keeps_gradients_of_both_kinds),
        cmocka_unit_test(the_trainer_takes_16_bits_for_its_step),
        cmocka_unit_test(memory_that_gave_the_number_of_gpus_is_scored_apart),
        cmocka_unit_test(gigabytes_are_those_of_the_tool),
        cmocka_unit_test(norms_of_heads_keep_the_product),
        cmocka_unit_test(recomputed_norms_keep_no_outputs),
        cmocka_unit_test(recipes_fuse_the_loss),
        cmocka_unit_test(four_bits_take_half_a_byte),
        cmocka_unit_test(ranks_of_tp_that_do_not_cut_experts_have_own_tokens),
        cmocka_unit_test(experts_with_8_bit_products_keep_8_bits),
        cmocka_unit_test(latent_experts_read_narrow_tokens),
        cmocka_unit_test(a_long_step_is_predicted_from_fewer_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
