/* tandem accuracy on cells in the words of frameworks' documents and of other tables: ZeRO groups,
 * recomputation policies, networks, GPUs, optimizers, counts. All rows are in one table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/document.h"
#include "tests/support/published_row.h"

#define FSDP    "tp=1;sp=0;zero_stage=3;"
#define TITAN   "framework=torchtitan 2026;" FSDP
#define LONG    "seq=16384;d_model=2048;n_heads=16;n_kv_heads=16;"
#define BLOCKS  "normalization=RMSNorm;"
#define INTERN  "framework=InternEvo;tp=1;sp=0;n_gpus=64;global_batch_seqs=64;zero_stage=1"
#define NODES   "n_gpus=64;seq=16384;global_batch_seqs=64;"
#define LARGE   "d_model=4096;seq=4096;n_heads=32;n_kv_heads=8;d_ff=14336;vocab=32000;n_layers=2;"
#define MIXTURE "model=mixtral;moe_experts=8;moe_topk=2;moe_ffn=1024;ep=4;missing=x;"
#define FORGE                                                                                      \
    "framework=KempnerForge;" FSDP "global_batch_seqs=;step_time_s=0.8;tokens_per_s_per_gpu=20480"
#define MLA     "q_lora=0 kv_lora=512 qk_head=128 qk_pos=64 v_head=128"
#define HYBRID  "model=hybrid;tp=1;sp=0;normalization=RMSNorm;activation=gelu;n_layers=4;"
#define NAMED   "n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=;vocab=;tp=8;n_gpus=8;"
#define OFFLOAD "fine-grained-activation-offloading offload-modules="
#define HELD                                                                                       \
    "n_gpus=;d_model=4096;n_heads=32;n_kv_heads=32;d_ff=16384;n_layers=2;vocab=32000;tp=4;"        \
    "global_batch_seqs=512;activation=gelu;"
#define PIECES                                                                                     \
    "model=hybrid;tp=1;sp=0;normalization=RMSNorm;activation=gelu;pp=2;vp=2;n_layers=8;missing=x;" \
    "hybrid_pattern=M-M*M-M*"
#define SMALL                                                                                      \
    "zero_stage=0;sp=0;model=llama3.2-1b;gpu=A100-40GB;n_layers=16;d_model=2048;n_heads=32;"       \
    "n_kv_heads=8;d_ff=8192;vocab=128256;"
#define T5    "model=t5;normalization=LayerNorm;activation=gelu;missing=x;"
#define EIGHT "n_layers=4;" LARGE "normalization=RMSNorm;activation=swiglu;precision=fp8;"
#define LATENT                                                                                     \
    "model=moonlight;tp=1;sp=0;d_model=2048;n_heads=16;n_kv_heads=16;d_ff=11264;n_layers=2;"       \
    "missing=x;"

/* The blocks of the 405B are small here. There are 126: one in each chunk, except in the first and
 * the last chunk. */
#define NVFP4_405B                                                                                 \
    "framework=Megatron-Bridge;model=llama3.1-405b;gpu=GB200;gpus_per_node=4;precision=nvfp4;"     \
    "tp=4;pp=16;vp=8;n_layers=126;missing=x;"

