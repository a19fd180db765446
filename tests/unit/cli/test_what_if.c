/* sim --what-if prints a row for each change of the plan or of its hardware. Each row must equal
 * the simulation of the changed plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "tests/support/document.h"
#include "tests/support/test_arena.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

/* Simulates a small model, because ten simulations are needed to find the least factor of a
 * rate. */
#define SIM(...)                                                                                   \
    COMMAND(arena, 120, "sim", llama, "--set", "model.layers=2", "--db", "none", "--json",         \
            __VA_ARGS__)

static const json_t *row_of(const json_t *root, const char *name)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(root, "what_if"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "what_if")), name) == 0) return row;
    }
    fail_msg("no row '%s'", name);
    return NULL;
}

/* Checks that the row and `sim` with this setting have the same step. */
static void same_step(const json_t *row, const char *setting, const char *other)
{
    json_t *sim = document_of(
        other != NULL ? SIM("--set", setting, "--set", other) : SIM("--set", setting), 0);
    if (document_number(row, "step_ps") != document_number(sim, "step_ps"))
        fail_msg("%s: %.0f ps, sim says %.0f", setting, document_number(row, "step_ps"),
                 document_number(sim, "step_ps"));
    json_decref(sim);
}

static void rows_equal_simulations_of_the_changed_plan(void **state)
{
    (void)state;
    json_t *root = document_of(SIM("--price", "2", "--what-if", "seq=2x", "--what-if", "gpu=b200",
                                   "--what-if", "parallel.ac=full", "--what-if", "nic=2x"),
                               0);
    const json_t *base = row_of(root, "as it is"), *nic = row_of(root, "nic=2x");
    assert_true(document_number(base, "step_ps") == document_number(root, "step_ps"));
    same_step(row_of(root, "seq=2x"), "batch.seq=16384", NULL);
    same_step(row_of(root, "gpu=b200"), "gpu=B200-SXM-180GB", NULL);
    same_step(row_of(root, "parallel.ac=full"), "parallel.ac=full", NULL);
    same_step(nic, "cluster.nic_bytes_per_s=1e11", NULL);
    /* A token costs the same if the price of an hour grows as much as the speed. */
    const double ratio = document_number(nic, "tokens_per_s_per_device") /
                         document_number(base, "tokens_per_s_per_device");
    assert_true(fabs(document_number(nic, "break_even_usd") - 2 * ratio) < 1e-9);
    assert_true(document_number(row_of(root, "all together"), "step_ps") !=
                document_number(base, "step_ps"));
    json_decref(root);
}

/* The short name of a GPU may stand for several products, so the table names the product. */
static void rows_name_the_product_of_a_gpu(void **state)
{
    (void)state;
    CommandResult r = COMMAND(arena, 120, "sim", llama, "--set", "model.layers=2", "--db", "none",
                              "--what-if", "gpu=a100");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "  gpu=A100-SXM4-80GB "));
    assert_null(strstr(r.out, " \n")); /* empty cells at the end of a row print nothing */
}

/* Changes apply to the cluster that --cluster names: another GPU in its nodes, or another cluster
 * in its place. */
