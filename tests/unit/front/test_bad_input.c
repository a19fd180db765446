/* The corpus of broken scripts in tests/bad_input: each NAME.lua has a NAME.expect with the
 * diagnostics that people must see, word for word. Its lines that begin with `# ` say how the
 * script is run: `# set key=value`, `# cpu seconds`, `# command` (only the whole command finds this
 * mistake). TANDEM_UPDATE=1 writes the expectations anew; read the difference before committing
 * it. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/clock.h"
#include "planner/front/front.h"
#include "planner/front/stream.h"
#include "tests/support/command.h"
#include "tests/support/sample.h"
#include "tests/support/slowest.h"

enum { MOST_CASES = 1000, MOST_SETS = 8, LEAST_CASES = 60 };

typedef struct Case {
    const char *name, *expected;
    const char *set[MOST_SETS];
    uint32_t n_set;
    double cpu_s;
    bool command_only;
} Case;

typedef struct Corpus {
    Arena *arena;
    Case at[MOST_CASES];
    uint32_t n;
} Corpus;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const Case *)a)->name, ((const Case *)b)->name);
}

static void read_expectation(Corpus *corpus, Case *c)
{
    size_t n;
    const char *path = arena_print(corpus->arena, "%s.expect", c->name);
    const char *text = command_read_file(corpus->arena, path, &n);
    while (text != NULL && strncmp(text, "# ", 2) == 0) {
        size_t length = strcspn(text, "\n");
        const char *line = arena_copy(corpus->arena, text + 2, length - 2);
        if (strncmp(line, "set ", 4) == 0 && c->n_set < MOST_SETS) c->set[c->n_set++] = line + 4;
        if (strncmp(line, "cpu ", 4) == 0) c->cpu_s = strtod(line + 4, NULL);
        if (strncmp(line, "command", 7) == 0) c->command_only = true;
        text += length + (text[length] == '\n');
    }
    c->expected = text != NULL ? text : "";
}

static int read_corpus(void **state)
{
    Arena *arena = arena_new();
    Corpus *corpus = arena_alloc(arena, sizeof *corpus);
    corpus->arena = arena;
    if (chdir(TANDEM_SOURCE_DIR "/tests/bad_input") != 0) return -1;
    DIR *dir = opendir(".");
    if (dir == NULL) return -1;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".lua") != 0) continue;
        if (corpus->n == MOST_CASES) return -1; /* a case must never be left out silently */
        Case *c = &corpus->at[corpus->n++];
        c->name = arena_copy(arena, e->d_name, n - 4);
        read_expectation(corpus, c);
    }
    closedir(dir);
    qsort(corpus->at, corpus->n, sizeof *corpus->at, by_name);
    *state = corpus;
    return 0;
}

static int free_corpus(void **state)
{
    arena_free(((Corpus *)*state)->arena);
    return 0;
}

static void write_expectation(Arena *arena, const Case *c, const char *text)
{
    Str all = str_in(arena);
    for (uint32_t i = 0; i < c->n_set; i++) str_print(&all, "# set %s\n", c->set[i]);
    if (c->cpu_s > 0) str_print(&all, "# cpu %g\n", c->cpu_s);
    if (c->command_only) str_add(&all, "# command\n");
    str_add(&all, text);
    command_write_file(arena_print(arena, "%s.expect", c->name), str_text(&all));
}

/* Returns 0 if the diagnostics are as expected, and 1 otherwise. */
static int run_front(const Case *c, Slowest *slowest)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    FrontOptions options = {.set = c->set, .n_set = c->n_set, .cpu_seconds = c->cpu_s};
    const double start = clock_s(), before_s = slowest_own_s() + slowest_children_s();
    bool loaded =
        front_load(arena_print(arena, "%s.lua", c->name), &options, arena, &config, &graph, &d);
    const double took = clock_s() - start;
    const double cpu_s = slowest_own_s() + slowest_children_s() - before_s;
    Str text = str_in(arena);
    diag_print(&d, &text);
    int code = diag_exit_code(&d), usage = strstr(c->name, "_syntax") != NULL && c->n_set > 0;
    int failed = 0;
    const char *update = getenv("TANDEM_UPDATE");
    if (update != NULL && update[0] == '1') {
        write_expectation(arena, c, str_text(&text));
    } else if (loaded || code != (usage ? 2 : 3)) {
        print_error("%s: exit code %d\n%s", c->name, code, str_text(&text));
        failed = 1;
    } else if (strcmp(str_text(&text), c->expected) != 0) {
        print_error("%s: expected\n%sgot\n%s", c->name, c->expected, str_text(&text));
        failed = 1;
    }
    /* Most scripts end at once. Endless scripts end by their limit of processor time. A busy
     * machine may give a process no time for seconds, so elapsed time has no limit. */
    if (took > 60 + 10 * c->cpu_s) {
        print_error("%s: took %g s\n", c->name, took);
        failed = 1;
    }
    if (!slowest_note(slowest, c->name, cpu_s)) {
        print_error("%s: took %g s of processor time\n", c->name, cpu_s);
        failed = 1;
    }
    arena_free(arena);
    return failed;
}

