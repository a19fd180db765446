/* tandem accuracy: rows whose framework, model or precision Tandem lacks are predicted with
 * stand-ins and recipes. The memory or time that these add equals closed forms. */
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

/* Returns the predicted memory of a row that every command can predict, with these changes. */
#define MEMORY(changes)  published_row_predicted(arena, changes, "memory allocated")
#define ASSUMED(changes) published_row_predicted(arena, changes, "memory allocated, not all stated")

/* Each of these rows needs a stand-in, and is planned with it. */
static void rows_that_have_a_stand_in_are_planned(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "ep=4", /* the model has no experts */
        "gpu=", /* the row does not state the device */
        /* ep uses the ranks of tp */
        "framework=torchtitan 2026;moe_experts=8;moe_topk=2;tp=4;ep=4;zero_stage=3",
        "framework=InternEvo;model=internlm2-1.8b;pp=2;vp=2;global_batch_seqs=6;n_gpus=4;tp=1",
        "model=NemotronH_56B;n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;n_gpus=64;"
        "global_batch_seqs=64;tp=8",
        /* chunks of one layer, and experts in every second layer */
        "moe_experts=4;moe_topk=1;moe_layer_freq=2;n_layers=8;pp=2;vp=4;tp=1",
        "model=Falcon-7B;n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;tp=1",
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(ASSUMED(rows[i]) > 0) && !(MEMORY(rows[i]) > 0))
            fail_msg("no prediction of '%s'", rows[i]);
    arena_free(arena);
}

/* Rows of Megatron-LM's tests have a default device. Other rows that leave the device open are
 * scored only by their memory. */
static void an_open_device_has_no_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char step[] = "step time, not all stated";
    static const char tests[] =
        "gpu=;source_path=NVIDIA/Megatron-LM@HEAD:tests/functional_tests/test_cases/moe/a.json";
    assert_true(published_row_predicted(arena, "gpu=", step) == 0);
    assert_true(published_row_predicted(arena, tests, step) ==
                published_row_predicted(arena, "gpu=A100-80GB", "step time"));
    arena_free(arena);
}

/* TF32 multiplies at half the rate of 16-bit numbers, and fp32 is far slower. Both take 4 bytes. */
static void tf32_is_slower_than_bf16_and_fp32_far_slower(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char big[] = "tp=1;n_gpus=1;d_model=4096;n_heads=32;n_kv_heads=32;d_ff=16384;"
                              "seq=4096;global_batch_seqs=1;zero_stage=0;framework=torchtitan";
    double s[3];
    static const char *const names[] = {"bf16", "tf32", "fp32"};
    for (int i = 0; i < 3; i++)
        s[i] = published_row_predicted(arena, arena_print(arena, "%s;precision=%s", big, names[i]),
                                       "step time");
    assert_true(s[0] > 0 && s[1] > 1.4 * s[0] && s[1] < 3 * s[0] && s[2] > 2.5 * s[1]);
    arena_free(arena);
}

/* On a GPU that multiplies blocks with scales, MXFP8 is planned with blocks. They need no pass that
 * searches a row for its largest element, so the step is shorter than with rowwise scales. */
static void mxfp8_has_scales_for_blocks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char b200[] = "gpu=B200;framework=torchtitan 2026;tp=1;zero_stage=3;d_model=4096;"
                               "n_heads=32;n_kv_heads=8;d_ff=14336;seq=8192;compile=yes";
    const double rows = published_row_predicted(
        arena, arena_print(arena, "%s;precision=float8 rowwise", b200), "step time");
    const double blocks = published_row_predicted(
        arena, arena_print(arena, "%s;precision=FP8-MX", b200), "step time");
    assert_true(blocks > 0 && blocks < .99 * rows && blocks > .8 * rows);
    assert_true(published_row_predicted(arena, arena_print(arena, "%s;precision=mxfp8", b200),
                                        "step time") == blocks);
    /* An H100 cannot multiply blocks, so rowwise scales stand for them, and the row counts as not
     * all stated. */
    assert_true(ASSUMED("precision=MXFP8;framework=torchtitan 2026;tp=1;zero_stage=3") > 0);
    assert_true(MEMORY("precision=MXFP8;framework=torchtitan 2026;tp=1;zero_stage=3") == 0);
    arena_free(arena);
}

/* Megatron-Core 0.6 and 0.7 hold a second fp32 copy of the logits while the loss runs: 4 bytes for
 * each of 16,384 x 32,768 / 2 logits. Here the loss is the peak. */
