/* tandem accuracy on cells that another source spells in its own way: units, words, empty cells. A
 * row is predicted as under its usual spelling, or it is refused and the reason names the
 * column. */
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

#define TITAN   "framework=torchtitan 2026;tp=1;sp=0;zero_stage=3;"
#define MIXTURE "model=mixtral;moe_experts=8;moe_topk=2;moe_ffn=1024;"
#define NODES   LONG "n_gpus=64;global_batch_seqs=32;"
#define LONG    "seq=16384;d_model=2048;n_heads=16;n_kv_heads=16;"

/* A cell as the tables spell it, and other spellings with the same meaning; NULL ends them. */
static const struct {
    const char *usual, *others[12];
} same[] = {
    {"gpu=H100-SXM",
     {"NVIDIA H100 80GB HBM3", "H100 80GB HBM3", "h100_sxm5", "NVIDIA H100-SXM5-80GB 81559 MiB",
      "8 x H100 SXM5", "DGX H100"}},
    {"gpu=GB200", {"NVIDIA GB200", "gb200", "GB200-186GB", "NVIDIA Blackwell GPU (GB200)"}},
    {"gpu=A100-SXM4-80GB",
     {"NVIDIA A100-SXM4-80GB", "A100 80GB SXM", "a100-80gb", "DGX A100 80GB"}},
    {"gpu=A100-SXM4-40GB", {"NVIDIA A100-SXM4-40GB", "A100 40 GB", "a100_40gb", "A100 SXM4 40GiB"}},
    {"gpu=H200", {"NVIDIA H200", "H200-SXM-141GB", "H200 141GB HBM3e"}},
    {"gpu=MI300X", {"AMD Instinct MI300X", "mi300x", "AMD Instinct MI300X 192GB HBM3"}},
    {"n_gpus=64;global_batch_seqs=64",
     {"n_gpus=64.0", "n_gpus= 64 ", "n_gpus=64 GPUs", "n_gpus=8x8", "n_gpus=8 x 8",
      "n_gpus=8 nodes x 8 GPUs", "n_gpus=64 (8 nodes)", "n_gpus=64 GPUs (8 each)"}},
    {"seq=8192", {"8k", "8K", "\"8,192\"", "8192.0", "8192 tokens", "8192 (packed)"}},
    {"vocab=128256", {"128256.0", "128256 (padded)"}},
    {"global_batch_seqs=1024", {"1024.0", "1k", "1024 sequences"}},
    {"zero_stage=1",
     {"ZeRO-1", "zero1", "ZeRO 1", "stage 1", "1.0", "ZeRO stage 1", "distributed optimizer",
      "1 (distributed optimizer)"}},
    {"zero_stage=0", {"DDP", "none", "No", "ZeRO-0", "0.0", "NO_SHARD"}},
    {"framework=torchtitan 2026;tp=1;zero_stage=3",
     {"zero_stage=FSDP", "zero_stage=ZeRO-3", "zero_stage=FULL_SHARD", "zero_stage=FSDP2",
      "zero_stage=stage3", "zero_stage=zero_3"}},
    {"framework=torchtitan 2026;tp=1;zero_stage=3;n_gpus=32;global_batch_seqs=32;dp_shard=8;"
     "dp_replicate=4",
     {"zero_stage=HSDP", "zero_stage=HYBRID_SHARD", "zero_stage=HSDP (8 x 4)"}},
    {"precision=bf16",
     {"BF16", "bf16-mixed", "bfloat16", "amp_bf16", "BF16 mixed precision", "bf16-true",
      "mixed bf16"}},
    {"precision=fp16", {"FP16", "16-mixed", "float16", "amp_fp16", "half", "mixed fp16"}},
    {"precision=fp8",
     {"FP8", "float8", "fp8 (delayed scaling)", "bf16 + fp8", "mixed fp8", "mixed_precision fp8"}},
    {"precision=", {"mixed", "Mixed precision", "mixed-precision"}},
    {"ac=none", {"None", "no", "off", "False", "0", "none (default)"}},
    {"ac=full",
     {"Full", "yes", "true", "1", "full (every layer)", "gradient checkpointing", "Full recompute",
      "yes (full)"}},
    {"ac=selective", {"Selective", "yes (selective)", "default (selective)"}},
    {"sp=1", {"yes", "True", "on", "1.0", "enabled", "yes (with tp)"}},
    {"sp=0", {"no", "False", "off", "0.0", "disabled"}},
    {"framework=torchtitan 2026;tp=1;zero_stage=3;compile=yes",
     {"compile=True", "compile=1", "compile=torch.compile", "compile=yes (per block)"}},
    {"pp=1", {"1.0", "None", "no", "0"}},
    {"moe_experts=", {"0", "None", "n/a", "-", "no"}},
    {"step_time_s=1", {"1.0", "1 s", "1000 ms", "1 seconds"}},
    {"peak_mem=1", {"1.0", "1 GiB", "1024 MiB", "1 GB"}},
    {"oom=1", {"yes", "True", "OOM", "1.0"}},
    {"oom=", {"0", "no", "False", "n/a", "0.0"}},
    {TITAN "ac=selective(op)",
     {"ac=selective (op)", "ac=selective op", "ac=Selective: op", "ac=selective/op"}},
    {TITAN "ac=\"selective(layer, every 2nd [default])\"",
     {"ac=selective (2)", "ac=selective layer 2", "ac=selective: every second layer"}},
    {"ac=full block 2",
     {"\"full, block, 2 layers\"", "full (block 2)",
      "ac=;recompute_granularity=full;recompute_method=block;recompute_num_layers=2"}},
    {MIXTURE "ac=selective(moe_act)",
     {"ac=selective: moe_act", "ac=selective moe_act", "ac=selective (moe_act)",
      "ac=selective recompute [moe_act]",
      "ac=;recompute_granularity=selective;recompute_modules=[moe_act]"}},
    {TITAN "framework=torchtitan;compile=yes;framework_month=2025-02",
     {"framework_month=2025/2", "framework_month=Feb 2025", "framework_month=20250201",
      "framework=torchtitan (February 2025);framework_month=",
      "framework=torchtitan (PyTorch 2.8.0.dev20250201);framework_month=",
      "framework=torchtitan (PyTorch 2.6);framework_month=", "framework_month=2024"}},
    {LONG "framework=torchtune 0.6;tp=1;zero_stage=3;attention_backend=flash_attention_2",
     {"attention_backend="}},
    {LONG "framework=NeMo 24.05",
     {"framework=NeMo:24.05", "framework=NeMo Framework 24.05", "attention_backend=flash"}},
    {MIXTURE "framework=NeMo 25.07;ep=4;pp=2;missing=x;etp=1", {"etp="}},
    {"framework=DeepSpeed 0.19;tp=1;sp=0;zero_stage=3",
     {"framework=DeepSpeed 0.19 ZeRO-3;zero_stage="}},
    {"cuda_graph=FULL_CUDA_GRAPH=1", {"1", "true", "full_iteration"}},
    {"cuda_graph=MCORE_CUDA_GRAPH=1",
     {"FULL_CUDA_GRAPH=0 MCORE_CUDA_GRAPH=1", "MCORE_CUDA_GRAPH=1 LAYER_CUDA_GRAPH=0"}},
    {"cuda_graph=0", {"FULL_CUDA_GRAPH=0", "FULL_CUDA_GRAPH=0 MCORE_CUDA_GRAPH=0"}},
    {"framework=Megatron-Bridge", {"Megatron Bridge", "NVIDIA Megatron-Bridge", "MegatronBridge"}},
    {"framework=Megatron-Core 0.12", {"Megatron Core 0.12", "MCore 0.12", "megatron_core 0.12"}},
    {NODES "interconnect=8x200Gb IB",
     {"interconnect=8 x 200 Gbps IB", "interconnect=200 Gbps RoCE", "interconnect=200Gb/s HDR"}},
    {"framework=xtuner;tp=1;sp=0;zero_stage=ZeRO-2 offload optimizer",
     {"zero_stage=ZeRO-2 offload"}},
    {"precision=bf16", {"FP32 weights with bf16 compute"}},
};

