/* The streaming JSON reader reports values and the positions of faults. Bytes that are cut or
 * changed anywhere must cause nothing worse than an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/import/json_stream.h"
#include "planner/base/rng.h"
#include "planner/base/str.h"

typedef struct Draws {
    uint64_t seed, n;
} Draws;

static size_t draw(Draws *draws, size_t below)
{
    return (size_t)rng_below(draws->seed, 0, draws->n++, below);
}

typedef struct Told {
    Str text;
    uint32_t n;
} Told;

static void on_value(void *self, const JsonValue *v)
{
    Told *told = self;
    static const char kinds[] = "{[<\"#tfn";
    told->n++;
    str_print(&told->text, "%u%s%c", v->depth, v->key, kinds[v->kind]);
    if (v->kind == JSON_KIND_text) str_add(&told->text, v->text);
    if (v->kind == JSON_KIND_number) str_print(&told->text, "%g", v->number);
    str_add(&told->text, " ");
}

static bool read_bytes(const char *bytes, size_t n, bool may_break_off, Arena *arena, Told *told,
                       Diag *d)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    rewind(file);
    *told = (Told){.text = str_in(arena)};
    *d = diag_in(arena);
    JsonReader reader = {file, "x.json", on_value, told};
    bool fine = json_stream(&reader, may_break_off, d);
    fclose(file);
    assert_int_equal(d->n_errors, fine ? 0 : 1);
    return fine;
}

static void each_value_is_reported_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told;
    } rows[] = {
        {"{}", "0{ 0< "},
        {" [1, -2.5e1, \"a\"]\n", "0[ 1#1 1#-25 1\"a 0< "},
        {"{\"a\":{\"b\":[true,false,null]},\"c\":NaN}", "0{ 1a{ 2b[ 3t 3f 3n 2< 1< 1cn 0< "},
        {"\"\\u0041\\n\\\"\\u00e9\\u20ac\"", "0\"A\n\"\xc3\xa9\xe2\x82\xac "},
        {"[[],[[]],{}]", "0[ 1[ 1< 1[ 2[ 2< 1< 1{ 1< 0< "},
        {"7", "0#7 "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        Told told;
        Diag d;
        assert_true(read_bytes(rows[i].text, strlen(rows[i].text), false, arena, &told, &d));
        assert_string_equal(str_text(&told.text), rows[i].told);
        arena_free(arena);
    }
}

static void faults_are_reported_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t line;
        const char *says;
    } rows[] = {{"{\"a\":1,\n\"b\" 2}", 2, "byte 12: ':' is missing"},
                {"[1 2]", 1, "byte 3: ','"},
                {"[1,\n\n2", 3, "the file ends here"},
                {"{\"a\":tru}", 1, "not a JSON value"},
                {"[1,]", 1, "not a JSON value"},
                {"{,}", 1, "a key in quotes"},
                {"[1}", 1, "','"},
                {"\"\\x\"", 1, "an unknown escape"},
                {"\"\\u12g4\"", 1, "hexadecimal"},
                {"\"a\nb\"", 2, "control character"},
                {"[1e999]", 1, "not a JSON value"},
                {"[1] 2", 1, "after the end of the document"},
                {"", 1, "a value is missing"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        Told told;
        Diag d;
        assert_false(read_bytes(rows[i].text, strlen(rows[i].text), false, arena, &told, &d));
        assert_string_equal(d.items.at[0].rule, "json-syntax");
        assert_int_equal(d.items.at[0].loc.line, rows[i].line);
        if (strstr(d.items.at[0].text, rows[i].says) == NULL)
            fail_msg("%s: '%s' does not say '%s'", rows[i].text, d.items.at[0].text, rows[i].says);
        arena_free(arena);
    }
}

static void nesting_has_a_bound(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Told told;
    Diag d;
    char deep[2 * MOST_JSON_DEPTH + 2];
    for (uint32_t i = 0; i < MOST_JSON_DEPTH; i++) {
        deep[i] = '[';
        deep[2 * MOST_JSON_DEPTH - 1 - i] = ']';
    }
    assert_true(read_bytes(deep, 2 * MOST_JSON_DEPTH, false, arena, &told, &d));
    memset(deep, '[', sizeof deep);
    assert_false(read_bytes(deep, MOST_JSON_DEPTH + 1, false, arena, &told, &d));
    assert_non_null(strstr(d.items.at[0].text, "too deeply"));
    arena_free(arena);
}

/* Long texts are cut, not refused. A block of the file may end anywhere inside them. */
static void long_texts_are_cut(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Str text = str_in(arena);
    str_add(&text, "[\"");
    for (uint32_t i = 0; i < 200000; i++) str_add(&text, i % 7 == 0 ? "\\n" : "x");
    str_add(&text, "\",5]");
    Told told;
    Diag d;
    assert_true(read_bytes(str_text(&text), text.n, false, arena, &told, &d));
    assert_int_equal(told.n, 4);
    assert_true(strlen(str_text(&told.text)) < MOST_JSON_TEXT + 32);
    assert_non_null(strstr(str_text(&told.text), "1#5 "));
    arena_free(arena);
}

static const char whole[] =
    "{\"schema\": 1, \"traceEvents\": [\n {\"ph\": \"X\", \"name\": \"k\\u00e9\", \"dur\": 1.5,"
    " \"args\": {\"grid\": [1, 2, 3], \"ok\": true}},\n {\"ph\": \"M\"}\n]}\n";

static void a_text_that_breaks_off_is_accepted_only_if_allowed(void **state)
{
    (void)state;
    size_t length = strlen(whole) - 1; /* without its newline */
    for (size_t n = 0; n < length; n++) {
        Arena *arena = arena_new();
        Told told, strict;
        Diag d;
        /* Wherever the text is cut, the reader reports an error with its place. If a cut text is
         * allowed, it reports only the values so far. */
        assert_false(read_bytes(whole, n, false, arena, &strict, &d));
        assert_non_null(strstr(d.items.at[0].text, "the file ends here"));
        assert_int_equal(read_bytes(whole, n, true, arena, &told, &d), n > 0);
        assert_string_equal(str_text(&told.text), str_text(&strict.text));
        arena_free(arena);
    }
}

static void changed_bytes_do_no_harm(void **state)
{
    (void)state;
    Draws rng = {20261122, 0};
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        Arena *arena = arena_new();
        char bytes[sizeof whole];
        memcpy(bytes, whole, sizeof whole);
        uint32_t changes = 1 + (uint32_t)draw(&rng, 4);
        for (uint32_t k = 0; k < changes; k++)
            bytes[draw(&rng, sizeof whole - 1)] = (char)draw(&rng, 256);
        Told told;
        Diag d;
        refused += !read_bytes(bytes, sizeof whole - 1, i % 2 == 0, arena, &told, &d);
        arena_free(arena);
    }
    assert_true(refused > 1000);
    assert_true(refused < 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_is_reported_in_order),
        cmocka_unit_test(faults_are_reported_with_their_place),
        cmocka_unit_test(nesting_has_a_bound),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(a_text_that_breaks_off_is_accepted_only_if_allowed),
        cmocka_unit_test(changed_bytes_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
