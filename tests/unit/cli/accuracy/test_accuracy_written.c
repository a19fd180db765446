/* tandem accuracy on cells as the pages of other frameworks write them: marks for switches, spaces
 * between thousands, lists of degrees, machines of clouds, names with their owner. All rows are in
 * one table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "planner/base/arena.h"
#include "tests/support/published_row.h"

#define FSDP    "tp=1;sp=0;zero_stage=3;"
#define TITAN   "framework=torchtitan 2026;" FSDP
#define NODES   "n_gpus=64;seq=16384;global_batch_seqs=64;"
#define LARGE   "d_model=4096;seq=4096;n_heads=32;n_kv_heads=8;d_ff=14336;vocab=32000;n_layers=2;"
#define MIXTURE "model=mixtral;moe_experts=8;moe_topk=2;moe_ffn=1024;ep=4;missing=x;"
#define SHAPE   "n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;"
#define SMALL   "zero_stage=0;tp=1;sp=0;missing=x;"

static const SpelledRow same[] = {
    {"sp=1", {"✓", "✔", "✅"}},
    {"sp=0;tp=2", {"sp=✗", "sp=❌"}},
    {NODES "overlap_grad_reduce=0", {"overlap_grad_reduce=✗"}},
    {"ac=full", {"✓"}},
    {"ac=none", {"✗", "✘"}},
    {"n_gpus=1024;global_batch_seqs=1024;tp=1;sp=0",
     {"n_gpus=1 024", "n_gpus=1\302\240024", "n_gpus=1'024", "global_batch_seqs=1 024"}},
    {"seq=8192", {"8 192", "8192-token", "8 192 tokens"}},
    {"global_batch_seqs=128", {"128 seq/iter", "128/iteration"}},
    {"n_gpus=16;global_batch_seqs=16",
     {"n_gpus=2 p5.48xlarge", "n_gpus=16 GPUs / 2 nodes", "n_gpus=2 a3-highgpu-8g"}},
    {LARGE "gpu=A100-SXM4-40GB", {"gpu=A100-40", "gpu=A100_40"}},
    {LARGE "gpu=A100-SXM4-80GB", {"gpu=DGX A100 640GB", "gpu=Standard_ND96amsr_A100_v4"}},
    {LARGE "gpu=B200-SXM-180GB", {"gpu=p6-b200.48xlarge"}},
    {"pp=2", {"2-stage", "2-way PP"}},
    {"cp=2;tp=1;sp=0", {"2-way CP"}},
    {"tp=2;pp=2;cp=2",
     {"tp=TP2xPP2xCP2;pp=;cp=", "tp=2/2/2 (TP/PP/CP);pp=;cp=", "tp=TP/PP/CP = 2/2/2;pp=;cp=",
      "tp=TP/PP/CP: 2/2/2;pp=;cp="}},
    {"n_heads=8;n_kv_heads=2",
     {"n_heads=\"8, 2 KV heads\";n_kv_heads=", "n_heads=8 (2 KV);n_kv_heads=", "n_kv_heads=4:1"}},
    {"head_dim=128", {"dh 128", "hd=128"}},
    {"framework=DeepSpeed;" FSDP,
     {"framework=DeepSpeed (ZeRO Stage 3);zero_stage=", "framework=DeepSpeed stage 3;zero_stage=",
      "framework=DeepSpeed ZeRO Stage-3;zero_stage=", "framework=DeepSpeed (no Liger)"}},
    {"framework=Megatron-DeepSpeed",
     {"Megatron-DS", "Megatron + DeepSpeed", "Megatron-LM + DeepSpeed",
      "framework=Megatron-DeepSpeed;flag=no flash attention",
      "framework=Megatron-DeepSpeed;flag=flash off"}},
    {"framework=NeMo 24.09", {"nvcr.io/nvidia/nemo:24.09", "nemo:24.09"}},
    {"gpu=B200;precision=fp8 blockwise",
     {"precision=FP8-SC", "precision=fp8_sc", "precision=FP8 subchannel",
      "precision=fp8 (fine-grained)"}},
    {TITAN "precision=float8 rowwise",
     {"precision=FP8 row-wise", "precision=float8 row", "precision=Float8 (row-wise)"}},
    {"framework=LitGPT;" FSDP "precision=bf16-true", {"precision=bfloat16-true"}},
    {"framework=LitGPT;" FSDP "precision=16-true", {"precision=float16-true"}},
    {"framework=LitGPT;" FSDP "precision=16-mixed", {"precision=16"}},
    {TITAN "compile=yes", {"compile=max-autotune-no-cudagraphs", "compile=TransformerBlock"}},
    {"ac=selective(core_attn)", {"core-attn", "selective (core-attn)"}},
    {MIXTURE "ac=selective(moe_act)",
     {"ac=moe-act", "ac=[moe_act]", "ac=recompute_modules=[moe_act]"}},
    {"n_layers=8;ac=full block 4",
     {"ac=recompute 4 layers", "ac=4 (block)", "ac=block recompute: 4"}},
    {MIXTURE "moe_dispatcher=alltoall", {"moe_dispatcher=all2all"}},
    {"cuda_graph=1", {"cuda graphs", "--enable-cuda-graph", "local", "TE graphs"}},
    {"fusions_off=", {"fusions_off=rope fusion on"}},
    {NODES "interconnect=8x400Gb IB", {"interconnect=3.2 TB/s InfiniBand"}},
    {NODES "interconnect=8x100Gb RoCE", {"interconnect=800 Gbps RoCE"}},
    {NODES "interconnect=1x10Gb Ethernet", {"interconnect=10 Gb/s", "interconnect=10 Gbit/s"}},
    {NODES "interconnect=1x100Gb IB",
     {"interconnect=100 Gb/s EDR (1 NIC)", "interconnect=\"EDR 100 Gb/s, 1 HCA\"",
      "interconnect=single 100 Gb/s IB"}},
    {SMALL "model=llama2-7b;gpu=B200;tp=8;n_gpus=8;" SHAPE, {"model=meta-llama/Llama-2-7b-hf"}},
    {SMALL "model=llama3-8b;gpu=B200;tp=8;n_gpus=8;" SHAPE,
     {"model=Meta-Llama-3-8B", "model=meta-llama/Meta-Llama-3-8B"}},
    {SMALL "model=bloom-560m;n_layers=24;d_model=1024;n_heads=16;n_kv_heads=16;d_ff=4096;"
           "vocab=250880;untie_embeddings=0",
     {"untie_embeddings=;" SHAPE}},
    {SMALL "model=mpt-1b;n_layers=24;d_model=2048;n_heads=16;n_kv_heads=16;d_ff=8192;vocab=50368",
     {SHAPE}},
    {SMALL "model=Qwen2.5-0.5B;" SHAPE, {"model=Qwen2.5-Coder-0.5B", "model=Qwen/Qwen2.5-0.5B"}},
    /* A cell that denies a name does not select it. */
    {"precision=fp8;fp8_recipe=",
     {"fp8 per-tensor (not fine-grained)", "\"fp8 tensorwise, no SC\"",
      "\"fp8, without sub-channels\"", "fp8_recipe=tensorwise (not 128x128)"}},
    {MIXTURE "moe_dispatcher=allgather", {"moe_dispatcher=\"no all2all, allgather\""}},
    {"fusions_off=", {"fusions_off=bias-swiglu fusion on"}},
    {"fusions_off=no-bias-swiglu-fusion", {"bias-swiglu", "no-bias-swiglu-fusion on"}},
    {"precision=fp8;fp8_recipe=blockwise",
     {"fp8_recipe=1x128", "fp8_recipe=128x128 blocks", "fp8_recipe=SC", "fp8_recipe=DeepSeek"}},
    {"gpu=B200;precision=fp8;fp8_recipe=mxfp8",
     {"fp8_recipe=microscaling", "fp8_recipe=MX (1x32)"}},
    {"ac=;recompute_granularity=selective;recompute_modules=core_attn",
     {"recompute_modules=core attn", "recompute_modules=core_attention",
      "recompute_modules=core-attn"}},
    {"transformer_impl=local", {"no TE", "without TE"}},
    {"cross_entropy_fusion=te", {"transformer_engine"}},
    {MIXTURE "moe_shared_ffn=2816",
     {"moe_shared_ffn=\"2,816\"", "moe_shared_ffn=2816 (2 shared)", "moe_shared_ffn=2*1408"}},
    {NODES "optimizer=muon;missing=x", {"optimizer=Muon (matrices) + AdamW"}},
    {NODES "dp_shard=32;dp_replicate=1", {"dp_replicate=x1", "dp_replicate=1x"}},
    /* The number of network cards stands before their rate, or the cell also counts GPUs. */
    {NODES "interconnect=8x200Gb IB", {"interconnect=8 200 Gb/s HDR"}},
    {NODES "interconnect=8x400Gb IB",
     {"interconnect=8x400Gb IB + 2 NICs for storage",
      "interconnect=8 x 400 Gb/s NDR (2 ports / switch)",
      "interconnect=\"8 NICs, single-port 400 Gb/s IB\""}},
    /* This is the memory of all GPUs of a node. */
    {LARGE "gpu=A100-SXM4-40GB", {"gpu=DGX A100 320GB"}},
    {LARGE "gpu=B200-SXM-180GB", {"gpu=\"DGX B200 1,440 GB\""}},
    {"ac=none;n_layers=4", {"recompute 0 layers", "full block 0", "0 (block)"}},
    /* These names contain another model's name or size. */
    {SMALL "model=bloom-3b;" SHAPE, {"model=BLOOM-3B (1.1k)"}},
    {SMALL "model=Qwen2.5-0.5B;" SHAPE, {"model=Qwen 2.5 0.5B"}},
    {SMALL "model=deepseek-v2-lite;gpu=B200;tp=8;n_gpus=8;" SHAPE,
     {"model=DSV3 16B", "model=DeepSeek-Coder-V2-Lite"}},
    {SMALL "model=codellama-7b;gpu=B200;tp=8;n_gpus=8;" SHAPE, {"model=Code Llama 7B"}},
    /* The source does not give these values. */
    {"vp=", {"—", "not specified", "TBD", "n.a."}},
};

