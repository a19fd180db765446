/* tandem accuracy on cells that say several things at once: whole meshes, interleaved pipelines,
 * the way ranks share a sequence, accumulated micro-batches, rounded batches, padded vocabularies.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "planner/base/arena.h"
#include "tests/support/published_row.h"

#define MIXTURE "model=mixtral;moe_experts=8;moe_topk=2;moe_ffn=1024;missing=x;"
#define STAGES  "n_layers=16;n_gpus=32;global_batch_seqs=32;"
#define TITAN   "framework=torchtitan 2026;tp=1;sp=0;zero_stage=3;"
#define CP      "tp=1;sp=0;n_kv_heads=8;"
#define SMALL   "d_model=256;n_heads=4;n_kv_heads=4;d_ff=512;n_layers=1;"

/* The batch gives each pipeline eight micro-batches, so the bubble of 1F1B is about a quarter of a
 * step.
 */
#define LARGE                                                                                      \
    "d_model=5120;n_heads=40;n_kv_heads=40;d_ff=20480;seq=4096;n_layers=32;n_gpus=16;tp=4;"        \
    "micro_batch=2;global_batch_seqs=16;"

static const SpelledRow same[] = {
    {STAGES "tp=2;pp=4;vp=2",
     {"tp=TP2 PP4 VPP2;pp=;vp=", "tp=tp2pp4;pp=;vp=2", "tp=\"TP=2,PP=4\";pp=;vp=2",
      "pp=PP4 (VPP 2);vp=", "pp=4 (VPP2);vp=", "pp=PP4-VPP2;vp=", "pp=4 x 2 (virtual);vp=",
      "pp=\"4, interleaved 2\";vp=", "pp=\"4 (interleaved, 2 chunks)\";vp=",
      "pp=4 (2 virtual stages);vp=", "pp=4 (2 layers per virtual stage);vp=", "vp=2x",
      "n_gpus=32 (tp2 pp4 dp4)", "n_gpus=DP4 TP2 PP4"}},
    {"n_gpus=64;gpus_per_node=8;global_batch_seqs=64;tp=8;sp=0",
     {"n_gpus=8 nodes (TP8)", "n_gpus=8 x 8 (TP8)", "n_gpus=DP=8", "n_gpus=64 (TP8 DP8)",
      "global_batch_seqs=bs=64", "global_batch_seqs=64 (MBS 1)", "n_gpus=64x H100 80GB (TP8)"}},
    {STAGES "pp=4;vp=1", {"pp=1F1B 4;vp=", "pp=4 (1F1B);vp=", "pp=4-1F1B;vp="}},
    {STAGES "pp=4 (AFAB);vp=1", {"pp=4 (GPipe);vp=1", "pp=4;vp=GPipe", "pp=4;pp_schedule=GPipe"}},
    {STAGES "pp=4 (AFAB);vp=2",
     {"pp=4 (GPipe);vp=2", "pp=4;vp=;pp_schedule=LoopedBFS", "pp=4 (breadth-first);vp=2"}},
    {STAGES "pp=4 (ZB-H1);vp=1",
     {"pp=4-ZB1P", "pp=ZBH1 4", "pp=4 (zero-bubble)", "pp=4;vp=zero bubble",
      "pp=4;pp_schedule=ZB-H1", "pp=4;framework=Megatron-Core 0.12 + zero-bubble"}},
    {STAGES "pp=4 (ZB-V);vp=2",
     {"pp=4 (ZBV);vp=", "pp=\"4 (zero bubble V, 2 chunks)\";vp=",
      "pp=4;vp=;pp_schedule=ZBVZeroBubble", "pp=4 (v-zb);vp=1"}},
    {STAGES "pp=4 (zero bubble);vp=2", {"pp=4;pp_schedule=InterleavedZeroBubble"}},
    {STAGES "pp=4 (DualPipeV);vp=2;global_batch_seqs=64",
     {"pp=4 (DualPipe-V);vp=1", "pp=8 (DualPipe);vp=1", "pp=8;vp=;pp_schedule=dualpipe"}},
    {STAGES "pp=4;vp=1", {"pp_schedule=1F1B", "pp_schedule=PipeDream-Flush"}},
    {STAGES TITAN "n_layers=16;pp=4;vp=2", {"vp=;pp_schedule=Interleaved1F1B"}},
    {CP "n_gpus=16;cp=2", {"cp=\"2, p2p\"", "cp=2 (ring)", "cp=2 (a2a+p2p)"}},
    {CP "n_gpus=16;cp=2;notes=cp-comm-type=a2a", {"cp=2 (a2a);notes=", "cp=2 (Ulysses);notes="}},
    {MIXTURE "ep=4;etp=1;tp=2", {"ep=EP4 x ETP1;etp=", "etp=off", "ep=expert parallel 4"}},
    {MIXTURE "ep=4;etp=2;tp=2", {"etp=same as TP", "etp== tp"}},
    {"global_batch_seqs=16;micro_batch=1",
     {"micro_batch=1 x 4", "micro_batch=1 \303\227 4 grad accum",
      "micro_batch=1 x 4;global_batch_seqs=", "micro_batch=\"1/gpu, GA 4\"",
      "global_batch_seqs=MBS1 x GA4 x DP4", "global_batch_seqs=16 seqs of 1k",
      "global_batch_seqs=16 x 1024"}},
    {SMALL "n_gpus=256;tp=1;sp=0;global_batch_seqs=2048;missing=x",
     {"global_batch_seqs=2.1M tokens", "global_batch_seqs=2M", "global_batch_seqs=2097152"}},
    {SMALL "seq=8192", {"seq=8.2k", "seq=8Ki", "seq=max 8192"}},
    {"vocab=51200;framework=Megatron-LM",
     {"vocab=50257 -> 51200", "vocab=50257 (padded to 51200)"}},
    {"vocab=51200;framework=NeMo 24.09;tp=8;missing=x",
     {"vocab=50257", "vocab=50257 padded to a multiple of 128*tp"}},
    {"n_gpus=16;gpus_per_node=4;gpu=GB200;global_batch_seqs=16", {"n_gpus=4 trays"}},
    {"n_gpus=32;global_batch_seqs=32;gpus_per_node=", {"4 nodes/32 GPUs"}},
    {SMALL "framework=DeepSpeed;tp=1;sp=ulysses 4;"
           "zero_stage=3;n_gpus=256;seq=32768;global_batch_seqs=64;missing=x",
     {"global_batch_seqs=2.1M tokens"}},
    {"n_gpus=16;global_batch_seqs=16",
     {"2 nodes/16 GPUs", "2n8g", "16xH100", "\"16 GPUs, 2 nodes\"", "16 GPUs on 2 nodes"}},
    {"ac=full block 2", {"recompute full block 2", "recompute: full block 2"}},
    {"ac=full", {"FullAC", "every_layer", "all layers"}},
    {MIXTURE "ac=selective(moe layernorm)", {"ac=\"recompute (moe, layernorm)\""}},
    {"ac=selective(layernorm)", {"recompute norm"}},
    {TITAN "ac=selective(op)", {"ac=AC: selective op"}},
    {TITAN "ac=selective", {"ac=selective AC (torchtitan default)"}},
    {TITAN "ac=\"selective(layer, every 2)\"", {"ac=SAC (every 2)"}},
    {"zero_stage=1", {"Z-1", "optimizer state sharding"}},
    {"zero_stage=0", {"DP only", "vanilla", "vanilla DDP"}},
    {"zero_stage=3", {"vanilla FSDP"}},
    {"gpu=H100-NVL-94GB", {"nvidia_h100_nvl"}},
    {"gpu=T4-16GB;precision=fp16", {"Tesla T4", "NVIDIA T4 16GB"}},
    {"gpu=RTX5090-32GB", {"GeForce RTX 5090", "NVIDIA RTX 5090 32GB"}},
    {"gpu=RTXPRO6000-Server-96GB", {"NVIDIA RTX PRO 6000 Blackwell Server Edition"}},
    {"gpu=MI250X-64GB", {"AMD Instinct MI250X (GCD)"}},
    {"gpu=MI350X-288GB", {"AMD Instinct MI350X"}},
    {"gpu=A100-PCIe-80GB", {"A800 PCIe 80GB"}},
    {"framework=Megatron-LM 2022", {"Megatron-LM v2.6", "Megatron-LM v3.0.2"}},
    {"framework=InternEvo;missing=x", {"InternTrain", "InternLM-Train"}},
    /* Two ranks share each sequence, so the eight ranks train four sequences at a time. */
    {"framework=DeepSpeed;tp=1;cp=2;sp=ulysses 2;zero_stage=3;global_batch_seqs=4;missing=x",
     {"cp=1", "cp=;missing=x"}},
    {"framework=InternEvo;tp=2;sp=1", {"sp=msp", "sp=fsp", "tp=2 (msp);sp=", "tp=2 (fsp);sp="}},
    {"framework=InternEvo;tp=2;sp=0", {"sp=mtp", "tp=2 (mtp);sp="}},
    {"framework=InternEvo;tp=2;sp=0;missing=x", {"sp="}},
    {"framework=InternEvo;tp=1;sp=ulysses 2;zero_stage=3;missing=x",
     {"tp=2;sp=isp;zero_stage=1", "tp=2 (isp);sp=;zero_stage=1", "sp=isp 2;tp="}},
    {"framework=MaxText;tp=1;sp=0;zero_stage=3;missing=x",
     {"framework=AXLearn", "framework=JAX Toolbox (Pax)"}},
};

