/* tandem accuracy on cells as papers, READMEs and benchmark tables write them. A cell is read with
 * its meaning, or the row is refused and the reason names the cell. A misread cell would give a
 * wrong error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/published_row.h"

#define MIXTURE "model=mixtral;moe_experts=8;moe_topk=2;moe_ffn=1024;missing=x;"
#define STAGES  "n_layers=16;n_gpus=32;global_batch_seqs=32;"
#define CP      "tp=1;sp=0;n_kv_heads=8;"
#define TORCH   "framework=PyTorch 2.1;tp=1;sp=0;missing=x;"

/* Cells for the parts of a row's blocks, as Megatron's own columns state them. */
#define PARTS                                                                                      \
    "normalization=RMSNorm;activation=swiglu;position_embedding=rope;untie_embeddings=1;"          \
    "transformer_impl=transformer_engine;attention_backend=flash;"
#define NODES   "seq=16384;d_model=2048;n_heads=16;n_kv_heads=16;n_gpus=64;global_batch_seqs=32;"
#define EXPERTS PARTS MIXTURE "ep=4;tp=1;sp=0;"
#define SHARDS  "framework=torchtitan 2026;tp=1;sp=0;zero_stage=3;n_gpus=32;global_batch_seqs=32;"
#define UNNAMED                                                                                    \
    "params_b=;n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;n_gpus=64;"                    \
    "global_batch_seqs=64;zero_stage=3;framework=torchtitan 2026;tp=1;sp=0;missing=x;model="

