/* What a person or another program may hand the command by mistake: each is told, names what would
 * work, and neither crashes nor loses what the store holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "planner/ir/store.h"
#include "tests/support/command.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

/* The exit code, and words on standard error; NULL: nothing must stand there. */
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

static void options_that_would_change_nothing(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EXPECT(arena, 2, "--checkpoint goes with --mtbf", "sim", llama, "--checkpoint", "3");
    EXPECT(arena, 2, "--restart goes with --mtbf", "sim", llama, "--restart", "3");
    EXPECT(arena, 2, "--interval goes with --mtbf", "sim", llama, "--interval", "3");
    EXPECT(arena, 2, "--rank goes with --state or --mesh", "show", llama, "--rank", "1");
    EXPECT(arena, 2, "--nodes goes with --cluster", "check", llama, "--nodes", "2");
    EXPECT(arena, 2, "--nodes 0: at least 1", "net", "dgx_h100", "--nodes", "0");
    EXPECT(arena, 2, "--gpus 0: at least 1", "net", "dgx_h100", "-n", "0");
    EXPECT(arena, 2, "--limit 0: at least 1", "runs", "--limit", "0");
    EXPECT(arena, 2, "--every 0: at least 1", "run", tiny, "--every", "0");
    EXPECT(arena, 2, "use -n 4", "calibrate", tiny, "-n", "3");
    arena_free(arena);
}

static void names_that_are_not_there(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    EXPECT(arena, 2, "did you mean 'dgx_h100'?", "check", tiny, "--cluster", "dgx_h10");
    /* near to clusters.node, which is no cluster */
    EXPECT(arena, 2, "hint: clusters lie in", "check", tiny, "--cluster", "nope");
    EXPECT(arena, 2, "tandem import FILE --machine dgx1", "sim", llama, "--db", db, "--machine",
           "dgx1");
    EXPECT(arena, 3, "only what its config has", "check", llama, "--set", "model=x");
    const char *script = arena_print(arena, "%s/p.lua", command_new_folder(arena));
    command_write_file(script, "return plan { cluster = require \"clusters.dgx_h10\" {} }\n");
    EXPECT(arena, 3, "did you mean 'clusters.dgx_h100'?", "check", script);
    arena_free(arena);
}

static void files_that_are_not_what_they_should(void **state)
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

/* Two plans' texts that once ended the command by an assertion. */
static void texts_that_lie(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/t.plan", command_new_folder(arena));
    const char *golden =
        command_read_file(arena, TANDEM_SOURCE_DIR "/tests/golden/one_rank.plan", NULL);
    const char *life = strstr(golden, " first=87 last=89 ");
    assert_non_null(life);
    command_write_file(path, arena_print(arena, "%.*s first=87 last=0 %s", (int)(life - golden),
                                         golden, life + strlen(" first=87 last=89 ")));
    EXPECT(arena, 3, "it says 87 to 0", "check", path);
    EXPECT(arena, 3, "it says 87 to 0", "sim", path, "--cluster", "dgx_h100", "--dry-run");
    const char *programs = strstr(golden, "\nattrs 4 ");
    assert_non_null(programs);
    command_write_file(path, arena_print(arena, "%.*s\n", (int)(programs - golden), golden));
    EXPECT(arena, 3, "2 micro-batches for 0 instructions", "check", path);
    EXPECT(arena, 3, "2 micro-batches for 0 instructions", "sim", path, "--cluster", "dgx_h100",
           "--dry-run");
    EXPECT(arena, 3, "error[", "show", path, "--state");
    arena_free(arena);
}

static void no_store_is_wanted(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EXPECT(arena, 0, NULL, "sim", llama, "--db", "none");
    assert_int_not_equal(access("none", F_OK), 0);
    EXPECT(arena, 2, "--db none: tandem runs needs a store", "runs", "--db", "none");
    EXPECT(arena, 2, "--db none: tandem run needs a store", "run", tiny, "--db", "none");
    EXPECT(arena, 0, NULL, "run", tiny, "--verify", "--db", "none");
    assert_int_not_equal(access("none", F_OK), 0);
    arena_free(arena);
}

/* The prediction is shown, the exit code tells that it was not kept. */
static void a_store_that_takes_nothing(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_would_change_nothing),
        cmocka_unit_test(names_that_are_not_there),
        cmocka_unit_test(files_that_are_not_what_they_should),
        cmocka_unit_test(texts_that_lie),
        cmocka_unit_test(no_store_is_wanted),
        cmocka_unit_test(a_store_that_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
