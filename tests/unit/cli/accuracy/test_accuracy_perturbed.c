/* tandem accuracy on random rows: published rows with cells blanked, other GPUs, frameworks,
 * precisions and degrees. Each gets a sane prediction, or a refusal with a reason. The seed is
 * fixed; TANDEM_TEST_SEED sets another. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/accuracy/accuracy.h"
#include "planner/base/rng.h"
#include "tests/support/command.h"

static const char table[] = TANDEM_SOURCE_DIR "/tests/data/published_runs.csv";
enum { N_ROWS = 80 };

/* Dense peak in TFLOP/s of the narrowest type; 0: the library does not have this GPU. */
static const struct {
    const char *name;
    double peak;
} gpus[] = {{"GB200", 10000},       {"NVIDIA GB300 280 GB", 15000},
            {"H20", 296},           {"A800-SXM4-80GB", 312},
            {"L40S", 733},          {"AMD Instinct MI300X", 2615},
            {"B300", 12600},        {"B200 (power limited)", 9000},
            {"H100 0W", 1979},      {"H200 99999W", 1979},
            {"TPU v5p", 0},         {"Gaudi2", 0},
            {"NVIDIA RTX 6000", 0}, {"V100", 125}};
enum { N_GPUS = sizeof gpus / sizeof *gpus };

/* Columns that a perturbation sets, with the values it may set; NULL ends them. */
static const struct {
    const char *column, *values[14];
} choices[] = {
    {"framework",
     {"torchtitan 2027", "Megatron-Core 0.99", "NeMo 24.07", "DeepSpeed 0.99", "nanotron",
      "MaxText", "a framework of tomorrow", "", "HF Trainer", "composer", "Megatron-LM 2021"}},
    {"precision", {"nvfp4", "mxfp8", "fp8 hybrid", "int7", "", "fp16", "tf32", "rowwise", "BF16"}},
    {"n_gpus", {"1", "3", "8", "12", "36", "64", "100", "1024", "0", "-8", "many"}},
    {"gpus_per_node", {"1", "4", "8", "72", ""}},
    {"tp", {"1", "2", "3", "8", ""}},
    {"pp", {"1", "2", "4", "", "0"}},
    {"cp", {"1", "2", "4", ""}},
    {"ep", {"1", "2", "8", ""}},
    {"micro_batch", {"1", "3", "64", ""}},
    {"global_batch_seqs", {"1", "7", "256", "100000", ""}},
    {"seq", {"1", "2048", "131072", ""}},
    {"zero_stage", {"0", "2", "7", "FULL_SHARD", ""}},
    {"vocab", {"", "100", "50257"}},
    {"ac", {"full", "", "a policy of tomorrow"}},
    {"interconnect", {"", "8x400Gb IB", "NVL36", "carrier pigeons"}},
};
enum { N_CHOICES = sizeof choices / sizeof *choices };

typedef struct Row {
    char what[160]; /* the changes, for a failure's message */
    double peak;
    const char **cells;
} Row;

