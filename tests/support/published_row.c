#include "tests/support/published_row.h"

#include <string.h>

#include "planner/base/str.h"
#include "tests/support/document.h"

/* The columns of a table, and their cells in the plain row. */
static const char *const columns[][2] = {{"id", "a"},
                                         {"source", "s"},
                                         {"model", "llama3-8b"},
                                         {"params_b", ""},
                                         {"n_layers", "4"},
                                         {"d_model", "1024"},
                                         {"n_heads", "8"},
                                         {"n_kv_heads", "8"},
                                         {"d_ff", "4096"},
                                         {"vocab", "4096"},
                                         {"gpu", "H100-SXM"},
                                         {"n_gpus", "8"},
                                         {"gpus_per_node", "8"},
                                         {"tp", "2"},
                                         {"sp", "1"},
                                         {"pp", "1"},
                                         {"vp", "1"},
                                         {"cp", "1"},
                                         {"ep", "1"},
                                         {"dp_shard", ""},
                                         {"dp_replicate", ""},
                                         {"framework", "Megatron-Core 0.12"},
                                         {"zero_stage", "1"},
                                         {"micro_batch", "1"},
                                         {"global_batch_seqs", "8"},
                                         {"seq", "1024"},
                                         {"precision", "bf16"},
                                         {"ac", "none"},
                                         {"compile", "no"},
                                         {"step_time_s", "1"},
                                         {"peak_mem", "1"},
                                         {"oom", ""},
                                         {"peak_mem_kind", "peak_mem_alloc GiB"},
                                         {"moe_experts", ""},
                                         {"moe_topk", ""},
                                         {"moe_ffn", ""},
                                         {"etp", ""},
                                         {"moe_dispatcher", ""},
                                         {"overlap_ep", ""},
                                         {"fp8_recipe", ""},
                                         {"exp_avg_dtype", ""},
                                         {"moe_layer_freq", ""},
                                         {"source_path", ""},
                                         {"normalization", ""},
                                         {"activation", ""},
                                         {"transformer_impl", ""},
                                         {"attention_backend", ""},
                                         {"attention_dropout", ""},
                                         {"fusions_off", ""},
                                         {"cross_entropy_fusion", ""},
                                         {"mtp_layers", ""},
                                         {"pipeline_layout", ""},
                                         {"untie_embeddings", ""},
                                         {"optimizer", ""},
                                         {"framework_month", ""},
                                         {"recompute_granularity", ""},
                                         {"recompute_method", ""},
                                         {"recompute_num_layers", ""},
                                         {"recompute_modules", ""},
                                         {"cuda_graph", ""},
                                         {"overlap_grad_reduce", ""},
                                         {"overlap_param_gather", ""},
                                         {"interconnect", ""},
                                         {"num_distopt_instances", ""},
                                         {"moe_capacity", ""},
                                         {"mla", ""},
                                         {"hybrid_pattern", ""},
                                         {"head_dim", ""},
                                         {"moe_latent", ""},
                                         {"mem_allocated_gib", ""},
                                         {"grad_reduce_in_bf16", ""},
                                         {"tokens_per_s_per_gpu", ""},
                                         {"notes", ""},
                                         {"flag", ""},
                                         {"missing", ""},
                                         {"split", "dev-val"}};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* Returns the cell of a column: the first that `changes` names, or else the plain row's. */
static const char *cell_of(Arena *arena, int column, const char *changes)
{
    const char *key = arena_print(arena, ";%s=", columns[column][0]);
    const char *at = strstr(arena_print(arena, ";%s", changes), key);
    if (at == NULL) return columns[column][1];
    at += strlen(key);
    return arena_print(arena, "%.*s", (int)strcspn(at, ";"), at);
}

json_t *published_rows_scored(Arena *arena, const char *const *changes, size_t n)
{
    Str s = str_in(arena);
    for (int i = 0; i < N_COLUMNS; i++) str_print(&s, "%s%s", i == 0 ? "" : ",", columns[i][0]);
    str_add(&s, "\n");
    for (size_t row = 0; row < n; row++) {
        for (int i = 0; i < N_COLUMNS; i++)
            str_print(&s, "%s%s", i == 0 ? "" : ",", cell_of(arena, i, changes[row]));
        str_add(&s, "\n");
    }
    CommandResult r = COMMAND(arena, n > 1 ? 300 : 60, "accuracy", "--runs",
                              command_table(arena, str_text(&s)), "--json");
    return document_of(r, 0);
}

json_t *published_row_scored(Arena *arena, const char *changes)
{
    return published_rows_scored(arena, &changes, 1);
}

double published_row_predicted(Arena *arena, const char *changes, const char *what)
{
    json_t *root = published_row_scored(arena, changes);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double value = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strcmp(json_string_value(json_object_get(s, "what")), what) == 0)
            value = json_number_value(json_object_get(s, "predicted"));
    }
    json_decref(root);
    return value;
}