static void an_old_loss_copies_its_logits(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "n_layers=1;vocab=32768;micro_batch=16;global_batch_seqs=64";
    const double young = MEMORY(arena_print(arena, "%s;framework=Megatron-Core 0.8.0", row));
    const double old = MEMORY(arena_print(arena, "%s;framework=Megatron-Core core_v0.6.0", row));
    const double copy = 4. * 16 * 1024 * 32768 / 2;
    assert_true(young > 0 && fabs(old - young - copy) < .02 * copy);
    arena_free(arena);
}

/* A compiled gradient of the loss is a new tensor of 4 bytes for each logit. */
static void a_fused_loss_takes_a_second_copy(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "n_layers=1;vocab=32768;micro_batch=16;global_batch_seqs=64";
    const double eager = MEMORY(arena_print(arena, "%s;cross_entropy_fusion=0", row));
    const double fused = MEMORY(arena_print(arena, "%s;cross_entropy_fusion=1 native", row));
    const double copy = 4. * 16 * 1024 * 32768 / 2;
    assert_true(eager > 0 && fabs(fused - eager - copy) < .02 * copy);
    /* Transformer Engine's loss writes its gradient into the 16-bit logits. */
    assert_true(MEMORY(arena_print(arena, "%s;cross_entropy_fusion=1 te", row)) <
                eager - .5 * copy);
    arena_free(arena);
}

/* PyTorch's softmax saves fp32 scores: two bytes more for each of a head's 1024 x 1024 scores. */
static void an_unfused_softmax_saves_more(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "transformer_impl=local;attention_backend=unfused;micro_batch=4;"
                              "global_batch_seqs=16;attention_dropout=0.1;n_layers=8";
    const double fused = MEMORY(row);
    const double own = MEMORY(arena_print(arena, "%s;fusions_off=no-masked-softmax-fusion", row));
    const double scores = 8. * 4 * 4 * 1024 * 1024;
    assert_true(fused > 0 && fabs(own - fused - 2 * scores) < .02 * 2 * scores);
    arena_free(arena);
}

/* The last stage keeps the head's 16-bit inputs and gradients of the micro-batches whose weight
 * gradients are deferred. */
static void deferred_weight_gradients_keep_the_heads_inputs(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "pp=2;n_layers=4;global_batch_seqs=16;vocab=32768";
    const double held = 2. * 1024 * (32768 / 2 + 1024);
    const double plain = MEMORY(row);
    for (int n = 1; n <= 3; n++) {
        const char *at = arena_print(
            arena, "%s;notes=defer-embedding-wgrad-compute wgrad-deferral-limit=%d", row, n);
        assert_true(plain > 0 && MEMORY(at) - plain == n * held);
    }
    /* Megatron-LM's own tests defer two micro-batches. Runs of other sources defer all. */
    const char *whole = arena_print(arena, "%s;notes=defer-embedding-wgrad-compute", row);
    assert_true(MEMORY(arena_print(arena, "%s;source=Megatron-LM functional tests", whole)) ==
                plain + 2 * held);
    assert_true(MEMORY(whole) > plain + 2 * held);
    arena_free(arena);
}

/* A head that predicts a second token adds a block and keeps the softmax of its loss. The last of
 * two stages then also has an embedding. It takes 6 bytes for each parameter, and 12 more that the
 * data ranks share. */
static void a_head_for_a_second_token_has_a_loss_and_an_embedding(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int data = 2; data <= 8; data *= 4) {
        const char *row =
            arena_print(arena,
                        "normalization=RMSNorm;activation=swiglu;untie_embeddings=1;pp=2;vp=1;"
                        "global_batch_seqs=16;vocab=65536;n_layers=4;n_gpus=%d",
                        4 * data);
        const double one =
            ASSUMED(arena_print(arena, "%s;pipeline_layout=Ett|ttmL;mtp_layers=1", row));
        /* The same number of blocks, without the head. */
        const double none =
            MEMORY(arena_print(arena, "n_layers=5;pipeline_layout=Ett|tttL;%s", row));
        const double cut = 65536. / 2, softmax = 4 * 1024 * cut;
        assert_true(none > 0 && one - none == softmax + (6 + 12. / data) * cut * 1024);
    }
    arena_free(arena);
}

/* With etp = 1, two ranks of tp split the tokens instead of the experts, so each keeps half of the
 * experts' inputs. With etp = 2 each rank keeps all inputs. After the experts' first products both
 * keep the same amount. */
