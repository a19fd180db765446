/* A plan's text has a seal for each field: a hash of all values of that field. If a value or a seal
 * is changed, the text is refused, and the error names the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
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

/* Checks that reading the text reports only plan-seal, once, in a message that contains `says`.
 * Returns the line of the report. */
static uint32_t seal_refuses(const char *text, const char *says, Arena *arena)
{
    Diag d = diag_in(arena), seals = diag_in(arena);
    assert_non_null(text_parse_sealed("test.plan", text, strlen(text), arena, &d, &seals));
    assert_int_equal(d.items.n, 0);
    if (seals.n_errors != 1) fail_msg("accepted: %s", says);
    const Diagnostic *item = &seals.items.at[0];
    assert_string_equal(item->rule, "plan-seal");
    if (strstr(item->text, says) == NULL) fail_msg("%s, not %s", item->text, says);
    return item->loc.line;
}

/* Returns the number of the line that contains `at`. */
static uint32_t line_at(const char *text, const char *at)
{
    uint32_t line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

static void seals_are_read_back(void **state)
{
    const char *text = sealed(plans_everything(*state), *state);
    Diag d = diag_in(*state), seals = diag_in(*state);
    const Plan *back = text_parse_sealed("test.plan", text, strlen(text), *state, &d, &seals);
    assert_non_null(back);
    assert_int_equal(d.items.n + seals.items.n, 0);
    assert_string_equal(sealed(back, *state), text);
}

/* Changes each seal, and leaves out each seal. Each time, the text must be refused. */
static void a_changed_or_missing_seal_is_refused(void **state)
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
            const char *half[] = {value, value + 16};
            for (int k = 0; k < 2; k++) {
                const char *changed = arena_print(*state, "%.*s%c%s", (int)(half[k] - text), text,
                                                  *half[k] == '1' ? '2' : '1', half[k] + 1);
                const uint32_t said = seal_refuses(changed, says, *state);
                assert_int_equal(said, line_at(text, value));
            }
            seal_refuses(arena_print(*state, "%.*s%s", (int)before, text, value + 32), lacks,
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

/* Adds 1 to the number of `key` in the first `n` records that begin with `word`. Sets *line to the
 * line of the last one. Returns NULL if there are fewer. */
static const char *add_one(const char *text, const char *word, const char *key, uint32_t n,
                           uint32_t *line, Arena *arena)
{
    Str out = str_in(arena);
    for (const char *next; *text != 0; text = next) {
        next = text + strcspn(text, "\n") + 1;
        const char *at = strstr(text, key);
        if (n > 0 && strncmp(text, word, strlen(word)) == 0 && at != NULL && at < next) {
            const char *number = at + strlen(key);
            char *end;
            const unsigned long value = strtoul(number, &end, 10);
            str_print(&out, "%.*s%lu", (int)(number - text), text, value + 1);
            str_print(&out, "%.*s", (int)(next - end), end);
            n--;
            if (line != NULL) *line = 1;
            for (uint32_t i = 0; line != NULL && i + 1 < out.n; i++)
                *line += str_text(&out)[i] == '\n';
            continue;
        }
        str_print(&out, "%.*s", (int)(next - text), text);
    }
    return n == 0 ? str_text(&out) : NULL;
}

/* An error about a seal names the line of the changed value. If several values were changed, it
 * names the line of the seal. */
static void an_error_of_a_seal_names_the_changed_line(void **state)
{
    const char *text = sealed(plans_everything(*state), *state);
    static const struct {
        const char *word, *key, *says;
    } cases[] = {{"step ", " seed=", "step.seed"},       {"step ", " seq=", "step.seq"},
                 {"model ", " params=", "model.params"}, {"tensor ", " stream=", "tensor.stream"},
                 {"unit ", " padded=", "unit.padded"},   {"%1 ", " bytes=", "buffer.bytes"},
                 {"%3 ", " bytes=", "buffer.bytes"},     {"tensor ", " flat=", "tensor.flat"}};
    uint32_t n_found = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t line = 0;
        const char *changed = add_one(text, cases[i].word, cases[i].key, 1, &line, *state);
        if (changed == NULL) continue;
        assert_int_equal(seal_refuses(changed, cases[i].says, *state), line);
        n_found++;
    }
    assert_true(n_found >= 5);
    const char *changed = add_one(text, "%", " bytes=", 2, NULL, *state);
    const uint32_t said = seal_refuses(changed, "buffer.bytes was changed", *state);
    assert_int_equal(said, line_at(text, strstr(text, "\nseal buffer ") + 1));
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
                        (seals.of[k][i].sum != 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(seals_are_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_changed_or_missing_seal_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_text_without_seals_is_refused_as_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(an_error_of_a_seal_names_the_changed_line, setup, teardown),
        cmocka_unit_test_setup_teardown(exactly_the_proven_fields_have_seals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