static uint64_t seed(void)
{
    const char *text = getenv("TANDEM_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 20261126;
}

static uint32_t column_of(const Csv *csv, const char *name)
{
    for (uint32_t i = 0; i < csv->columns.n; i++)
        if (strcmp(csv->columns.at[i], name) == 0) return i;
    fail_msg("no column %s", name);
    return 0;
}

static double peak_of(const char *gpu)
{
    return strstr(gpu, "A100") != NULL ? 312 : strstr(gpu, "B200") != NULL ? 9000 : 2615;
}

/* Returns one row of the table with one to three changes. */
static Row perturbed(Arena *arena, const Csv *csv, uint64_t i)
{
    uint64_t draw = 0;
#define BELOW(n) rng_below(seed(), i, draw++, (n))
    const uint32_t from = (uint32_t)BELOW(csv->n_rows);
    Row row = {.cells = arena_alloc(arena, csv->columns.n * sizeof(char *))};
    for (uint32_t c = 0; c < csv->columns.n; c++)
        row.cells[c] = csv_cell(csv, from, csv->columns.at[c]);
    row.cells[column_of(csv, "split")] = "dev-val";
    row.cells[column_of(csv, "id")] = arena_print(arena, "p%u", (unsigned)i);
    row.peak = peak_of(row.cells[column_of(csv, "gpu")]);
    for (uint64_t n = 1 + BELOW(3); n > 0; n--) {
        const char *column, *value;
        if (BELOW(3) == 0) {
            const uint64_t g = BELOW(N_GPUS);
            column = "gpu", value = gpus[g].name, row.peak = gpus[g].peak;
        } else {
            const uint64_t k = BELOW(N_CHOICES);
            uint32_t n_values = 0;
            while (n_values < 14 && choices[k].values[n_values] != NULL) n_values++;
            column = choices[k].column, value = choices[k].values[BELOW(n_values)];
        }
        row.cells[column_of(csv, column)] = value;
        const size_t used = strlen(row.what);
        snprintf(row.what + used, sizeof row.what - used, "%s=%s; ", column, value);
    }
#undef BELOW
    return row;
}

/* Returns the table as text, with every cell quoted. */
static const char *text_of(Arena *arena, const Csv *csv, const Row *rows)
{
    Str s = str_in(arena);
    for (uint32_t c = 0; c < csv->columns.n; c++)
        str_print(&s, "%s%s", c == 0 ? "" : ",", csv->columns.at[c]);
    for (uint32_t i = 0; i < N_ROWS; i++) {
        for (uint32_t c = 0; c < csv->columns.n; c++)
            str_print(&s, "%s\"%s\"", c == 0 ? "\n" : ",", rows[i].cells[c]);
    }
    str_add(&s, "\n");
    return str_text(&s);
}

static double number_of(const Csv *csv, const Row *row, const char *column, double otherwise)
{
    const double value = strtod(row->cells[column_of(csv, column)], NULL);
    return value > 0 ? value : otherwise;
}

/* Returns a lower bound of the parameters: attention's two square matrices and a feed-forward of
 * twice the width, which every model of the table exceeds. */
static double least_parameters(const Csv *csv, const Row *row)
{
    const double d = number_of(csv, row, "d_model", 0), n = number_of(csv, row, "n_layers", 0);
    return n * (2 * d * d + 2 * d * 2 * d);
}

/* No step is faster than the products of `least_parameters` at the GPU's highest peak, and none
 * takes a month. No memory is below the 16-bit weights cut over all ranks, or above a petabyte. */
static void check_score(const Csv *csv, const Row *row, const json_t *score)
{
    const char *what = json_string_value(json_object_get(score, "what"));
    const double value = json_number_value(json_object_get(score, "predicted"));
    const double ranks = number_of(csv, row, "n_gpus", 0), weights = least_parameters(csv, row);
    if (!(isfinite(value) && value >= 0)) fail_msg("%s%s = %g", row->what, what, value);
    if (!(row->peak > 0)) fail_msg("%s: %s of a GPU that the library lacks", row->what, what);
    if (strncmp(what, "step time", 9) == 0) {
        const double tokens =
            number_of(csv, row, "global_batch_seqs", 0) * number_of(csv, row, "seq", 0);
        const double least = 6 * weights * tokens / (fmax(ranks, 1) * row->peak * 1e12);
        if (value < (ranks > 0 ? least : 0) || value > 30 * 86400.)
            fail_msg("%s%s = %g s, at least %g", row->what, what, value, least);
    }
    if (strncmp(what, "memory", 6) == 0) {
        const double least = ranks > 0 ? 2 * weights / ranks : 0;
        if (value < least || value > 1e15)
            fail_msg("%s%s = %g bytes, at least %g", row->what, what, value, least);
    }
}

static void every_row_is_predicted_or_refused_by_name(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Csv csv;
    assert_true(csv_read(table, arena, &csv, &d));
    Row *rows = arena_alloc(arena, N_ROWS * sizeof *rows);
    for (uint32_t i = 0; i < N_ROWS; i++) rows[i] = perturbed(arena, &csv, i);
    const char *path = command_table(arena, text_of(arena, &csv, rows));
    CommandResult r = COMMAND(arena, 240, "accuracy", "--runs", path, "--json", "--jobs", "1");
    if (r.exit_code != 0) fail_msg("exit %d, signal %d: %s", r.exit_code, r.signal, r.err);
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    const json_t *runs = json_object_get(root, "runs"), *scores = json_object_get(runs, "scores");
    bool scored[N_ROWS] = {false};
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *score = json_array_get(scores, i);
        const char *id = json_string_value(json_object_get(score, "row"));
        const uint32_t at = (uint32_t)strtoul(id + 1, NULL, 10);
        assert_true(id[0] == 'p' && at < N_ROWS);
        check_score(&csv, &rows[at], score);
        scored[at] = true;
    }
    uint32_t n_scored = 0, n_refused = 0;
    for (uint32_t i = 0; i < N_ROWS; i++) n_scored += scored[i];
    const json_t *refused = json_object_get(runs, "not_scored");
    for (size_t i = 0; i < json_array_size(refused); i++) {
        const json_t *one = json_array_get(refused, i);
        assert_true(json_string_length(json_object_get(one, "reason")) > 8);
        n_refused += (uint32_t)json_integer_value(json_object_get(one, "n"));
    }
    if (n_scored + n_refused != N_ROWS)
        fail_msg("%u rows are predicted, %u refused, of %d", n_scored, n_refused, N_ROWS);
    assert_true(n_scored > N_ROWS / 4 && n_refused > 0); /* the test must see both */
    json_decref(root);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_predicted_or_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
