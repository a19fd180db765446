/* Mistaken or hostile input to the command: each is reported with a working alternative, and
 * neither crashes the command nor damages the store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/ir/text/text.h"
#include "store/private.h"
#include "tests/support/command.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

/* Expects this exit code, and these words on standard error; NULL: standard error must be empty. */
static void expect(Arena *arena, int code, const char *words, const char *const *arguments)
{
    CommandResult r = command_run(arena, 60, arguments);
    if (r.exit_code != code || (words == NULL ? r.n_err > 0 : strstr(r.err, words) == NULL))
        fail_msg("tandem %s %s: code %d, signal %d (wanted %d, \"%s\")\nstdout: %s\nstderr: %s\n",
                 arguments[0], arguments[1], r.exit_code, r.signal, code, words ? words : "", r.out,
                 r.err);
}
#define EXPECT(arena, code, words, ...)                                                            \
    expect((arena), (code), (words), (const char *const[]){__VA_ARGS__, NULL})

static void options_without_effect_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EXPECT(arena, 2, "--checkpoint needs --mtbf", "sim", llama, "--checkpoint", "3");
    EXPECT(arena, 2, "--storage needs --mtbf", "sim", llama, "--storage", "3");
    EXPECT(arena, 2, "--restart needs --mtbf", "sim", llama, "--restart", "3");
    EXPECT(arena, 2, "--interval needs --mtbf", "sim", llama, "--interval", "3");
    EXPECT(arena, 2, "--rank needs --state or --mesh", "show", llama, "--rank", "1");
    EXPECT(arena, 2, "--after mesh and --mesh exclude each other", "show", llama, "--after", "mesh",
           "--mesh");
    EXPECT(arena, 2, "--after all and --text exclude each other", "show", llama, "--after", "all",
           "--text");
    EXPECT(arena, 2,
           "--nodes needs --cluster\n  hint: --set cluster.nodes=2 changes the cluster of the plan",
           "check", llama, "--nodes", "2");
    EXPECT(arena, 2, "--nodes 0: at least 1", "net", "dgx_h100", "--nodes", "0");
    EXPECT(arena, 2, "-n 0: at least 1", "net", "dgx_h100", "-n", "0");
    EXPECT(arena, 2, "--limit 0: at least 1", "runs", "--limit", "0");
    EXPECT(arena, 2, "--every 0: at least 1", "run", tiny, "--every", "0");
    EXPECT(arena, 2, "use -n 4", "calibrate", tiny, "-n", "3");
    arena_free(arena);
}

static void names_that_do_not_exist_get_a_hint(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    EXPECT(arena, 7, "hint: there is no store yet", "runs", "--db", db);
    EXPECT(arena, 2, "did you mean 'dgx_h100'?", "check", tiny, "--cluster", "dgx_h10");
    /* "nope" is near to clusters.node, but that is not a cluster. */
    EXPECT(arena, 2, "hint: the clusters of the library are in", "check", tiny, "--cluster",
           "nope");
    EXPECT(arena, 2, "tandem import FILE --machine dgx1", "sim", llama, "--db", db, "--machine",
           "dgx1");
    EXPECT(arena, 3, "there is no script models/x.lua", "check", llama, "--set", "model=x");
    const char *script = arena_print(arena, "%s/p.lua", command_new_folder(arena));
    command_write_file(script, "return plan { cluster = require \"clusters.dgx_h10\" {} }\n");
    EXPECT(arena, 3, "did you mean 'clusters.dgx_h100'?", "check", script);
    arena_free(arena);
}

static void files_of_another_kind_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    EXPECT(arena, 3, "Is a directory", "import", folder, "--db", db);
    const char *trace = arena_print(arena, "%s/t.json", folder);
    command_write_file(trace, "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\","
                              "\"ts\":1,\"dur\":5},{\"ph\":\"X\",\"cat\":\"ker");
    EXPECT(arena, 0, "warning[import-cut-off]", "import", trace, "--db", db);
    const char *text = command_read_file(arena, tiny, NULL);
    const char *marked = arena_print(arena, "%s/marked.lua", folder);
    command_write_file(marked, arena_print(arena, "\xEF\xBB\xBF%s", text));
    EXPECT(arena, 0, NULL, "check", marked);
    arena_free(arena);
}

