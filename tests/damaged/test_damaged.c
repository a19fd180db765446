/* Damaged stores, damaged files to import, and wrong command lines. Each case of a table damages
 * sound files by a recipe and runs one command. The table contains the expected exit code and the
 * first line of standard error. The command must neither crash nor hang. README.md in this folder
 * explains the words of the recipes. TANDEM_UPDATE=1 writes the expectations anew; check the
 * difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/base/str.h"
#include "tests/support/command.h"
#include "tests/support/slowest.h"

enum { MOST_LINE = 4096 };
/* A limit by the clock [s], generous because the machine may be busy. The limit of processor time
 * is lower. */
static const double most_s = 60;

typedef struct File {
    char *at;
    size_t n;
} File;

typedef struct Table {
    Arena *arena;
    const char *path, *name;
    Str rewritten;
    bool updates;
    int cases, wrong;
    Slowest slowest;
} Table;

static File file_read(Arena *arena, const char *path)
{
    File f;
    const char *bytes = command_read_file(arena, path, &f.n);
    if (bytes == NULL) fail_msg("%s cannot be read", path);
    f.at = arena_alloc(arena, f.n + 1);
    memcpy(f.at, bytes, f.n);
    return f;
}

static void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_true(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *why = NULL;
    sqlite3_open(path, &db);
    sqlite3_exec(db,
                 "PRAGMA writable_schema=ON; PRAGMA foreign_keys=OFF; PRAGMA trusted_schema=ON;",
                 NULL, NULL, NULL);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) fail_msg("%s: %s", sql, why);
    sqlite3_close(db);
}

/* Replaces the first `from` by `to`. */
static void swap_text(Arena *arena, const char *path, const char *from, const char *to)
{
    const File f = file_read(arena, path);
    char *at = strstr(f.at, from);
    if (at == NULL) fail_msg("%s has no %s", path, from);
    Str text = str_in(arena);
    str_add_bytes(&text, f.at, (size_t)(at - f.at));
    str_add(&text, to);
    const size_t rest = (size_t)(at - f.at) + strlen(from);
    str_add_bytes(&text, f.at + rest, f.n - rest);
    file_write(path, str_text(&text), text.n);
}

static uint8_t hex_byte(const char *at)
{
    const char two[3] = {at[0], at[1], 0};
    return (uint8_t)strtoul(two, NULL, 16);
}

/* Carries out one line of a recipe. */
static void prepare(Arena *arena, char *line)
{
    char word[16], path[128];
    int used = 0;
    if (sscanf(line, "%15s %127s %n", word, path, &used) != 2) fail_msg("not a recipe: %s", line);
    char *rest = line + used;
    if (strcmp(word, "copy") == 0) {
        const File f = file_read(arena, path);
        file_write(rest, f.at, f.n);
    } else if (strcmp(word, "bytes") == 0 || strcmp(word, "fill") == 0) {
        const File f = file_read(arena, path);
        char *hex;
        size_t at = strtoul(rest, &hex, 10);
        size_t n = strcmp(word, "fill") == 0 ? strtoul(hex, &hex, 10) : 0;
        hex += strspn(hex, " ");
        if (n == 0) n = strlen(hex) / 2;
        assert_true(at + n <= f.n);
        for (size_t i = 0; i < n; i++)
            f.at[at + i] = (char)hex_byte(hex + (word[0] == 'f' ? 0 : 2 * i));
        file_write(path, f.at, f.n);
    } else if (strcmp(word, "cut") == 0) {
        assert_int_equal(truncate(path, strtol(rest, NULL, 10)), 0);
    } else if (strcmp(word, "text") == 0) {
        command_write_file(path, arena_print(arena, "%s\n", rest));
    } else if (strcmp(word, "swap") == 0) {
        char *to = strstr(rest, " => ");
        if (to == NULL) fail_msg("swap FILE OLD => NEW: %s", line);
        *to = 0;
        swap_text(arena, path, rest, to + 4);
    } else if (strcmp(word, "sql") == 0) {
        run_sql(path, rest);
    } else {
        fail_msg("'%s' is not a word of a recipe", word);
    }
}

/* Returns the first line of standard error that has an error, or else its first line. If standard
 * error is empty, returns the line of an import that names the stored rows. Leaves out parts that
 * differ between machines. */
static const char *first_line(Arena *arena, const CommandResult *r)
{
    Str line = str_in(arena);
    const char *from = strstr(r->err, "error["), *begin = r->err;
    if (from == NULL && r->n_err == 0 && strstr(r->out, "\nstored ") != NULL)
        from = strstr(begin = r->out, "\nstored ") + 1;
    if (from == NULL) from = r->err;
    while (from > begin && from[-1] != '\n') from--;
    const char *end = from + strcspn(from, "\n");
    for (const char *at = from; at < end;) {
        const size_t source = strlen(TANDEM_SOURCE_DIR);
        if (strncmp(at, TANDEM_SOURCE_DIR, source) == 0) {
            str_add(&line, "SOURCE");
            at += source;
        } else {
            str_add_bytes(&line, at++, 1);
        }
    }
    return str_text(&line);
}

