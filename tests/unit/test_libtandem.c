/* libtandem as a program outside this project uses it: only its header, only its archive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/tandem.h"
#include "tests/support/command.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

static double number(const TandemPlan *plan, const char *name)
{
    double value = -1;
    if (!tandem_number(plan, name, &value)) fail_msg("no number '%s'", name);
    return value;
}

static void loads_checks_and_predicts(void **state)
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
    assert_false(tandem_simulate(again, NULL)); /* a text names no hardware */
    assert_non_null(strstr(tandem_diagnostics(again), "no-cluster"));
    tandem_free(plan);
    tandem_free(other);
    tandem_free(again);
    arena_free(arena);
}

static void mistakes_are_diagnostics(void **state)
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

/* A program whose numbers have decimal commas: the library's have not, and its own stay as they
 * are. */
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
        skip(); /* a system without the sources of locales */
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
        cmocka_unit_test(loads_checks_and_predicts),
        cmocka_unit_test(settings_change_the_plan_and_texts_are_read_back),
        cmocka_unit_test(mistakes_are_diagnostics),
        cmocka_unit_test(a_locale_with_commas_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
