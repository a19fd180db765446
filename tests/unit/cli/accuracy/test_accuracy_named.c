/* tandem accuracy on kernels and collectives that other sources name in other words. A row is
 * predicted as under its usual name, or it is refused with a reason. */
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

/* Kernels and collectives in other spellings are predicted. A kernel or collective that the library
 * lacks is refused, even if its name contains a known name. */
static void names_of_kernels_and_collectives_are_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char kernel[] = "kernel,gpu,dtype,M,N,K,shape,tflops,time_us,notes";
    static const char comm[] = "collective,bytes,n_gpus,nodes,gpu,interconnect,busbw_GBps,time_us";
    static const struct {
        /* refused: a part of the reason; "" if the row is predicted */
        const char *section, *head, *row, *refused;
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
        {"kernels", kernel, "gemm,H100,nvfp4 (bf16 output),4096,4096,4096,,,200,", "dtype"},
        {"kernels", kernel, "gemm,H100,bf16 x int4,4096,4096,4096,,,200,", "dtype"},
        {"kernels", kernel, "gemm,H100,tf32 (bf16 inputs),4096,4096,4096,,,200,", "dtype"},
        {"kernels", kernel, "attention_FA4,H100,bf16,,,,s=4096 head_dim=128 causal,,900,",
         "family of attention"},
        {"kernels", kernel, "attention_FA4_fwd,H100,bf16,,,,s=4096 head_dim=128 causal,,900,",
         "family of attention"},
        {"kernels", kernel, "attention_FA2_FA3_fwd,H100,bf16,,,,s=4096 head_dim=128 causal,,900,",
         "family of attention"},
        {"comm", comm, "AllReduce,1048576,8,1,H100-SXM-80GB,NVLink,,50", ""},
        {"comm", comm, "all-reduce,1048576,8,1,h100 sxm5,NVLink,,50", ""},
        {"comm", comm, "reducescatter,1048576,8,1,NVIDIA H100 80GB HBM3,NVLink,,50", ""},
        {"comm", comm, "all_reduce_bias,1048576,8,1,H100,NVLink,,50", "unknown"},
        {"comm", comm, "all_reduce,1 MiB,8,1,H100,NVLink,,50", ""},
        {"comm", comm, "all_reduce,1048576,8,1,GH200,NVLink,,50", "GPU"},
        {"comm", comm, "all_reduce,1048576,2,1,H100 NVL,NVLink,,50", "GPU"},
        {"comm", comm, "all_reduce,1048576,2,1,NVIDIA H100 NVL 94GB,NVLink,,50", "GPU"},
        {"comm", comm, "all_reduce,1048576,2,1,V100-PCIe-16GB,NVLink,,50", "GPU"},
        {"comm", comm, "all_reduce,1 stone,8,1,H100,NVLink,,50", "bytes"},
        {"comm", comm, "all_reduce,1048576,8,1,A100-PCIe-80GB,NVLink,,50", "NVLink"},
        {"comm", comm, "all_reduce,1048576,16,2,H100,InfiniBand,,50", "speed"},
        {"comm", comm, "all_reduce,1048576,16,2,H100,a rope,,50", "network"},
        {"comm", comm, "all_reduce,1048576,16,2,H100,the default,,50", "network"},
        {"comm", comm, "all_reduce,1048576,16,2,H100,a single process,,50", "network"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = refusal(arena, rows[i].section, rows[i].head, rows[i].row);
        const bool fine =
            rows[i].refused[0] == 0 ? why[0] == 0 : strstr(why, rows[i].refused) != NULL;
        if (!fine) fail_msg("'%s': '%s'", rows[i].row, why);
    }
    arena_free(arena);
}

/* Returns the scores of a table's only row as one text; "[]": it has none. */
static const char *scored(Arena *arena, const char *section, const char *head, const char *row)
{
    const char *table = arena_print(arena, "%s,source,split\n%s,s,dev-val\n", head, row);
    CommandResult r = COMMAND(arena, 60, "accuracy", arena_print(arena, "--%s", section),
                              command_table(arena, table), "--json");
    json_t *root = document_of(r, 0);
    json_t *scores = json_object_get(json_object_get(root, section), "scores");
    json_object_del(json_array_get(scores, 0), "row"); /* the row's name is its first cell */
    char *text = json_dumps(scores, 0);
    const char *copy = arena_print(arena, "%s", text);
    free(text);
    json_decref(root);
    return copy;
}

/* Two rows with one meaning have one prediction. */
static void names_with_one_meaning_have_one_prediction(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char gemm[] = "kernel,gpu,M,N,K,shape,tflops,time_us,notes,dtype";
    static const char attention[] = "gpu,dtype,M,N,K,shape,tflops,time_us,notes,kernel";
    static const char on[] = "collective,bytes,n_gpus,nodes,interconnect,busbw_GBps,time_us,gpu";
    static const char over[] = "collective,bytes,n_gpus,nodes,gpu,busbw_GBps,time_us,interconnect";
    static const char product[] = "gemm,H100,4096,4096,4096,,,200,";
    static const char pass[] = "H100,bf16,,,,s=4096 head_dim=128 causal,,900,";
    static const char node[] = "all_reduce,1048576,8,1,PCIe only,,50";
    static const char two[] = "all_reduce,1048576,16,2,H100,,50";
    static const struct {
        const char *section, *head, *row, *usual, *other; /* the last cell's two spellings */
    } pairs[] = {
        {"kernels", gemm, product, "fp8", "fp8 (bf16 out)"},
        {"kernels", gemm, product, "fp8", "fp8/bf16"},
        {"kernels", gemm, product, "bf16", "bf16 (fp32 accumulate)"},
        {"kernels", attention, pass, "attention_fwd_FA3", "attention_FA3_fwd"},
        {"kernels", attention, pass, "attention_fwd_cudnn", "attention_cudnn_fwd"},
        {"kernels", attention, pass, "attention_bwd_FA3", "attention_FA3_BWD"},
        {"comm", on, node, "A100-PCIe-80GB", "NVIDIA A100 80GB PCIe"},
        {"comm", on, node, "A100-PCIe-80GB", "A100 PCIe 40GB"},
        {"comm", on, node, "H100-PCIe-80GB", "H100 80GB PCIe"},
        {"comm", on, "all_reduce,1048576,8,2,NVLink,,50", "GB200", "gb200"},
        {"comm", over, two, "InfiniBand NDR", "IB NDR default settings"},
        {"comm", over, two, "InfiniBand NDR", "over IB NDR"},
        {"comm", over, two, "RoCE 200G", "RoCEv2 200G"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *texts[2] = {pairs[i].usual, pairs[i].other}, *found[2];
        for (int k = 0; k < 2; k++)
            found[k] = scored(arena, pairs[i].section, pairs[i].head,
                              arena_print(arena, "%s,%s", pairs[i].row, texts[k]));
        if (strlen(found[0]) < 8) fail_msg("'%s' is not predicted", texts[0]);
        if (strcmp(found[0], found[1]) != 0)
            fail_msg("'%s' and '%s':\n%s\n%s", texts[0], texts[1], found[0], found[1]);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_kernels_and_collectives_are_read),
        cmocka_unit_test(names_with_one_meaning_have_one_prediction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