/* Rows that are refused, and words of the reason. */
static const char *const refused[][2] = {
    {"head_dim=2x", "head_dim"},
    {"n_gpus=4 nodes/8 GPUs;gpus_per_node=", "n_gpus"},
    {"tp=2/2 (TP/PP/CP);pp=;cp=", "tp"},
    {SHAPE "model=mixtral-8x3b", "no public configuration"},
    {SHAPE "model=Command R+", "no public configuration"},
    {SHAPE "model=bloom-2b5", "no public configuration"},
    {SHAPE "model=BLOOM 17B", "no public configuration"},
    {SHAPE "model=Qwen2.5-Omni-7B", "no public configuration"},
    {SHAPE "model=Qwen3-VL-8B", "no public configuration"},
    {SHAPE "model=StableLM-Base-Alpha-3B", "no public configuration"},
    {SHAPE "model=Mistral-Large-3", "no public configuration"},
    {SHAPE "model=GPT 1T MoE", "no public configuration"},
    {SHAPE "model=megatron-T5 22b", "no"},
    {SHAPE "model=GPT-NeoX 2.7B", "no public configuration"},
    {SHAPE "model=Nemotron Nano 8B", "no public configuration"},
    {SHAPE "model=Command-R7B", "no public configuration"},
    {SHAPE "model=Phi-14B", "no public configuration"},
    {SHAPE "model=DeepSeek-1.3B", "no public configuration"},
    {"tp=2-way DP", "tp"},
    {"cp=2-way Ulysses;tp=1;sp=0", "cp"},
    {"global_batch_seqs=2 microbatches/step", "micro-batches"},
    {"n_gpus=8 a2-highgpu-1g;gpu=A100 40GB", "n_gpus"},
    {"n_gpus=8 p5.48xlarge GPUs", "n_gpus"},
    {MIXTURE "moe_shared_ffn=\"1408,1408\"", "moe_shared_ffn"},
    {TITAN "compile=Transformer Engine", "compile"},
    {TITAN "compile=components: loss", "compile"},
    {"ac=up_proj", "ac"},
};

