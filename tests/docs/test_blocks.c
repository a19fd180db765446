/* The blocks of README.md, docs/tutorial and docs/how-to must show the program's real output. Each
 * document gets its own folder. A block ```lua whose first line is `-- NAME.lua` becomes that file.
 * In a block ```console, the shell runs each line `$ COMMAND`, and the lines below are the expected
 * output: `...` stands for any lines, and a number after `≈` for any number. A block that begins
 * with `# needs ...` is only counted. TANDEM_UPDATE_GOLDEN=1 rewrites blocks without ≈. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/base/list.h"
#include "planner/base/str.h"
#include "tests/support/command.h"

enum { MOST_NOT_RUN = 6 };
static const char about[] = "\xe2\x89\x88"; /* ≈ */
static const char made_by_make[] = "build/release/tandem ";

typedef LIST(const char *) Lines;
typedef struct Counts {
    uint32_t run, not_run, wrong;
} Counts;

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

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

/* Returns the command after a prompt; `make demo` echoes its commands without a prompt. NULL: the
 * line is output. */
static const char *command_of(const char *line)
{
    if (starts(line, "$ ")) return line + 2;
    return starts(line, made_by_make) ? line + strlen("build/release/") : NULL;
}

static Lines run(Arena *arena, const char *command)
{
    const char *argv[] = {"sh", "-c", arena_print(arena, "exec 2>&1; %s", command), NULL};
    CommandResult r = command_run_program(arena, 400, argv);
    if (r.signal != 0 || r.timed_out) fail_msg("%s: signal %d\n%s", command, r.signal, r.out);
    return lines_of(arena, r.out);
}

static size_t number_at(const char *at)
{
    size_t n = strspn(at, "0123456789.,");
    if (n == 0) return 0;
    if ((at[n] == 'e' || at[n] == 'E') && (at[n + 1] == '-' || at[n + 1] == '+'))
        n += 2 + strspn(at + n + 2, "0123456789");
    return n;
}

/* Returns the length of a text that may differ, because processors round differently: a number
 * like 2.04e-15, the number after "ratio", or the name of the worst tensor. Returns 0 for other
 * texts. */
static size_t loose_at(const char *start, const char *at)
{
    static const char worst[] = " tensors (";
    if (at - start >= 10 && strncmp(at - 10, worst, 10) == 0) return strcspn(at, ")");
    size_t n = number_at(at);
    if (n == 0 || (at > start && number_at(at - 1) > 0)) return 0;
    if (memchr(at, 'e', n)) return n;
    return at - start >= 6 && starts(at - 6, "ratio ") ? n : 0;
}

/* Returns the length of a unit of time such as " ms". A slower machine may print another unit. */
static size_t time_unit_at(const char *at)
{
    static const char *const units[] = {" ns", " us", " ms", " s"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t n = strlen(units[i]);
        if (starts(at, units[i]) && (at[n] == 0 || strchr(" ,)", at[n]) != NULL)) return n;
    }
    return 0;
}

static bool line_fits(const char *want, const char *got)
{
    const char *first = want, *start = got;
    bool loose = strstr(want, about) != NULL;
    while (*want != 0 || *got != 0) {
        /* Documents have no blanks at the ends of lines. */
        if (*want == 0) return got[strspn(got, " ")] == 0;
        if (loose && *want == ' ' && *got == ' ') {
            want += strspn(want, " "), got += strspn(got, " ");
            continue;
        }
        if (starts(want, about)) {
            size_t n = strspn(got, "+-"), m = number_at(got + n);
            want += strlen(about), want += strspn(want, "+-"), want += number_at(want);
            if (m == 0) return false;
            got += n + m;
            const size_t unit = time_unit_at(want), other = time_unit_at(got);
            if (unit > 0 && other > 0) want += unit, got += other;
            continue;
        }
        size_t any = loose_at(first, want), other = loose_at(start, got);
        if (any > 0 && other > 0) {
            want += any, got += other;
            continue;
        }
        if (*want++ != *got++) return false;
    }
    return true;
}