/* If the expectation ends in "...", only the beginning must agree. */
static bool agrees(const char *line, const char *expected)
{
    const size_t n = strlen(expected);
    if (n >= 3 && strcmp(expected + n - 3, "...") == 0) return strncmp(line, expected, n - 3) == 0;
    return strcmp(line, expected) == 0;
}

static void try_command(Table *t, Arena *arena, const char *command, const char *code,
                        const char *expected)
{
    const CommandResult r =
        command_run_program(arena, most_s, (const char *const[]){"sh", "-c", command, NULL});
    const char *line = first_line(arena, &r);
    const char *got = arena_print(arena, "%d", r.exit_code);
    const char *fault = NULL;
    if (r.timed_out)
        fault = "it hangs";
    else if (r.exit_code < 0 || r.exit_code > 7)
        fault = "it crashed";
    else if (r.exit_code != 0 && strstr(line, "error[") == NULL)
        fault = "the first line names no error";
    else if (!slowest_note(&t->slowest, command, r.cpu_s))
        fault = "it takes too much processor time";
    else if (!t->updates && (strcmp(got, code) != 0 || !agrees(line, expected)))
        fault = "something else was expected";
    t->cases++;
    const bool same = strcmp(got, code) == 0 && agrees(line, expected);
    str_print(&t->rewritten, "$ %s\n%s\n%s\n", command, got, same ? expected : line);
    if (fault == NULL) return;
    t->wrong++;
    print_error("%s, case %d: %s: %s\n%s\nexpected %s: %s\ngot %s, signal %d, %.1f s:\n%s\n",
                t->name, t->cases, fault, command, "", code, expected, got, r.signal, r.cpu_s,
                r.err);
}

static const char *take_line(FILE *file, char line[MOST_LINE])
{
    if (fgets(line, MOST_LINE, file) == NULL) return NULL;
    line[strcspn(line, "\n")] = 0;
    return line;
}

static void all_cases(Table *t, int least)
{
    FILE *file = fopen(t->path, "r");
    assert_non_null(file);
    char line[MOST_LINE], code[MOST_LINE], expected[MOST_LINE];
    while (take_line(file, line) != NULL) {
        Arena *arena = arena_new();
        if (strncmp(line, "$ ", 2) == 0) {
            if (take_line(file, code) == NULL) code[0] = 0;
            if (take_line(file, expected) == NULL) expected[0] = 0;
            try_command(t, arena, line + 2, code, expected);
        } else {
            str_print(&t->rewritten, "%s\n", line);
            if (strncmp(line, "- ", 2) == 0) prepare(arena, line + 2);
        }
        arena_free(arena);
    }
    fclose(file);
    if (t->updates) command_write_file(t->path, str_text(&t->rewritten));
    print_message("%d cases\n", t->cases);
    slowest_print(&t->slowest, t->name);
    assert_true(t->cases >= least);
    assert_int_equal(t->wrong, 0);
}

/* Runs the cases of a table in a folder with the sound files. */
static void table(const char *name, int least)
{
    Arena *arena = arena_new();
    static const char folder[] = TANDEM_SOURCE_DIR "/tests/damaged";
    const char *update = getenv("TANDEM_UPDATE");
    Table t = {.arena = arena,
               .path = arena_print(arena, "%s/%s.txt", folder, name),
               .name = name,
               .rewritten = str_in(arena),
               .updates = update != NULL && strcmp(update, "1") == 0};
    char before[MOST_LINE];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(command_new_folder(arena)), 0);
    setenv("PLAN", TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua", 1);
    setenv("TANDEM", TANDEM_COMMAND, 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    static const char sound[] =
        "set -e; \"$TANDEM\" sim \"$PLAN\" --trace --db sound.db >/dev/null 2>&1;"
        "\"$TANDEM\" sweep \"$PLAN\" --try seed=1,2 --jobs 1 --db sound.db >/dev/null 2>&1;"
        "\"$TANDEM\" show \"$PLAN\" --text >sound.plan 2>/dev/null";
    CommandResult r =
        command_run_program(arena, 60, (const char *const[]){"sh", "-c", sound, NULL});
    if (r.exit_code != 0) fail_msg("the sound files are not made: %s", r.err);
    static const char *const files[] = {"nccl.txt", "trace.json"};
    for (size_t i = 0; i < 2; i++) {
        const File f = file_read(arena, arena_print(arena, "%s/sound/%s", folder, files[i]));
        file_write(files[i], f.at, f.n);
    }
    run_sql("nsys.sqlite",
            command_read_file(arena, arena_print(arena, "%s/sound/nsys.sql", folder), NULL));
    all_cases(&t, least);
    assert_int_equal(chdir(before), 0);
    arena_free(arena);
}

static void damaged_stores_give_the_expected_errors(void **state)
{
    (void)state;
    table("stores", 40);
}

static void damaged_imports_give_the_expected_errors(void **state)
{
    (void)state;
    table("imports", 60);
}

static void wrong_command_lines_give_the_expected_errors(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizers need open files and environment of their own */
#endif
    table("commands", 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_stores_give_the_expected_errors),
        cmocka_unit_test(damaged_imports_give_the_expected_errors),
        cmocka_unit_test(wrong_command_lines_give_the_expected_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
