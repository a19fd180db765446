/* The command as a person sees it: verbs, options, help, hints, exit codes, streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/support/command.h"

static void expect(Arena *arena, int code, const char *out, const char *err,
                   const char *const *arguments)
{
    CommandResult r = command_run(arena, 30, arguments);
    if (r.exit_code != code || (out != NULL && strstr(r.out, out) == NULL) ||
        (err != NULL && strstr(r.err, err) == NULL))
        fail_msg("tandem %s: code %d (wanted %d)\nstdout: %s\nstderr: %s\n",
                 arguments[0] != NULL ? arguments[0] : "", r.exit_code, code, r.out, r.err);
    if (out == NULL) assert_string_equal(r.out, "");
    if (err == NULL) assert_string_equal(r.err, "");
}
#define EXPECT(arena, code, out, err, ...)                                                         \
    expect((arena), (code), (out), (err), (const char *const[]){__VA_ARGS__, NULL})

static void usage_errors_exit_with_2_and_name_the_nearest_word(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EXPECT(arena, 2, NULL, "did you mean `tandem check`?", "chekc");
    EXPECT(arena, 2, NULL, "`tandem help` lists them", "quux");
    EXPECT(arena, 2, NULL, "did you mean --json?", "runs", "--jsn");
    EXPECT(arena, 2, NULL, "error[unknown-option]", "runs", "--frobnicate=3");
    EXPECT(arena, 2, NULL, "error[unknown-option]", "runs", "-Z");
    EXPECT(arena, 2, NULL, "tandem check needs PLAN", "check");
    EXPECT(arena, 2, NULL, "one argument too many", "check", "a.lua", "b.lua");
    EXPECT(arena, 2, NULL, "option --db needs a value", "runs", "--db");
    EXPECT(arena, 2, NULL, "option --json takes no value", "runs", "--json=yes");
    EXPECT(arena, 2, NULL, "KEY=VALUE is expected", "check", "a.lua", "--set", "mesh.tp");
    EXPECT(arena, 2, NULL, "a whole number", "run", "a.lua", "-n", "-3");
    EXPECT(arena, 2, NULL, "at least 1", "run", "a.lua", "-n", "0");
    EXPECT(arena, 2, NULL, "a whole number up to 2147483647", "run", "a.lua", "--steps",
           "99999999999999999999");
    EXPECT(arena, 2, NULL, "this version has loopback, mpi, cuda", "run", "a.lua", "--backend",
           "mpl");
    EXPECT(arena, 2, NULL, "auto, always or never", "runs", "--color=sometimes");
    EXPECT(arena, 2, NULL, "a positive number of seconds", "run", "a.lua", "--timeout", "nan");
    EXPECT(arena, 2, NULL, "did you mean check?", "db", "chekc");
    EXPECT(arena, 2, NULL, "is not a run's number", "trace", "first");
    EXPECT(arena, 2, NULL, "did you mean 'pass-order'?", "explain", "pass-ordre");
    arena_free(arena);
}

/* Returns the columns of the longest line. */
static size_t widest_line(const char *text, const char *end)
{
    size_t most = 0;
    for (const char *line = text; line < end;) {
        const size_t n = strcspn(line, "\n");
        if (n > most) most = n;
        line += n + 1;
    }
    return most;
}

