/* The error bars printed with predictions follow from tests/data/predicted_runs.csv. Predictions
 * made now stay near those of that file. tests/bench/error_bar.py generates the bars and the
 * file. */
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
/* the step times of rows that leave their power limit open */
static const char power_assumed[] = "step_assumed";
static const char *const names[] = {"step time", "memory allocated", "memory reserved"};

typedef struct Row {
    char id[64], what[16], profile[32], gpu[32], source[64];
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
        assert_int_equal(sscanf(line, "%63[^,],%15[^,],%31[^,],%31[^,],%63[^,],%lf,%lf", r->id,
                                r->what, r->profile, r->gpu, r->source, &r->measured,
                                &r->predicted),
                         7);
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

/* Finds the errors of a class of rows, from one source or from all (NULL). Returns their number. */
static uint32_t errors_of(const Row *rows, uint32_t n, const char *kind, const Row *like,
                          const char *source, double *errors)
{
    uint32_t n_errors = 0;
    for (uint32_t i = 0; i < n; i++)
        if (is(kind, rows[i].what) && is(like->profile, rows[i].profile) &&
            is(like->gpu, rows[i].gpu) && is(source, rows[i].source))
            errors[n_errors++] = fabs(rows[i].predicted / rows[i].measured - 1);
    return n_errors;
}

/* Returns true for the first row of its source in the class. */
static bool begins_source(const Row *rows, uint32_t i, const char *kind)
{
    for (uint32_t k = 0; k < i; k++)
        if (is(kind, rows[k].what) && is(rows[i].profile, rows[k].profile) &&
            is(rows[i].gpu, rows[k].gpu) && is(rows[i].source, rows[k].source))
            return false;
    return true;
}

/* Factors by which a bar from one source is widened, as error_bar.def prints them. */
static const double wider[][2] = {
#define MADE(day)
#define WIDER(of, p50, p90) [ERROR_##of] = {p50, p90},
#define BAR(of, profile, gpu, n, p50, p90)
#define ASSUMED(of, profile, gpu, n, p50, p90)
#include "cli/report/error_bar.def"
#undef MADE
#undef WIDER
#undef BAR
#undef ASSUMED
};

/* The printed bar must follow from the rows. Each source contributes 20 quantiles of its errors, so
 * all sources have the same weight. */
static void expect_bar(const Row *rows, uint32_t n, ErrorOf of, const Row *like)
{
    enum { GRID = 20 };
    static double errors[MOST], all[GRID * MOST];
    ErrorBar bar = trust_bar(of, like->profile, like->gpu);
    assert_int_equal(bar.n_both, errors_of(rows, n, kinds[of], like, NULL, errors));
    const bool assumed = bar.n_both < 5 && of == ERROR_step &&
                         errors_of(rows, n, power_assumed, like, NULL, errors) >= 5;
    const char *kind = assumed ? power_assumed : kinds[of];
    assert_int_equal(bar.assumed, assumed);
    uint32_t n_all = 0, n_sources = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool in_class = is(kind, rows[i].what) && is(like->profile, rows[i].profile) &&
                              is(like->gpu, rows[i].gpu);
        if (!in_class || !begins_source(rows, i, kind)) continue;
        uint32_t n_errors = errors_of(rows, n, kind, like, rows[i].source, errors);
        for (int k = 0; k < GRID; k++) all[n_all++] = quantile(errors, n_errors, (k + .5) / GRID);
        n_sources++;
    }
    if (bar.n_both < 5 && !assumed) {
        assert_int_equal(bar.n, 0);
        assert_null(bar.profile);
        return;
    }
    const double factor[] = {n_sources == 1 ? wider[of][0] : 1, n_sources == 1 ? wider[of][1] : 1};
    assert_int_equal(bar.n, errors_of(rows, n, kind, like, NULL, errors));
    assert_true(fabs(bar.p50 - factor[0] * quantile(all, n_all, .5)) < .00051);
    assert_true(fabs(bar.p90 - factor[1] * quantile(all, n_all, .9)) < .00051);
}

static void bars_follow_from_the_stored_predictions(void **state)
{
    (void)state;
    static Row rows[MOST];
    uint32_t n = read_rows(rows);
    assert_true(n > 100);
    for (ErrorOf of = 0; of < ERROR_COUNT; of++)
        for (uint32_t i = 0; i < n; i++) expect_bar(rows, n, of, &rows[i]);
}

/* A profile or a GPU without rows has no bar, however many rows others have. */
static void a_class_without_rows_has_no_bar(void **state)
{
    (void)state;
    const ErrorBar other_gpu = trust_bar(ERROR_step, "torchtitan", "L40S"),
                   other_profile = trust_bar(ERROR_step, "maxtext", "H100"),
                   neither = trust_bar(ERROR_step, "maxtext", "L40S");
    assert_int_equal(other_gpu.n + other_profile.n + neither.n, 0);
    assert_string_equal(other_gpu.near_profile, "torchtitan");
    assert_string_equal(other_gpu.near_gpu, "H100");
    assert_string_equal(other_profile.near_gpu, "H100");
    assert_null(neither.near_profile);
}

static void expect_said(Arena *arena, const char *wanted, const char *runtime, const char *cluster)
{
    const char *set = arena_print(arena, "runtime=%s", runtime);
    CommandResult r = COMMAND(arena, 60, "sim", TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua",
                              "--dry-run", "--cluster", cluster, "--set", set);
    assert_int_equal(r.exit_code, 0);
    if (strstr(r.out, wanted) == NULL) fail_msg("no '%s' in\n%s", wanted, r.out);
}

/* A prediction names the class of rows behind its bars, and the number of these rows. */
static void a_prediction_names_the_runs_behind_its_bars(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    expect_said(arena, " published runs of kempnerforge on H200: half within ", "kempnerforge",
                "hgx_h200");
    expect_said(arena,
                "step time error unknown: no published runs of kempnerforge on H100; nearest: 23 "
                "published runs of kempnerforge on H200\n",
                "kempnerforge", "dgx_h100");
    expect_said(arena,
                "step time error unknown: no published runs of automodel on H20; nearest: none\n",
                "automodel", "hgx_h20");
    /* torchao's rows on B200 are "power limited" without a number. */
    expect_said(arena,
                "errors of 5 published runs of torchtitan on B200 (with an assumed power limit): ",
                "torchtitan", "hgx_b200");
    expect_said(arena, "measured    costs of 0 of ", "automodel", "hgx_h20");
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

/* Half of the sample's rows must be predicted within 3 % of the values from which the bars were
 * made. */
static void predictions_stay_near_the_stored_ones(void **state)
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
        cmocka_unit_test(bars_follow_from_the_stored_predictions),
        cmocka_unit_test(a_class_without_rows_has_no_bar),
        cmocka_unit_test(a_prediction_names_the_runs_behind_its_bars),
        cmocka_unit_test(predictions_stay_near_the_stored_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