static void every_script_gets_its_expected_diagnostics(void **state)
{
    const Corpus *corpus = *state;
    assert_true(corpus->n >= LEAST_CASES);
    int failed = 0;
    Slowest slowest = {0};
    for (uint32_t i = 0; i < corpus->n; i++)
        if (!corpus->at[i].command_only) failed += run_front(&corpus->at[i], &slowest);
    slowest_print(&slowest, "scripts with their own limits");
    assert_int_equal(failed, 0);
    assert_int_not_equal(access("owned", F_OK),
                         0); /* the files that forbidden_os and forbidden_io would create */
}

static int run_command(const Case *c, Slowest *slowest)
{
    Arena *arena = arena_new();
    const char *arguments[4 + 2 * MOST_SETS] = {"check"};
    uint32_t n = 1;
    for (uint32_t i = 0; i < c->n_set; i++) {
        arguments[n++] = "--set";
        arguments[n++] = c->set[i];
    }
    arguments[n] = arena_print(arena, "%s.lua", c->name);
    CommandResult r = command_run(arena, 60, arguments);
    const char *update = getenv("TANDEM_UPDATE");
    int failed = 0, usage = strstr(c->name, "_syntax") != NULL && c->n_set > 0;
    if (c->command_only && update != NULL && update[0] == '1') {
        write_expectation(arena, c, r.err);
    } else if (r.exit_code != (usage ? 2 : 3) || r.timed_out || c->expected[0] == 0 ||
               strstr(r.err, c->expected) == NULL) {
        print_error("%s: exit code %d signal %d, expected\n%sgot\n%s", c->name, r.exit_code,
                    r.signal, c->expected, r.err);
        failed = 1;
    }
    if (!slowest_note(slowest, c->name, r.cpu_s)) {
        print_error("%s: took %g s of processor time\n", c->name, r.cpu_s);
        failed = 1;
    }
    arena_free(arena);
    return failed;
}

static void the_command_prints_the_same_and_leaves_no_store(void **state)
{
    const Corpus *corpus = *state;
    if (access(TANDEM_COMMAND, X_OK) != 0) skip();
    int failed = 0;
    Slowest slowest = {0};
    for (uint32_t i = 0; i < corpus->n; i++) /* endless scripts would use a user's limit of 5 s */
        if ((corpus->at[i].cpu_s <= 0 || corpus->at[i].cpu_s > SLOWEST_LIMIT_S) &&
            (corpus->at[i].command_only || is_sampled(i, 5)))
            failed += run_command(&corpus->at[i], &slowest);
    slowest_print(&slowest, "bad_input");
    assert_int_equal(failed, 0);
    assert_int_not_equal(access("tandem.db", F_OK), 0);
    assert_int_not_equal(access("owned", F_OK), 0);
}

/* Under AddressSanitizer, commands run on one core and so use no threads. With gcc 12's
 * AddressSanitizer, the process of a script can wait forever in the allocator if the command had a
 * thread before. The cause is not known. The release build has never done so. */
static void use_one_core(void)
{
#if defined(__SANITIZE_ADDRESS__)
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) print_message("all cores are used\n");
#endif
}

int main(void)
{
    use_one_core();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_script_gets_its_expected_diagnostics),
        cmocka_unit_test(the_command_prints_the_same_and_leaves_no_store),
    };
    return cmocka_run_group_tests(tests, read_corpus, free_corpus);
}
