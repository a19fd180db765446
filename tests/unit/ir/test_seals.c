/* The seals of a plan's text: a hash of each field's values. Whoever changes a value or a seal is
 * told which field it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/ir/text/private.h"
#include "tests/support/plans/plans.h"

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

static const char *sealed(const Plan *plan, Arena *arena)
{
    Str out = str_in(arena);
    text_print(plan, TEXT_WITH_LOCATIONS | TEXT_WITH_SEALS, &out);
    return str_text(&out);
}

/* Checks that reading the text reports only plan-seal, once, in a message that contains `says`. */
static void seal_refuses(const char *text, const char *says, Arena *arena)
{
    Diag d = diag_in(arena);
    if (text_parse_sealed("test.plan", text, strlen(text), arena, &d) != NULL)
        fail_msg("accepted: %s", says);
    assert_int_equal(d.n_errors, 1);
    assert_string_equal(d.items.at[0].rule, "plan-seal");
    if (strstr(d.items.at[0].text, says) == NULL) fail_msg("%s, not %s", d.items.at[0].text, says);
}

static void seals_are_read_back(void **state)
{
    const char *text = sealed(plans_everything(*state), *state);
    Diag d = diag_in(*state);
    const Plan *back = text_parse_sealed("test.plan", text, strlen(text), *state, &d);
    assert_non_null(back);
    assert_string_equal(sealed(back, *state), text);
}

/* Each seal is changed, and each is taken out. */
static void each_seal_counts(void **state)
{
    const char *text = sealed(plans_everything(*state), *state), *line = strstr(text, "\nseal ");
    uint32_t n = 0;
    for (; line != NULL; line = strstr(line + 1, "\nseal ")) {
        const char *at = line + strlen("\nseal "), *end = at + strcspn(at, "\n");
        const char *record = arena_copy(*state, at, strcspn(at, " "));
        for (at += strlen(record); at < end; at += strcspn(at + 1, " \n") + 1, n++) {
            const char *name = arena_copy(*state, at + 1, strcspn(at, "=") - 1);
            const size_t before = (size_t)(at - text), key = strlen(name) + 2;
            const char *value = at + key;
            const char *says = arena_print(*state, "%s.%s was changed", record, name);
            const char *lacks = arena_print(*state, "the text has no seal of %s.%s", record, name);
            seal_refuses(arena_print(*state, "%.*s%c%s", (int)(before + key), text,
                                     *value == '1' ? '2' : '1', value + 1),
                         says, *state);
            seal_refuses(arena_print(*state, "%.*s%s", (int)before, text, value + 16), lacks,
                         *state);
        }
    }
    assert_true(n > 60);
}

static void a_text_without_seals_is_refused_as_a_file(void **state)
{
    Str out = str_in(*state);
    text_print(plans_everything(*state), TEXT_WITH_LOCATIONS, &out);
    seal_refuses(str_text(&out), "the text has no seals", *state);
}

/* A field whose values are all zero has a seal, too. */
static void exactly_the_proven_fields_have_seals(void **state)
{
    const Plan *plan = plans_everything(*state);
    TextSeals seals;
    text_seals(plan, *state, &seals);
    for (int k = 0; k < RECORD_ranks; k++)
        for (uint32_t i = 0; i < text_record((TextRecordKind)k)->n_fields; i++)
            assert_true(text_has_seal(&text_record((TextRecordKind)k)->fields[i]) ==
                        (seals.of[k][i] != 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(seals_are_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(each_seal_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_text_without_seals_is_refused_as_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(exactly_the_proven_fields_have_seals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