static const SpelledRow same[] = {
    {"gpus_per_node=8", {"8 H100", "8xH100", "8-GPU nodes"}},
    {SHARDS "dp_shard=8;dp_replicate=4",
     {"dp_shard=FSDP=8", "dp_shard=fsdp 8", "dp_shard=node", "dp_replicate=DDP 4"}},
    {"moe_ffn=2048;" EXPERTS "etp=1", {"2x", "I=2048", "moe_intermediate_size 2048"}},
    {EXPERTS "moe_shared_ffn=512", {"moe_shared_ffn=2 x 256", "moe_shared_ffn=shared: 512"}},
    {EXPERTS "moe_shared_ffn=", {"moe_shared_ffn=0", "moe_shared_ffn=none"}},
    {EXPERTS "moe_layer_freq=1", {"moe_layer_freq=all", "moe_layer_freq=1 (all)"}},
    {EXPERTS "moe_layer_freq=2", {"moe_layer_freq=alternate", "moe_layer_freq=1:1"}},
    {EXPERTS "moe_layer_freq=first 1 dense", {"moe_layer_freq=first_k_dense_replace=1"}},
    {EXPERTS "moe_dispatcher=alltoall", {"moe_dispatcher=a2a", "moe_dispatcher=NCCL a2a"}},
    {EXPERTS "moe_dispatcher=deepep", {"moe_dispatcher=deep_ep"}},
    {EXPERTS "moe_grouped_gemm=no", {"moe_grouped_gemm=SequentialMLP"}},
    {"overlap_grad_reduce=no;" NODES, {"n", "--no-overlap-grad-reduce", "without"}},
    {"precision=fp8;fp8_recipe=blockwise",
     {"fp8_recipe=Float8BlockScaling", "fp8_recipe=subchannel"}},
    {PARTS "n_gpus=8",
     {"activation=swish", "normalization=zero-centered RMSNorm", "position_embedding=yarn",
      "untie_embeddings=separate"}},
    {"normalization=LayerNorm;activation=gelu;position_embedding=rope;untie_embeddings=0",
     {"untie_embeddings=tied", "untie_embeddings=shared", "normalization=pre-LN",
      "activation=quick_gelu"}},
    {"recompute_granularity=selective;ac=;recompute_modules=core_attn",
     {"recompute_modules=core-attn"}},
    {"n_gpus=16;global_batch_seqs=16;interconnect=Slingshot 4x200G",
     {"interconnect=Cray Slingshot 4x200"}},
    {UNNAMED "llama-13b", {"model=Vicuna 13B"}},
    {UNNAMED "mistral-7b", {"model=Zephyr 7B beta"}},
    {"n_gpus=32;global_batch_seqs=32",
     {"32-GPU", "32gpus", "4 x 8xH100", "4 nodes (32 H100s)", "32/4 nodes", "32 H100s"}},
    {"n_gpus=1024;global_batch_seqs=1024", {"\"1,024 H100s\"", "1k", "1K GPUs"}},
    {"n_gpus=1;tp=1;sp=0;missing=x", {"single GPU", "one H100"}},
    {"n_heads=8;n_kv_heads=4", {"8Q/4KV", "8/4", "a=8", "n_heads=8Q/4KV;n_kv_heads="}},
    {"n_heads=8;head_dim=64", {"n_heads=8 x 64;head_dim="}},
    {"n_kv_heads=8;missing=x", {"no GQA", "= heads", "MHA"}},
    {"n_kv_heads=4", {"GQA 2:1"}},
    {"d_ff=3584", {"3.5x", "3.5h", "3.5d"}},
    {"d_model=1024", {"1k"}},
    {MIXTURE "moe_experts=8", {"8x7B"}},
    {MIXTURE "moe_topk=2", {"2+1 shared"}},
    {MIXTURE "ep=4;tp=2", {"e=4"}},
    {"tp=2;sp=1", {"2-way TP", "2 + SP", "TP2-SP", "tp=2 (SP);sp=", "tp=TP2+SP;sp="}},
    {"sp=1", {"same as TP", "2", "sequence_parallel=True"}},
    {"sp=0", {"sequence_parallel: false", "sequence_parallel=False", "no SP"}},
    {"tp=2;sp=0", {"2 (no SP);sp=", "tp=2 (w/o SP);sp="}},
    {STAGES "pp=4;vp=2", {"pp=4 (v=2);vp=", "pp=\"4 (interleaved 1F1B schedule, 2 chunks)\";vp="}},
    {STAGES "pp=4;vp=1", {"pp=4 (1F1B schedule);vp=", "vp=N"}},
    {CP "n_gpus=16;cp=2", {"cp=c=2", "cp=ring 2", "cp=llama3-style 2"}},
    {CP "n_gpus=16;cp=2;notes=cp-comm-type=a2a", {"cp=Ulysses 2;notes=", "cp=a2a 2;notes="}},
    {TORCH "zero_stage=1",
     {"zero_stage=optimizer only", "zero_stage=zero=1", "zero_stage=P_os",
      "zero_stage=Adam states sharded", "zero_stage=OSS"}},
    {TORCH "zero_stage=2",
     {"zero_stage=ShardedDDP", "zero_stage=gradient + optimizer", "zero_stage=P_os+g"}},
    {TORCH "zero_stage=0", {"zero_stage=PyTorch DDP"}},
    {TORCH "zero_stage=3;dp_shard=4;dp_replicate=2", {"zero_stage=MiCS 4;dp_shard=;dp_replicate="}},
    {"seq=1024;micro_batch=2;global_batch_seqs=16",
     {"micro_batch=2048 tokens", "micro_batch=2k tokens", "micro_batch=2 x 1024 tokens",
      "global_batch_seqs=16k tok", "global_batch_seqs=2^4"}},
    {"global_batch_seqs=128;seq=8192;n_gpus=64",
     {"1048K tokens", "1024k tok", "1049k tokens", "1M (tokens)"}},
    {"seq=8192", {"len 8192", "2**13"}},
    {"precision=fp8 blockwise", {"DeepSeek FP8", "FP8 (1D2D)"}},
    {"ac=full", {"AC on", "with AC", "nothing_saveable"}},
    {"ac=none", {"everything_saveable"}},
    {"framework=MaxText;tp=1;sp=0;zero_stage=3;missing=x;ac=minimal",
     {"ac=dots_with_no_batch_dims_saveable", "framework=JAX/Flax pjit",
      "framework=PaLM (Pathways)"}},
    {"framework=torchtitan 2026;tp=1;sp=0;zero_stage=3;compile=no",
     {"compile=w/o compile", "compile=nvFuser", "compile=CUDA graphs"}},
    {"framework=torchtitan 2026;tp=1;sp=0;zero_stage=3;compile=yes",
     {"compile=dynamo", "compile=XLA"}},
    {"gpu=A100-SXM4-40GB", {"ND96asr_v4", "a2-megagpu-16g"}},
    {"gpu=V100-SXM2-32GB;precision=fp16", {"p3dn.24xlarge", "DGX-2"}},
    {"gpu=A10G", {"g5.48xlarge"}},
    {"gpu=MI250X-64GB", {"MI250X 128GB"}},
    {STAGES "pp=4;vp=2", {"pp=\"4 (interleaving pipeline, 2 chunks)\";vp="}},
    {STAGES "pp=4;vp=1",
     {"pp=\"4, using pipeline schedule\"", "flag=without zero bubble", "pp=4 (no zero bubble)",
      "framework=Megatron-Core 0.12 (training pipeline)", "pp=4 (not interleaved);vp=",
      "flag=zero_bubble=False", "pp=4 (1F1B without interleaving);vp=", "vp=w/o interleaving"}},
    {"global_batch_seqs=64;n_layers=16;n_gpus=32;pp=8 (DualPipe);vp=1",
     {"micro_batch=1 x 32;global_batch_seqs=", "micro_batch=1 x 32",
      "global_batch_seqs=32 per DP"}},
    {"n_gpus=16;global_batch_seqs=16;gpus_per_node=",
     {"8 nodes (16 GPUs total)", "\"8 nodes, 16 GPUs in all\""}},
    {"n_gpus=8", {"Single 8xH100", "one 8-GPU node"}},
    {"n_gpus=16;global_batch_seqs=16;seq=16384;interconnect=InfiniBand ConnectX-7",
     {"interconnect=InfiniBand ConnectX7", "interconnect=IB CX7"}},
    {EXPERTS "n_layers=8;moe_layer_freq=[0]*1+[1]*7",
     {"moe_layer_freq=all but first layer", "moe_layer_freq=1 (first layer dense)"}},
    {EXPERTS "n_layers=8;moe_layer_freq=4", {"moe_layer_freq=\"interleaved, every 4th layer\""}},
    {EXPERTS "moe_layer_freq=1", {"moe_layer_freq=interleave_moe_layer_step 1"}},
    {EXPERTS "moe_dispatcher=deepep",
     {"moe_dispatcher=DeepEP all-to-all", "moe_dispatcher=flex (DeepEP a2a)"}},
};