static const char *const differ[][2] = {
    {STAGES "pp=4;vp=1", STAGES "pp=4 (AFAB);vp=1"},
    {STAGES "pp=4;vp=1", STAGES "pp=4 (zero bubble);vp=1"},
    {STAGES "pp=4 (ZB-H1);vp=1", STAGES "pp=4 (ZB-H2);vp=1"},
    {LARGE "gpu=MI350X", LARGE "gpu=MI355X"},
    {STAGES "pp=4 (ZB-V);vp=2", STAGES "pp=4 (V-Half);vp=2"},
    {STAGES "pp=4 (GPipe);vp=1", STAGES "pp=4 (GPipe);vp=2"},
    {"framework=LitGPT;tp=1;sp=0;precision=16-mixed",
     "framework=LitGPT;tp=1;sp=0;precision=16-true"},
    /* the offload is left out, so the row counts as not all stated */
    {"ac=full", "ac=full + offload"},
    {"vocab=50257;framework=Megatron-LM;tp=8", "vocab=50257 (padded);framework=Megatron-LM;tp=8"},
    {"framework=Megatron-LM", "framework=Megatron-style PyTorch"},
    {"framework=LitGPT;tp=1;sp=0;precision=bf16-mixed",
     "framework=LitGPT;tp=1;sp=0;precision=bf16-true"},
    {"framework=torchtune 2026;tp=1;sp=0;zero_stage=3", TITAN},
};

