/* The error bar that every prediction is printed with is that of the predictions beside it
 * (tests/data/predicted_runs.csv), and those are what is predicted today; tests/bench/error_bar.py
 * makes both again. */
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

#include "tests/support/command.h"

enum { MOST = 1024 };

typedef struct Row {
    char id[64];
    double measured_s, predicted_s;
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
        assert_int_equal(sscanf(line, "%63[^,],%lf,%lf", r->id, &r->measured_s, &r->predicted_s),
                         3);
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

static void the_bar_is_of_these_predictions(void **state)
{
    (void)state;
    static Row rows[MOST];
    static double errors[MOST];
    uint32_t n = read_rows(rows);
    assert_true(n > 50);
    for (uint32_t i = 0; i < n; i++) errors[i] = fabs(rows[i].predicted_s / rows[i].measured_s - 1);
    static const struct {
        const char *made;
        uint32_t n;
        double p50, p90;
    } bar = {
#define FIT(made, n, p50, p90) made, n, p50, p90
#include "cli/error_bar.def"
#undef FIT
    };
    assert_int_equal(strlen(bar.made), 10);
    assert_int_equal(bar.n, n);
    assert_true(fabs(bar.p50 - quantile(errors, n, .5)) < .00051);
    assert_true(fabs(bar.p90 - quantile(errors, n, .9)) < .00051);
}

/* Half of the sample's rows must be predicted within 3 % of what the bar was made of. */
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
        if (strcmp(json_string_value(json_object_get(score, "what")), "step time") != 0) continue;
        const char *id = json_string_value(json_object_get(score, "row"));
        double now = json_number_value(json_object_get(score, "predicted"));
        for (uint32_t k = 0; k < n; k++)
            if (strcmp(rows[k].id, id) == 0) moved[n_moved++] = fabs(now / rows[k].predicted_s - 1);
    }
    json_decref(document);
    assert_true(n_moved >= 10);
    double middle = quantile(moved, n_moved, .5);
    if (middle > .03)
        fail_msg("predictions moved by %.1f %%: make the bar again (tests/bench/error_bar.py)",
                 100 * middle);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bar_is_of_these_predictions),
        cmocka_unit_test(the_predictions_are_todays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