/* Cells that deny a feature have the prediction of rows that lack it. */
static const SpelledRow denied[] = {
    {"untie_embeddings=1;" PARTS, {"not tied", "without tying", "tie_word_embeddings=False"}},
    {"untie_embeddings=0;" PARTS, {"tie_word_embeddings=True", "not untied"}},
    {"activation=silu (no glu);" PARTS, {"\"swish, not gated\"", "non-gated silu"}},
    {"activation=gelu;" PARTS, {"gelu (not geglu)", "gelu (gated: no)", "non gated gelu"}},
    {"normalization=LayerNorm;" PARTS, {"LayerNorm (not RMSNorm)"}},
    {"position_embedding=none;" PARTS, {"rope: off", "without rope"}},
    {"transformer_impl=local;" PARTS, {"local (not TE)", "without Transformer Engine"}},
    {"moe_grouped_gemm=0;" EXPERTS, {"grouped gemm: off", "grouped gemm not used"}},
    {"moe_dispatcher=alltoall;" EXPERTS, {"NCCL a2a (no DeepEP)", "deepep: off"}},
    {"moe_capacity=1.5;" EXPERTS, {"1.5 (no pad)", "1.5 without padding"}},
    {"moe_shared_ffn=;" EXPERTS, {"without", "w/o shared"}},
    {"exp_avg_dtype=fp32;" EXPERTS, {"fp32 (not bf16)"}},
    {"grad_reduce_in_bf16=1;" NODES, {"bf16 (not fp32)", "not fp32"}},
    {"grad_reduce_in_bf16=0;" NODES, {"bf16: off", "not bf16"}},
    {"overlap_grad_reduce=0;" NODES,
     {"overlap off", "overlap (disabled)", "--overlap-grad-reduce=0", "overlap not used"}},
    {"attention_backend=flash 2;" NODES, {"flash-attn 2 (not 3)", "FA2 (no FA3)"}},
    {"attention_backend=unfused;" NODES, {"flash off", "sdpa (no flash)"}},
    {"cross_entropy_fusion=native;" NODES, {"\"native, not te\""}},
    {"cross_entropy_fusion=0;" NODES, {"unfused", "fused (disabled)"}},
    {"cuda_graph=0", {"full: off", "enabled: no", "no CUDA graphs"}},
    {"optimizer=sgd", {"sgd without momentum", "SGD (momentum=0)"}},
    {"optimizer=adamw", {"adamw (no 8-bit)"}},
    {"precision=bf16", {"bf16 (fp8=0)", "bf16 (FP8 not used)", "\"bf16, not using FP8\""}},
    {"ac=none", {"activation checkpointing (disabled)", "AC (off)"}},
    {"ac=full", {"gradient checkpointing (no offload)"}},
    {"compile=no;framework=torchtitan 2026;tp=1;sp=0;zero_stage=3",
     {"torch.compile=False", "inductor off", "model not compiled"}},
    {"sp=0", {"SP=0", "sequence parallelism disabled", "Megatron SP off"}},
    {"tp=2;sp=0", {"tp=2 (SP=0);sp=", "tp=2 (SP disabled);sp="}},
    {CP "n_gpus=16;cp=2", {"cp=2 (not Ulysses)"}},
    {"zero_stage=0;" TORCH, {"no ZeRO-3", "FSDP off", "use_distributed_optimizer=0", "NO_SHARD"}},
    {"zero_stage=1;" TORCH,
     {"ZeRO-1 (no offload)", "\"distributed optimizer, params replicated\""}},
    {"zero_stage=3;" TORCH, {"FSDP (all states sharded)", "ZeRO-3 (CPU offload disabled)"}},
    {"zero_stage=2;framework=torchtitan 2026;tp=1;sp=0", {"FSDP2 (reshard_after_forward=False)"}},
    {"zero_stage=3;framework=HF Trainer;tp=1;sp=0;missing=x",
     {"flag=lora=False", "flag=not using LoRA", "flag=load_in_4bit=False", "flag=without QLoRA"}},
    {"interconnect=25GbE;" NODES, {"\"no InfiniBand, 25GbE\"", "25GbE (no RDMA)"}},
};