static const char *const refused[][2] = {
    {"tp=TP2 PP4;pp=2", "do not agree"},
    {"pp=4 (interleaved);vp=", "chunks"},
    {"micro_batch=1 x 8;global_batch_seqs=16", "micro_batch"},
    {"global_batch_seqs=16 x GA 8", "global_batch_seqs"},
    {"n_gpus=64 GPUs on 4 nodes", "n_gpus"},
    {"precision=BF16 / FP8", "precision"},
    {"gpu=H100 CNX", "CNX"},
    {"step_time_s=1.4-1.9", "step_time_s"},
    {"cp=hierarchical 2x2", "cp"},
    {"n_gpus=32 (tp2 pp4 dp8)", "product of the degrees"},
    {"n_gpus=\"1,024 (TP8 PP16)\"", "n_gpus"},
    {"pp=\"2 (1F1B, 8 micro-batches)\";vp=", "pp says more"},
    {"n_gpus=4 trays;gpus_per_node=;gpu=H100-SXM5-80GB", "n_gpus"},
    {"seq=4.1k-8.2k", "seq"},
    {"micro_batch=1 x 1024;seq=1024;global_batch_seqs=", "micro_batch"},
    {"pp=zero bubble;vp=", "stages of a pipeline"},
    {STAGES "pp=4 (ZB-V);vp=4", "zb_v has 2 chunks"},
    {STAGES "pp=4 (Chimera)", "chimera"},
    {"gpu=TPU v5p", "TPU v5p"},
    {"gpu=RTX A1000", "RTX A1000"},
    {"gpu=MI250X;gpus_per_node=4", "boards"},
    {STAGES "pp=4;pp_schedule=of tomorrow", "pp_schedule"},
    {STAGES "n_gpus=24;global_batch_seqs=24;pp=3 (DualPipe);tp=1", "even number"},
    {"n_gpus=2 nodes/8 GPUs;gpus_per_node=", "of each"},
};