static void ranks_that_do_not_cut_experts_share_the_tokens(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "normalization=RMSNorm;activation=swiglu;moe_experts=8;moe_topk=4;"
                              "moe_ffn=8192;ep=4;global_batch_seqs=32;transformer_impl=local";
    double more[2];
    for (int tp = 1; tp <= 2; tp++)
        more[tp - 1] =
            published_row_predicted(arena, arena_print(arena, "%s;etp=%d;micro_batch=8", row, tp),
                                    "memory allocated") -
            published_row_predicted(arena, arena_print(arena, "%s;etp=%d;micro_batch=4", row, tp),
                                    "memory allocated");
    /* There are four layers, and the batch has four more sequences of 1024 tokens. A token is 1024
     * numbers wide, and goes to four experts. */
    const double inputs = 4 * 4 * 1024. * 1024 * 4 * 2;
    assert_true(more[0] > 0 && fabs(more[1] - more[0] - inputs / 2) < .01 * inputs);
    /* Recipes of Megatron-Bridge do not split experts over tp. */
    static const char bridge[] = "framework=Megatron-Bridge/Megatron-Core;ac=none";
    assert_true(ASSUMED(arena_print(arena, "%s;%s", bridge, row)) ==
                ASSUMED(arena_print(arena, "%s;%s;etp=1", bridge, row)));
    arena_free(arena);
}

/* A stated layout decides the blocks of each stage. The memory is that of the last stage. */
static void a_stated_layout_is_used(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "normalization=RMSNorm;activation=swiglu;pp=2;n_layers=8;"
                              "global_batch_seqs=16";
    const double even = MEMORY(row);
    assert_true(even > 0);
    assert_true(MEMORY(arena_print(arena, "%s;pipeline_layout=Et*4|t*4L", row)) == even);
    assert_true(MEMORY(arena_print(arena, "%s;pipeline_layout=E\\(tt\\)*3\\|ttL", row)) < even);
    /* A layout with another number of blocks is not used. */
    const char *other = arena_print(arena, "%s;pipeline_layout=Et|tL", row);
    assert_true(ASSUMED(other) == even && MEMORY(other) == 0);
    arena_free(arena);
}

/* An optimizer on the host takes 12 bytes for each parameter, shared over 4 data ranks, off the
 * device. Its time on the host is not known, so no step time is scored. */
static void an_offloaded_optimizer_is_not_on_the_device(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char big[] = "d_model=4096;n_heads=32;n_kv_heads=32;d_ff=16384;n_layers=8";
    const char *off = arena_print(arena, "%s;flag=optimizer offload to CPU", big);
    const double parameters = 8 * (4. * 4096 * 4096 + 3. * 4096 * 16384);
    const double less = MEMORY(big) - MEMORY(off);
    assert_true(fabs(less - 12 * parameters / 2 / 4) < .1 * less);
    assert_true(published_row_predicted(arena, big, "step time") > 0);
    assert_true(published_row_predicted(arena, off, "step time") == 0);
    arena_free(arena);
}

/* A table's column wins over Megatron-Bridge's recipe: moments in 16 bits take half the bytes. */
static void a_column_wins_over_a_recipe(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] =
        "framework=Megatron-Bridge/"
        "Megatron-Core;tp=1;n_gpus=1;zero_stage=0;global_batch_seqs=1;d_model=4096;"
        "n_heads=32;n_kv_heads=32;d_ff=16384";
    const double parameters = 4 * (4. * 4096 * 4096 + 3. * 4096 * 16384) + 2. * 4096 * 4096;
    const double wide = MEMORY(row);
    const double narrow = MEMORY(arena_print(arena, "%s;exp_avg_dtype=bf16", row));
    assert_true(fabs(wide - narrow - 4 * parameters) < .02 * parameters * 4);
    arena_free(arena);
}

/* If a row does not state its recomputation, a recipe does. */
static void recipes_give_the_recomputation(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "framework=Megatron-Bridge/Megatron-Core;tp=1;ac=see recipe;n_gpus=1;"
                              "global_batch_seqs=1;zero_stage=0;precision=FP8-CS;d_model=4096;"
                              "n_heads=32;d_ff=14336;n_layers=32;vocab=128256;seq=4096";
    /* Llama 3 8B on H100 recomputes 5 of its 32 blocks, and Llama 3 70B none. */
    const double some = ASSUMED(arena_print(arena, "%s;model=llama3-8b", row));
    const double none = ASSUMED(arena_print(arena, "%s;model=ours", row));
    /* a block saves some 30 bytes for each of 4096 x 4096 numbers */
    assert_true(some > 0 && none - some > 5 * 15. * 4096 * 4096);
    arena_free(arena);
}