static const SpelledRow same[] = {
    {INTERN ";dp_shard=8;dp_replicate=8",
     {"zero_stage=zero1 8;dp_shard=;dp_replicate=", "zero_stage=1 (zero1 size 8);dp_shard=",
      "zero_stage=zero1=8;dp_shard=", "zero_stage=ZeRO-1 over 8 ranks;dp_shard=",
      "zero_stage=1 (groups of 8);dp_shard=", "zero_stage=ZeRO-1 within a node;dp_shard=",
      "dp_replicate="}},
    {"zero_stage=0;framework=InternEvo;tp=1;sp=0", {"zero_stage=zero1=1"}},
    {NODES "num_distopt_instances=2", {"dp_shard=16;dp_replicate=2;num_distopt_instances="}},
    {TITAN,
     {"zero_stage=ZeRO-III", "zero_stage=stage: 3", "zero_stage=fully sharded",
      "zero_stage=optim_grads_params", "zero_stage=os+g+p", "zero_stage=ZeRO-Infinity"}},
    {"zero_stage=2;framework=DeepSpeed;tp=1;sp=0",
     {"ZeRO stage II", "SHARD_GRAD_OP", "os+g", "optim_grads", "zero_stage=stage=2"}},
    {"zero_stage=1",
     {"distributed-optimizer", "use_distributed_optimizer", "optim", "os", "ZeRO stage: 1"}},
    {"zero_stage=0",
     {"plain DP", "data parallel", "DP", "replicated", "no ZeRO", "unsharded", "ZeRO off"}},
    {NODES "exp_avg_dtype=fp8", {"exp_avg_dtype=uint8", "exp_avg_dtype=float8_e4m3"}},
    {"optimizer=adamw 8-bit", {"paged_adamw_8bit", "adamw_bnb_8bit", "AdamW8bit"}},
    {"optimizer=adamw", {"adamw_torch_fused", "distributed_fused_adam", "FusedAdam"}},
    {NODES "interconnect=8x400Gb IB",
     {"interconnect=EFA 3200 Gbps", "interconnect=\"3,200 Gbps EFA\"", "interconnect=400Gb/s NDR",
      "interconnect=8 x NDR InfiniBand", "interconnect=NVLink (900 GB/s)+8 NICs of 400 Gb/s",
      "interconnect=NVLink / 8x400G IB", "interconnect=8xNDR",
      "interconnect=50 GB/s InfiniBand per GPU", "interconnect=p5.48xlarge"}},
    {NODES "interconnect=8x25Gb IB",
     {"interconnect=200 Gb/s IB per node", "interconnect=8 cards of 25 Gb/s",
      "interconnect=25Gb/s RoCE"}},
    {NODES "interconnect=1x25Gb Ethernet",
     {"interconnect=Ethernet 25 Gb/s", "interconnect=25GbE", "interconnect=25 GigE"}},
    {NODES "interconnect=4x200Gb IB",
     {"interconnect=IB 200Gbps x 4", "interconnect=4 HDR InfiniBand ports",
      "interconnect=4 x HDR"}},
    {LARGE "gpu=H100-PCIe-80GB",
     {"gpu=H100 PCI-E", "gpu=H100 80GB;interconnect=PCIe Gen5", "gpu=H100-80GB-PCIe"}},
    {LARGE "gpu=A100-SXM4-40GB", {"gpu=A100-40G", "gpu=A100 40G", "gpu=DGX A100 (40 GB)"}},
    {LARGE "gpu=H100 500W",
     {"gpu=H100 @ 500W", "gpu=H100 (power capped at 500 W)", "gpu=H100 500 Watt"}},
    {NODES "gpu=GB200;interconnect=NVL36",
     {"gpu=GB200 NVL36;interconnect=", "interconnect=NVL 36", "interconnect=nvl36"}},
    {"framework=Megatron-LM", {"NVIDIA/Megatron-LM core_r0.8.0", "megatron lm", "MegatronLM"}},
    {TITAN, {"framework=pytorch/torchtitan v0.2.0", "framework=Torch Titan"}},
    {"framework=composer/llm-foundry FSDP1;" FSDP,
     {"LLM Foundry 0.20", "mosaicml/llm-foundry", "llmfoundry"}},
    {"framework=GPT-NeoX", {"EleutherAI/gpt-neox", "GPT NeoX 2.0", "gptneox"}},
    {"framework=NeMo Automodel;" FSDP, {"NVIDIA-NeMo/Automodel", "nemo_automodel"}},
    {"framework=nanotron", {"huggingface/nanotron", "nano-tron"}},
    {"framework=Levanter;" FSDP, {"stanford-crfm/levanter", "Levanter (JAX)"}},
    {TITAN "framework_month=2025-10;framework=PyTorch FSDP2",
     {"framework=XTuner V1", "framework=xtuner v1.0 (FSDP2)"}},
    {"framework=xtuner + DeepSpeed;" FSDP, {"xtuner 0.1.23", "XTuner (DeepSpeed)"}},
    {"framework=HF Trainer;" FSDP "ac=full",
     {"ac=gradient_checkpointing=True", "ac=gradient checkpointing (use_reentrant=False)", "ac=GC",
      "ac=unsloth", "ac=activation checkpointing", "ac=checkpointing: full"}},
    {"framework=HF Trainer;" FSDP "ac=none",
     {"ac=gradient_checkpointing=False", "ac=gradient checkpointing: no",
      "ac=no gradient checkpointing"}},
    {INTERN ";ac=full block 2",
     {"ac=checkpoint=0.5", "ac=0.5", "ac=50 % of layers", "ac=every other layer",
      "ac=1 in 2 layers", "ac=2 of 4 layers", "ac=half of the layers", "ac=one_in_two",
      "ac=full (every 2nd layer)", "ac=block 2"}},
    {INTERN ";ac=full", {"ac=checkpoint=1", "ac=whole_layer", "ac=checkpoint every layer"}},
    {INTERN ";ac=none", {"ac=checkpoint=0", "ac=checkpoint: false"}},
    {"ac=selective(core_attn)", {"--recompute-activations", "recompute-activations"}},
    {TITAN "ac=selective(op)", {"ac=op", "ac=SAC", "ac=per op SAC", "ac=per_op"}},
    {"framework=MaxText;" FSDP "ac=minimal",
     {"ac=remat_policy: minimal", "ac=remat minimal", "ac=fine_grained"}},
    {LARGE "precision=fp32",
     {"precision=torch.float32", "precision=single", "precision=full precision"}},
    {LARGE "precision=fp8", {"precision=8-bit float", "precision=te_fp8"}},
    {TITAN "compile=yes", {"compile=max-autotune", "compile=default", "compile=jit"}},
    {TITAN "compile=no", {"compile=not compiled", "compile=without compile"}},
    {"sp=1", {"sequence_parallel", "sequence parallel", "with tp", "Megatron SP"}},
    {"sp=ulysses 4;framework=xtuner;" FSDP, {"sp=4", "sp=DeepSpeed-Ulysses 4", "sp=Ulysses SP=4"}},
    {"seq=131072;d_model=256;n_heads=2;n_kv_heads=2;d_ff=512;n_layers=1;tp=1;sp=0",
     {"128k", "131k", "\"131,072\""}},
    {"global_batch_seqs=1024", {"1M tokens", "\"1,048,576 tokens\""}},
    {"global_batch_seqs=16;tp=1;sp=0", {"2 per GPU", "2/GPU", "2 per device"}},
    {"n_gpus=16;global_batch_seqs=16",
     {"2 nodes", "2 nodes (8 GPUs each)", "2 nodes of 8", "2 x 8 H100", "16x H100", "16 H100s"}},
    {"n_gpus=64;global_batch_seqs=64",
     {"8 machines", "8 hosts", "8 DGX H100 nodes", "8 servers of 8", "8 nodes (64 GPUs)",
      "8 nodes x 8 H100", "8 × 8", "64x"}},
    {"tp=2", {"TP=2", "tp2", "2-way", "tensor_model_parallel_size=2", "TP2 (async)"}},
    {"pp=2", {"PP2", "pp=2", "2 stages"}},
    {"vp=1;pp=2;n_layers=4", {"vp=1F1B", "vp=False"}},
    {"n_layers=4", {"4L", "L=4"}},
    {"n_kv_heads=2", {"GQA 2", "GQA-2", "GQA (2 groups)"}},
    {"n_kv_heads=1;tp=1;sp=0", {"n_kv_heads=MQA"}},
    {"n_kv_heads=8", {"MHA", "same"}},
    {"d_ff=4096", {"4x", "4*d_model"}},
    {"micro_batch=1", {"1/GPU", "bs=1", "per_device_train_batch_size=1"}},
    {"seq=32768;d_model=256;n_heads=2;n_kv_heads=2;d_ff=512;n_layers=1;tp=1;sp=0",
     {"33k", "32 k", "ctx 32768", "max_seq_len 32768"}},
    {"global_batch_seqs=128",
     {"131072 tok", "131k tokens", "131072 toks/step", "128 (131072 tokens)", "batch of 128"}},
    {MIXTURE, {"moe_topk=top-2", "moe_topk=2 of 8", "moe_experts=8 experts", "ep=EP4"}},
    {MIXTURE "moe_layer_freq=2",
     {"moe_layer_freq=every second layer", "moe_layer_freq=1/2", "moe_layer_freq=\"[1, 0, 1, 0]\"",
      "moe_layer_freq=([1]*1+[0]*1)*2", "moe_layer_freq=1010"}},
    {MIXTURE "moe_layer_freq=([0]*1+[1]*3)",
     {"moe_layer_freq=first 1 dense", "moe_layer_freq=\"[0,1,1,1]\""}},
    {BLOCKS "activation=swiglu", {"activation=SiLU", "activation=silu (gated)"}},
    {LONG "attention_backend=unfused",
     {"attention_backend=math", "attention_backend=eager", "attention_backend=naive",
      "attention_backend=no flash", "attention_backend=without flash attention"}},
    {LONG "attention_backend=fused", {"attention_backend=NVTE_FLASH_ATTN=0"}},
    {"cuda_graph=1", {"enabled"}},
    {NODES "grad_reduce_in_bf16=0", {"grad_reduce_in_bf16=fp32"}},
    {TITAN "dp_shard=8;dp_replicate=4;n_gpus=32;global_batch_seqs=32",
     {"dp_shard=", "zero_stage=HSDP 4x8;dp_shard=;dp_replicate=",
      "zero_stage=\"HSDP (replicate=4, shard=8)\";dp_shard=;dp_replicate="}},
    {TITAN "ac=\"selective(layer, every 2nd [default])\"", {"ac=SAC 2", "ac=layer-wise SAC 2"}},
    {TITAN "ac=none", {"ac=without AC", "ac=w/o AC", "ac=AC off"}},
    {"ac=selective(core_attn)", {"core_attn", "recompute core_attn", "selective (attn)"}},
    {"framework=Megatron-Bridge", {"NeMo Megatron-Bridge", "MBridge"}},
    {"gpu=B200;precision=mxfp8", {"precision=FP8 microscaling"}},
    {NODES "interconnect=8x400Gb IB", {"interconnect=1 NIC per GPU 400Gb/s"}},
    {NODES "interconnect=1x100Gb Ethernet", {"interconnect=100Gb/s TCP"}},
    {"gpu=H100-SXM", {"p5.48xlarge", "a3-highgpu-8g", "H-100"}},
    {"peak_mem=65.3", {"65.3 / 80", "65.3/80 GB", "65.3GiB(81%)", "~65.3", "65.3 GiB (max)"}},
    {"step_time_s=1.5", {"1.5 +/- 0.1", "1.5 s (median)", "1.5 s / step", "~1.5 s"}},
    {"peak_mem_kind=reserved GiB", {"Reserved", "RESERVED (GiB)"}},
    {"peak_mem_kind=nvidia-smi GiB",
     {"NVIDIA-SMI", "NVML used GiB", "GPU memory used", "used (nvidia-smi)"}},
    {"oom=1;step_time_s=;peak_mem=", {"Out of memory", "CUDA OOM", "y", "OOM (step 1)"}},
    {"oom=", {"no OOM", "fits", "n"}},
    {LATENT "mla=" MLA,
     {"mla=1", "mla=yes",
      "mla=q_lora_rank: 0 kv_lora_rank: 512 qk_nope_head_dim: 128 qk_rope_head_dim: 64 "
      "v_head_dim: 128"}},
    {"pp=2;vp=2;n_layers=8;ac=full", {"ac=full block 2", "ac=full block 4"}},
    {"transformer_impl=local", {"native", "Megatron local"}},
    {"transformer_impl=transformer_engine", {"TE", "Transformer Engine"}},
    {"step_time_s=1", {"1 s/it", "1 s/step", "1000 ms/iter", "1 sec per step", "\"1,000 ms\""}},
    {"peak_mem=1", {"1 GiB/GPU", "\"1,024 MiB\"", "1 gib"}},
    {"peak_mem_kind=process GiB",
     {"nvidia-smi GiB", "nvidia-smi memory.used (GiB)",
      "peak_mem GiB (max over ranks of process total)"}},
    {FORGE, {"tokens_per_s_per_gpu=\"20,480\"", "tokens_per_s_per_gpu=20480 tok/s"}},
    {FORGE, {"step_time_s=1.25 it/s", "step_time_s=1.25 steps per second", "step_time_s=800 ms"}},
    {"vocab=128256;model=llama3.1-8b", {"128k", "128 k", "128k (padded)"}},
    {"vocab=32000;model=llama2-7b", {"32k", "32K tokens", "31k"}},
    {"vocab=151936;model=qwen3-8b", {"152k", "151k", "148k"}},
    {"gpu=B200;precision=mxfp8",
     {"precision=fp8 block32", "precision=fp8 (block 32)", "precision=FP8 1x32"}},
    {"ac=full block 2",
     {"full recompute 2 layers", "\"recompute method block, 2 layers\"", "full 2 blocks",
      "\"recompute method block, N layers 2\"", "block recompute of 2 layers"}},
    {"ac=full",
     {"uniform 1", "full (uniform 1)", "\"full recompute, 1 layer\"", "full (per block)"}},
    {PIECES,
     {"hybrid_pattern=M-|M*|M-|M*;vp=;n_layers=", "hybrid_pattern=M-|M*|M-|M*;n_layers=11"}},
    {HYBRID "hybrid_pattern=M*M-;mtp_layers=2", {"hybrid_pattern=M*M-/-/-;mtp_layers="}},
    {"ac=selective(mlp);activation=swiglu;" BLOCKS, {"recompute mlp", "selective: mlp", "mlp"}},
    {MIXTURE "ac=selective(moe_act);activation=swiglu;" BLOCKS,
     {"ac=moe_act", "ac=moe_act recompute", "ac=selective moe_act"}},
    {"framework=Pai-Megatron-Patch", {"FlagScale", "Primus (Megatron-LM)", "MegaScale"}},
    {"framework=Megatron-Core", {"Megatron-SWIFT"}},
    {"framework=PyTorch FSDP1;" FSDP, {"PyTorch FSDP (fms-fsdp)"}},
    {"framework=Megatron-DeepSpeed", {"Sailor fork of Megatron-DeepSpeed"}},
    {"cp=2;tp=1;sp=0;notes=cp-comm-type=a2a", {"notes=cp-comm-type=[a2a]"}},
    {NAMED "model=llama2-70b;params_b=70", {"model=llama2"}},
    {NAMED "model=gpt3-175b", {"model=gpt3 (MLPerf v4.1)"}},
    {T5 "notes=", {"notes=decoder seq 128"}},
    {T5 "notes=decoder seq 256", {"notes=decoder-seq-length=256"}},
    {MIXTURE "moe_latent=256", {"moe_latent=;notes=moe-latent-size=256"}},
    {NODES "exp_avg_dtype=bf16", {"exp_avg_dtype=;notes=exp-avg-dtype=bf16"}},
    {EIGHT "notes=",
     {"notes=--no-first-last-layers-bf16", "notes=without first-last-layers-bf16",
      "notes=first-last-layers-bf16=False", "notes=first-last-layers-bf16 (not used)"}},
    {LONG "notes=",
     {"notes=no " OFFLOAD "[qkv_linear]", "notes=fine-grained-activation-offloading=False"}},
    {"head_dim=64;mtp_layers=1",
     {"head_dim=;mtp_layers=;notes=\"kv-channels=64, mtp-num-layers=1\"",
      "head_dim=;mtp_layers=;notes=kv-channels=64 --mtp-num-layers=1"}},
    {"head_dim=;notes=", {"notes=kv-channels=default", "notes=mtp-num-layers=null"}},
    {"ac=full (uniform 2)", {"ac=full (2 layers per checkpoint)"}},
    {"hybrid_pattern=", {"none", "no"}},
    {"gpu=B200;precision=fp8 blockwise", {"precision=fp8 128x128", "precision=fp8 (1 x 128)"}},
    {"precision=bf16", {"precision=bf16 1x32", "precision=bf16 (block 32)"}},
    {"framework=HF Trainer;tp=1;sp=0",
     {"framework=HF Trainer + adamw_bnb_8bit", "framework=HF Trainer (bitsandbytes 8-bit)",
      "flag=no QLoRA;framework=HF Trainer"}},
    {"peak_mem_kind=peak_mem GiB", {"peak_mem_kind=peak_mem GiB (without CUDA context)"}},
    {"pp=2;vp=2;n_layers=8",
     {"vp=num-layers-per-virtual-pipeline-stage 2", "vp=2 layers per virtual stage"}},
    {"cp=1;ep=1", {"cp=off;ep=none", "cp=disabled", "cp=not used"}},
    {"tp=2", {"ici_tensor_parallelism=2", "tensor_parallel_degree: 2"}},
    {"seq=4096", {"sequence_len: 4096", "cutoff_len 4096", "max_length=4096"}},
    {"global_batch_seqs=1024", {"1M tokens (1024 seqs)"}},
    {"precision=bf16",
     {"bf16 (no fp8)", "bf16 (fp8 off)", "bf16 without FP8", "bf16; fp8: false", "bf16 (non-fp8)"}},
    {TITAN "ac=\"selective(layer, every 2nd [default])\"", {"ac=\"selective, option=2\""}},
    {"framework=HF Trainer;" FSDP "ac=full", {"ac=true; use_reentrant: false", "ac=-g"}},
    {"ac=selective(core_attn)",
     {"\"selective (attention), not full\"", "ac=selective core_attn + sequence parallel"}},
    {"ac=selective", {"sel", "selective + sequence parallel"}},
    {"framework=nanotron;sp=1", {"sp=REDUCE_SCATTER", "sp=TP-SP", "sp=w/ SP"}},
    {"framework=nanotron;sp=0", {"sp=ALL_REDUCE", "sp=w/o SP"}},
    {"sp=ulysses 4;framework=colossal-ai;" FSDP, {"sp=all_to_all 4"}},
    {"cp=2;tp=1;sp=0", {"sp=zigzag-ring 2", "cp=;sp=ring attention 2"}},
    {INTERN ";dp_shard=8;dp_replicate=8", {"zero_stage=8 (zero1);dp_shard=;dp_replicate="}},
    {"zero_stage=1", {"DO=true"}},
    {"zero_stage=0", {"use_distributed_optimizer: false", "distributed optimizer: no"}},
    {MIXTURE "moe_shared_ffn=", {"moe_shared_ffn=none"}},
    {"framework=FlagScale;" MIXTURE "tp=2;ep=2;sp=1;missing=x", {"sp="}},
    {"framework=Megatron-Core;" MIXTURE "tp=2;ep=2;sp=1", {"sp="}},
    {SMALL "framework=HF Trainer DDP;tp=1;pp=1;missing=x", {"tp=;pp="}},
    {SMALL "framework=PyTorch DDP;tp=1;pp=1;missing=x", {"tp=;pp="}},
    {SMALL "framework=DeepSpeed;zero_stage=2;tp=1;pp=1;missing=x", {"tp=;pp="}},
    {"framework=torchtitan 2026;zero_stage=3;tp=2;sp=1;missing=x", {"sp="}},
    {"framework=NeMo Automodel;zero_stage=3;tp=1;sp=0;missing=x", {"zero_stage="}},
    {"precision=bf16", {"bf16 with fp8 dispatch", "bf16 compute; fp8 all-gather"}},
    {NODES "zero_stage=1",
     {"zero_stage=DDP + distributed optimizer", "zero_stage=distributed_fused_adam"}},
    {TITAN, {"zero_stage=1D FSDP", "zero_stage=2D (FSDP + TP)", "zero_stage=fully_shard"}},
    {"framework=Megatron-FSDP;tp=1;sp=0;n_gpus=32;global_batch_seqs=32;zero_stage=3;dp_shard=8",
     {"zero_stage=FSDP=8;dp_shard="}},
    {"framework=torchtitan;" FSDP "missing=x", {"framework=Primus (torchtitan backend)"}},
    {LARGE "gpu=H100-PCIe-80GB", {"gpu=H100;interconnect=PCIe 5.0 without NVLink"}},
    {"ac=full", {"\"yes, non-reentrant\""}},
    {"n_gpus=8", {"world size 8"}},
    {"global_batch_seqs=128", {"128/step", "128 seqs/step", "128 x 1024 tokens"}},
    {"peak_mem=65.3", {"65.3 GB / 80 GB", "66867.2", "70115340902"}},
};

