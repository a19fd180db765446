/* See published_row.h. */
#include "tests/support/published_row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/base/str.h"
#include "tests/support/document.h"
#include "tests/support/sample.h"

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
                                         {"pp_schedule", ""},
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
                                         {"moe_shared_ffn", ""},
                                         {"moe_grouped_gemm", ""},
                                         {"position_embedding", ""},
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
                                         {"hidden_dropout", ""},
                                         {"attention_dropout", ""},
                                         {"moe_router_type", ""},
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
                                         {"published_tflops", ""},
                                         {"published_mfu", ""},
                                         {"notes", ""},
                                         {"flag", ""},
                                         {"missing", ""},
                                         {"split", "dev-val"}};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* Returns the cell of a column. It is the first one that `changes` names, or else that of the plain
 * row. */
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

/* Under the sanitizers, only one of PART rows is tried: the words are read by scripts in Lua, and
 * the sanitizers do not look into these. */
enum { MOST_ROWS = 700, PART = 3 };

typedef struct Table {
    const char *rows[MOST_ROWS];
    size_t n;
} Table;

/* Adds a row. Returns its number, which is also used as its id. */
static size_t add(Arena *arena, Table *t, const char *first, const char *then)
{
    assert_true(t->n < MOST_ROWS);
    t->rows[t->n] = arena_print(arena, "id=r%zu;%s;%s", t->n, first, then);
    return t->n++;
}

/* Adds a row that means the same as `usual`. (If a row names a column twice, its first cell
 * counts.) */
static size_t add_other(Arena *arena, Table *t, const char *usual, const char *other)
{
    if (strchr(other, '=') != NULL && strchr(usual, ';') != NULL)
        return add(arena, t, other, usual);
    const int n = (int)(strchr(usual, '=') - usual);
    return add(arena, t, arena_print(arena, "%.*s=%s", n, usual, other), usual);
}

/* Returns the scores of a row as one text, without the row's id. The text is "" if the row was
 * refused. */
static const char *scores_of(Arena *arena, const json_t *root, size_t row)
{
    const char *id = arena_print(arena, "r%zu", row), *text = "";
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strcmp(json_string_value(json_object_get(s, "row")), id) != 0) continue;
        text =
            arena_print(arena, "%s%s %.17g; ", text, json_string_value(json_object_get(s, "what")),
                        json_number_value(json_object_get(s, "predicted")));
    }
    return text;
}

/* Returns the reasons why rows from this source were refused, or from all sources if NULL. */
static const char *reasons_of(Arena *arena, const json_t *root, const char *source)
{
    const char *text = "";
    const json_t *list = json_object_get(json_object_get(root, "runs"), "not_scored");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *of = json_string_value(json_object_get(one, "source"));
        if (source == NULL || strcmp(of, source) == 0)
            text = arena_print(arena, "%s\n%s", text,
                               json_string_value(json_object_get(one, "reason")));
    }
    return text;
}

void spelled_rows_agree(const SpelledRow *same, size_t n)
{
    Arena *arena = arena_new();
    Table t = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        add(arena, &t, same[i].usual, "");
        for (size_t k = 0; k < SPELLED_ROW_OTHERS && same[i].others[k] != NULL; k++)
            if (is_sampled(i + k, PART)) add_other(arena, &t, same[i].usual, same[i].others[k]);
    }
    json_t *root = published_rows_scored(arena, t.rows, t.n);
    size_t row = 0, n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        const char *want = scores_of(arena, root, row++);
        if (strlen(want) < 8) print_error("refused: %s\n", same[i].usual), n_wrong++;
        for (size_t k = 0; k < SPELLED_ROW_OTHERS && same[i].others[k] != NULL; k++) {
            if (!is_sampled(i + k, PART)) continue;
            const char *found = scores_of(arena, root, row++);
            if (strcmp(want, found) == 0) continue;
            print_error("'%s' is read differently:\n%s\n%s\n", t.rows[row - 1], want, found);
            n_wrong++;
        }
    }
    if (n_wrong > 0) fail_msg("%zu rows; reasons: %s", n_wrong, reasons_of(arena, root, NULL));
    json_decref(root);
    arena_free(arena);
}

void spelled_rows_differ(const char *const (*pairs)[2], size_t n)
{
    Arena *arena = arena_new();
    Table t = {.n = 0};
    for (size_t i = 0; i < 2 * n; i++) /* If a row names a column twice, its first cell counts. */
        if (is_sampled(i / 2, PART))
            add(arena, &t, strrchr(pairs[i / 2][i % 2], ';') == NULL ? "" : "source=s",
                pairs[i / 2][i % 2]);
    json_t *root = published_rows_scored(arena, t.rows, t.n);
    size_t row = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_sampled(i, PART)) continue;
        const char *one = scores_of(arena, root, row++), *two = scores_of(arena, root, row++);
        if (strlen(one) < 8 || strlen(two) < 8 || strcmp(one, two) == 0)
            fail_msg("'%s' and '%s' are predicted alike: %s\n%s", pairs[i][0], pairs[i][1], one,
                     reasons_of(arena, root, NULL));
    }
    json_decref(root);
    arena_free(arena);
}

/* Each row has its own source, by which its reason is found. */
void spelled_rows_are_refused(const char *const (*rows)[2], size_t n)
{
    Arena *arena = arena_new();
    Table t = {.n = 0};
    for (size_t i = 0; i < n; i++)
        if (is_sampled(i, PART)) add(arena, &t, rows[i][0], arena_print(arena, "source=q%zu", i));
    json_t *root = published_rows_scored(arena, t.rows, t.n);
    for (size_t i = 0; i < n; i++) {
        if (!is_sampled(i, PART)) continue;
        const char *why = reasons_of(arena, root, arena_print(arena, "q%zu", i));
        if (strstr(why, rows[i][1]) == NULL)
            fail_msg("'%s' is not refused by name: '%s'", rows[i][0], why);
    }
    json_decref(root);
    arena_free(arena);
}
