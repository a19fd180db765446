/* A sweep proves the plan that it reports as best, and refuses this plan if it is wrong. The
 * wrapped function plan_compile_planned plants a fault of the planner. It doubles a factor of a
 * gradient in all plans with micro-batches of two sequences. */
#ifdef TANDEM_SHARED
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "planner/lower/compile.h"
#include "store/store.h"
#include "tests/support/command.h"
#include "tests/support/plans/mutate.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

static bool is_planted; /* true if plans of micro-batch 2 get the fault */

#ifdef TANDEM_SHARED
/* All code is in one shared library. It calls the wrapper in this program, which finds the
 * library's own function with dlsym. */
static Plan *__real_plan_compile_planned(const Planned *planned, Graph *graph,
                                         const LowerOptions *options, const char *stop_after,
                                         Arena *arena, Diag *d)
{
    Plan *(*real)(const Planned *, Graph *, const LowerOptions *, const char *, Arena *, Diag *);
    *(void **)&real = dlsym(RTLD_NEXT, "plan_compile_planned");
    return real(planned, graph, options, stop_after, arena, d);
}
#define __wrap_plan_compile_planned plan_compile_planned
#else
Plan *__real_plan_compile_planned(const Planned *planned, Graph *graph, const LowerOptions *options,
                                  const char *stop_after, Arena *arena, Diag *d);
Plan *__wrap_plan_compile_planned(const Planned *planned, Graph *graph, const LowerOptions *options,
                                  const char *stop_after, Arena *arena, Diag *d);
#endif

Plan *__wrap_plan_compile_planned(const Planned *planned, Graph *graph, const LowerOptions *options,
                                  const char *stop_after, Arena *arena, Diag *d)
{
    Plan *plan = __real_plan_compile_planned(planned, graph, options, stop_after, arena, d);
    if (!is_planted || plan == NULL || planned->config.micro_batch != 2) return plan;
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_reduce_scatter)
            return mutate(plan, (Mutation){.kind = MUTATE_rescale, .pc = pc}, arena);
    fail_msg("the plan has no reduce_scatter");
    return plan;
}

/* Runs the command in a child process, because it forks and ends. Returns its exit code. The texts
 * of its outputs are in the files out and err of `folder`. */
static int run(Arena *arena, const char *folder, char **arguments)
{
    int n = 0, status = 0;
    while (arguments[n] != NULL) n++;
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (freopen(arena_print(arena, "%s/out", folder), "w", stdout) == NULL ||
            freopen(arena_print(arena, "%s/err", folder), "w", stderr) == NULL)
            _exit(99);
        const int code = cli_main(n, arguments);
        fflush(NULL);
        _exit(code);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs a sweep of two points, with the options `first` and `second`, which may be NULL. */
static void run_sweep(Arena *arena, const char *folder, const char *first, const char *second,
                      int code)
{
    const char *db = arena_print(arena, "--db=%s/s.db", folder);
    const char *all[] = {"tandem",
                         "sweep",
                         llama,
                         "--set=model.layers=2",
                         "--set=mesh.dp_shard=-1",
                         "--try=batch.micro=1,2",
                         "-j1",
                         db,
                         first,
                         second,
                         NULL};
    char *arguments[sizeof all / sizeof *all];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) arguments[i] = (char *)(uintptr_t)all[i];
    const int got = run(arena, folder, arguments);
    if (got != code)
        print_message("%s", command_read_file(arena, arena_print(arena, "%s/err", folder), NULL));
    assert_int_equal(got, code);
}

static json_t *sweep(Arena *arena, const char *folder, const char *more, int code)
{
    run_sweep(arena, folder, "--json", more, code);
    json_t *root = json_load_file(arena_print(arena, "%s/out", folder), 0, NULL);
    assert_non_null(root);
    return root;
}

static const char *word(const json_t *root, size_t row, const char *key)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(root, "rows"), row), key));
}

static bool is_proven(const json_t *root, size_t row)
{
    return json_is_true(
        json_object_get(json_array_get(json_object_get(root, "rows"), row), "proven"));
}

static const char *micro(const json_t *root, size_t row)
{
    const json_t *at = json_array_get(json_object_get(root, "rows"), row);
    return json_string_value(json_object_get(json_object_get(at, "settings"), "batch.micro"));
}

