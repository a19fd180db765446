/* The emulators' tests of the CUDA kernels are worth only as much as the faults that they find.
 * Each record of mutants.txt is one fault in a kernel. The test compiles the kernel's file with the
 * fault, and links it in place of the sound file into the programs that the record names.
 * (PROGRAM=OPS: runs only cases of ops whose names contain these words; watched_*: loads and stores
 * are watched.) Each of these programs must fail. This test fails if a program passes or runs out
 * of time, if a mutant does not compile, or if its old text is not exactly once in the file. (If
 * all threads wait, the emulator ends with an error. So a program that runs out of time has not
 * detected the fault.) Programs with the sound file must pass, so that a failure shows the fault.
 * By default, the whole table is read, but only a sample drawn by seed is run.
 *
 * TANDEM_MUTANTS=all runs all. TANDEM_MUTANTS_SEED chooses another sample. TANDEM_MUTANTS_OF
 * selects records whose heading contains these words. TANDEM_MUTANTS_PART=i/n runs every n-th of
 * these from the i-th on, so that several processes can share the work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/list.h"
#include "planner/base/rng.h"
#include "tests/support/command.h"

enum { SAMPLE = 6, MAX_PROGRAMS = 4, AT_LEAST = 40, TIMEOUT_S = 400 };
#define KERNELS "kernels/cuda/"
#define WHERE   "at"   /* compilers search this folder first, and so find the mutated file */
#define NEVER   "none" /* a name that no file of kernels has */

typedef struct Mutant {
    uint32_t line; /* number of the line in the table */
    const char *heading, *file, *source, *program[MAX_PROGRAMS];
    uint32_t n_programs;
    const char *old, *fresh, *why;
} Mutant;
typedef LIST(Mutant) Mutants;

/* ---- the table ---- */

static const char *next_word(Arena *arena, const char **text)
{
    while (**text == ' ') ++*text;
    const char *begin = *text;
    while (**text != '\0' && **text != ' ') ++*text;
    return arena_copy(arena, begin, (size_t)(*text - begin));
}

/* Reads "FILE [in SOURCE]: PROGRAM ...". A header is compiled as a part of SOURCE, other files by
 * themselves. */
static Mutant read_heading(Arena *arena, const char *text, uint32_t line)
{
    Mutant m = {.line = line, .heading = text};
    const char *colon = strchr(text, ':'), *at = text;
    if (colon == NULL) fail_msg("mutants.txt:%u: a heading without programs", line);
    m.file = next_word(arena, &at);
    m.source = at > colon ? arena_copy(arena, m.file, strlen(m.file) - 1) : NULL;
    if (m.source != NULL) {
        m.file = m.source;
    } else {
        if (strcmp(next_word(arena, &at), "in") != 0) fail_msg("mutants.txt:%u: in which?", line);
        const char *source = next_word(arena, &at);
        m.source = arena_copy(arena, source, strlen(source) - 1);
    }
    while (*at != '\0' && m.n_programs < MAX_PROGRAMS)
        m.program[m.n_programs++] = next_word(arena, &at);
    if (*at != '\0' || m.n_programs == 0) fail_msg("mutants.txt:%u: no or too many programs", line);
    return m;
}

static void add_line(Arena *arena, const char **all, const char *line)
{
    *all = *all ? arena_print(arena, "%s\n%s", *all, line) : line;
}

static Mutants read_table(Arena *arena)
{
    Mutants all = {0};
    const char *text =
        command_read_file(arena, TANDEM_SOURCE_DIR "/tests/cuda/mutants.txt", &(size_t){0});
    Mutant *m = NULL;
    assert_non_null(text);
    for (uint32_t line = 1; *text != '\0'; line++) {
        const char *end = strchr(text, '\n');
        assert_non_null(end);
        const char *at = arena_copy(arena, text, (size_t)(end - text));
        text = end + 1;
        if (*at == '#') continue;
        if (*at == '\0')
            m = NULL;
        else if (m == NULL)
            m = &all.at[list_push(arena, &all, read_heading(arena, at, line))];
        else if (*at == '-' && at[1] == ' ')
            add_line(arena, &m->old, at + 2);
        else if (*at == '+' && (at[1] == ' ' || at[1] == '\0'))
            add_line(arena, &m->fresh, at[1] ? at + 2 : "");
        else
            add_line(arena, &m->why, at);
    }
    return all;
}