/* Cells of a measured step of 8 sequences of 1024 tokens on 8 devices, and its seconds. */
static const struct {
    const char *row;
    double step_s;
} steps[] = {
    {"step_time_s=1.41-1.43", 1.42},
    {"step_time_s=1.41 - 1.43 s", 1.42},
    {"step_time_s=1410\342\200\2231430 ms", 1.42},
    {"step_time_s=;tokens_per_s_per_gpu=2048", 0.5},
    {"step_time_s=;tokens_per_s_per_gpu=2.048k tok/s", 0.5},
    {"step_time_s=0.25;tokens_per_s_per_gpu=2048", 0.25},
};

static void measured_steps_are_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        json_t *root = published_row_scored(arena, steps[i].row);
        const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
        const json_t *first = json_array_get(scores, 0);
        assert_string_equal("step time", json_string_value(json_object_get(first, "what")));
        const double found = json_number_value(json_object_get(first, "measured"));
        if (fabs(found / steps[i].step_s - 1) > 1e-9)
            fail_msg("%s: %g s is read as the measured step", steps[i].row, found);
        json_decref(root);
    }
    arena_free(arena);
}

static void smaller_bubbles_make_shorter_steps(void **state)
{
    (void)state;
    static const char *const shorter[] = {LARGE "pp=4", LARGE "pp=4 (ZB-H1)", LARGE "pp=4 (ZB-H2)"};
    Arena *arena = arena_new();
    double before = INFINITY;
    for (size_t i = 0; i < sizeof shorter / sizeof *shorter; i++) {
        const double step_s = published_row_predicted(arena, shorter[i], "step time");
        if (!(step_s > 0 && step_s < 0.99 * before))
            fail_msg("%s: %g s is not shorter than the step before", shorter[i], step_s);
        before = step_s;
    }
    arena_free(arena);
}

static void cells_in_other_words_have_the_same_prediction(void **state)
{
    (void)state;
    spelled_rows_agree(same, sizeof same / sizeof *same);
}

static void stated_cells_change_the_prediction(void **state)
{
    (void)state;
    spelled_rows_differ(differ, sizeof differ / sizeof *differ);
}

static void uncertain_cells_are_refused_by_name(void **state)
{
    (void)state;
    spelled_rows_are_refused(refused, sizeof refused / sizeof *refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_steps_are_read),
        cmocka_unit_test(smaller_bubbles_make_shorter_steps),
        cmocka_unit_test(cells_in_other_words_have_the_same_prediction),
        cmocka_unit_test(stated_cells_change_the_prediction),
        cmocka_unit_test(uncertain_cells_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