/* Help fits narrow terminals: texts have at most 100 columns, and lines of options 110. */
static void every_verb_helps_with_an_example_and_the_exit_codes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult overview = COMMAND(arena, 10, "--help");
    assert_int_equal(overview.exit_code, 0);
    assert_in_range(widest_line(overview.out, strchr(overview.out, 0)), 1, 110);
    for (uint32_t i = 0; i < n_verbs; i++) {
        const Verb *verb = &verbs[i];
        assert_non_null(strstr(overview.out, arena_print(arena, "\n  %s ", verb->name)));
        CommandResult r = COMMAND(arena, 10, verb->name, "--help");
        CommandResult same = COMMAND(arena, 10, "help", verb->name);
        assert_int_equal(r.exit_code, 0);
        assert_string_equal(r.err, "");
        assert_string_equal(r.out, same.out);
        assert_non_null(strstr(r.out, arena_print(arena, "Example\n  tandem %s", verb->name)));
        assert_non_null(strstr(r.out, "Exit status\n  0  done"));
        assert_non_null(strstr(r.out, "--json"));
        const char *options = strstr(r.out, "\nOptions\n"), *example = strstr(r.out, "\nExample\n");
        assert_true(options != NULL && example != NULL);
        assert_in_range(widest_line(r.out, options), 1, 100);
        assert_in_range(widest_line(options, example), 1, 110);
        assert_in_range(widest_line(example, strchr(example, 0)), 1, 100);
    }
    for (uint32_t i = 0; help_topics[i] != NULL; i++) {
        CommandResult r = COMMAND(arena, 10, "help", help_topics[i]);
        assert_int_equal(r.exit_code, 0);
        assert_true(r.n_out > 100);
        assert_in_range(widest_line(r.out, strchr(r.out, 0)), 1, 100);
    }
    EXPECT(arena, 2, NULL, "there is no help on 'plan-ets'", "help", "plan-ets");
    EXPECT(arena, 0, "tandem 0.1.0\n", NULL, "--version");
    arena_free(arena);
}

/* Each option that a verb's help lists is accepted by that verb, and no other option is. */
static void help_and_parser_agree(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Str all = str_in(arena);
    for (uint32_t i = 0; i < n_verbs; i++) options_help(&verbs[i], &all);
    LIST(const char *) names = {NULL, 0, 0};
    for (const char *at = str_text(&all); (at = strstr(at, " --")) != NULL;) {
        at += 1;
        list_push(arena, &names, arena_copy(arena, at, strcspn(at, " [\n`.,;:")));
    }
    assert_true(names.n > 40);
    for (uint32_t i = 0; i < n_verbs; i++) {
        Str own = str_in(arena);
        options_help(&verbs[i], &own);
        for (uint32_t k = 0; k < names.n; k++) {
            if (strlen(names.at[k]) < 3) continue;
            Cli cli = {.arena = arena, .diag = diag_in(arena), .verb = &verbs[i]};
            char *argv[] = {arena_dup(arena, "tandem"), arena_dup(arena, names.at[k]),
                            arena_dup(arena, "1"), NULL};
            options_parse(&cli, 3, argv);
            bool unknown =
                cli.diag.items.n > 0 && strcmp(cli.diag.items.at[0].rule, "unknown-option") == 0;
            /* getopt accepts any unambiguous beginning of an option's name. */
            if (strstr(str_text(&own), names.at[k]) == NULL && !unknown)
                fail_msg("%s takes %s", verbs[i].name, names.at[k]);
            const char *alone = arena_print(arena, "%s ", names.at[k]);
            const char *maybe = arena_print(arena, "%s[", names.at[k]);
            if (strstr(str_text(&own), alone) || strstr(str_text(&own), maybe))
                if (unknown) fail_msg("%s does not take %s", verbs[i].name, names.at[k]);
        }
    }
    arena_free(arena);
}