/* Pairs of rows whose predictions differ. */
static const char *const others[][2] = {
    {MIXTURE "cuda_graph=1", MIXTURE "cuda_graph=local"}, /* local graphs do not capture experts */
    {NODES "interconnect=800 Gbps RoCE;gpu=H100", NODES "interconnect=8x800Gb RoCE;gpu=H100"},
    {NODES "overlap_grad_reduce=✓", NODES "overlap_grad_reduce=✗"},
};

static void cells_in_words_of_other_pages_have_the_same_prediction(void **state)
{
    (void)state;
    spelled_rows_agree(same, sizeof same / sizeof *same);
}

static void uncertain_cells_are_refused_by_name(void **state)
{
    (void)state;
    spelled_rows_are_refused(refused, sizeof refused / sizeof *refused);
}

static void stated_cells_change_the_prediction(void **state)
{
    (void)state;
    spelled_rows_differ(others, sizeof others / sizeof *others);
}

/* A space or an apostrophe may separate thousands. Both ends of a range may have the unit. */
static void rates_are_read_with_other_separators(void **state)
{
    (void)state;
    static const char *const cells[] = {"2 048", "2'048", "2 048 tok/s", "2k-2.096k", "2047-2049"};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        json_t *root = published_row_scored(
            arena, arena_print(arena, "step_time_s=;tokens_per_s_per_gpu=%s", cells[i]));
        const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
        const double found =
            json_number_value(json_object_get(json_array_get(scores, 0), "measured"));
        if (!(found > .4999 && found < .5001)) fail_msg("'%s': %g", cells[i], found);
        json_decref(root);
    }
    const char *total = "step_time_s=;peak_mem=;missing=x;tokens_per_s_per_gpu=2048 tok/s total";
    /* This rate is that of all GPUs together, so it must not be read as the rate of one GPU. */
    json_t *root = published_row_scored(arena, total);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    for (size_t i = 0; i < json_array_size(scores); i++)
        assert_null(
            strstr(json_string_value(json_object_get(json_array_get(scores, i), "what")), "step"));
    json_decref(root);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_in_words_of_other_pages_have_the_same_prediction),
        cmocka_unit_test(uncertain_cells_are_refused_by_name),
        cmocka_unit_test(stated_cells_change_the_prediction),
        cmocka_unit_test(rates_are_read_with_other_separators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