/* ---- a mutated file ---- */

/* Matches `pattern` at the start of `text`; all white space counts as equal. Returns the end of the
 * match, or NULL. */
static const char *match(const char *text, const char *pattern)
{
    while (*pattern != '\0') {
        if (isspace((unsigned char)*pattern)) {
            if (!isspace((unsigned char)*text)) return NULL;
            while (isspace((unsigned char)*text)) text++;
            while (isspace((unsigned char)*pattern)) pattern++;
        } else if (*text++ != *pattern++) {
            return NULL;
        }
    }
    return text;
}

/* Returns the file with the fault. Returns NULL, and sets *why, if the old text is not there
 * exactly once. */
static const char *mutated(Arena *arena, const Mutant *m, const char **why)
{
    const char *path = arena_print(arena, "%s/" KERNELS "%s", TANDEM_SOURCE_DIR, m->file);
    const char *text = command_read_file(arena, path, &(size_t){0}), *begin = NULL, *end = NULL;
    *why = "there is no such file";
    if (text == NULL) return NULL;
    *why = "its text no longer stands in the file";
    for (const char *at = text; *at != '\0'; at++) {
        const char *found = match(at, m->old);
        if (found == NULL) continue;
        *why = "its text stands in the file more than once";
        if (begin != NULL) return NULL;
        begin = at, end = found;
    }
    if (begin == NULL) return NULL;
    return arena_print(arena, "%.*s%s%s", (int)(begin - text), text, m->fresh, end);
}

/* ---- building ---- */

static CommandResult shell(Arena *arena, double timeout_s, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    return command_run_program(arena, timeout_s, argv);
}

/* Returns the command that compiles a kernel's file for the CPU, without its output. */
static const char *compile_command(Arena *arena, const char *source, bool watched)
{
    const char *folder =
        !watched || strstr(source, ".cu") == NULL ? "device_on_cpu" : "kernels_watched";
    folder = arena_print(arena, " -o tests/CMakeFiles/tandem_%s.dir/", folder);
    json_error_t error;
    json_t *all = json_load_file(TANDEM_BUILD_DIR "/compile_commands.json", 0, &error), *one;
    const char *found = NULL;
    const char *name = arena_print(arena, "/" KERNELS "%s", source);
    size_t i;
    assert_non_null(all);
    json_array_foreach(all, i, one)
    {
        const char *command = json_string_value(json_object_get(one, "command"));
        const char *file = json_string_value(json_object_get(one, "file"));
        size_t n = strlen(file), tail = strlen(name);
        if (n < tail || strcmp(file + n - tail, name) != 0) continue;
        const char *out = strstr(command, folder);
        if (out != NULL) found = arena_copy(arena, command, (size_t)(out - command));
    }
    json_decref(all);
    if (found == NULL) fail_msg("%s is not compiled for the CPU", source);
    return found;
}

/* Compiles WHERE/kernel.o. The mutated file, if there is one, is found before the sound one. */
static bool compile(Arena *arena, const Mutant *m, const char *text, bool watched, const char **why)
{
    const char *command = compile_command(arena, m->source, watched),
               *first = strstr(command, " -I");
    bool is_itself = text != NULL && strcmp(m->file, m->source) == 0;
    assert_non_null(first);
    CommandResult r = shell(
        arena, 10,
        arena_print(arena, "rm -rf " WHERE " && mkdir -p \"$(dirname " WHERE "/" KERNELS "%s)\"",
                    m->file));
    assert_int_equal(r.exit_code, 0);
    if (text != NULL) command_write_file(arena_print(arena, WHERE "/" KERNELS "%s", m->file), text);
    r = shell(arena, TIMEOUT_S,
              arena_print(arena,
                          "here=$PWD; cd %s && %.*s -I\"$here/" WHERE "\"%s -w -O1 "
                          "-o \"$here/" WHERE "/kernel.o\" -c %s/" KERNELS "%s",
                          TANDEM_BUILD_DIR, (int)(first - command), command, first,
                          is_itself ? "\"$here\"/" WHERE : TANDEM_SOURCE_DIR, m->source));
    *why = r.err;
    return r.exit_code == 0;
}