/* Pairs of rows whose predictions differ in time, memory or group. */
static const char *const others[][2] = {
    {NODES "zero_stage=0;overlap_grad_reduce=1", NODES "zero_stage=0;overlap_grad_reduce=0"},
    {INTERN, INTERN ";dp_shard=8"},
    {NODES "num_distopt_instances=1", NODES "num_distopt_instances=2"},
    {NODES "exp_avg_dtype=bf16", NODES "exp_avg_dtype=fp8"},
    {NODES "exp_avg_dtype=fp32", NODES "exp_avg_dtype=fp16"},
    {NODES "optimizer=adamw", NODES "optimizer=paged_adamw_8bit"},
    {NODES "optimizer=adafactor", NODES "optimizer=lion"},
    {NODES "interconnect=EFA", NODES "interconnect=EFA;gpu=A100"},
    {NODES "interconnect=", NODES "interconnect=IB EDR"},
    {"gpu=A100 80GB", "gpu=A100 64GB"},
    {"gpu=H20 96GB", "gpu=H20 141GB"},
    {LARGE "gpu=RTX 4090;interconnect=PCIe Gen4", LARGE "gpu=RTX 4090;interconnect=PCIe Gen3"},
    {"framework=DeepSpeed 0.14;" FSDP "ac=none", "framework=DeepSpeed 0.14;" FSDP "ac=selective"},
    {"framework=HF Trainer;" FSDP "ac=none", "framework=HF Trainer;" FSDP "ac=selective"},
    {"framework=llm-foundry;" FSDP "ac=none", "framework=llm-foundry;" FSDP "ac=selective"},
    {"framework=MaxText;" FSDP "ac=minimal", "framework=MaxText;" FSDP "ac=minimal_flash"},
    {"framework=MaxText;" FSDP "ac=minimal", "framework=MaxText;" FSDP "ac=save_qkv_proj"},
    {"framework=XTuner V1;" FSDP, "framework=XTuner 0.1;" FSDP},
    {"pp=2;vp=2;n_layers=8;ac=full block 1", "pp=2;vp=2;n_layers=8;ac=full"},
    {NVFP4_405B "n_gpus=128;global_batch_seqs=64;ac=none",
     NVFP4_405B "n_gpus=128;global_batch_seqs=64;ac="},
    {MIXTURE "moe_capacity=1.25", MIXTURE "moe_capacity=1.25 (pad)"},
    {FORGE, "tokens_per_s_per_gpu=40960;" FORGE},
    /* 128k is a rounded size, so it is assumed */
    {"model=llama;vocab=128000", "model=llama;vocab=128k"},
    {"ac=full", "ac=full (uniform 2)"},
    {"gpu=B200;precision=fp8", "gpu=B200;precision=fp8 blockwise"},
    /* On a B200, blockwise scales have only a stand-in, so the second row counts apart. */
    {"gpu=B200;precision=fp8 rowwise", "gpu=B200;precision=fp8 blockwise"},
    {"cp=2;tp=1;sp=0;notes=", "cp=2;tp=1;sp=0;notes=cp-comm-type=a2a"},
    {LONG "notes=", LONG "notes=" OFFLOAD "[qkv_linear]"},
    {LONG "attention_backend=unfused;notes=" OFFLOAD "[qkv_linear]",
     LONG "attention_backend=unfused;notes=" OFFLOAD "[qkv_linear core_attn]"},
    {"pp=2;peak_mem_kind=peak_mem_alloc GiB (rank 0)",
     "pp=2;peak_mem_kind=peak_mem_alloc GiB (last rank)"},
    {HELD "mem_allocated_gib=2", HELD "mem_allocated_gib=4.5"}, /* the cells imply 128 and 8 GPUs */
    {HELD "mem_allocated_gib=2", HELD "mem_allocated_gib="},
    {HYBRID "hybrid_pattern=M*M-/-", HYBRID "hybrid_pattern=M*M-/*"},
    {HYBRID "hybrid_pattern=M*M-", HYBRID "hybrid_pattern=MGM-"},
    {T5 "notes=decoder seq 128", T5 "notes=decoder seq 256"},
    {T5 "notes=decoder 4 layers", T5 "notes=decoder 2 layers"},
    {EIGHT "notes=", EIGHT "notes=first-last-layers-bf16"},
    {"framework=torchtune;" FSDP "flag=LoRA r=8", "framework=torchtune;" FSDP "flag="},
    {"framework=NeMo Automodel;" FSDP "flag=LoRA r=8", "framework=NeMo Automodel;" FSDP "flag="},
    /* With rowwise scales, torchtitan gathers 16-bit weights. */
    {"framework=torchtitan 2026;zero_stage=3;tp=2;sp=1;seq=8192;precision=float8 rowwise",
     "framework=torchtune 2026;zero_stage=3;tp=2;sp=1;seq=8192;precision=float8 rowwise"},
    {EIGHT "notes=first-last-layers-bf16",
     EIGHT "notes=first-last-layers-bf16 num-layers-at-end-in-bf16=2"},
};