/* Two rows whose predictions differ in time, memory or group. */
static const char *const others[][2] = {
    {LONG "attention_backend=flash", LONG "attention_backend=fused"},
    {LONG "attention_backend=flash", LONG "attention_backend=unfused"},
    {LONG "attention_backend=flash", LONG "attention_backend=flash-attn 3"},
    {NODES "overlap_grad_reduce=1", NODES "overlap_grad_reduce=0"},
    {NODES "overlap_param_gather=1", NODES "overlap_param_gather=0"},
    {"cuda_graph=0", "cuda_graph=1"},
    {NODES "interconnect=", NODES "interconnect=10GbE"},
    {NODES "interconnect=", NODES "interconnect=net: 10G Ethernet"},
    {"optimizer=adamw", "optimizer=adafactor"},
    {"optimizer=adamw", "optimizer=adamw 8-bit"},
    {LONG "fusions_off=", LONG "fusions_off=no-bias-swiglu-fusion"},
    {LONG "precision=fp32", LONG "precision=fp32 (TF32)"},
    {MIXTURE "ac=none", MIXTURE "ac=selective: moe_act"},
};

/* A cell whose meaning is not certain, and the column that the reason names. */
static const char *const refused[][2] = {
    {"n_gpus=4-8", "n_gpus"},
    {"n_gpus=8/16", "n_gpus"},
    {"n_gpus=8 per node", "n_gpus"},
    {"tp=2x4", "tp"},
    {"tp=1.5", "tp"},
    {"seq=2048/4096", "seq"},
    {"vocab=1.28e5k", "vocab"},
    {"global_batch_seqs=2 per GPU", "global_batch_seqs"},
    {"zero_stage=7", "zero_stage"},
    {"zero_stage=a sharding of tomorrow", "zero_stage"},
    {"n_gpus=\"8,16\"", "n_gpus"},
    {"n_gpus=\"4,8\"", "n_gpus"},
    {"n_gpus=\"1024,16\"", "n_gpus"},
    {"n_gpus=\"8,128\"", "n_gpus"},
    {"tp=\"2,128\"", "tp"},
    {"n_gpus=4 or 8", "n_gpus"},
    {"n_gpus=8 each", "n_gpus"},
    {"n_gpus=0x10", "n_gpus"},
    {"tp=\"2,4\"", "tp"},
    {"tp=2 to 4", "tp"},
    {"seq=\"1024,2048\"", "seq"},
    {"vocab=128 thousand", "vocab"},
    {"global_batch_seqs=8 samples/GPU", "global_batch_seqs"},
    {"global_batch_seqs=8 a GPU", "global_batch_seqs"},
    {"precision=int7", "precision"},
    {"precision=mixed int8", "precision"},
    {"ac=a policy of tomorrow", "ac"},
    {"ac=fully sharded only", "ac"},
    {"ac=full off", "ac"},
    {"ac=full (off)", "ac"},
    {"ac=Full recompute: no", "ac"},
    {"ac=None / full", "ac"},
    {"ac=full or selective", "ac"},
    {"ac=not full", "ac"},
    {"sp=perhaps", "sp"},
    {"compile=perhaps", "compile"},
    {"step_time_s=2 to 3", "step_time_s"},
    {"step_time_s=about 3", "step_time_s"},
    {"step_time_s=1 GiB", "step_time_s"},
    {"step_time_s=inf", "step_time_s"},
    {"step_time_s=0x10", "step_time_s"},
    {"step_time_s=1e999", "step_time_s"},
    {"peak_mem=80 percent", "peak_mem"},
    {"peak_mem=1 s", "peak_mem"},
    {"peak_mem=1000 ms", "peak_mem"},
    {"peak_mem=inf", "peak_mem"},
    {"peak_mem=0x10", "peak_mem"},
    {"oom=perhaps", "oom"},
    {"gpu=TPU v5p", "GPU"},
    {"framework=xtuner;tp=1;sp=0;zero_stage=3;ac=selective_checkpoint=1.0", "ac"},
    {"ac=selective (half of them)", "ac"},
    {"model=llama3-8b QLoRA", "QLoRA"},
    {"model=DeepSeek V3 32B;n_layers=;d_model=;n_heads=;n_kv_heads=;d_ff=", "billion"},
};

