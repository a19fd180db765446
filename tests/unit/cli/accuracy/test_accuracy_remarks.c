/* tandem accuracy on cells with remarks that are not about the run, on names of machines, and on
 * names of models that other sources use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/command.h"
#include "tests/support/published_row.h"

#define FSDP     "tp=1;sp=0;zero_stage=3;"
#define TITAN    "framework=torchtitan 2026;" FSDP
#define MIXTURE  "model=mixtral;moe_experts=8;moe_topk=2;moe_ffn=1024;ep=4;missing=x;"
#define MEGATRON "framework=Megatron-LM;missing=x;"
/* the name of the model gives the sizes but for the number of layers, so that a row is small */
#define NAMED "n_layers=1;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;tp=8;n_gpus=8;missing=x;"
#define LONG  "seq=16384;d_model=2048;n_heads=16;n_kv_heads=16;"
#define NODES LONG "n_gpus=16;global_batch_seqs=16;missing=x;"

static const SpelledRow same[] = {
    /* comparisons, and defaults of options */
    {"optimizer=AdamW", {"AdamW (vs Muon)", "\"AdamW, instead of Muon\"", "\"AdamW, vs. Lion\""}},
    {"precision=bf16", {"bf16 (vs fp8)", "\"bf16, as opposed to fp8\"", "bf16 (default fp32)"}},
    {"precision=bf16", {"bf16 instead of fp8", "bf16 rather than fp8", "bf16 as opposed to fp8"}},
    {"optimizer=AdamW", {"AdamW instead of Muon", "AdamW rather than 8-bit Adam"}},
    {"tp=2", {"2 instead of 4"}},
    {TITAN, {"framework=torchtitan 2026 (vs DeepSpeed ZeRO-2)"}},
    {"framework=Megatron-LM;tp=1;sp=0;missing=x",
     {"framework=Megatron-LM (vs TP=8);tp=", "framework=Megatron-LM (no TP8);tp="}},
    {TITAN "ac=full", {"ac=full (vs selective)", "ac=full (default: selective)"}},
    {"zero_stage=1", {"1 (vs 3)", "ZeRO-1 (default 0)"}},
    {LONG "attention_backend=unfused", {"attention_backend=unfused (compared to flash)"}},
    {"cuda_graph=1", {"enable-cuda-graph (default off)"}},
    {"tp=2", {"2 (default 1)"}},
    /* frameworks that only resemble another */
    {"framework=PyTorch", {"Megatron-style PyTorch", "Megatron-like PyTorch"}},
    {"framework=PyTorch;" FSDP,
     {"framework=PyTorch in the style of Megatron-LM",
      "framework=PyTorch (inspired by Megatron-LM)", "framework=PyTorch (like DeepSpeed)"}},
    {"framework=Megatron-DeepSpeed;tp=1;sp=0",
     {"framework=custom (DeepSpeed + Megatron)", "framework=our fork (Megatron + DeepSpeed)"}},
    /* stages of ZeRO, and of pipelines */
    {"framework=DeepSpeed;" FSDP,
     {"framework=DeepSpeed ZeRO-3;zero_stage=", "framework=DeepSpeed ZeRO-Infinity;zero_stage=",
      "framework=DeepSpeed ZeRO++;zero_stage="}},
    {"framework=DeepSpeed;tp=1;sp=0;zero_stage=0;missing=x",
     {"framework=DeepSpeed (pipeline stage 2);zero_stage="}},
    {"zero_stage=1", {"dist. optimizer", "dist. opt."}},
    {TITAN "n_gpus=16;global_batch_seqs=16;gpus_per_node=8;dp_shard=8;dp_replicate=2",
     {"gpus_per_node=;zero_stage=HSDP (2x8);dp_shard=;dp_replicate="}},
    /* machines */
    {NODES "gpu=A100-SXM4-40GB;interconnect=p4d.24xlarge",
     {"gpu=p4d.24xlarge;n_gpus=2 nodes;gpus_per_node=;interconnect=",
      "gpu=A100;n_gpus=2 nodes;gpus_per_node=", "gpu=A100;gpus_per_node="}},
    {NODES "gpu=H100-SXM5-80GB;interconnect=a3-highgpu",
     {"gpu=a3-highgpu-8g;n_gpus=2 machines;gpus_per_node=;interconnect="}},
    {NODES "gpu=H100-SXM5-80GB",
     {"gpu=DGX H100;n_gpus=2 nodes;gpus_per_node=",
      "gpu=HGX H100;n_gpus=2 servers;gpus_per_node="}},
    {NODES "gpu=A100-SXM4-40GB;gpus_per_node=4",
     {"gpu=A100 40GB (4/node);gpus_per_node=", "gpu=A100 40GB (4 per node);gpus_per_node=",
      "gpu=A100 40GB (Perlmutter);gpus_per_node=",
      "gpu=A100;interconnect=Perlmutter;gpus_per_node="}},
    {NODES "gpu=GH200;gpus_per_node=4", {"gpus_per_node="}},
    {NODES "gpu=A100;gpus_per_node=4", {"gpus_per_node=;gpu=HGX A100 4-GPU"}},
    {NODES "gpu=H100-SXM", {"gpu=8x H100-SXM;gpus_per_node=;n_gpus=2 nodes"}},
    {NODES "gpu=GB200 NVL4;gpus_per_node=4", {"gpus_per_node="}},
    /* cards of a node are not its GPUs */
    {NODES "gpu=A100;gpus_per_node=8;interconnect=4 HDR NICs per node", {"gpus_per_node="}},
    {NODES "gpu=A100;gpus_per_node=8;interconnect=IB 4 per node", {"gpus_per_node="}},
    /* the cluster of another GPU, and a group of GPUs, say nothing about the node */
    {NODES "gpu=A100;gpus_per_node=8;interconnect=NVLink in 4-GPU groups", {"gpus_per_node="}},
    {NODES "gpu=A100;gpus_per_node=8;interconnect=Summit", {"gpus_per_node="}},
    {LONG "gpu=V100;precision=fp16;n_gpus=12;global_batch_seqs=12;gpus_per_node=6;missing=x",
     {"gpus_per_node=;gpu=V100 (Summit)", "gpus_per_node=;interconnect=6 GPUs per node"}},
    {NODES "gpu=GH200;gpus_per_node=2", {"gpus_per_node=;gpu=GH200 NVL2"}},
    /* GPUs without flash attention 2 */
    {LONG "framework=Megatron-LM;gpu=V100;precision=fp16;attention_backend=unfused",
     {"attention_backend="}},
    /* models */
    {NAMED "model=codellama-34b;vocab=32000", {"model=llama2 34B", "model=Llama-2-34b"}},
    {NAMED "model=bloom-1.7b;tp=1;n_gpus=1;framework=Megatron-DeepSpeed", {"model=bloom-1b7"}},
    {NAMED "model=mixtral-8x22b", {"model=mixtral 141B", "model=Mixtral 176B"}},
    {NAMED "model=gpt-1t", {"model=GPT 1008B", "model=GPT-3 1T", "model=1008B GPT"}},
    {NAMED "model=gpt-39.1b", {"model=GPT-3 39.1B", "model=GPT 39B"}},
    {NAMED "model=gpt3-175b", {"model=175B GPT-3"}},
    {NAMED "model=llama3-8b", {"model=Llama 8B"}},
    {NAMED "model=gpt-2.6b;d_ff=10240", {"model=GPT 2.6B;d_ff=", "model=GPT-3 2.6B"}},
    {"n_layers=2;" NAMED "model=llama3-8b", {"n_layers=;model=llama3-8b (2 layers)"}},
    /* shared experts */
    {MIXTURE "moe_shared_ffn=2048",
     {"moe_shared_ffn=2 shared of 1024", "moe_shared_ffn=2 shared experts of 1024",
      "moe_shared_ffn=2 shared (1024 each)", "moe_shared_ffn=2", "moe_shared_ffn=2 shared"}},
    {MIXTURE "ac=selective(moe_act)", {"ac=selective (SwiGLU)"}},
    /* numbers */
    {"global_batch_seqs=1024", {"1Mi tokens", "1024Ki tokens", "1048576 tokens (1M)"}},
    {"global_batch_seqs=1024;missing=x", {"1.048M tokens", "1.049M tokens", "1.048M"}},
    {"global_batch_seqs=128", {"16*8", "16 x 8", "16/GPU x 8 GPUs"}},
    {"global_batch_seqs=128;tp=1;sp=0", {"16/DP rank", "16 per DP rank", "16 per replica"}},
    {"global_batch_seqs=32;tp=1;sp=0;pp=8;n_layers=8", {"32 microbatches"}},
    {"global_batch_seqs=32", {"32 (grad accum 8)"}},
    {"d_ff=14336;missing=x", {"14.3k"}},
    {"global_batch_seqs=1024;missing=x", {"1M tokens (1024 x 1024)", "1.05M tokens (1024 × 1024)"}},
    {"micro_batch=1;missing=x", {"auto"}},
    {"framework=torchtitan (ROCm);" FSDP "missing=x", {"zero_stage="}},
    {TITAN, {"zero_stage={'stage': 3}"}},
    {"d_model=4096;d_ff=4096;missing=x", {"4.1k"}},
    {"vp=2;pp=2;n_layers=8", {"vp=2 layers/chunk"}},
    /* sequence parallelism */
    {"sp=1", {"sequence parallel 2", "sequence parallelism = 2"}},
    {"sp=ulysses 4;framework=DeepSpeed;" FSDP, {"sp=sequence parallel 4"}},
    {"cp=2;" TITAN, {"cp=2 (alltoall)"}},
    /* a denial ends at a comma */
    {"head_dim=64;notes=", {"head_dim=;notes=\"no recompute, kv-channels=64\""}},
    {"tp=;pp=;missing=x", {"tp=auto;pp=automatic"}},
    {"gpu=B200;precision=bf16;missing=x", {"precision=mxfp8 grouped gemm only"}},
    /* the names of the framework and of the model also give degrees, types and lengths */
    {"framework=Megatron-LM (TP=2);sp=0", {"tp=", "framework=Megatron-LM TP2;tp="}},
    {"pp=2;model=llama_tp2_pp2;n_layers=4", {"tp=;pp="}},
    {"framework=torchtitan 2026 (float8);" TITAN "precision=float8;missing=x", {"precision="}},
    {"seq=1024;missing=x", {"seq=;model=llama3-8b (seq 1k)"}},
    {"framework=Megatron-LM;pp=;tp=1;sp=0;missing=x", {"framework=Megatron-LM (PP 1F1B)"}},
    /* one cell for two columns */
    {"n_layers=4;mtp_layers=1",
     {"n_layers=4+1 MTP;mtp_layers=", "n_layers=4 (+1 MTP);mtp_layers="}},
    {"n_heads=8;head_dim=128", {"n_heads=8 heads x 128;head_dim="}},
    {MIXTURE "moe_shared_ffn=1024",
     {"moe_topk=2 + 1 shared;moe_shared_ffn=", "moe_experts=8 (+1 shared);moe_shared_ffn="}},
    {MIXTURE "moe_layer_freq=([0]*1+[1]*3)", {"moe_layer_freq=dense first layer"}},
    {"gpu=B200;precision=nvfp4;notes=first-last-layers-bf16",
     {"precision=NVFP4 w/ first 1 layer and last 1 layer in BF16;notes=",
      "precision=NVFP4 (first and last layers in BF16);notes=",
      "precision=NVFP4 (first/last 1 layer in BF16);notes="}},
    /* a flag may name the precision */
    {"precision=fp8;missing=x",
     {"precision=bf16;flag=fp8 enabled", "precision=bf16;flag=use_fp8=True"}},
    {"precision=bf16;flag=", {"flag=fp8=false", "flag=no float8", "flag=float8 all-gather"}},
    {"ac=full (uniform 1)", {"\"--checkpoint-activations, num-layers 1\""}},
};

