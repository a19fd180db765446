/* Uses libtandem as another program would: only its header and its archive. Its numbers must be
 * those of the command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/tandem.h"
#include "tests/support/command.h"
#include "tests/support/sample.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

static double number(const TandemPlan *plan, const char *name)
{
    double value = -1;
    if (!tandem_number(plan, name, &value)) fail_msg("no number '%s'", name);
    return value;
}

static void the_library_loads_checks_and_predicts_a_plan(void **state)
{
    (void)state;
    TandemPlan *plan = tandem_load(llama, NULL, 0);
    assert_non_null(plan);
    if (tandem_status(plan) != 0) fail_msg("%s", tandem_diagnostics(plan));
    assert_true(number(plan, "params") == 8030261248.0);
    assert_true(number(plan, "ranks") == 16);
    double none;
    assert_false(tandem_number(plan, "step_s", &none));
    assert_true(tandem_check(plan));
    assert_true(tandem_simulate(plan, NULL));
    double step_s = number(plan, "step_s");
    double tokens = number(plan, "tokens_per_step");
    assert_true(step_s > 0);
    double rate = number(plan, "tokens_per_s");
    assert_true(rate * step_s / tokens > 0.999 && rate * step_s / tokens < 1.001);
    assert_true(number(plan, "fits") == 1);
    assert_true(number(plan, "mfu") > 0 && number(plan, "mfu") < 1);
    const char *report = tandem_report_json(plan);
    for (size_t i = 0; tandem_number_name(i) != NULL; i++) {
        number(plan, tandem_number_name(i));
        assert_non_null(strstr(report, tandem_number_name(i)));
    }
    assert_false(tandem_number(plan, "no_such_number", &none));
    assert_int_equal(strlen(tandem_plan_id(plan)), 32);
    tandem_free(plan);
}

static void settings_change_the_plan_and_texts_are_read_back(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *script = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";
    const char *const settings[] = {"batch.micro=2"};
    TandemPlan *plan = tandem_load(script, NULL, 0), *other = tandem_load(script, settings, 1);
    if (tandem_status(plan) != 0) fail_msg("%s", tandem_diagnostics(plan));
    if (tandem_status(other) != 0) fail_msg("%s", tandem_diagnostics(other));
    assert_string_not_equal(tandem_plan_id(plan), tandem_plan_id(other));
    const char *path = arena_print(arena, "%s/x.plan", command_new_folder(arena));
    command_write_file(path, tandem_plan_text(plan));
    TandemPlan *again = tandem_load(path, NULL, 0);
    if (tandem_status(again) != 0) fail_msg("%s", tandem_diagnostics(again));
    assert_string_equal(tandem_plan_id(plan), tandem_plan_id(again));
    assert_string_equal(tandem_plan_show(plan), tandem_plan_show(again));
    assert_true(tandem_check(again));
    assert_false(tandem_simulate(again, NULL)); /* a plan's text names no hardware */
    assert_non_null(strstr(tandem_diagnostics(again), "no-cluster"));
    tandem_free(plan);
    tandem_free(other);
    tandem_free(again);
    arena_free(arena);
}

/* Returns the number that `sim --json` prints for `key` at the outermost level. Verdicts about
 * frameworks lie deeper and have the same keys. */
static double told(Arena *arena, const char *json, const char *key)
{
    const char *line = arena_print(arena, "\n  %s", key), *at = strstr(json, line);
    if (at == NULL) fail_msg("no %s in %s", key, json);
    return strtod(at + strlen(line), NULL);
}

static void check_shipped(Arena *arena, const char *name)
{
    const char *path = arena_print(arena, TANDEM_SOURCE_DIR "/scripts/plans/%s.lua", name);
    CommandResult r = COMMAND(arena, 120, "sim", path, "--db", "none", "--json", "--quiet");
    TandemPlan *plan = tandem_load(path, NULL, 0);
    if (tandem_status(plan) != 0) fail_msg("%s: %s", name, tandem_diagnostics(plan));
    tandem_check(plan);
    assert_true(tandem_simulate(plan, NULL));
    static const char *const same[][2] = {{"step_s", "\"step_ps\":"},
                                          {"compute_s", "\"compute_ps\":"},
                                          {"exposed_s", "\"exposed_ps\":"},
                                          {"mfu", "\"mfu\":"}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        double unit = strstr(same[i][1], "_ps") != NULL ? 1e-12 : 1;
        double ours = number(plan, same[i][0]), theirs = told(arena, r.out, same[i][1]) * unit;
        double error = ours > theirs ? ours - theirs : theirs - ours;
        if (!(error <= 1e-9 * theirs))
            fail_msg("%s: %s: libtandem %.17g, sim %.17g", name, same[i][0], ours, theirs);
    }
    tandem_free(plan);
}