/* Returns the scores of a row as one JSON text. */
static char *scores_of(Arena *arena, const char *changes)
{
    json_t *root = published_row_scored(arena, changes);
    char *text = json_dumps(json_object_get(json_object_get(root, "runs"), "scores"), 0);
    json_decref(root);
    return text;
}

static const char *reason_of(Arena *arena, const char *changes)
{
    json_t *root = published_row_scored(arena, changes);
    const json_t *list = json_object_get(json_object_get(root, "runs"), "not_scored");
    const char *text = json_string_value(json_object_get(json_array_get(list, 0), "reason"));
    const char *copy = arena_print(arena, "%s", text != NULL ? text : "");
    json_decref(root);
    return copy;
}

static void other_spellings_have_the_same_prediction(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        Arena *arena = arena_new();
        const char *usual = same[i].usual, *equals = strchr(usual, '=');
        char *want = scores_of(arena, usual);
        if (strlen(want) < 8) fail_msg("%s: %s", usual, reason_of(arena, usual));
        for (size_t k = 0; same[i].others[k] != NULL; k++) {
            /* If a row names a cell twice, the first one counts. */
            const char *other = same[i].others[k], *own = strchr(other, '=');
            const char *changes =
                own != NULL ? arena_print(arena, "%s;%s", other, usual)
                            : arena_print(arena, "%.*s=%s", (int)(equals - usual), usual, other);
            char *found = scores_of(arena, changes);
            if (strcmp(want, found) != 0)
                fail_msg("'%s' is read differently than '%s':\n%s\n%s\n%s", changes, usual, want,
                         found, reason_of(arena, changes));
            free(found);
        }
        free(want);
        arena_free(arena);
    }
}

static void stated_cells_change_the_prediction(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        Arena *arena = arena_new();
        char *one = scores_of(arena, others[i][0]), *two = scores_of(arena, others[i][1]);
        if (strlen(one) < 8 || strlen(two) < 8 || strcmp(one, two) == 0)
            fail_msg("'%s' and '%s' are predicted alike: %s\n%s", others[i][0], others[i][1], one,
                     reason_of(arena, others[i][1]));
        free(one);
        free(two);
        arena_free(arena);
    }
}

static void uncertain_cells_are_refused_by_name(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *reason = reason_of(arena, refused[i][0]);
        if (strstr(reason, refused[i][1]) == NULL)
            fail_msg("'%s' is not refused by name: '%s'", refused[i][0], reason);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_spellings_have_the_same_prediction),
        cmocka_unit_test(stated_cells_change_the_prediction),
        cmocka_unit_test(uncertain_cells_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