static const char *const others[][2] = {
    {"ac=none", "ac=\"no recompute, offload\""}, /* the second counts as not all stated */
    {LONG "framework=Megatron-LM;gpu=V100;precision=fp16;attention_backend=",
     LONG "framework=Megatron-LM;gpu=A100;precision=fp16;attention_backend="},
    /* PyTorch has a kernel of its own for V100, and a row may name another kernel */
    {LONG "gpu=V100;precision=fp16;attention_backend=unfused;" TITAN,
     LONG "gpu=V100;precision=fp16;attention_backend=;" TITAN},
    {LONG "framework=Megatron-LM;gpu=V100;precision=fp16;attention_backend=flash",
     LONG "framework=Megatron-LM;gpu=V100;precision=fp16;attention_backend="},
};

static const char *const doubtful[][2] = {
    {"zero_stage=ZeRO stage 1-3", "zero_stage"},
    {"zero_stage=ZeRO 1/2/3", "zero_stage"},
    {"zero_stage=ZeRO-1 or 2", "zero_stage"},
    {"zero_stage=DeepSpeed pipeline stage 2", "zero_stage"},
    {"zero_stage=;framework=DeepSpeed ZeRO-2/3;tp=1;sp=0", "several stages"},
    {"gpu=A100-40GB/80GB", "several devices"},
    {"gpu=A100 or H100", "several devices"},
    {NAMED "model=DeepSeek-V3-Lite", "DeepSeek-V3-Lite"},
    {NAMED "model=Llama-3-8x8B", "experts"},
    {NAMED "model=gpt3-1.3b-moe-128", "experts"},
    {"n_layers=;" NAMED "model=llama3-70b (reduced)", "version"},
    {"global_batch_seqs=32 (grad accum 3)", "do not agree"},
    {"global_batch_seqs=96 microbatches", "micro-batches"},
    {"d_ff=11k", "d_ff"},
    {"ac=full vs selective", "ac"},
    {"precision=bf16 vs fp8", "two values"},
    {"framework=torchtitan vs Megatron-LM", "two values"},
    {"framework=Megatron-LM (TP 1-8);tp=", "several degrees"},
    {"framework=Megatron-LM (TP=2 or 4);tp=", "several degrees"},
    {"framework=Megatron-LM (TP/PP=4/2);tp=;pp=", "several degrees"},
    {"framework=DeepSpeed ZeRO;zero_stage=;tp=1;sp=0", "stage of ZeRO"},
    {"gpu=A100 on a3-highgpu-8g", "another device"},
    {"gpu=A100-80GB (p4d.24xlarge)", "another device"},
    {"precision=fp8 attention only", "precision"},
    {"precision=fp16;flag=fp8", "flag"},
    {"global_batch_seqs=4 x 2048;seq=4096", "another length"},
    {"global_batch_seqs=2/GPU x 16 GPUs", "n_gpus"},
    {"zero_stage=\"ZeRO-1, 2\"", "zero_stage"},
    {"zero_stage=\"stages 1, 2 and 3\"", "zero_stage"},
    {"global_batch_seqs=4 x 2048;seq=", "global_batch_seqs"},
    {"vp=2 layers/chunk;pp=2;n_layers=;model=x", "vp"},
    {"moe_ffn=;moe_shared_ffn=2;" MIXTURE, "moe_shared_ffn"},
};

