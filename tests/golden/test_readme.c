/* What README.md shows is what the program prints. Each indented block behind `$ tandem ...` whose
 * output does not depend on the machine's speed (check, sim, sweep, net, run --verify) is run in a
 * fresh folder and compared line by line; a line `...` stands for any lines. TANDEM_UPDATE_GOLDEN=1
 * renews the blocks in the source tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/list.h"
#include "planner/base/str.h"
#include "tests/support/command.h"

static const char readme[] = TANDEM_SOURCE_DIR "/README.md";
static const char prompt[] = "    $ tandem ";

typedef LIST(const char *) Lines;

static Lines lines_of(Arena *arena, const char *text)
{
    Lines lines = {0};
    while (*text != 0) {
        size_t n = strcspn(text, "\n");
        list_push(arena, &lines, arena_copy(arena, text, n));
        text += n + (text[n] == '\n');
    }
    return lines;
}

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* Timings are told of runs and comparisons: those blocks are a day's example. */
static bool is_repeatable(const char *command)
{
    return starts(command, "check ") || starts(command, "sim ") || starts(command, "net ") ||
           starts(command, "sweep ") ||
           (starts(command, "run ") && strstr(command, "--verify") != NULL);
}

static Lines run(Arena *arena, const char *command)
{
    Lines words = {0};
    for (const char *at = command; *at != 0;) {
        size_t n = strcspn(at, " ");
        list_push(arena, &words, arena_copy(arena, at, n));
        at += n + strspn(at + n, " ");
    }
    list_push(arena, &words, NULL);
    CommandResult r = command_run(arena, 120, words.at);
    if (r.signal != 0 || r.timed_out || r.n_out + r.n_err == 0)
        fail_msg("tandem %s: signal %d\n%s", command, r.signal, r.err);
    return lines_of(arena, arena_print(arena, "%s%s", r.out, r.err));
}

/* Rounding errors differ between processors, and calibrations age: numbers such as 2.04e-15 or
 * 0.00e+00, which tensor has the worst, what follows from them, and "N days" become '#'. */
static const char *masked(Arena *arena, const char *line)
{
    static const char numeric[] = "0123456789.", worst[] = " tensors (";
    Str out = str_in(arena);
    for (const char *at = line; *at != 0;) {
        if (starts(at, worst)) {
            str_print(&out, "%s#", worst);
            at += strcspn(at, ")");
            continue;
        }
        size_t n = strspn(at, numeric);
        bool exponent = starts(at + n, "e-") || starts(at + n, "e+");
        bool tells = n > 0 && (exponent || starts(at + n, " days old"));
        bool ratio = n > 0 && at - line >= 6 && starts(at - 6, "ratio ");
        if (!tells && !ratio) {
            n += n == 0;
            str_add_bytes(&out, at, n);
            at += n;
            continue;
        }
        str_add(&out, "#");
        at += n;
        if (exponent) at += 2 + strspn(at + 2, numeric);
    }
    return str_text(&out);
}

static bool is_gap(const char *line)
{
    return strcmp(line, "    ...") == 0;
}

static bool matches(Arena *arena, const Lines *shown, uint32_t from, uint32_t to, const Lines *got)
{
    uint32_t g = 0;
    bool gap = false;
    for (uint32_t i = from; i < to; i++) {
        if (is_gap(shown->at[i])) {
            gap = true;
            continue;
        }
        const char *want = masked(arena, shown->at[i] + 4);
        while (gap && g < got->n && strcmp(want, masked(arena, got->at[g])) != 0) g++;
        if (g == got->n || strcmp(want, masked(arena, got->at[g])) != 0) return false;
        gap = false;
        g++;
    }
    return gap || g == got->n;
}

/* The new block: a gap reaches to the line that begins with the same word as before. */
static void renew(const Lines *shown, uint32_t from, uint32_t to, const Lines *got, Str *out)
{
    uint32_t g = 0;
    for (uint32_t i = from; i < to; i++) {
        if (!is_gap(shown->at[i])) continue;
        str_add(out, "    ...\n");
        const char *next = i + 1 < to ? shown->at[i + 1] + 4 : "";
        size_t word = strcspn(next, " ");
        while (g < got->n && strncmp(got->at[g], next, word) != 0) g++;
    }
    for (; g < got->n; g++) str_print(out, "    %s\n", got->at[g]);
}

static void in_a_fresh_folder(Arena *arena)
{
    const char *folder = command_new_folder(arena);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(symlink(TANDEM_SOURCE_DIR "/scripts", "scripts"), 0);
}

static void shows_what_is_printed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *update = getenv("TANDEM_UPDATE_GOLDEN");
    const char *text = command_read_file(arena, readme, NULL);
    assert_non_null(text);
    in_a_fresh_folder(arena);
    Lines shown = lines_of(arena, text);
    Str renewed = str_in(arena);
    uint32_t tested = 0, wrong = 0;
    for (uint32_t i = 0, end; i < shown.n; i = end) {
        end = i + 1;
        str_print(&renewed, "%s\n", shown.at[i]);
        const char *command = shown.at[i] + strlen(prompt);
        if (!starts(shown.at[i], prompt) || !is_repeatable(command)) continue;
        while (end < shown.n && starts(shown.at[end], "    ")) end++;
        Lines got = run(arena, command);
        bool same = matches(arena, &shown, i + 1, end, &got);
        if (same)
            for (uint32_t k = i + 1; k < end; k++) str_print(&renewed, "%s\n", shown.at[k]);
        else
            renew(&shown, i + 1, end, &got, &renewed);
        tested++;
        if (same) continue;
        wrong++;
        print_error("%s:%u: `tandem %s` prints now:\n", readme, i + 1, command);
        for (uint32_t k = 0; k < got.n; k++) print_error("    %s\n", got.at[k]);
    }
    assert_true(tested >= 5);
    if (update != NULL && strcmp(update, "1") == 0)
        command_write_file(readme, str_text(&renewed));
    else if (wrong != 0)
        fail_msg("%u blocks differ; TANDEM_UPDATE_GOLDEN=1 renews them", wrong);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_what_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