static bool matches(const Lines *doc, uint32_t from, uint32_t to, const Lines *got)
{
    uint32_t g = 0;
    bool gap = false;
    for (uint32_t i = from; i < to; i++) {
        if (strcmp(doc->at[i], "...") == 0) {
            gap = true;
            continue;
        }
        while (gap && g < got->n && !line_fits(doc->at[i], got->at[g])) g++;
        if (g == got->n || !line_fits(doc->at[i], got->at[g])) return false;
        gap = false;
        g++;
    }
    return gap || g == got->n;
}

/* Writes the new output. A gap `...` ends at the line that begins with the same word as before. */
static void renew(const Lines *doc, uint32_t from, uint32_t to, const Lines *got, Str *out)
{
    uint32_t g = 0;
    bool open = false;
    for (uint32_t i = from; i < to; i++) {
        open = strcmp(doc->at[i], "...") == 0;
        if (open) {
            str_add(out, "...\n");
            continue;
        }
        if (i == from || strcmp(doc->at[i - 1], "...") == 0) {
            size_t word = strspn(doc->at[i], " ");
            word += strcspn(doc->at[i] + word, " ");
            while (i > from && g < got->n && strncmp(got->at[g], doc->at[i], word) != 0) g++;
        }
        if (g < got->n) str_print(out, "%s\n", got->at[g++]);
    }
    for (; !open && g < got->n; g++) str_print(out, "%s\n", got->at[g]);
}

/* Handles the ```console block in lines from..to. Copies it to `out`, unchanged or rewritten. */
static void console(Arena *arena, const char *path, const Lines *doc, uint32_t from, uint32_t to,
                    Counts *counts, Str *out)
{
    if (from < to && starts(doc->at[from], "# needs ")) {
        counts->not_run++;
        for (uint32_t i = from; i < to; i++) str_print(out, "%s\n", doc->at[i]);
        return;
    }
    if (from == to || !command_of(doc->at[from])) fail_msg("%s:%u: no `$ command`", path, from + 1);
    for (uint32_t i = from, end; i < to; i = end) {
        const char *command = command_of(doc->at[i]);
        for (end = i + 1; end < to && !command_of(doc->at[end]);) end++;
        str_print(out, "%s\n", doc->at[i]);
        /* the commands that `make demo` echoes are run instead */
        if (starts(command, "make ")) continue;
        uint32_t told = 0;
        for (uint32_t k = i + 1; k < end; k++) told += strcmp(doc->at[k], "...") != 0;
        if (told == 0 && end > i + 1) fail_msg("%s:%u: only `...` is shown", path, i + 1);
        Lines got = run(arena, command);
        counts->run++;
        bool same = matches(doc, i + 1, end, &got);
        if (same)
            for (uint32_t k = i + 1; k < end; k++) str_print(out, "%s\n", doc->at[k]);
        else
            renew(doc, i + 1, end, &got, out);
        if (same) continue;
        counts->wrong++;
        print_error("%s:%u: `%s` prints now:\n", path, i + 1, command);
        for (uint32_t k = 0; k < got.n; k++) print_error("%s\n", got.at[k]);
    }
}

static void in_a_fresh_folder(Arena *arena, const char *home)
{
    assert_int_equal(chdir(home), 0);
    assert_int_equal(chdir(command_new_folder(arena)), 0);
    assert_int_equal(symlink(TANDEM_SOURCE_DIR "/scripts", "scripts"), 0);
    assert_int_equal(symlink(TANDEM_SOURCE_DIR "/tests", "tests"), 0);
    assert_int_equal(mkdir("build", 0777), 0); /* `make demo` keeps its store there */
}

/* Writes a script. For a path like models/mine.lua, makes the folder in the document's folder. */
static void write_script(Arena *arena, const char *path, const char *text)
{
    const char *slash = strchr(path, '/');
    if (slash != NULL) mkdir(arena_copy(arena, path, (size_t)(slash - path)), 0777);
    command_write_file(path, text);
}