/* Writes a plan's text to a file, with the seals that it must have. */
static void write_sealed(Arena *arena, const char *path, const char *text)
{
    Diag d = diag_in(arena);
    const Plan *plan = text_parse(path, text, strlen(text), arena, &d);
    assert_non_null(plan);
    Str sealed = str_in(arena);
    text_print(plan, TEXT_WITH_SEALS, &sealed);
    command_write_file(path, str_text(&sealed));
}

static void texts_with_wrong_values_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/t.plan", command_new_folder(arena));
    const char *golden =
        command_read_file(arena, TANDEM_SOURCE_DIR "/tests/golden/one_rank.plan", NULL);
    const char *seq = strstr(golden, " seq=16 ");
    assert_non_null(seq);
    const char *changed =
        arena_print(arena, "%.*s seq=32 %s", (int)(seq - golden), golden, seq + strlen(" seq=16 "));
    command_write_file(path, golden);
    EXPECT(arena, 3, "error[plan-seal]: the text has no seals", "check", path);
    /* A failed proof says more than a missing seal, so it is reported first. */
    command_write_file(path, changed);
    EXPECT(arena, 3, "`step` states 1 of 32", "check", path);
    const CommandResult r = COMMAND(arena, 60, "check", path);
    assert_null(strstr(r.err, "plan-seal"));
    write_sealed(arena, path, changed);
    EXPECT(arena, 3, "`step` states 1 of 32", "check", path);
    EXPECT(arena, 3, "`step` states 1 of 32", "sim", path, "--cluster", "dgx_h100", "--dry-run");
    const char *programs = strstr(golden, "\nattrs 4 ");
    assert_non_null(programs);
    write_sealed(arena, path, arena_print(arena, "%.*s\n", (int)(programs - golden), golden));
    EXPECT(arena, 3, "the plan states 2 micro-batches, but has only 0 instructions", "check", path);
    EXPECT(arena, 3, "the plan states 2 micro-batches, but has only 0 instructions", "sim", path,
           "--cluster", "dgx_h100", "--dry-run");
    EXPECT(arena, 3, "error[", "show", path, "--state");
    arena_free(arena);
}

static void nodes_that_read_their_own_results_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/t.plan", command_new_folder(arena));
    const char *golden =
        command_read_file(arena, TANDEM_SOURCE_DIR "/tests/golden/float8_kept.plan", NULL);
    Str text = str_in(arena);
    uint32_t n = 0;
    for (const char *at = golden, *end; *at != 0; at = end) {
        end = at + strcspn(at, "\n") + 1;
        const char *line = arena_copy(arena, at, (size_t)(end - at));
        const char *in = strstr(line, " in="), *out = strstr(line, " out=");
        if (strncmp(line, "node ", 5) == 0 && strstr(line, " quantise") != NULL) {
            const int digits = (int)strspn(out + 5, "0123456789");
            str_print(&text, "%.*s in=%.*s%s", (int)(in - line), line, digits, out + 5,
                      in + 4 + strspn(in + 4, "0123456789"));
            n++;
        } else {
            str_add(&text, line);
        }
    }
    assert_true(n > 5);
    command_write_file(path, str_text(&text));
    EXPECT(arena, 3, "error[verify-", "check", path);
    arena_free(arena);
}