/* Rows that are refused, and words of the reason. */
static const char *const refused[][2] = {
    {"exp_avg_dtype=something", "exp_avg_dtype"},
    {"precision=bf16 (weights int8)", "weights int8"},
    {"ac=memory_budget", "memory_budget"},
    {"gpu=MI300A", "MI300A"},
    {"step_time_s=3 samples/s", "step_time_s"},
    {"notes=" OFFLOAD "[router]", "router"},
    {"flag=LoRA r=16 (GPTQ base)", "4 bits"},
    {"framework=HF Trainer + bnb", "4 bits"},
    {"model=mistral-7b (nf4)", "4 bits"},
    {HYBRID "hybrid_pattern=M*X-", "hybrid_pattern"},
    {HYBRID "hybrid_pattern=M*M-/-/*", "heads"},
    {"model=gpt_dynamic_inference_tp1_pp1", "inference"},
    {"model=gpt_grpo_tp1_pp1", "reinforcement"},
    {"model=multimodal_llava_mcore_te_tp1_pp1", "vision encoder"},
    {"model=mimo_vlm_pretrain_tp1", "vision encoder"},
    {"gpu=H100 MIG 3g.40gb", "MIG"},
    {"transformer_impl=of tomorrow", "transformer_impl"},
    {"global_batch_seqs=4.1M tokens", "4.1M tokens"},
    {"global_batch_seqs=3 per GPU", "3 per GPU"},
    {"n_gpus=2 nodes;gpus_per_node=", "2 nodes"},
    {"n_gpus=2 hosts;gpus_per_node=", "2 hosts"},
    {"tokens_per_s_per_gpu=2 to 3;" FORGE, "tokens_per_s_per_gpu"},
    {"vocab=128k-256k", "vocab"},
    {"vocab=32k or 128k", "vocab"},
    {"ac=full except the last 2 layers", "except"},
    {"peak_mem=41 / 39 GB", "peak_mem"},
    {"peak_mem=12.3 / 14.5 GiB", "peak_mem"},
};

static void cells_in_other_words_have_the_same_prediction(void **state)
{
    (void)state;
    spelled_rows_agree(same, sizeof same / sizeof *same);
}

static void stated_cells_change_the_prediction(void **state)
{
    (void)state;
    spelled_rows_differ(others, sizeof others / sizeof *others);
}

static void a_rate_of_steps_is_read_as_a_step_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *root = published_row_scored(arena, "step_time_s=0.5 it/s");
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    assert_string_equal("step time",
                        json_string_value(json_object_get(json_array_get(scores, 0), "what")));
    assert_true(2 == json_number_value(json_object_get(json_array_get(scores, 0), "measured")));
    json_decref(root);
    arena_free(arena);
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
        cmocka_unit_test(stated_cells_change_the_prediction),
        cmocka_unit_test(a_rate_of_steps_is_read_as_a_step_time),
        cmocka_unit_test(uncertain_cells_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