/* Links WHERE/program as the build does, but with this object. */
static bool link_program(Arena *arena, const char *program, const char **why)
{
    CommandResult r = shell(arena, TIMEOUT_S,
                            arena_print(arena, "%s -C %s -t commands tests/cuda_%s | tail -1",
                                        TANDEM_NINJA, TANDEM_BUILD_DIR, program));
    const char *out = arena_print(arena, " -o tests/cuda_%s ", program), *at = strstr(r.out, out);
    *why = "ninja tells no command that links it";
    if (r.exit_code != 0 || at == NULL) return false;
    r = shell(arena, TIMEOUT_S,
              arena_print(arena,
                          "here=$PWD; cd %s; %.*s -o \"$here/" WHERE "/program\" \"$here/" WHERE
                          "/kernel.o\" %s",
                          TANDEM_BUILD_DIR, (int)(at - r.out), r.out, at + strlen(out)));
    *why = r.err;
    return r.exit_code == 0;
}

/* Runs the program, and stops it at its first failing case. */
static const char run_script[] = "ulimit -c 0; " WHERE "/program >" WHERE "/log 2>&1 & p=$!\n"
                                 "while kill -0 $p 2>/dev/null; do\n"
                                 "  if grep -q '^\\[  FAILED  \\]' " WHERE "/log; then exit 1; fi\n"
                                 "  sleep 0.05\n"
                                 "done\n"
                                 "wait $p";

typedef enum Fate {
    KILLED,
    SURVIVES,
    RUNS_OUT_OF_TIME,
    DOES_NOT_BUILD,
    NO_LONGER_APPLIES,
    FATES
} Fate;
static const char *const fate_names[FATES] = {"killed", "SURVIVES", "RUNS OUT OF TIME",
                                              "DOES NOT BUILD", "NO LONGER APPLIES"};

static bool is_watched(const char *name)
{
    return strncmp(name, "watched_", 8) == 0 || strcmp(name, "test_sectors") == 0;
}

/* Runs PROGRAM or PROGRAM=OPS for at most `limit_s`. One file of kernels is compiled anew, from
 * `text` unless that is NULL. */
static Fate run_program(Arena *arena, const Mutant *m, const char *text, const char *program,
                        double limit_s, const char **why, double *seconds)
{
    const char *of = strchr(program, '='), *name = program;
    if (of != NULL) name = arena_copy(arena, program, (size_t)(of - program));
    if (!compile(arena, m, text, is_watched(name), why) || !link_program(arena, name, why))
        return DOES_NOT_BUILD;
    const char *set = of ? arena_print(arena, "export TANDEM_OPS=%s; ", of + 1) : "";
    CommandResult r = shell(arena, limit_s, arena_print(arena, "%s%s", set, run_script));
    *seconds += r.seconds;
    *why = r.timed_out ? "has no result" : r.signal != 0 || r.exit_code > 128 ? "aborts" : "fails";
    if (r.timed_out) return RUNS_OUT_OF_TIME;
    return r.exit_code == 0 ? SURVIVES : KILLED;
}

/* ---- tests ---- */

static Fate try_one(Arena *arena, const Mutant *m)
{
    const char *why = "", *program = "", *text = mutated(arena, m, &why);
    Fate fate = text == NULL ? NO_LONGER_APPLIES : KILLED;
    double seconds = 0;
    for (uint32_t i = 0; i < m->n_programs && fate == KILLED; i++) {
        program = m->program[i];
        fate = run_program(arena, m, text, program, TIMEOUT_S, &why, &seconds);
    }
    print_message("%-17s mutants.txt:%-4u %5.1f s  %s %s\n", fate_names[fate], m->line, seconds,
                  m->heading, fate == KILLED ? why : "");
    if (fate != KILLED)
        print_error("%s: mutants.txt:%u, %s\n  %s\n  %s: %s\n", fate_names[fate], m->line,
                    m->heading, m->why, program, why);
    return fate;
}

static void the_table_fits_the_files(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Mutants all = read_table(arena);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        const Mutant *m = &all.at[i];
        const char *why = "a record has old text, new text and a reason";
        if (m->old && m->fresh && m->why && mutated(arena, m, &why)) continue;
        print_error("mutants.txt:%u: %s: %s\n", m->line, m->heading, why);
        bad++;
    }
    assert_int_equal(bad, 0);
    assert_true(all.n >= AT_LEAST);
    arena_free(arena);
}

