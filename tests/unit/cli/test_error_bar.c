/* The error bars printed with predictions are those of tests/data/predicted_runs.csv, and today's
 * predictions equal that file. tests/bench/error_bar.py makes both again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/predict.h"
#include "tests/support/command.h"

enum { MOST = 1024 };

static const char *const kinds[] = {"step", "allocated", "reserved"};
static const char *const names[] = {"step time", "memory allocated", "memory reserved"};

typedef struct Row {
    char id[64], what[16], profile[32], gpu[32];
    double measured, predicted;
} Row;

static uint32_t read_rows(Row *rows)
{
    char line[256];
    FILE *f = fopen(TANDEM_SOURCE_DIR "/tests/data/predicted_runs.csv", "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    uint32_t n = 0;
    for (; fgets(line, sizeof line, f) != NULL; n++) {
        assert_true(n < MOST);
        Row *r = &rows[n];
        assert_int_equal(sscanf(line, "%63[^,],%15[^,],%31[^,],%31[^,],%lf,%lf", r->id, r->what,
                                r->profile, r->gpu, &r->measured, &r->predicted),
                         6);
    }
    fclose(f);
    return n;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, uint32_t n, double part)
{
    qsort(values, n, sizeof *values, by_size);
    double place = part * (n - 1), low = floor(place);
    uint32_t i = (uint32_t)low, next = i + 1 < n ? i + 1 : i;
    return values[i] + (place - low) * (values[next] - values[i]);
}

static bool is(const char *wanted, const char *what)
{
    return wanted == NULL || strcmp(wanted, what) == 0;
}

static uint32_t errors_of(const Row *rows, uint32_t n, ErrorOf of, const char *profile,
                          const char *gpu, double *errors)
{
    uint32_t n_errors = 0;
    for (uint32_t i = 0; i < n; i++)
        if (is(kinds[of], rows[i].what) && is(profile, rows[i].profile) && is(gpu, rows[i].gpu))
            errors[n_errors++] = fabs(rows[i].predicted / rows[i].measured - 1);
    return n_errors;
}

/* By the rule, from the rows: the nearest class with five rows. */
static void expect_bar(const Row *rows, uint32_t n, ErrorOf of, const char *profile,
                       const char *gpu)
{
    static double errors[MOST];
    const char *const wider[][2] = {{profile, gpu}, {profile, NULL}, {NULL, gpu}, {NULL, NULL}};
    ErrorBar bar = trust_bar(of, profile, gpu);
    assert_int_equal(bar.n_both, errors_of(rows, n, of, profile, gpu, errors));
    assert_int_equal(bar.n_profile, errors_of(rows, n, of, profile, NULL, errors));
    assert_int_equal(bar.n_gpu, errors_of(rows, n, of, NULL, gpu, errors));
    int i = 0;
    uint32_t n_errors = 0;
    for (; i < 4 && n_errors < 5; i++)
        n_errors = errors_of(rows, n, of, wider[i][0], wider[i][1], errors);
    assert_true(n_errors >= 5);
    assert_int_equal(bar.n, n_errors);
    assert_true((bar.profile != NULL) == (wider[i - 1][0] != NULL));
    assert_true((bar.gpu != NULL) == (wider[i - 1][1] != NULL));
    assert_true(fabs(bar.p50 - quantile(errors, n_errors, .5)) < .00051);
    assert_true(fabs(bar.p90 - quantile(errors, n_errors, .9)) < .00051);
}

static void bars_are_of_these_predictions(void **state)
{
    (void)state;
    static Row rows[MOST];
    uint32_t n = read_rows(rows);
    assert_true(n > 100);
    for (ErrorOf of = 0; of < ERROR_COUNT; of++) {
        for (uint32_t i = 0; i < n; i++) {
            expect_bar(rows, n, of, rows[i].profile, rows[i].gpu);
            expect_bar(rows, n, of, rows[i].profile, "none");
            expect_bar(rows, n, of, "none", rows[i].gpu);
        }
        expect_bar(rows, n, of, "none", "none");
    }
}