static void db_none_makes_no_store(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EXPECT(arena, 0, NULL, "sim", llama, "--db", "none");
    assert_int_not_equal(access("none", F_OK), 0);
    EXPECT(arena, 2, "--db none: tandem runs needs a store", "runs", "--db", "none");
    EXPECT(arena, 2, "--db none: tandem run needs a store", "run", tiny, "--db", "none");
    EXPECT(arena, 2, "hint: leave out --db, or name a file", "run", tiny, "--db", "none");
    EXPECT(arena, 2, "error[option-value]: -n 0: at least 1 is", "run", tiny, "-n", "0");
    EXPECT(arena, 2, "error[option-value]: --ranks 0: at least 1 is", "run", tiny, "--ranks", "0");
    EXPECT(arena, 2, "hint: `tandem help` lists", "help", "pln");
    EXPECT(arena, 0, NULL, "run", tiny, "--verify", "--db", "none");
    assert_int_not_equal(access("none", F_OK), 0);
    arena_free(arena);
}

/* The prediction is shown, and the exit code says that it was not stored. */
static void a_prediction_is_shown_if_the_store_refuses_it(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    Store *store = store_open(db, false, &d);
    assert_non_null(store);
    assert_true(db_exec(store_db(store),
                        "CREATE TRIGGER full BEFORE INSERT ON run BEGIN "
                        "SELECT RAISE(ABORT, 'no more'); END",
                        &d));
    store_close(store);
    CommandResult r = COMMAND(arena, 60, "sim", llama, "--db", db);
    assert_int_equal(r.exit_code, 7);
    assert_non_null(strstr(r.out, "tokens/s/GPU"));
    assert_null(strstr(r.out, "\nrun  "));
    assert_non_null(strstr(r.err, "no more"));
    arena_free(arena);
}

/* Files that are not regular are written to, never replaced. Here one is a link to a device that
 * accepts nothing. */
static void outputs_that_are_not_regular_files_are_not_replaced(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    const char *link = arena_print(arena, "%s/full", folder);
    const char *through = arena_print(arena, "%s/through", folder);
    const char *file = arena_print(arena, "%s/file", folder);
    assert_int_equal(symlink("/dev/full", link), 0);
    assert_int_equal(symlink("file", through), 0);
    EXPECT(arena, 0, "not-calibrated", "sim", tiny, "--trace", "--db", db);
    EXPECT(arena, 1, "full: No space left on device", "trace", "1", "--db", db, "-o", link);
    EXPECT(arena, 1, ": Is a directory", "trace", "1", "--db", db, "-o", folder);
    EXPECT(arena, 0, NULL, "trace", "1", "--db", db, "-o", through);
    const char *text = command_read_file(arena, file, NULL);
    assert_true(text != NULL && strstr(text, "traceEvents") != NULL);
    static const char kernels[] = TANDEM_SOURCE_DIR "/tests/data/published_kernels.csv";
    const char *all = command_read_file(arena, kernels, NULL);
    const char *few = arena_print(arena, "%s/few.csv", folder);
    const char *end = all;
    for (int i = 0; i < 4; i++) end = strchr(end, '\n') + 1;
    command_write_file(few, arena_print(arena, "%.*s", (int)(end - all), all));
    EXPECT(arena, 1, "full: No space left on device", "accuracy", "--kernels", few, "--plot", link);
    EXPECT(arena, 1, ": Is a directory", "accuracy", "--kernels", few, "--plot", folder);
    EXPECT(arena, 0, NULL, "accuracy", "--kernels", few, "--plot", through);
    assert_non_null(strstr(command_read_file(arena, file, NULL), "</svg>"));
    char target[64];
    assert_int_equal(readlink(link, target, sizeof target), strlen("/dev/full"));
    assert_int_equal(readlink(through, target, sizeof target), strlen("file"));
    arena_free(arena);
}

/* Standard output is a full disk, with and without a JSON document. The command reports it with
 * code 1. */
