/* Diagnostics have one form for people and one for machines. If several are reported, the worst one
 * decides the exit code. It has the lowest code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/diag.h"

static int setup(void **state)
{
    *state = arena_new();
    return 0;
}

static int teardown(void **state)
{
    arena_free(*state);
    return 0;
}

static const Loc nowhere = {0};

static void add_three(Diag *d)
{
    assert_false(diag_error(d, FAULT_input, "divides-heads", (Loc){"llama.lua", 14},
                            "heads = %d cannot be split over tp = %d", 12, 8));
    diag_hint(d, "tp may be %s", "1, 2, 3, 4, 6 or 12");
    diag_warning(d, "no-effect", (Loc){"a \"b\".lua", 0}, "tp = 1 splits nothing");
    diag_error(d, FAULT_infeasible, "fit", nowhere, "rank 3 needs 90 GiB");
}

static void a_diagnostic_prints_its_place_rule_and_hint(void **state)
{
    Diag d = diag_in(*state);
    add_three(&d);
    Str out = str_in(*state);
    diag_print(&d, &out);
    assert_string_equal(str_text(&out),
                        "llama.lua:14: error[divides-heads]: heads = 12 cannot be split over "
                        "tp = 8\n"
                        "  hint: tp may be 1, 2, 3, 4, 6 or 12\n"
                        "a \"b\".lua: warning[no-effect]: tp = 1 splits nothing\n"
                        "error[fit]: rank 3 needs 90 GiB\n");
    assert_int_equal(d.n_errors, 2);
    assert_int_equal(d.items.n, 3);
}

static void diagnostics_print_as_json(void **state)
{
    Diag d = diag_in(*state);
    Str none = str_in(*state), out = str_in(*state);
    diag_json(&d, &none);
    assert_string_equal(str_text(&none), "[]");
    add_three(&d);
    diag_json(&d, &out);
    assert_string_equal(
        str_text(&out),
        "[{\"severity\":\"error\",\"rule\":\"divides-heads\",\"file\":\"llama.lua\",\"line\":14,"
        "\"text\":\"heads = 12 cannot be split over tp = 8\","
        "\"hint\":\"tp may be 1, 2, 3, 4, 6 or 12\"},"
        "{\"severity\":\"warning\",\"rule\":\"no-effect\",\"file\":\"a \\\"b\\\".lua\","
        "\"line\":null,\"text\":\"tp = 1 splits nothing\",\"hint\":null},"
        "{\"severity\":\"error\",\"rule\":\"fit\",\"file\":null,\"line\":null,"
        "\"text\":\"rank 3 needs 90 GiB\",\"hint\":null}]");
}

/* The user's line comes first; the library's line follows the message. */
static void a_line_of_the_library_comes_second(void **state)
{
    Diag d = diag_in(*state);
    diag_error(&d, FAULT_input, "divides-heads", (Loc){"models/llama.lua", 31}, "heads = 12");
    diag_hint(&d, "tp may be 1");
    diag_in_library(&d, 0, (Loc){"mine.lua", 2});
    Str out = str_in(*state), json = str_in(*state);
    diag_print(&d, &out);
    assert_string_equal(str_text(&out), "mine.lua:2: error[divides-heads]: heads = 12\n"
                                        "  library: models/llama.lua:31\n"
                                        "  hint: tp may be 1\n");
    diag_json(&d, &json);
    assert_non_null(strstr(str_text(&json), "\"file\":\"mine.lua\",\"line\":2,"));
    assert_non_null(strstr(str_text(&json), ",\"library\":\"models/llama.lua:31\"}"));
}

static void the_lowest_exit_code_wins(void **state)
{
    static const struct {
        Fault fault;
        int code;
    } expected[] = {
        {FAULT_store, 7}, {FAULT_run, 6},   {FAULT_threshold, 5}, {FAULT_infeasible, 4},
        {FAULT_input, 3}, {FAULT_usage, 2}, {FAULT_internal, 1},
    };
    Diag all = diag_in(*state);
    assert_int_equal(diag_exit_code(&all), 0);
    diag_warning(&all, "w", nowhere, "only a warning");
    assert_int_equal(diag_exit_code(&all), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        Diag one = diag_in(*state);
        diag_error(&one, expected[i].fault, "r", nowhere, "x");
        assert_int_equal(diag_exit_code(&one), expected[i].code);
        /* Errors are added from the mildest to the worst, so each new one decides the exit code. */
        diag_error(&all, expected[i].fault, "r", nowhere, "x");
        assert_int_equal(diag_exit_code(&all), expected[i].code);
    }
    diag_error(&all, FAULT_store, "r", nowhere, "a milder one changes nothing");
    assert_int_equal(diag_exit_code(&all), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_diagnostic_prints_its_place_rule_and_hint),
        cmocka_unit_test(diagnostics_print_as_json),
        cmocka_unit_test(a_line_of_the_library_comes_second),
        cmocka_unit_test(the_lowest_exit_code_wins),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