/* HybridEP allocates its buffers outside PyTorch's allocator. On one node, a rank has room for
 * 8,192 tokens of each of 8 ranks. A token has 1,024 numbers, fp32 probabilities of 16 experts and
 * 8 scales. On two nodes, the room is for tokens of 16 ranks with the probabilities of one node's 8
 * experts. A rank then also has its own tokens with all probabilities, and three more buffers for
 * the other node. In return, NCCL has no connections for messages. On one node these take 12 MiB
 * for each of 7 peers on each of 32 channels. On two nodes there are 16 channels, with twice 2 MiB
 * more for the NICs. */
static void buffers_of_hybridep_are_memory_of_the_process(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "framework=Megatron-Bridge;tp=1;sp=0;moe_experts=16;moe_topk=2;"
                              "micro_batch=8;peak_mem_kind=process GiB";
    static const char what[] = "memory of process";
    static const char one_node[] = "n_gpus=8;ep=8;global_batch_seqs=64";
    static const char two_nodes[] = "n_gpus=16;ep=16;global_batch_seqs=128";
    const double token = 2 * 1024, chance = 4, scales = 4 * 8;
    const double expected[] = {8192 * 8 * (token + 16 * chance + scales),
                               8192 * (16 * (token + 8 * chance + scales) + token + 16 * chance +
                                       scales + 3 * (token + 8 * chance) + scales)};
    const double messages[] = {32 * 7 * 12 * 1048576., 16 * (7 * 12 + 2 * 2) * 1048576.};
    for (int i = 0; i < 2; i++) {
        const char *nodes = i == 0 ? one_node : two_nodes;
        const double plain = published_row_predicted(
            arena, arena_print(arena, "%s;%s;moe_dispatcher=alltoall", row, nodes), what);
        const double hybrid = published_row_predicted(
            arena, arena_print(arena, "%s;%s;moe_dispatcher=flex hybridep", row, nodes), what);
        assert_true(plain > 0);
        assert_true(hybrid - plain == expected[i] - messages[i]);
    }
    arena_free(arena);
}

/* An optimizer and an attention that the planner lacks have stand-ins. Their rows are scored apart
 * from rows that state all cells. */
static void stand_ins_are_scored_apart(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "optimizer=dist_muon", "notes=experimental-attention-variant=gated_delta_net", "notes="};
    Arena *arena = arena_new();
    for (int i = 0; i < 3; i++) {
        assert_true((ASSUMED(rows[i]) > 0) == (i < 2));
        assert_true((MEMORY(rows[i]) > 0) == (i == 2));
    }
    arena_free(arena);
}

/* A name with one more word is another model, so it does not take the known model's shape. */
static void names_of_other_models_take_no_shape(void **state)
{
    (void)state;
    static const char *const known[] = {"Falcon-7B", "Qwen2.5-14B"};
    static const char *const others[] = {"Falcon-H1-7B", "Qwen2.5-VL-14B"};
    static const char row[] = "n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;tp=1";
    Arena *arena = arena_new();
    for (int i = 0; i < 2; i++) {
        assert_true(ASSUMED(arena_print(arena, "%s;model=%s", row, known[i])) > 0);
        assert_true(ASSUMED(arena_print(arena, "%s;model=%s", row, others[i])) == 0);
    }
    arena_free(arena);
}

/* A shape that was compared with no source says so in the row's notes. */
static void shapes_without_a_source_say_so(void **state)
{
    (void)state;
    static const char *const models[] = {"Yi-9B", "Yi-6B"};
    Arena *arena = arena_new();
    for (int i = 0; i < 2; i++) {
        const char *script = arena_print(
            arena,
            "return require('tandem.published.run').plan { id = 'a', model = '%s', n_layers = '4', "
            "gpu = 'H100', n_gpus = '8', framework = 'Megatron-Core 0.12', tp = '2', pp = '1', "
            "cp = '1', micro_batch = '1', global_batch_seqs = '8', seq = '1024', "
            "precision = 'bf16' }\n",
            models[i]);
        CommandResult r = COMMAND(arena, 60, "sim", command_table(arena, script), "--db", "none");
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.err, "d_model is not stated"));
        assert_int_equal(strstr(r.err, "compared with no source") != NULL, i == 0);
    }
    arena_free(arena);
}