static const char *const differ[][2] = {
    {NODES "overlap_grad_reduce=no", NODES "overlap_grad_reduce=yes"},
    {UNNAMED "OLMoE-1B-7B", UNNAMED "OLMo 7B"},
    {EXPERTS "moe_dispatcher=a2a", EXPERTS "moe_dispatcher=allgather"},
    {"framework=HF Trainer;tp=1;sp=0;zero_stage=0;n_gpus=1;precision=bf16;missing=x",
     "framework=HF Trainer;tp=1;sp=0;zero_stage=0;n_gpus=1;precision=full bf16;missing=x"},
    {"framework=FairScale FSDP;tp=1;sp=0;missing=x;zero_stage=3", TORCH "zero_stage=3"},
};

static const char *const refused[][2] = {
    {"n_heads=8/4;n_kv_heads=2", "do not agree"},
    {"micro_batch=1000 tokens", "micro_batch"},
    {"n_kv_heads=MLA", "mla"},
    {"ac=memory-efficient", "ac is not known"},
    {"oom=X", "oom is not known"},
    {"peak_mem=<80GB", "peak_mem"},
    {"gpu=Gaudi3", "Gaudi3"},
    {"n_gpus=4 nodes (8 GPUs);gpus_per_node=", "n_gpus"},
    {"n_gpus=8 nodes (16 GPUs)", "n_gpus"},
    {"n_gpus=One p4d.24xlarge", "n_gpus"},
    {EXPERTS "moe_layer_freq=1:15", "moe_layer_freq"},
    {EXPERTS "moe_layer_freq=not every layer", "moe_layer_freq"},
};

static void cells_in_other_words_have_the_same_prediction(void **state)
{
    (void)state;
    spelled_rows_agree(same, sizeof same / sizeof *same);
}

static void a_denied_feature_is_not_planned(void **state)
{
    (void)state;
    spelled_rows_agree(denied, sizeof denied / sizeof *denied);
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
        cmocka_unit_test(cells_in_other_words_have_the_same_prediction),
        cmocka_unit_test(a_denied_feature_is_not_planned),
        cmocka_unit_test(stated_cells_change_the_prediction),
        cmocka_unit_test(uncertain_cells_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