static void a_full_standard_output_is_reported(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const verbs[] = {"check $PLAN",
                                        "sim $PLAN",
                                        "show $PLAN",
                                        "net dgx_h100",
                                        "help",
                                        "explain",
                                        "sweep $PLAN --try seed=1,2"};
    for (size_t i = 0; i < 2 * sizeof verbs / sizeof *verbs; i++) {
        const char *command =
            arena_print(arena, "PLAN='%s'; export TANDEM_DB=none; '%s' %s %s >/dev/full", tiny,
                        TANDEM_COMMAND, verbs[i / 2], i % 2 ? "--json" : "");
        CommandResult r =
            command_run_program(arena, 60, (const char *const[]){"sh", "-c", command, NULL});
        if (r.exit_code != 1 || strstr(r.err, "error[output]: cannot write") == NULL)
            fail_msg("%s: code %d: %s", command, r.exit_code, r.err);
    }
    arena_free(arena);
}

/* TANDEM_DB=none holds for all verbs. Only a verb that needs a store refuses. */
static void verbs_without_a_store_work_if_the_environment_says_none(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    setenv("TANDEM_DB", "none", 1);
    EXPECT(arena, 0, NULL, "help");
    EXPECT(arena, 0, NULL, "help", "exit-codes");
    EXPECT(arena, 0, NULL, "explain", "divides-heads");
    EXPECT(arena, 0, NULL, "doctor");
    EXPECT(arena, 2, "TANDEM_DB is none: tandem runs needs a store", "runs");
    unsetenv("TANDEM_DB");
    assert_int_not_equal(access("none", F_OK), 0);
    arena_free(arena);
}

/* A message shows the value that a model refuses. For --set of a whole list, it names a form that
 * works. */
static void refused_values_are_shown(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EXPECT(arena, 3, "must be an integer, not the text 'nan'", "check", llama, "--set",
           "model.layers=nan");
    EXPECT(arena, 3, "must be an integer, not 2.5", "check", llama, "--set", "model.layers=2.5");
    EXPECT(arena, 3, "parallel is a list of passes, so it cannot be set as a whole", "check", llama,
           "--set", "parallel=1");
    arena_free(arena);
}

/* The path of a script may hold control characters. Tables print them escaped, so that a path
 * neither breaks a row nor changes the terminal. */
static void control_characters_of_a_path_are_escaped(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena), *db = arena_print(arena, "%s/t.db", folder),
               *script = arena_print(arena, "%s/a\033[31mb\nc.lua", folder),
               *longer = arena_print(arena, "%s/a\n%s.lua", folder,
                                     "a name that is as long as a line of a list of scripts"),
               *out = arena_print(arena, "%s/out", folder);
    command_write_file(script, "return require 'plans.tiny_text'\n");
    EXPECT(arena, 0, NULL, "sim", script, "--db", db, "--quiet");
    EXPECT(arena, 0, NULL, "sim", script, "--db", db, "--quiet", "--set", "batch.global=64");
    const CommandResult r[] = {
        COMMAND(arena, 60, "runs", "--db", db),
        COMMAND(arena, 60, "compare", "1", "2", "--db", db),
        COMMAND(arena, 120, "sweep", script, "--db", db, "--try", "batch.global=32,64"),
    };
    for (uint32_t i = 0; i < sizeof r / sizeof *r; i++) {
        assert_int_equal(r[i].exit_code, 0);
        if (strchr(r[i].out, '\033') != NULL) fail_msg("output %u: %s", i, r[i].out);
        assert_non_null(strstr(r[i].out, "a\\x1b[31mb\\x0ac.lua"));
    }
    EXPECT(arena, 7, "the path of a script of run 1 has a line break", "db", "export", "1", "--db",
           db, "--output", out);
    command_write_file(longer, "return require 'plans.tiny_text'\n");
    const char *db2 = arena_print(arena, "%s/t2.db", folder);
    EXPECT(arena, 0, NULL, "sim", longer, "--db", db2, "--quiet");
    EXPECT(arena, 7, "the path of a script of run 1 has a line break", "db", "export", "1", "--db",
           db2, "--output", out);
    arena_free(arena);
}

static bool is_shown_as_proven(Arena *arena, const char *db)
{
    const bool of_run = strstr(COMMAND(arena, 60, "runs", "--db", db).out, " yes ") != NULL;
    const char *view = COMMAND(arena, 60, "db", "export", "v_run", "--db", db).out;
    assert_non_null(view);
    assert_int_equal(strstr(view, ",ok,1,") != NULL, of_run);
    return of_run;
}