static void changes_apply_to_a_named_cluster(void **state)
{
    (void)state;
    static const char *const others[][3] = {{"dgx_h100", "gpu=B200", "B200-SXM-180GB"},
                                            {"hgx_b200", "gpu=H100", "H100-SXM5-80GB"},
                                            {"hgx_b200", "cluster=hgx_h200", "hgx_h200"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *const *o = others[i];
        json_t *root = document_of(SIM("--cluster", o[0], "--what-if", o[1]), 0);
        json_t *set = document_of(SIM("--cluster", o[0], "--set", o[1]), 0);
        const double changed = document_number(row_of(root, o[1]), "step_ps");
        if (changed == document_number(root, "step_ps"))
            fail_msg("--cluster %s: %s changes nothing", o[0], o[1]);
        assert_true(changed == document_number(set, "step_ps"));
        json_decref(root);
        json_decref(set);
        const CommandResult r =
            COMMAND(arena, 120, "check", llama, "--cluster", o[0], "--set", o[1]);
        if (strstr(r.out, o[2]) == NULL) fail_msg("--cluster %s: %s\n%s", o[0], o[1], r.out);
    }
}

/* Without a price, the column has no numbers and the table says once why. */
static void a_missing_price_is_reported_once(void **state)
{
    (void)state;
    static const char why[] = "pays up to    unknown: no price of a GPU hour is known; --price USD";
    for (int priced = 0; priced < 2; priced++) {
        CommandResult r = COMMAND(arena, 120, "sim", llama, "--set", "model.layers=2", "--db",
                                  "none", "--what-if", "seq=2x", "--set",
                                  "cluster.device.usd_per_hour=0", priced ? "--price" : NULL, "2");
        assert_int_equal(r.exit_code, 0);
        const char *said = strstr(r.out, why);
        if ((said == NULL) != priced) fail_msg("%s", r.out);
        assert_true(priced || strstr(said + 1, why) == NULL);
    }
}

/* The row's `enough` is the least factor at which the step is within 1 % of the step at a much
 * larger factor. */
static void enough_is_the_least_factor_within_one_percent(void **state)
{
    (void)state;
    json_t *root = document_of(SIM("--what-if", "nic=2x"), 0);
    const double factor = document_number(row_of(root, "nic=2x"), "enough");
    json_decref(root);
    double step[3];
    const double rates[] = {factor * 5e10, factor * 5e10 / 1.3, 64 * 5e10};
    for (int i = 0; i < 3; i++) {
        json_t *sim = document_of(
            SIM("--set", arena_print(arena, "cluster.nic_bytes_per_s=%.17g", rates[i])), 0);
        step[i] = document_number(sim, "step_ps");
        json_decref(sim);
    }
    assert_true(step[0] <= 1.01 * step[2]);
    assert_true(step[1] > 1.01 * step[2]);
}

static void mistakes_in_changes_are_reported(void **state)
{
    (void)state;
    CommandResult r = SIM("--what-if", "nic");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--what-if nic: KEY=VALUE is expected"));
    r = SIM("--what-if", "nothing=2x");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "the plan has no number nothing to multiply"));
    r = SIM("--what-if", "nic=2x", "--what-if", "gpu=B9000", "--what-if", "nothing=3");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.out, "--what-if gpu=B9000: there is no GPU 'B9000'"));
    assert_non_null(strstr(r.out, "GPUs are A10, A100,"));
    assert_non_null(strstr(r.out, "--what-if nothing=3: unknown key 'nothing'"));
    assert_null(strstr(r.out, "step_ps"));
    assert_non_null(strstr(r.out, "short keys: nic, nvlink, hbm, "));
    r = SIM("--what-if", "hbn=2x");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.out, "did you mean 'hbm'?"));
    r = SIM("--what-if", "mesh.tp=2x");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.out, "give the value itself, as in mesh.tp=4"));
    r = SIM("--what-if", "gpu=H1000");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.out, "--what-if gpu=H1000: there is no GPU 'H1000'"));
    assert_non_null(strstr(r.out, "did you mean 'H100'?"));
}

/* The plan fixes dp_shard. A change of other axes or of the nodes frees it. */
static void a_change_of_ranks_frees_dp_shard(void **state)
{
    (void)state;
    json_t *root = document_of(
        SIM("--what-if", "mesh.tp=4", "--what-if", "nodes=2x", "--what-if", "mesh.tp=3"), 0);
    same_step(row_of(root, "mesh.tp=4"), "mesh.tp=4", "mesh.dp_shard=-1");
    same_step(row_of(root, "nodes=2x"), "cluster.nodes=4", "mesh.dp_shard=-1");
    assert_non_null(json_string_value(json_object_get(row_of(root, "mesh.tp=3"), "reason")));
    json_decref(root);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(changes_apply_to_a_named_cluster),
                                       TEST(rows_equal_simulations_of_the_changed_plan),
                                       TEST(rows_name_the_product_of_a_gpu),
                                       TEST(a_missing_price_is_reported_once),
                                       TEST(enough_is_the_least_factor_within_one_percent),
                                       TEST(mistakes_in_changes_are_reported),
                                       TEST(a_change_of_ranks_frees_dp_shard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
