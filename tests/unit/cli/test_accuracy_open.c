/* tandem accuracy: cells that a row leaves open. A default fills each one that something implies;
 * the others are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"

/* A row by its cells. */
static const char *const columns[] = {
    "id",         "source",       "model",     "n_layers",   "d_model",     "n_heads",
    "n_kv_heads", "d_ff",         "vocab",     "gpu",        "n_gpus",      "gpus_per_node",
    "tp",         "sp",           "pp",        "vp",         "cp",          "ep",
    "dp_shard",   "dp_replicate", "framework", "zero_stage", "micro_batch", "global_batch_seqs",
    "seq",        "precision",    "ac",        "compile",    "step_time_s", "moe_experts",
    "missing",    "split"};
static const char *const plain[] = {
    "a",    "s",    "llama3-8b", "4",      "1024", "8",    "8",
    "4096", "4096", "H100-SXM",  "8",      "8",    "2",    "1",
    "1",    "1",    "1",         "1",      "",     "",     "Megatron-Core 0.12",
    "1",    "1",    "8",         "1024",   "bf16", "none", "no",
    "1",    "",     "",          "dev-val"};
enum { N_COLUMNS = sizeof columns / sizeof *columns };
_Static_assert(sizeof plain / sizeof *plain == N_COLUMNS, "a cell for each column");

/* Returns the result of `plain` with another cell in one column. */
static json_t *result_of(Arena *arena, const char *column, const char *cell)
{
    Str s = str_in(arena);
    for (int i = 0; i < N_COLUMNS; i++) str_print(&s, "%s%s", i == 0 ? "" : ",", columns[i]);
    str_add(&s, "\n");
    for (int i = 0; i < N_COLUMNS; i++)
        str_print(&s, "%s%s", i == 0 ? "" : ",", strcmp(columns[i], column) == 0 ? cell : plain[i]);
    str_add(&s, "\n");
    CommandResult r =
        COMMAND(arena, 60, "accuracy", "--runs", command_table(arena, str_text(&s)), "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    return root;
}

/* Returns the prediction of `what`; 0: there is none. */
static double predicted(Arena *arena, const char *column, const char *cell, const char *what)
{
    json_t *root = result_of(arena, column, cell);
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

static const char *reason(Arena *arena, const char *column, const char *cell)
{
    json_t *root = result_of(arena, column, cell);
    const json_t *list = json_object_get(json_object_get(root, "runs"), "not_scored");
    assert_int_equal(json_array_size(list), 1);
    const char *text = json_string_value(json_object_get(json_array_get(list, 0), "reason"));
    const char *copy = arena_print(arena, "%s", text);
    json_decref(root);
    return copy;
}

static const char stated[] = "step time", open[] = "step time, not all stated";

/* Each cell with a default is filled, and the row is listed as one that does not state all. */
static void open_cells_are_filled_and_counted_apart(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const filled[][2] = {
        {"n_heads", ""},    {"n_kv_heads", "n/a"}, {"d_ff", "unknown"}, {"vocab", ""},
        {"zero_stage", ""}, {"ac", "unstated"},    {"precision", ""},   {"micro_batch", "-"}};
    const double whole = predicted(arena, "", "", stated);
    assert_true(whole > 0);
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        assert_true(predicted(arena, filled[i][0], filled[i][1], stated) == 0);
        assert_true(predicted(arena, filled[i][0], filled[i][1], open) > 0);
    }
    arena_free(arena);
}

/* A framework's default is the value that its documentation gives: the row predicts as if it had
 * stated it. */
static void a_default_predicts_as_the_stated_value(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_true(predicted(arena, "zero_stage", "", open) ==
                predicted(arena, "zero_stage", "0", stated));
    assert_true(predicted(arena, "ac", "", open) == predicted(arena, "ac", "none", stated));
    assert_true(predicted(arena, "vocab", "", open) == predicted(arena, "vocab", "128256", stated));
    assert_true(predicted(arena, "n_layers", "4 (of 32)", stated) ==
                predicted(arena, "n_layers", "4", stated));
    assert_true(predicted(arena, "seq", "1k", stated) == predicted(arena, "seq", "1024", stated));
    arena_free(arena);
}

/* Without the number of GPUs or of sequences a step time means nothing; memory does. */
static void a_step_time_that_depends_on_an_open_cell_is_not_scored(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const cells[] = {"n_gpus", "global_batch_seqs"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(predicted(arena, cells[i], "", stated) == 0);
        assert_true(predicted(arena, cells[i], "", open) == 0);
        assert_true(predicted(arena, cells[i], "", "fits") == 1);
    }
    arena_free(arena);
}

/* No default stands for a device or for a model without a shape or a known name. */
static void what_nothing_implies_is_refused_by_name(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(reason(arena, "gpu", "Gaudi 3"), "Gaudi 3"));
    assert_true(predicted(arena, "d_model", "", stated) == 0); /* Llama 3 8B has 4,096 */
    assert_true(predicted(arena, "d_model", "", open) > 0);
    assert_non_null(strstr(reason(arena, "model", "t5-base"), "encoder"));
    arena_free(arena);
}

/* A batch that does not divide is evened out; a framework without a profile gets its family's. */
static void odd_cells_are_predicted_with_a_stand_in(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_true(predicted(arena, "global_batch_seqs", "7", open) ==
                predicted(arena, "global_batch_seqs", "8", stated));
    assert_true(predicted(arena, "framework", "OurTrainer 2", stated) > 0);
    assert_true(predicted(arena, "model", "somebody-7b", stated) > 0);
    assert_true(predicted(arena, "ac", "sometimes", open) > 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_cells_are_filled_and_counted_apart),
        cmocka_unit_test(a_default_predicts_as_the_stated_value),
        cmocka_unit_test(a_step_time_that_depends_on_an_open_cell_is_not_scored),
        cmocka_unit_test(what_nothing_implies_is_refused_by_name),
        cmocka_unit_test(odd_cells_are_predicted_with_a_stand_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