static void expect_said(Arena *arena, const char *wanted, const char *runtime, const char *cluster)
{
    const char *set = arena_print(arena, "runtime=%s", runtime);
    CommandResult r = COMMAND(arena, 60, "sim", TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua",
                              "--dry-run", "--cluster", cluster, "--set", set);
    assert_int_equal(r.exit_code, 0);
    if (strstr(r.out, wanted) == NULL) fail_msg("no '%s' in\n%s", wanted, r.out);
}

/* A prediction says which rows its bars come from, and how many rows of its own there are. */
static void a_prediction_says_whose_bars_it_has(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    expect_said(arena, " published runs of kempnerforge on H200\n", "kempnerforge", "hgx_h200");
    expect_said(arena, " published runs of kempnerforge on any GPU (no measured run on H100)\n",
                "kempnerforge", "dgx_h100");
    expect_said(arena, " published runs of any profile on H200 (no measured run of automodel)\n",
                "automodel", "hgx_h200");
    expect_said(arena,
                " published runs of any profile on any GPU (no measured run of automodel, no "
                "measured run on H20)\n",
                "automodel", "hgx_h20");
    expect_said(arena, "measured    0 of the costs of ", "automodel", "hgx_h20");
    CommandResult r =
        COMMAND(arena, 60, "sim", TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", "--dry-run",
                "--json", "--set", "runtime=kempnerforge", "--cluster", "hgx_h200");
    assert_int_equal(r.exit_code, 0);
    json_t *document = json_loads(r.out, 0, NULL), *trust = json_object_get(document, "trust");
    ErrorBar step = trust_bar(ERROR_step, "kempnerforge", "H200"),
             allocated = trust_bar(ERROR_allocated, "kempnerforge", "H200");
    assert_string_equal(json_string_value(json_object_get(trust, "gpu")), "H200");
    assert_int_equal(json_integer_value(json_object_get(trust, "n")), step.n);
    assert_true(json_number_value(json_object_get(trust, "error_p90")) == step.p90);
    trust = json_object_get(trust, "allocated");
    assert_true(json_number_value(json_object_get(trust, "error_p50")) == allocated.p50);
    json_decref(document);
    arena_free(arena);
}

/* Half of the sample's rows must be predicted within 3 % of the value that the bar was made
 * from. */
static void the_predictions_are_todays(void **state)
{
    (void)state;
    static Row rows[MOST];
    static double moved[MOST];
    uint32_t n = read_rows(rows), n_moved = 0;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 300, "accuracy", "--runs",
                              TANDEM_SOURCE_DIR "/tests/data/published_runs.csv", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *document = json_loads(r.out, 0, NULL), *score;
    assert_non_null(document);
    size_t i;
    json_array_foreach(json_object_get(json_object_get(document, "runs"), "scores"), i, score)
    {
        const char *what = json_string_value(json_object_get(score, "what"));
        const char *id = json_string_value(json_object_get(score, "row"));
        double now = json_number_value(json_object_get(score, "predicted"));
        for (uint32_t k = 0; k < n; k++)
            for (ErrorOf of = 0; of < ERROR_COUNT; of++)
                if (is(kinds[of], rows[k].what) && is(names[of], what) && is(rows[k].id, id))
                    moved[n_moved++] = fabs(now / rows[k].predicted - 1);
    }
    json_decref(document);
    assert_true(n_moved >= 10);
    double middle = quantile(moved, n_moved, .5);
    if (middle > .03)
        fail_msg("predictions moved by %.1f %%: make the bars again (make error-bar)",
                 100 * middle);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_are_of_these_predictions),
        cmocka_unit_test(a_prediction_says_whose_bars_it_has),
        cmocka_unit_test(the_predictions_are_todays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