/* Builds and runs the programs in the same way without a fault. Each must pass. */
static void without_a_fault_nothing_fails(void **state)
{
    (void)state;
    static const struct {
        const char *source, *program;
        bool always;
    } sound[] = {{"norm/norm.cu", "test_parts", true},
                 {"attention/attention_forward.cu", "test_attention", false},
                 {"attention/hopper/attention_hopper.cu", "test_hopper", false},
                 {"pointwise/chain.cu", "test_chain", false},
                 {"loss/fused_xent.cu", "test_fused", false},
                 {"product/product.cu", "test_gemm", false},
                 {"update.cu", "test_kernels=adamw", true},
                 {"norm/norm_grad.cu", "test_sectors", false},
                 {"columns.cu", "watched_kernels=bias", true}};
    const char *which = getenv("TANDEM_MUTANTS");
    for (size_t i = 0; i < sizeof sound / sizeof sound[0]; i++) {
        Arena *arena = arena_new();
        const Mutant m = {.file = NEVER, .source = sound[i].source};
        const char *why = "";
        double seconds = 0;
        if ((sound[i].always || (which && strcmp(which, "all") == 0)) &&
            run_program(arena, &m, NULL, sound[i].program, TIMEOUT_S, &why, &seconds) != SURVIVES)
            fail_msg("%s, unchanged, %s: %s", sound[i].source, sound[i].program, why);
        arena_free(arena);
    }
}

/* The program has not detected a fault that makes it add the same number for ever. */
static void an_endless_run_is_not_killed(void **state)
{
    (void)state;
    enum { LIMIT_S = 6 };
    const Mutant m = {.file = "update.cu",
                      .source = "update.cu",
                      .old = "part < a.n_parts; part += WARP",
                      .fresh = "part < a.n_parts; part += 0 * WARP"};
    Arena *arena = arena_new();
    const char *why = "", *text = mutated(arena, &m, &why);
    double seconds = 0;
    if (text == NULL) fail_msg("%s", why);
    const Fate fate = run_program(arena, &m, text, "test_kernels=sumsq", LIMIT_S, &why, &seconds);
    assert_string_equal(fate_names[fate], fate_names[RUNS_OUT_OF_TIME]);
    arena_free(arena);
}

static void no_mutant_survives(void **state)
{
    (void)state;
    Arena *arena = arena_new(), *scratch = arena_new();
    const char *which = getenv("TANDEM_MUTANTS"), *seed_text = getenv("TANDEM_MUTANTS_SEED");
    const char *of = getenv("TANDEM_MUTANTS_OF");
    bool whole = of != NULL || (which != NULL && strcmp(which, "all") == 0);
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 20250101;
    uint32_t part = 0, parts = 1;
    const char *of_parts = getenv("TANDEM_MUTANTS_PART");
    if (of_parts != NULL) assert_int_equal(sscanf(of_parts, "%u/%u", &part, &parts), 2);
    Mutants all = read_table(arena);
    uint32_t count[FATES] = {0}, n = whole ? all.n : SAMPLE;
    for (uint32_t i = 0; i < n; i++) {
        if (i % parts != part) continue;
        const Mutant *m =
            &all.at[whole ? i
                          : (rng_below(seed, 0, 0, all.n) + (uint64_t)i * all.n / SAMPLE) % all.n];
        if (of != NULL && strstr(m->heading, of) == NULL) continue;
        count[try_one(scratch, m)]++;
        arena_reset(scratch);
    }
    print_message(
        "%u killed, %u survive, %u run out of time, %u do not build, %u no longer apply\n",
        count[KILLED], count[SURVIVES], count[RUNS_OUT_OF_TIME], count[DOES_NOT_BUILD],
        count[NO_LONGER_APPLIES]);
    arena_free(scratch);
    arena_free(arena);
    uint32_t n_tried = 0;
    for (int f = 0; f < FATES; f++) n_tried += count[f];
    assert_int_equal(count[KILLED], n_tried);
    assert_true(n_tried > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_fits_the_files),
        cmocka_unit_test(without_a_fault_nothing_fails),
        cmocka_unit_test(an_endless_run_is_not_killed),
        cmocka_unit_test(no_mutant_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
