/* tandem fit: the largest sizes that it names are accepted by `sim`, and the next larger ones are
 * not. The number of nodes that it names is the least that keeps the deadline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/str.h"
#include "tests/support/document.h"
#include "tests/support/test_arena.h"

/* All tests ask about the same plans, so they share a store. */
static const char store[] = "test_fit.db";
static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

#define FIT(...)                                                                                   \
    COMMAND(arena, 120, "fit", llama, "--db", store, "--set", "model.layers=8", "--set",           \
            "batch.global=32", __VA_ARGS__)

/* The named size fits, and the next larger one that `fit` tries does not. */
static void fit_names_the_largest_sizes_that_fit(void **state)
{
    (void)state;
    json_t *root = document_of(FIT("--json"), 0);
    const struct {
        const char *key, *setting;
    } sizes[] = {{"seq", "batch.seq"}, {"layers", "model.layers"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const double most = document_number(json_object_get(root, sizes[i].key), "most");
        double base = 1; /* the largest power of two up to `most` */
        while (2 * base <= most) base *= 2;
        const double tried[] = {most, most + base / 8};
        for (int k = 0; k < 2; k++) {
            const char *setting = arena_print(arena, "%s=%.0f", sizes[i].setting, tried[k]);
            CommandResult r = COMMAND(arena, 60, "check", llama, "--set", "model.layers=8", "--set",
                                      "batch.global=32", "--set", setting);
            if (r.exit_code != (k == 0 ? 0 : 4)) fail_msg("%s\n%s", setting, r.err);
        }
    }
    json_decref(root);
}

static void deadlines_and_budgets_choose_the_number_of_nodes(void **state)
{
    (void)state;
    json_t *root = document_of(FIT("--json", "--tokens", "1T", "--price", "2"), 0);
    const json_t *rows = json_object_get(root, "nodes");
    const size_t n = json_array_size(rows);
    assert_true(n >= 4);
    const double days = document_number(json_array_get(rows, 2), "days"),
                 usd = document_number(json_array_get(rows, 2), "usd");
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_true(document_number(row, "ranks") == 8 * document_number(row, "nodes"));
        assert_true(fabs(document_number(row, "usd") -
                         document_number(row, "days") * 24 * document_number(row, "ranks") * 2) <
                    1e-6 * document_number(row, "usd"));
        if (i > 0)
            assert_true(document_number(row, "days") <
                        document_number(json_array_get(rows, i - 1), "days"));
    }
    json_t *other = document_of(
        FIT("--json", "--tokens", "1T", "--days", arena_print(arena, "%.9g", days * 1.0001)), 0);
    assert_true(document_number(other, "least_nodes") ==
                document_number(json_array_get(rows, 2), "nodes"));
    json_decref(other);
    /* The least number of nodes that keeps the budget is the smallest cluster. */
    other = document_of(FIT("--json", "--tokens", "1T", "--price", "2", "--usd",
                            arena_print(arena, "%.9g", usd * 2)),
                        0);
    assert_true(document_number(other, "least_nodes") ==
                document_number(json_array_get(rows, 0), "nodes"));
    json_decref(other);
    CommandResult r = FIT("--tokens", "1T", "--days", "0.001");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(
        strstr(r.err, "no number of nodes meets the deadline\n  hint: the nearest miss: "));
    json_decref(root);
}

/* Plain data parallelism shards nothing, so more nodes hold more copies of the model. */
static void more_nodes_hold_more_copies_without_sharding(void **state)
{
    (void)state;
    json_t *root =
        document_of(COMMAND(arena, 60, "fit", TANDEM_SOURCE_DIR "/scripts/plans/gpt2_124m.lua",
                            "--set", "model.layers=1", "--db", "none", "--json", "--tokens", "1T"),
                    0);
    const json_t *rows = json_object_get(root, "nodes");
    assert_int_equal(json_array_size(rows), 3); /* 512 sequences in micro-batches of 16 */
    assert_true(document_number(json_array_get(rows, 2), "ranks") == 32);
    json_decref(root);
}

/* --dry-run lists the plans that `fit` would try, and makes no store. */
static void a_dry_run_lists_plans_and_makes_no_store(void **state)
{
    (void)state;
    const char *db = arena_print(arena, "%s/none.db", command_new_folder(arena));
    CommandResult r = COMMAND(arena, 60, "fit", llama, "--db", db, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "the plan itself\n"));
    assert_non_null(strstr(r.out, "--set parallel.ac=full\n"));
    assert_non_null(strstr(r.out, "--set batch.seq=16384\n"));
    assert_null(strstr(r.out, "fits"));
    assert_int_not_equal(access(db, F_OK), 0);
}

static void questions_without_an_answer_are_refused(void **state)
{
    (void)state;
    CommandResult r = FIT("--days", "3");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--days needs --tokens"));
    r = FIT("--pue", "1.2");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--pue needs --tokens"));
    r = FIT("--tokens", "1T", "--days", "-3");
    assert_int_equal(r.exit_code, 2);
    r = FIT("--tokens", "1T", "--usd", "1000", "--set", "gpu=MI300X");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--usd: no price is known for these GPUs"));
    assert_non_null(strstr(r.out, "price       unknown: no price of a GPU hour is known; "));
    r = COMMAND(arena, 60, "fit", TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua", "--db", "none",
                "--tokens", "1T");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--tokens: the plan has no cluster to grow"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    unlink(store);
    unlink("test_fit.db-wal");
    unlink("test_fit.db-shm");
    const struct CMUnitTest tests[] = {
        TEST(fit_names_the_largest_sizes_that_fit),
        TEST(deadlines_and_budgets_choose_the_number_of_nodes),
        TEST(more_nodes_hold_more_copies_without_sharding),
        TEST(a_dry_run_lists_plans_and_makes_no_store),
        TEST(questions_without_an_answer_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