/* The library and the command must give the same numbers for every shipped plan, also with a
 * runtime profile. */
static void numbers_equal_those_of_sim_for_every_shipped_plan(void **state)
{
    (void)state;
    static const char *const folders[] = {"", "one_gpu/"};
    uint32_t n = 0, seen = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        Arena *arena = arena_new();
        const char *folder = arena_print(arena, TANDEM_SOURCE_DIR "/scripts/plans/%s", folders[i]);
        DIR *dir = opendir(folder);
        assert_non_null(dir);
        for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
            size_t length = strlen(e->d_name);
            if (length < 5 || strcmp(e->d_name + length - 4, ".lua") != 0) continue;
            /* Only some of the plans in this folder are tested. */
            if (strcmp(e->d_name, "h200.lua") == 0) continue;
            /* This plan's costs are measured on this machine and kept in a store. */
            if (strcmp(e->d_name, "tiny_text.lua") == 0) continue;
            if (seen++ % SAMPLE(1, 4) != 0) continue;
            check_shipped(arena,
                          arena_print(arena, "%s%.*s", folders[i], (int)length - 4, e->d_name));
            n++;
        }
        closedir(dir);
        arena_free(arena);
    }
    assert_true(n >= SAMPLE(15, 4));
}

/* The runtime profile must change the prediction. The library once ignored it. */
static void the_runtime_changes_the_prediction(void **state)
{
    (void)state;
    static const char *const settings[] = {"runtime=torchtitan"};
    TandemPlan *own = tandem_load(llama, NULL, 0), *other = tandem_load(llama, settings, 1);
    assert_true(tandem_simulate(own, NULL) && tandem_simulate(other, NULL));
    assert_true(number(own, "step_s") < number(other, "step_s"));
    tandem_free(own);
    tandem_free(other);
}

static void mistakes_are_reported_as_diagnostics(void **state)
{
    (void)state;
    TandemPlan *plan = tandem_load("no-such-file.lua", NULL, 0);
    assert_non_null(plan);
    assert_int_equal(tandem_status(plan), 3);
    assert_non_null(strstr(tandem_diagnostics(plan), "no-such-file.lua"));
    assert_int_equal(tandem_diagnostics_json(plan)[0], '[');
    assert_false(tandem_check(plan));
    assert_false(tandem_simulate(plan, NULL));
    assert_null(tandem_plan_id(plan));
    assert_null(tandem_plan_text(plan));
    tandem_free(plan);
    const char *const settings[] = {"mesh.tp=3"};
    plan = tandem_load(llama, settings, 1);
    assert_int_equal(tandem_status(plan), 3);
    tandem_free(plan);
    tandem_free(NULL);
}

/* In a program with decimal commas, the library still uses points and does not change the program's
 * locale. */
static void a_locale_with_commas_changes_nothing(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *own = arena_print(arena, "%s/de_DE.UTF-8", folder);
    CommandResult made = command_run_program(
        arena, 60, (const char *const[]){"localedef", "-i", "de_DE", "-f", "UTF-8", own, NULL});
    setenv("LOCPATH", folder, 1);
    const char *const settings[] = {"optimizer.lr=2.5e-4"};
    TandemPlan *plain = tandem_load(llama, settings, 1);
    assert_true(tandem_simulate(plain, NULL));
    if (made.exit_code != 0 || setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        tandem_free(plain);
        arena_free(arena);
        skip(); /* the system lacks the sources of locales */
    }
    TandemPlan *plan = tandem_load(llama, settings, 1);
    if (tandem_status(plan) != 0) fail_msg("%s", tandem_diagnostics(plan));
    assert_true(tandem_simulate(plan, NULL));
    char number_here[8];
    snprintf(number_here, sizeof number_here, "%.1f", 1.5);
    const char *text = tandem_plan_text(plan), *show = tandem_plan_show(plan);
    const char *id = tandem_plan_id(plan), *report = tandem_report_json(plan);
    setlocale(LC_ALL, "C");
    assert_string_equal(number_here, "1,5");
    assert_string_equal(text, tandem_plan_text(plain));
    assert_string_equal(show, tandem_plan_show(plain));
    assert_string_equal(id, tandem_plan_id(plain));
    assert_string_equal(report, tandem_report_json(plain));
    tandem_free(plan);
    tandem_free(plain);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_loads_checks_and_predicts_a_plan),
        cmocka_unit_test(settings_change_the_plan_and_texts_are_read_back),
        cmocka_unit_test(numbers_equal_those_of_sim_for_every_shipped_plan),
        cmocka_unit_test(the_runtime_changes_the_prediction),
        cmocka_unit_test(mistakes_are_reported_as_diagnostics),
        cmocka_unit_test(a_locale_with_commas_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
