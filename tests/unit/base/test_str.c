/* Strings: growing, numbers that read back the same, JSON of any bytes, texts for people, and the
 * nearest word to a misspelt one. */
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

#include "planner/base/rng.h"
#include "planner/base/str.h"

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

static void a_string_grows_to_any_length(void **state)
{
    Str s = str_in(*state);
    assert_string_equal(str_text(&s), "");
    for (int i = 0; i < 1000; i++) str_print(&s, "%03d,", i);
    assert_int_equal(s.n, 4000);
    assert_memory_equal(str_text(&s) + 4 * 567, "567,", 4);
    str_add_bytes(&s, "a\0b", 3);
    assert_int_equal(s.n, 4003);
    assert_int_equal(s.at[4003], 0);
    char long_text[3000];
    memset(long_text, 'y', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    Str t = str_in(*state);
    str_add(&t, "<");
    str_print(&t, "%s>", long_text); /* more text than fits into the memory that is left */
    assert_int_equal(t.n, sizeof long_text + 1);
    assert_int_equal(t.at[0], '<');
    assert_int_equal(t.at[t.n - 1], '>');
    assert_string_equal(t.at + t.n - 3, "yy>");
}

static void a_printed_double_reads_back_unchanged(void **state)
{
    static const struct {
        double value;
        const char *text;
    } expected[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {0.1, "0.1"},
        {1e300, "1e+300"},
        {1.0 / 3, "0.3333333333333333"},
        {3e-4, "0.0003"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "4.94065645841247e-324"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        Str s = str_in(*state);
        str_add_double(&s, expected[i].value);
        assert_string_equal(str_text(&s), expected[i].text);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = rng_u64(3, 1, i);
        double value, back;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        Str s = str_in(*state);
        str_add_double(&s, value);
        back = strtod(str_text(&s), NULL);
        assert_memory_equal(&back, &value, sizeof value);
    }
}

/* A separate function prints whole numbers. It must write the same text as the C library. */
static void whole_doubles_print_as_the_c_library_prints_them(void **state)
{
    static const double edges[] = {0, 1, -1, 10, 999999999999999, 1e15, -1e15, 1e16, 989e12, 1e300};
    for (uint32_t i = 0; i < 2000; i++) {
        const uint64_t drawn = rng_u64(31, 1, i);
        const double whole = (double)(drawn >> (drawn % 60 + 3));
        const double value = i < sizeof edges / sizeof *edges ? edges[i]
                             : i % 2 == 0                     ? -whole
                                                              : whole;
        char expected[64];
        Str s = str_in(*state);
        str_add_double(&s, value);
        /* beyond 15 digits, "%.15g" does not read back */
        if (fabs(value) > 999999999999999) continue;
        snprintf(expected, sizeof expected, "%.15g", value);
        assert_string_equal(str_text(&s), expected);
    }
}

static void json_strings_escape_quotes_controls_and_bad_utf8(void **state)
{
    static const struct {
        const char *text, *json;
    } expected[] = {
        {"", "\"\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"a\nb\tc\x01\x1f\x7f", "\"a\\nb\\tc\\u0001\\u001f\\u007f\""},
        {"gr\xC3\xBC\xC3\x9F", "\"gr\xC3\xBC\xC3\x9F\""},
        {"\xF0\x9F\x98\x80", "\"\xF0\x9F\x98\x80\""},
        /* this byte never begins a character */
        {"\xFF", "\"\xEF\xBF\xBD\""},
        {"\xC3", "\"\xEF\xBF\xBD\""},                                 /* cut off */
        {"\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                 /* an overlong slash */
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* a surrogate */
        {"\xE2\x82"
         "a",
         "\"\xEF\xBF\xBD\xEF\xBF\xBD"
         "a\""}, /* the letter a stays */
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        Str s = str_in(*state);
        str_add_json(&s, expected[i].text);
        assert_string_equal(str_text(&s), expected[i].json);
    }
}

static void json_of_any_bytes_parses(void **state)
{
    for (uint64_t i = 0; i < 3000; i++) {
        char text[24];
        size_t n = (size_t)rng_below(5, 1, i, sizeof text);
        for (size_t j = 0; j < n; j++) text[j] = (char)(1 + rng_below(5, 2, 100 * i + j, 255));
        text[n] = 0;
        Str s = str_in(*state);
        str_add_json(&s, text);
        json_error_t error;
        json_t *parsed = json_loads(str_text(&s), JSON_DECODE_ANY, &error);
        assert_non_null(parsed);
        assert_true(json_is_string(parsed));
        json_decref(parsed);
    }
}

/* A text that is too long ends with its last whole character that fits. */
static void long_texts_end_in_whole_characters(void **state)
{
    static const char text[] = "a\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80z";
    /* the bytes at which characters of the text end */
    static const size_t ends[] = {0, 1, 3, 6, 10, 11};
    for (size_t most = 0; most <= sizeof text; most++) {
        size_t fits = 0;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (ends[i] <= most) fits = ends[i];
        const char *expected =
            arena_print(*state, "%.*s%s", (int)fits, text, fits < strlen(text) ? "..." : "");
        assert_string_equal(str_readable(*state, text, most), expected);
    }
    assert_string_equal(str_readable(*state, "ab\x1b[1m", 3), "ab\\x1b...");
    assert_string_equal(str_readable(*state, "a\xFF\xFF", 5), "a\\xff...");
    assert_string_equal(str_path(*state, "a\n\t\xFF"), "a\\x0a\\x09\\xff");
}

/* Every character of Unicode is readable, except control characters. A single byte of a longer
 * character is not, nor are surrogates and numbers beyond the last character. */
static void every_character_is_readable(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x120000; c++) {
        char text[5] = {0};
        size_t n = 1;
        if (c < 0x80) {
            text[0] = (char)c;
            /* Each later byte has six bits of the number, and the last byte has the lowest ones. */
        } else {
            n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
            for (size_t i = n; i-- > 1;) text[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3F));
            text[0] = (char)(0xF00 >> n | c >> 6 * (n - 1));
        }
        const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
        const bool none = (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF;
        if (str_unreadable(text, n) != (control || none ? 0 : n)) fail_msg("character %x", c);
        for (size_t k = 0; n > 1 && k < n; k++) {
            const char alone[2] = {text[k], 0};
            assert_int_equal(str_unreadable(alone, 1), 0);
        }
    }
}

static void the_nearest_word_is_few_edits_away(void **state)
{
    (void)state;
    static const char *const keys[] = {"model", "cluster", "batch",    "mesh",     "parallel",
                                       "mode",  "heads",   "kv_heads", "dp_shard", "tp"};
    static const struct {
        const char *word, *nearest;
    } expected[] = {
        {"modle", "model"},    /* two neighbours swapped, which is one edit */
        {"model", "model"},    /* itself */
        {"cluser", "cluster"}, /* one letter missing */
        {"batchh", "batch"},   /* one letter too many */
        {"mush", "mesh"},      /* another letter */
        {"paralel", "parallel"},
        {"dpshrad", "dp_shard"}, /* two edits of seven letters */
        {"moder", "model"},      /* model and mode are equally near: the first */
        {"tq", NULL},            /* one third of two letters allows no edit */
        {"hd", NULL},
        {"learning_rate", NULL},
        {"clxyter", "cluster"},
        {"clxyzer", NULL}, /* three edits */
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *nearest = str_nearest(expected[i].word, keys, sizeof keys / sizeof *keys);
        if (expected[i].nearest == NULL)
            assert_null(nearest);
        else
            assert_string_equal(nearest, expected[i].nearest);
    }
    assert_null(str_nearest("word", keys, 0));
    char long_word[200];
    memset(long_word, 'm', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = 0;
    assert_null(str_nearest(long_word, keys, 10));
}

static void bytes_print_in_binary_units(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } expected[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {134217728, "128 MiB"},
        {UINT64_C(44238372864), "41.2 GiB"},
        {1048575, "1.0 MiB"}, /* not 1024.0 KiB; the .0 shows that it is rounded */
        {UINT64_C(1) << 50, "1 PiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(str_bytes(*state, expected[i].bytes), expected[i].text);
}

static void counts_print_with_commas(void **state)
{
    assert_string_equal(str_count(*state, 0), "0");
    assert_string_equal(str_count(*state, 999), "999");
    assert_string_equal(str_count(*state, 1000), "1,000");
    assert_string_equal(str_count(*state, UINT64_C(8030261248)), "8,030,261,248");
    assert_string_equal(str_count(*state, UINT64_MAX), "18,446,744,073,709,551,615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_string_grows_to_any_length),
        cmocka_unit_test(a_printed_double_reads_back_unchanged),
        cmocka_unit_test(whole_doubles_print_as_the_c_library_prints_them),
        cmocka_unit_test(json_strings_escape_quotes_controls_and_bad_utf8),
        cmocka_unit_test(json_of_any_bytes_parses),
        cmocka_unit_test(long_texts_end_in_whole_characters),
        cmocka_unit_test(every_character_is_readable),
        cmocka_unit_test(the_nearest_word_is_few_edits_away),
        cmocka_unit_test(bytes_print_in_binary_units),
        cmocka_unit_test(counts_print_with_commas),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