/* Neither `runs` nor its view shows a proof that Tandem did not write. Proving the plan again
 * replaces such a proof, and one that was changed. */
static void a_forged_proof_is_not_shown(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    static const char *const forged[] = {"UPDATE proof SET digest = NULL",
                                         "UPDATE proof SET build = build || '?'"};
    static const char *const says[] = {"has no digest, so Tandem did not write it",
                                       "table proof, plan = "};
    EXPECT(arena, 0, NULL, "sim", tiny, "--db", db, "--quiet");
    assert_true(is_shown_as_proven(arena, db));
    for (size_t i = 0; i < 2; i++) {
        Db *raw = db_open(db, false, store_migrations, store_n_migrations, &d);
        assert_non_null(raw);
        assert_true(db_exec(raw, forged[i], &d));
        db_close(raw);
        assert_null(strstr(COMMAND(arena, 60, "runs", "--db", db).out, " yes "));
        if (i == 0) assert_false(is_shown_as_proven(arena, db));
        EXPECT(arena, 7, says[i], "db", "check", "--db", db);
        EXPECT(arena, 0, NULL, "sim", tiny, "--db", db, "--quiet");
        assert_true(is_shown_as_proven(arena, db));
        EXPECT(arena, 0, NULL, "db", "check", "--db", db);
    }
    arena_free(arena);
}

/* A store may hold the plans of an older version of Tandem. The error names the run, not a line of
 * its script. */
static void an_older_plan_names_its_run(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag diag = {.arena = arena};
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    Store *store = store_open(db, false, &diag);
    assert_non_null(store);
    Trace trace = {.step = 1};
    list_push(arena, &trace.rows, ((TraceRow){.step = 1, .pc = 1, .end_ps = 5}));
    const RunRecord run = {.kind = RUN_measured,
                           .plan = {1, 2},
                           .plan_name = "old.lua",
                           .plan_text = "tandem plan 1\n",
                           .cluster = "c",
                           .scenario = "",
                           .backend = "mpi",
                           .engine = "1",
                           .calibration = "",
                           .n_ranks = 1,
                           .status = "ok",
                           .mfu_formula = "",
                           .trace = &trace};
    const int64_t id = store_run(store, &run, &diag);
    store_close(store);
    assert_int_equal(diag.n_errors, 0);
    assert_int_equal(id, 1);
    EXPECT(arena, 3, "the plan of run 1:1: error[plan-syntax]: this version of Tandem reads",
           "trace", "1", "--db", db);
    /* A new prediction would have another plan id, so the hint must not be to run `sim`. */
    static const char measure[] = "hint: `tandem run old.lua` measures again";
    EXPECT(arena, 3, measure, "trace", "1", "--db", db);
    EXPECT(arena, 3, measure, "compare", "1", "--db", db);
    EXPECT(arena, 0, NULL, "runs", "--db", db);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_without_effect_are_refused),
        cmocka_unit_test(names_that_do_not_exist_get_a_hint),
        cmocka_unit_test(files_of_another_kind_are_refused),
        cmocka_unit_test(texts_with_wrong_values_are_refused),
        cmocka_unit_test(nodes_that_read_their_own_results_are_refused),
        cmocka_unit_test(db_none_makes_no_store),
        cmocka_unit_test(a_prediction_is_shown_if_the_store_refuses_it),
        cmocka_unit_test(outputs_that_are_not_regular_files_are_not_replaced),
        cmocka_unit_test(a_full_standard_output_is_reported),
        cmocka_unit_test(verbs_without_a_store_work_if_the_environment_says_none),
        cmocka_unit_test(refused_values_are_shown),
        cmocka_unit_test(control_characters_of_a_path_are_escaped),
        cmocka_unit_test(a_forged_proof_is_not_shown),
        cmocka_unit_test(an_older_plan_names_its_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