static int64_t number(Arena *arena, const char *folder, const char *query)
{
    Diag d = diag_in(arena);
    Store *store = store_open(arena_print(arena, "%s/s.db", folder), true, &d);
    assert_non_null(store);
    DbStatement *st = db_prepare(store_db(store), &d, query, "");
    assert_true(db_step(st, &d));
    const int64_t n = db_int(st, 0);
    db_reset(st);
    store_close(store);
    return n;
}

static void only_the_best_plan_is_proven(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    is_planted = false;
    for (int i = 0; i < 2; i++) { /* the second sweep finds both plans in the store */
        json_t *root = sweep(arena, folder, NULL, 0);
        assert_string_equal(word(root, 1, "status"), "fits");
        assert_true(is_proven(root, 0));
        assert_false(is_proven(root, 1));
        json_decref(root);
        assert_int_equal(number(arena, folder, "SELECT count(*) FROM run"), 2);
        assert_int_equal(number(arena, folder, "SELECT sum(proven) FROM v_run"), 1);
        assert_int_equal(
            number(arena, folder,
                   "SELECT proven FROM v_run ORDER BY tokens_per_s_per_device DESC LIMIT 1"),
            1);
    }
    json_t *root = sweep(arena, folder, "--prove", 0);
    assert_true(is_proven(root, 0) && is_proven(root, 1));
    json_decref(root);
    assert_int_equal(number(arena, folder, "SELECT sum(proven) FROM v_run"), 2);
    arena_free(arena);
}

/* Returns true if the sweep's table has the line "proven <what>". */
static bool tells(Arena *arena, const char *folder, const char *more, const char *what)
{
    run_sweep(arena, folder, more, NULL, 0);
    const char *out = command_read_file(arena, arena_print(arena, "%s/out", folder), NULL);
    return strstr(out, arena_print(arena, "proven      %s\n", what)) != NULL;
}

/* A later sweep finds the proofs of --prove in the store, and says so. */
static void the_table_says_which_plans_are_proven(void **state)
{
    (void)state;
    static const char best[] = "only the best plan (--prove proves all)";
    static const char all[] = "all plans with a prediction";
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    is_planted = false;
    assert_true(tells(arena, folder, NULL, best));
    assert_true(tells(arena, folder, NULL, best));
    assert_true(tells(arena, folder, "--prove", all));
    assert_true(tells(arena, folder, NULL, all));
    arena_free(arena);
}

/* A plan that does not fit has a prediction, so --prove proves it, too. This is also true if the
 * store has its prediction without a proof. */
static void prove_also_proves_a_plan_that_does_not_fit(void **state)
{
    (void)state;
    static const char memory[] = "--set=cluster.device.memory_bytes=11e9";
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    is_planted = false;
    run_sweep(arena, folder, memory, NULL, 0);
    assert_int_equal(number(arena, folder, "SELECT sum(proven) FROM v_run"), 1);
    assert_int_equal(
        number(arena, folder, "SELECT count(*) FROM v_run WHERE status = 'infeasible'"), 1);
    run_sweep(arena, folder, memory, "--prove", 0);
    assert_int_equal(number(arena, folder, "SELECT sum(proven) FROM v_run"), 2);
    arena_free(arena);
}

static void a_wrong_winner_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    is_planted = false;
    json_t *sound = sweep(arena, folder, NULL, 0);
    assert_string_equal(micro(sound, 0), "2"); /* otherwise the winner would have no fault */
    json_decref(sound);
    folder = command_new_folder(arena);
    is_planted = true;
    json_t *root = sweep(arena, folder, NULL, 1);
    is_planted = false;
    assert_string_equal(micro(root, 0), "1");
    assert_true(is_proven(root, 0));
    assert_string_equal(word(root, 1, "status"), "refused");
    assert_string_equal(word(root, 1, "rule"), "verify-scale");
    json_decref(root);
    const char *err = command_read_file(arena, arena_print(arena, "%s/err", folder), NULL);
    assert_non_null(strstr(err, "error[verify-scale]: batch.micro=2: "));
    assert_int_equal(number(arena, folder,
                            "SELECT status = 'invalid' AND run IS NULL FROM sweep_point ORDER BY "
                            "point DESC LIMIT 1"),
                     1);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_best_plan_is_proven),
        cmocka_unit_test(the_table_says_which_plans_are_proven),
        cmocka_unit_test(prove_also_proves_a_plan_that_does_not_fit),
        cmocka_unit_test(a_wrong_winner_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