static void remarks_and_names_are_read(void **state)
{
    (void)state;
    spelled_rows_agree(same, sizeof same / sizeof *same);
}

static void what_counts_changes_the_prediction(void **state)
{
    (void)state;
    spelled_rows_differ(others, sizeof others / sizeof *others);
}

static void doubtful_cells_are_refused_by_name(void **state)
{
    (void)state;
    spelled_rows_are_refused(doubtful, sizeof doubtful / sizeof *doubtful);
}

/* DeepSpeed reduces gradients in the type of the weights. Predictions do not tell fp16 from bf16,
 * so this test reads the plan. */
static void deepspeed_reduces_in_the_type_of_the_weights(void **state)
{
    (void)state;
    static const char script[] =
        "local last\n"
        "for _, kind in ipairs { 'fp16', 'bf16', 'fp32' } do\n"
        "  last = require('tandem.published.run').plan { id = 'a', model = 'x', n_layers = '2',\n"
        "    d_model = '256', n_heads = '2', n_kv_heads = '2', d_ff = '512', vocab = '512',\n"
        "    gpu = 'H100-SXM', n_gpus = '8', gpus_per_node = '8', framework = 'DeepSpeed', tp = "
        "'1',\n"
        "    pp = '1', cp = '1', zero_stage = '2', micro_batch = '1', global_batch_seqs = '8',\n"
        "    seq = '256', precision = kind, ac = 'none' }\n"
        "  if last.precision.reduce ~= kind then error(last.precision.reduce) end\n"
        "end\n"
        "return last\n";
    Arena *arena = arena_new();
    command_write_file("reduced.lua", script);
    const CommandResult r = COMMAND(arena, 60, "check", "reduced.lua");
    if (r.exit_code != 0) fail_msg("%s%s", r.out, r.err);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remarks_and_names_are_read),
        cmocka_unit_test(what_counts_changes_the_prediction),
        cmocka_unit_test(doubtful_cells_are_refused_by_name),
        cmocka_unit_test(deepspeed_reduces_in_the_type_of_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