static Counts document(Arena *arena, const char *home, const char *path)
{
    Counts counts = {0};
    const char *text = command_read_file(arena, path, NULL);
    assert_non_null(text);
    in_a_fresh_folder(arena, home);
    Lines doc = lines_of(arena, text);
    Str out = str_in(arena);
    for (uint32_t i = 0, end; i < doc.n; i = end) {
        end = i + 1;
        str_print(&out, "%s\n", doc.at[i]);
        bool shell = strcmp(doc.at[i], "```console") == 0, lua = strcmp(doc.at[i], "```lua") == 0;
        if (!shell && !lua) continue;
        while (end < doc.n && strcmp(doc.at[end], "```") != 0) end++;
        if (shell) {
            console(arena, path, &doc, i + 1, end, &counts, &out);
            continue;
        }
        Str file = str_in(arena);
        for (uint32_t k = i + 1; k < end; k++) {
            str_print(&out, "%s\n", doc.at[k]);
            str_print(&file, "%s\n", doc.at[k]);
        }
        size_t n = strlen(doc.at[i + 1]);
        if (starts(doc.at[i + 1], "-- ") && strchr(doc.at[i + 1] + 3, ' ') == NULL && n > 7 &&
            strcmp(doc.at[i + 1] + n - 4, ".lua") == 0)
            write_script(arena, doc.at[i + 1] + 3, str_text(&file));
    }
    const char *update = getenv("TANDEM_UPDATE_GOLDEN");
    if (counts.wrong != 0 && update != NULL && strcmp(update, "1") == 0)
        command_write_file(path, str_text(&out));
    return counts;
}

static void add_counts(Counts *all, Counts more)
{
    all->run += more.run, all->not_run += more.not_run, all->wrong += more.wrong;
}

/* Every document of a folder must have a block that is run, or one that names the program that it
 * needs. */
static void folder(Arena *arena, const char *home, const char *name, Counts *all)
{
    const char *path = arena_print(arena, TANDEM_SOURCE_DIR "/%s", name);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strstr(e->d_name, ".md") == NULL) continue;
        Counts c = document(arena, home, arena_print(arena, "%s/%s", path, e->d_name));
        if (c.run + c.not_run == 0) fail_msg("%s/%s shows no command", name, e->d_name);
        add_counts(all, c);
    }
    closedir(dir);
}

static void check(Counts all, uint32_t least)
{
    print_message("%u commands run, %u blocks need what is not here\n", all.run, all.not_run);
    if (all.wrong != 0)
        fail_msg("%u commands print something else; TANDEM_UPDATE_GOLDEN=1 renews them", all.wrong);
    assert_true(all.run >= least);
    assert_true(all.not_run <= MOST_NOT_RUN);
}

static void the_readme_shows_real_output(void **state)
{
    Arena *arena = arena_new();
    check(document(arena, *state, TANDEM_SOURCE_DIR "/README.md"), 5);
    arena_free(arena);
}

static void tutorials_and_how_tos_show_real_output(void **state)
{
    Arena *arena = arena_new();
    Counts all = {0};
    folder(arena, *state, "docs/tutorial", &all);
    folder(arena, *state, "docs/how-to", &all);
    check(all, 20);
    arena_free(arena);
}

/* Tests the comparison itself: texts that it must accept, and texts that it must not. */
static void only_marked_numbers_are_loose(void **state)
{
    (void)state;
    assert_true(line_fits("step  \xe2\x89\x88"
                          "21.4 ms",
                          "step   7.1 ms"));
    assert_true(line_fits("step  \xe2\x89\x88"
                          "21.4 ms  (",
                          "step   7.1 s  ("));
    assert_false(line_fits("step  \xe2\x89\x88"
                           "21.4 ms",
                           "step   7.1 GiB"));
    assert_false(line_fits("step  \xe2\x89\x88"
                           "21.4 ms",
                           "step   7.1 sheep"));
    assert_false(line_fits("step  21.4 ms", "step  21.5 ms"));
    assert_false(line_fits("step  \xe2\x89\x88"
                           "21.4 ms",
                           "step  none ms"));
    assert_true(line_fits("worst 2.04e-15", "worst 1.1e-14"));
    assert_false(line_fits("fits", "fits not"));
}

int main(void)
{
    static char home[4096], own[4096], path[9000];
    snprintf(own, sizeof own, "%s", TANDEM_COMMAND);
    char *slash = strrchr(own, '/');
    if (slash != NULL) *slash = 0;
    snprintf(path, sizeof path, "%s:%s", own, getenv("PATH"));
    setenv("PATH", path, 1);
    unsetenv("TANDEM_DB");
    if (getcwd(home, sizeof home) == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_marked_numbers_are_loose),
        cmocka_unit_test_prestate(the_readme_shows_real_output, home),
        cmocka_unit_test_prestate(tutorials_and_how_tos_show_real_output, home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