static void colour_and_json_keep_to_their_rules(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 20, "doctor");
    assert_int_equal(r.exit_code, 0);
    assert_null(strchr(r.out, '\033'));
    r = COMMAND(arena, 20, "doctor", "--color=always");
    assert_non_null(strchr(r.out, '\033'));
    r = COMMAND(arena, 20, "doctor", "--color=never");
    assert_null(strchr(r.out, '\033'));
    static const char *const verbs_alone[] = {"doctor", "explain", "help"};
    for (int i = 0; i < 3; i++) {
        r = COMMAND(arena, 20, verbs_alone[i], "--json", "--color=always");
        assert_int_equal(r.exit_code, 0);
        json_error_t error;
        json_t *document = json_loads(r.out, 0, &error);
        assert_non_null(document);
        assert_string_equal(json_string_value(json_object_get(document, "schema")),
                            arena_print(arena, "tandem.%s/1", verbs_alone[i]));
        assert_true(json_is_true(json_object_get(document, "ok")));
        assert_true(json_is_array(json_object_get(document, "diagnostics")));
        json_decref(document);
    }
    r = COMMAND(arena, 20, "check", "no-such.lua", "--json");
    assert_int_equal(r.exit_code, 3);
    json_error_t error;
    json_t *document = json_loads(r.out, 0, &error);
    assert_non_null(document);
    assert_true(json_is_false(json_object_get(document, "ok")));
    assert_int_equal(json_integer_value(json_object_get(document, "exit_code")), 3);
    assert_int_equal(json_array_size(json_object_get(document, "diagnostics")), 1);
    json_decref(document);
    arena_free(arena);
}

static void a_full_disk_is_noticed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *script = arena_print(arena, "%s help >/dev/full", TANDEM_COMMAND);
    CommandResult r =
        command_run_program(arena, 20, (const char *const[]){"sh", "-c", script, NULL});
    assert_int_equal(r.exit_code, 1);
    assert_non_null(strstr(r.err, "cannot write to standard output"));
    arena_free(arena);
}

/* With `| head -1` the reader leaves before the end. That is not an error. */
static void a_reader_may_leave_early(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *script = arena_print(
        arena, "{ %s show --text %s/scripts/plans/llama3_8b.lua; echo code $? >&2; } | head -1",
        TANDEM_COMMAND, TANDEM_SOURCE_DIR);
    CommandResult r =
        command_run_program(arena, 60, (const char *const[]){"sh", "-c", script, NULL});
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.err, "code 0\n");
    assert_non_null(strchr(r.out, '\n'));
    arena_free(arena);
}

static void an_unknown_verb_gets_a_json_document(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 20, "chekc", "x.lua", "--json");
    assert_int_equal(r.exit_code, 2);
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "schema")), "tandem.error/1");
    assert_true(json_is_false(json_object_get(root, "ok")));
    assert_int_equal(json_integer_value(json_object_get(root, "exit_code")), 2);
    json_t *one = json_array_get(json_object_get(root, "diagnostics"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "rule")), "unknown-verb");
    json_decref(root);
    r = COMMAND(arena, 20, "chekc");
    assert_string_equal(r.out, "");
    arena_free(arena);
}

static void rates_name_their_unit_and_device(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = TANDEM_SOURCE_DIR "/scripts/plans";
    const char *tiny = arena_print(arena, "%s/tiny_text.lua", folder);
    CommandResult r = COMMAND(arena, 60, "sim", tiny, "--dry-run");
    assert_non_null(strstr(r.out, "tokens/s/rank"));
    assert_null(strstr(r.out, "GPU"));
    r = COMMAND(arena, 60, "sim", arena_print(arena, "%s/llama3_8b.lua", folder), "--dry-run");
    assert_non_null(strstr(r.out, "tokens/s/GPU"));
    /* The points of a grid are not tokens. */
    r = COMMAND(arena, 60, "sim", arena_print(arena, "%s/unet_wave.lua", folder), "--dry-run");
    assert_non_null(strstr(r.out, "8 fields of 512 points a step"));
    assert_non_null(strstr(r.out, " points/s/rank"));
    assert_null(strstr(r.out, "token"));
    arena_free(arena);
}

/* Errors are known only from published runs of other frameworks, so only a prediction under a
 * profile states one. */
static void a_prediction_says_whether_its_error_is_known(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    CommandResult r = COMMAND(arena, 60, "sim", plan, "--dry-run");
    assert_non_null(strstr(r.out, "error not known: no runs of Tandem's own executor"));
    assert_null(strstr(r.out, "published runs"));
    r = COMMAND(arena, 60, "sim", plan, "--dry-run", "--set", "runtime=torchtitan");
    assert_non_null(strstr(r.out, "published runs of torchtitan"));
    arena_free(arena);
}