/* If ep uses the ranks of tp, the plan has no exchange. The host's time for a layer's four
 * exchanges is added: 63 us each, in two layers and two micro-batches. A rank has four experts
 * fewer. For each expert the host issues six products, 6 us a product. */
static void exchanges_within_tp_take_host_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = "tp=4;n_gpus=4;gpus_per_node=4;global_batch_seqs=2;n_layers=2;"
                              "moe_experts=8;moe_topk=2;moe_ffn=1024;normalization=LayerNorm;"
                              "activation=gelu;transformer_impl=transformer_engine;missing=x";
    const char *what = "step time, not all stated";
    static const char *const dispatchers[] = {"alltoall", "allgather"};
    for (int i = 0; i < 2; i++) {
        const double none = published_row_predicted(
            arena, arena_print(arena, "%s;ep=1;etp=4;moe_dispatcher=%s", row, dispatchers[i]),
            what);
        const double two = published_row_predicted(
            arena, arena_print(arena, "%s;ep=2;etp=2;moe_dispatcher=%s", row, dispatchers[i]),
            what);
        const double wanted = 2 * 2 * ((i == 0 ? 4 * 63e-6 : 0) - 4 * 6 * 6e-6);
        if (none <= 0 || fabs(two - none - wanted) > 1e-7)
            fail_msg("ep = 2 adds %g s, and %g were expected", two - none, wanted);
    }
    arena_free(arena);
}

/* The host issues the products of grouped experts one by one, 6 us each: in the forward pass, and
 * for both gradients, in two layers and two micro-batches. Full recomputation issues those of the
 * forward pass twice. The first two products of SwiGLU are issued as one. */
static void grouped_products_are_issued_one_by_one(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] =
        "tp=1;sp=0;n_gpus=1;gpus_per_node=1;global_batch_seqs=2;n_layers=2;"
        "moe_topk=1;moe_ffn=64;d_model=64;normalization=LayerNorm;seq=64;"
        "transformer_impl=transformer_engine;missing=x;moe_dispatcher=allgather";
    static const char *const activations[] = {"gelu", "swiglu"};
    for (int i = 0; i < 4; i++) {
        double s[2];
        for (int k = 0; k < 2; k++)
            s[k] = published_row_predicted(
                arena,
                arena_print(arena, "%s;moe_experts=%d;activation=%s;ac=%s", row, 8 << k,
                            activations[i % 2], i < 2 ? "none" : "full"),
                "step time, not all stated");
        const double wanted = 2 * 2 * (i < 2 ? 3 : 4) * 2 * 8 * 6e-6;
        if (s[0] <= 0 || fabs(s[1] - s[0] - wanted) > .02 * wanted)
            fail_msg("case %d: %g s are added, and %g were expected", i, s[1] - s[0], wanted);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_have_a_stand_in_are_planned),
        cmocka_unit_test(an_open_device_has_no_time),
        cmocka_unit_test(tf32_is_slower_than_bf16_and_fp32_far_slower),
        cmocka_unit_test(mxfp8_has_scales_for_blocks),
        cmocka_unit_test(an_old_loss_copies_its_logits),
        cmocka_unit_test(a_fused_loss_takes_a_second_copy),
        cmocka_unit_test(an_unfused_softmax_saves_more),
        cmocka_unit_test(deferred_weight_gradients_keep_the_heads_inputs),
        cmocka_unit_test(a_head_for_a_second_token_has_a_loss_and_an_embedding),
        cmocka_unit_test(ranks_that_do_not_cut_experts_share_the_tokens),
        cmocka_unit_test(a_stated_layout_is_used),
        cmocka_unit_test(an_offloaded_optimizer_is_not_on_the_device),
        cmocka_unit_test(a_column_wins_over_a_recipe),
        cmocka_unit_test(recipes_give_the_recomputation),
        cmocka_unit_test(buffers_of_hybridep_are_memory_of_the_process),
        cmocka_unit_test(stand_ins_are_scored_apart),
        cmocka_unit_test(names_of_other_models_take_no_shape),
        cmocka_unit_test(shapes_without_a_source_say_so),
        cmocka_unit_test(exchanges_within_tp_take_host_time),
        cmocka_unit_test(grouped_products_are_issued_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
