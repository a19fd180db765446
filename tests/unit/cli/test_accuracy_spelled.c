/* tandem accuracy on cells that another source spells in its own way: units, words, empty cells. A
 * row is read as its usual spelling is, or it is refused, and the reason names the column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/command.h"
#include "tests/support/document.h"
#include "tests/support/published_row.h"

/* A cell in the words of the tables, and others with the same meaning; NULL ends them. */
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
      "n_gpus=8 nodes x 8 GPUs", "n_gpus=64 (8 nodes)"}},
    {"seq=8192", {"8k", "8K", "8192.0", "8192 tokens", "8192 (packed)"}},
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
     {"BF16", "bf16-mixed", "bfloat16", "amp_bf16", "BF16 mixed precision", "bf16-true"}},
    {"precision=fp16", {"FP16", "16-mixed", "float16", "amp_fp16", "half"}},
    {"precision=fp8", {"FP8", "float8", "fp8 (delayed scaling)", "bf16 + fp8"}},
    {"ac=none", {"None", "no", "off", "False", "0", "none (default)"}},
    {"ac=full", {"Full", "yes", "true", "1", "full (every layer)", "gradient checkpointing"}},
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
};

/* A cell whose meaning is not certain, and the column that the reason names. */
static const char *const refused[][2] = {
    {"n_gpus=4-8", "n_gpus"},
    {"n_gpus=8/16", "n_gpus"},
    {"n_gpus=8 per node", "n_gpus"},
    {"tp=2x4", "tp"},
    {"tp=1.5", "tp"},
    {"seq=2048/4096", "seq"},
    {"vocab=128k", "vocab"},
    {"global_batch_seqs=4M tokens", "global_batch_seqs"},
    {"global_batch_seqs=2 per GPU", "global_batch_seqs"},
    {"zero_stage=7", "zero_stage"},
    {"zero_stage=a sharding of tomorrow", "zero_stage"},
    {"precision=int7", "precision"},
    {"ac=a policy of tomorrow", "ac"},
    {"sp=perhaps", "sp"},
    {"compile=perhaps", "compile"},
    {"step_time_s=2 to 3", "step_time_s"},
    {"step_time_s=about 3", "step_time_s"},
    {"peak_mem=80 percent", "peak_mem"},
    {"oom=perhaps", "oom"},
    {"gpu=TPU v5p", "GPU"},
};

/* Returns the scores of a row as one text, without its measured values' place in the file. */
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

static void other_spellings_are_read_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        Arena *arena = arena_new();
        const char *usual = same[i].usual, *equals = strchr(usual, '=');
        char *want = scores_of(arena, usual);
        if (strlen(want) < 8) fail_msg("%s: %s", usual, reason_of(arena, usual));
        for (size_t k = 0; same[i].others[k] != NULL; k++) {
            /* the first cell that is named counts */
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

/* Returns the reason why the only row of a table is refused; "": it is predicted. */
static const char *refusal(Arena *arena, const char *section, const char *head, const char *row)
{
    const char *table = arena_print(arena, "%s,source,split\n%s,s,dev-val\n", head, row);
    CommandResult r = COMMAND(arena, 60, "accuracy", arena_print(arena, "--%s", section),
                              command_table(arena, table), "--json");
    json_t *root = document_of(r, 0);
    const json_t *list = json_object_get(json_object_get(root, section), "not_scored");
    const char *text = json_string_value(json_object_get(json_array_get(list, 0), "reason"));
    const char *copy = arena_print(arena, "%s", text != NULL ? text : "");
    json_decref(root);
    return copy;
}

/* Kernels and collectives: other spellings are predicted, and what the library lacks is refused,
 * even if its name contains the name of something else. */
static void names_of_kernels_and_collectives_are_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char kernel[] = "kernel,gpu,dtype,M,N,K,shape,tflops,time_us,notes";
    static const char comm[] = "collective,bytes,n_gpus,nodes,gpu,interconnect,busbw_GBps,time_us";
    static const struct {
        const char *section, *head, *row, *refused; /* a part of the reason; "": predicted */
    } rows[] = {
        {"kernels", kernel, "gemm,NVIDIA H100 80GB HBM3,BF16,4096,4096,4096,,,200,", ""},
        {"kernels", kernel, "gemm,H100,torch.bfloat16,4096,4096,4096,,,200,", ""},
        {"kernels", kernel, "gemm,H100,Float8 e4m3,4096,4096,4096,,,200,", ""},
        {"kernels", kernel, "gemm,H100,int8,4096,4096,4096,,,200,", "dtype"},
        {"kernels", kernel, "gemm,H100,nvfp4,4096,4096,4096,,,200,", "dtype"},
        {"kernels", kernel, "gemm,H100,bf16,4k,4096,4096,,,200,", "no sizes"},
        {"kernels", kernel, "attention_fwd_FA4,H100,bf16,,,,s=4096 head_dim=128 causal,,900,",
         "family of attention"},
        {"kernels", kernel, "attention_fwd_cuDNN,H100,bf16,,,,s=4096 head_dim=128 causal,,900,",
         ""},
        {"comm", comm, "AllReduce,1048576,8,1,H100-SXM-80GB,NVLink,,50", ""},
        {"comm", comm, "all-reduce,1048576,8,1,h100 sxm5,NVLink,,50", ""},
        {"comm", comm, "reducescatter,1048576,8,1,NVIDIA H100 80GB HBM3,NVLink,,50", ""},
        {"comm", comm, "all_reduce_bias,1048576,8,1,H100,NVLink,,50", "unknown"},
        {"comm", comm, "all_reduce,1 MiB,8,1,H100,NVLink,,50", "bytes"},
        {"comm", comm, "all_reduce,1048576,8,1,GH200,NVLink,,50", "GPU"},
        {"comm", comm, "all_reduce,1048576,2,1,H100 NVL,NVLink,,50", "GPU"},
        {"comm", comm, "all_reduce,1048576,16,2,H100,a rope,,50", "network"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = refusal(arena, rows[i].section, rows[i].head, rows[i].row);
        const bool fine =
            rows[i].refused[0] == 0 ? why[0] == 0 : strstr(why, rows[i].refused) != NULL;
        if (!fine) fail_msg("'%s': '%s'", rows[i].row, why);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_spellings_are_read_alike),
        cmocka_unit_test(uncertain_cells_are_refused_by_name),
        cmocka_unit_test(names_of_kernels_and_collectives_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