/* If failures leave less than 1 % of the speed, the command refuses instead of simulating failures
 * for ever. */
static void a_goodput_below_one_percent_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    EXPECT(arena, 2, "step  ", "less than 1 %", "sim", plan, "--dry-run", "--mtbf", "0.01");
    EXPECT(arena, 2, "step  ", "less than 1 %", "sim", plan, "--dry-run", "--mtbf", "1",
           "--restart", "36000");
    EXPECT(arena, 0, "goodput     48.", NULL, "sim", plan, "--dry-run", "--mtbf", "0.5");
    EXPECT(arena, 0, "goodput     48.", NULL, "sim", plan, "--dry-run", "--mtbf", "30min");
    EXPECT(arena, 0, "goodput     48.", NULL, "sim", plan, "--dry-run", "--mtbf", "1800s",
           "--checkpoint", "1min", "--restart", "5min");
    EXPECT(arena, 2, "step  ", "a number alone is in hours", "sim", plan, "--dry-run", "--mtbf",
           "3 weeks");
    EXPECT(arena, 2, "step  ", "a number alone is in seconds", "sim", plan, "--dry-run", "--mtbf",
           "1h", "--checkpoint", "1x");
    /* The 8.03 G parameters and their moments take 96.36 GB in fp32. */
    EXPECT(arena, 0, "takes 9.64 s", NULL, "sim", plan, "--dry-run", "--mtbf", "1h", "--storage",
           "10G");
    EXPECT(arena, 2, "step  ", "bytes a second are expected", "sim", plan, "--dry-run", "--mtbf",
           "1h", "--storage", "10x");
    EXPECT(arena, 2, "step  ", "--storage and --checkpoint both", "sim", plan, "--dry-run",
           "--mtbf", "1h", "--storage", "10G", "--checkpoint", "3");
    EXPECT(arena, 3, NULL, ", deepspeed, deepspeed_liger, fms, fsdp1", "sim", plan, "--dry-run",
           "--set", "runtime=foo");
    EXPECT(arena, 3, NULL, "clusters.node", "sim", plan, "--dry-run", "--cluster", "node");
    EXPECT(arena, 3, NULL, "clusters.fabrics", "sim", plan, "--dry-run", "--cluster", "fabrics");
    arena_free(arena);
}

static void a_file_that_is_no_store_is_refused_and_kept(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *path = arena_print(arena, "%s/x.db", folder);
    EXPECT(arena, 7, NULL, "error[store-", "runs", "--db", path);
    command_write_file(path, "this is not a database, but a text of some length, surely\n");
    EXPECT(arena, 7, NULL, "error[store-", "db", "info", "--db", path);
    assert_string_equal(command_read_file(arena, path, NULL),
                        "this is not a database, but a text of some length, surely\n");
    EXPECT(arena, 0, "/x.db\n", NULL, "db", "path", "--db", path);
    EXPECT(arena, 7, NULL, "error[store-", "compare", "--db", path);
    arena_free(arena);
}

int main(void)
{
    unsetenv("NO_COLOR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors_exit_with_2_and_name_the_nearest_word),
        cmocka_unit_test(every_verb_helps_with_an_example_and_the_exit_codes),
        cmocka_unit_test(help_and_parser_agree),
        cmocka_unit_test(colour_and_json_keep_to_their_rules),
        cmocka_unit_test(a_full_disk_is_noticed),
        cmocka_unit_test(a_reader_may_leave_early),
        cmocka_unit_test(an_unknown_verb_gets_a_json_document),
        cmocka_unit_test(rates_name_their_unit_and_device),
        cmocka_unit_test(a_prediction_says_whether_its_error_is_known),
        cmocka_unit_test(a_goodput_below_one_percent_is_refused),
        cmocka_unit_test(a_file_that_is_no_store_is_refused_and_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
