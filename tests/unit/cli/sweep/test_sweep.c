/* tandem sweep: every combination gives the result of `sim`, in the requested order, with a reason
 * for each point that does not fit. A killed sweep loses none of its results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"
#include "tests/support/document.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

static json_t *document(Arena *arena, int code, const char *const *arguments)
{
    CommandResult r = command_run(arena, 120, arguments);
    return document_of(r, code);
}
#define DOCUMENT(arena, code, ...)                                                                 \
    document((arena), (code), (const char *const[]){__VA_ARGS__, "--json", NULL})

static const char *word(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

/* A plan with a runtime profile must fit in memory as that framework would use it. Tandem's own
 * arena of 61 GiB would fit here. */
static void a_plan_must_fit_as_its_runtime_uses_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *plan = arena_print(arena, "%s/p.lua", command_new_folder(arena));
    command_write_file(plan,
                       "return plan { model = require 'models.llama' '3.1-8b', cluster = require "
                       "'clusters.dgx_h100' { nodes = 1 }, batch = { global = 16, micro = 1, seq = "
                       "8192 }, mesh = { dp_shard = 8 }, parallel = { ac 'selective', fsdp2 {} }, "
                       "precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' }, "
                       "optimizer = adamw { lr = 3e-4 }, runtime = 'torchtitan' }");
    CommandResult r = COMMAND(arena, 120, "sim", plan, "--db", "none");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(strstr(r.err, "error[does-not-fit]: torchtitan would need "));
    json_t *root = DOCUMENT(arena, 0, "sweep", plan, "--try", "parallel.ac=selective,full", "--try",
                            "batch.seq=8192,16384", "--db", "none");
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        bool fits = strcmp(word(row, "status"), "fits") == 0;
        assert_int_equal(fits, document_number(row, "peak_bytes") <= 81000 * 1048576.);
    }
    json_decref(root);
    arena_free(arena);
}

static void rows_are_ranked_and_losers_have_reasons(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    json_t *root =
        DOCUMENT(arena, 0, "sweep", llama, "--db", db, "--set", "mesh.dp_shard=-1", "--try",
                 "mesh.tp=2,3,8", "--try", "batch.micro=1,8", "-j", "2", "--exact");
    json_t *few = DOCUMENT(arena, 0, "sweep", llama, "--db", db, "--set", "mesh.dp_shard=-1",
                           "--try", "mesh.tp=2,3,8", "--try", "batch.micro=1,8", "-j", "2");
    const json_t *rows = json_object_get(root, "rows"), *from_few = json_object_get(few, "rows");
    assert_int_equal(json_array_size(rows), 6);
    assert_int_equal(json_integer_value(json_object_get(root, "fit")), 3);
    uint32_t n_few = 0;
    double before = 1e30;
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(rows, i), *set = json_object_get(row, "settings");
        assert_string_equal(word(row, "status"), "fits");
        assert_true(document_number(row, "tokens_per_s") < before);
        before = document_number(row, "tokens_per_s");
        json_t *alone =
            DOCUMENT(arena, 0, "sim", llama, "--db", db, "--set", "mesh.dp_shard=-1", "--set",
                     arena_print(arena, "mesh.tp=%s", word(set, "mesh.tp")), "--set",
                     arena_print(arena, "batch.micro=%s", word(set, "batch.micro")));
        assert_true(json_is_true(json_object_get(alone, "found")));
        static const char *const same[] = {"step_ps", "tokens_per_s", "mfu", "peak_bytes", "run"};
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            assert_true(document_number(alone, same[k]) == document_number(row, same[k]));
        assert_string_equal(word(alone, "plan_id"), word(row, "plan_id"));
        json_decref(alone);
        const json_t *other = json_array_get(from_few, i); /* the row without --exact */
        for (size_t k = 0; k < 4; k++)
            assert_true(document_number(other, same[k]) == document_number(row, same[k]));
        n_few += strcmp(word(other, "plan_id"), word(row, "plan_id")) != 0;
    }
    assert_true(n_few > 0);
    assert_string_equal(word(json_array_get(rows, 3), "status"), "does-not-fit");
    assert_string_equal(word(json_array_get(rows, 3), "rule"), "does-not-fit");
    assert_true(document_number(json_array_get(rows, 3), "step_ps") > 0);
    for (size_t i = 4; i < 6; i++) {
        assert_string_equal(word(json_array_get(rows, i), "status"), "refused");
        assert_string_equal(word(json_array_get(rows, i), "rule"), "mesh-product");
        assert_non_null(strstr(word(json_array_get(rows, i), "reason"), "do not divide"));
    }
    json_decref(few);
    json_decref(root);
    arena_free(arena);
}

/* By memory the order is different. An order by dollars needs a price, which --price gives. */
static void rows_are_in_the_requested_order(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *root = DOCUMENT(arena, 0, "sweep", llama, "--db", "none", "--set", "mesh.dp_shard=-1",
                            "--try", "mesh.tp=1,2,8", "--by", "memory", "--price", "3.6");
    double before = 0;
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(json_object_get(root, "rows"), i);
        assert_true(document_number(row, "peak_bytes") > before);
        before = document_number(row, "peak_bytes");
        double usd =
            3.6 / 3600 * document_number(row, "ranks") / document_number(row, "tokens_per_s");
        assert_true(document_number(row, "usd_per_token") / usd > .999999);
        assert_true(document_number(row, "usd_per_token") / usd < 1.000001);
        assert_true(json_is_null(json_object_get(row, "run")));
    }
    json_decref(root);
    arena_free(arena);
}

static void csv_has_a_row_for_each_point(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r =
        COMMAND(arena, 120, "sweep", llama, "--db", "none", "--try", "mesh.tp=2,16", "--csv");
    assert_int_equal(r.exit_code, 0);
    assert_true(strncmp(r.out, "mesh.tp,status,ranks,step_s,", 28) == 0);
    const char *refused = strstr(r.out, "\n16,refused,");
    assert_non_null(refused);
    /* in quotes, because it contains a comma */
    assert_non_null(strstr(refused, ",\"mesh dp_shard 8 x tp 16 = 128 ranks, but"));
    uint32_t lines = 0;
    for (const char *c = r.out; *c != 0; c++) lines += *c == '\n';
    assert_int_equal(lines, 3);
    arena_free(arena);
}

static void if_no_point_fits_the_nearest_miss_comes_first(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r =
        COMMAND(arena, 120, "sweep", llama, "--db", "none", "--set", "mesh.dp_shard=-1", "--try",
                "mesh.tp=1,2", "--set", "batch.micro=4", "--set", "batch.seq=16384");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(strstr(r.err, "error[nothing-fits]: of 2 combinations none fits"));
    const char *nearest = strstr(r.out, "  mesh.tp=2: rank 0"),
               *far = strstr(r.out, "  mesh.tp=1: ");
    assert_true(nearest != NULL && far != NULL && nearest < far);
    /* If all points fail for the same reason, it is reported once, as an error. */
    r = COMMAND(arena, 120, "sweep", llama, "--db", "none", "--try", "mesh.tpp=1,2");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err,
                           "--try mesh.tpp=1,2: error[unknown-key]: unknown key 'tpp' in "
                           "mesh{} (in each of 2 combinations)\n  hint: did you mean 'pp'?"));
    assert_null(strstr(r.out, "tpp="));
    r = COMMAND(arena, 120, "sweep", llama, "--db", "none", "--try", "mesh.tp=3,5");
    assert_int_equal(r.exit_code, 3);
    /* The shared error names the line of the library, as the error of `sim` does. */
    r = COMMAND(arena, 120, "sweep", llama, "--db", "none", "--try", "model.heads=7", "--try",
                "batch.micro=1,2");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "--try model.heads=7: error[divides-heads]: nn.attention: "));
    assert_non_null(strstr(r.err, " (in each of 2 combinations)\n  library: models/llama.lua:"));
    arena_free(arena);
}

/* A warning of one point is not printed, because it says nothing about the sweep. A warning of all
 * points is. */
static void a_warning_of_all_points_is_printed_once(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r =
        COMMAND(arena, 120, "sweep", llama, "--db", "none", "--try", "parallel.pp=1f1b,zb_h1");
    assert_int_equal(r.exit_code, 0);
    const char *warning =
        strstr(r.err, "warning[not-applied]: pp{} has no effect, because mesh.pp is 1");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "warning[not-applied]"));
    r = COMMAND(arena, 120, "sweep", llama, "--db", "none", "--try", "parallel.pp=none,1f1b");
    assert_int_equal(r.exit_code, 0);
    assert_null(strstr(r.err, "warning[not-applied]"));
    arena_free(arena);
}

static int64_t stored_number(Arena *arena, const char *db, const char *sql)
{
    Diag d = diag_in(arena);
    Store *store = store_open(db, true, &d);
    assert_non_null(store);
    DbStatement *st = db_prepare(store_db(store), &d, sql, "");
    assert_true(db_step(st, &d));
    int64_t n = db_int(st, 0);
    db_reset(st);
    store_close(store);
    return n;
}

/* The store answers a point that it has already, unless one of the plan's scripts has changed. */
static void a_stored_point_is_not_computed_again(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena), *db = arena_print(arena, "%s/t.db", folder);
    const char *plan = arena_print(arena, "%s/p.lua", folder),
               *size = arena_print(arena, "%s/size.lua", folder);
    command_write_file(size, "return 4096");
    command_write_file(
        plan, "return plan { model = require 'models.llama' '3.2-1b', cluster = require "
              "'clusters.dgx_h100' { nodes = 1 }, batch = { global = 16, micro = 1, seq = require "
              "'size' }, mesh = { dp_shard = -1 }, parallel = { fsdp2 {} }, precision = { "
              "param = 'fp32', compute = 'bf16', reduce = 'fp32' }, optimizer = adamw {} }");
    const char *const arguments[] = {
        "sweep",           plan,     "--db", db, "--try", "mesh.dp_shard=8,3", "--try",
        "batch.micro=1,2", "--json", NULL};
    CommandResult first = command_run(arena, 120, arguments),
                  again = command_run(arena, 120, arguments);
    assert_int_equal(first.exit_code, 0);
    assert_string_equal(first.out, again.out);
    assert_int_equal(stored_number(arena, db, "SELECT count(*) FROM found"), 4);
    assert_int_equal(stored_number(arena, db, "SELECT count(*) FROM run"), 2);
    assert_int_equal(stored_number(arena, db, "SELECT count(*) FROM v_sweep WHERE step_ms > 0"), 2);
    assert_int_equal(stored_number(arena, db,
                                   "SELECT count(*) FROM sweep_point WHERE status = 'ok' AND "
                                   "json_extract(settings, '$.\"mesh.dp_shard\"') = '8'"),
                     2);
    /* This changes the stored answer. If it is printed, it comes from the store. */
    Diag d = diag_in(arena);
    Store *store = store_open(db, false, &d);
    assert_true(db_exec(store_db(store),
                        "UPDATE found SET answer = json_set(answer, '$.step_ps', 7) WHERE run > 0",
                        &d));
    store_close(store);
    again = command_run(arena, 120, arguments);
    assert_non_null(strstr(again.out, "\"step_ps\": 7,"));
    command_write_file(size, "return 2048"); /* a script of the plan has changed */
    again = command_run(arena, 120, arguments);
    assert_null(strstr(again.out, "\"step_ps\": 7,"));
    assert_int_equal(stored_number(arena, db, "SELECT count(*) FROM run"), 4);
    /* A script beside the plan hides the library's script of the same name. */
    again = command_run(arena, 120, arguments);
    const char *hidden = arena_print(arena, "%s/clusters", folder);
    assert_int_equal(mkdir(hidden, 0777), 0);
    command_write_file(arena_print(arena, "%s/dgx_h100.lua", hidden),
                       "return function(o) error('hidden') end");
    CommandResult other = command_run(arena, 120, arguments);
    assert_int_equal(other.exit_code, 3);
    arena_free(arena);
}

/* The store has the recipe of a plan. The exported recipe must give the same plan. */
static void an_exported_recipe_makes_the_same_plan(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena), *db = arena_print(arena, "%s/t.db", folder);
    const char *out = arena_print(arena, "%s/x", folder);
    json_t *made = DOCUMENT(arena, 0, "sim", llama, "--db", db, "--set", "batch.micro=2");
    json_t *told = DOCUMENT(arena, 0, "db", "export", "1", "--db", db, "-o", out);
    const char *command = arena_print(arena, "PATH=%s:$PATH; %s --db none --json",
                                      arena_copy(arena, TANDEM_COMMAND, strlen(TANDEM_COMMAND) - 7),
                                      word(told, "command"));
    CommandResult r =
        command_run_program(arena, 120, (const char *const[]){"sh", "-c", command, NULL});
    assert_int_equal(r.exit_code, 0);
    json_t *again = json_loads(r.out, 0, NULL);
    assert_string_equal(word(again, "plan_id"), word(made, "plan_id"));
    const int64_t bytes = stored_number(
        arena, db, "SELECT sum(length(recipe)) + ifnull(sum(length(packed)), 0) FROM plan");
    assert_true(bytes < 8192);
    json_decref(made);
    json_decref(told);
    json_decref(again);
    arena_free(arena);
}

static void a_dry_run_lists_the_points(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult r = COMMAND(arena, 60, "sweep", llama, "--db", db, "--try", "mesh.tp=1,2",
                              "--try", "batch.micro=1,2", "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.out, "--set mesh.tp=1 --set batch.micro=1\n"
                               "--set mesh.tp=1 --set batch.micro=2\n"
                               "--set mesh.tp=2 --set batch.micro=1\n"
                               "--set mesh.tp=2 --set batch.micro=2\n");
    assert_int_not_equal(access(db, F_OK), 0);
    arena_free(arena);
}

static void mistakes_are_reported_before_any_point_runs(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *words;
    } wrong[] = {{"--try", "x", "KEY=V1,V2,... is expected"},
                 {"--try", "mesh.tp=", "KEY=V1,V2,... is expected"},
                 {"--try", "mesh.tp=1,,2", "KEY=V1,V2,... is expected"},
                 {"--try", "mesh.dp_shard=4", "mesh.dp_shard is given twice"},
                 {"--by", "luck", "tokens, gpu, memory, usd or energy"},
                 {"--price", "-1", "dollars an hour"}};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CommandResult r = COMMAND(arena, 60, "sweep", llama, "--db", "none", "--try",
                                  "mesh.dp_shard=1", wrong[i].option, wrong[i].value);
        assert_int_equal(r.exit_code, 2);
        if (strstr(r.err, wrong[i].words) == NULL) fail_msg("%s", r.err);
    }
    CommandResult r = COMMAND(arena, 60, "sweep", llama, "--db", "none");
    assert_int_equal(r.exit_code, 2);
    arena_free(arena);
}

/* On a terminal, a sweep shows its progress and removes it again. In a pipe, it shows nothing. */
static void progress_is_shown_only_on_terminals(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *command = arena_print(arena,
                                      "'%s' sweep '%s' --db none --set mesh.dp_shard=-1 "
                                      "--try mesh.tp=1,2,3 >rows.txt",
                                      TANDEM_COMMAND, llama);
    CommandResult r = command_run_program(
        arena, 120, (const char *const[]){"script", "-qec", command, "/dev/null", NULL});
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "\rsweep: 0 of 3 done"));
    assert_non_null(strstr(r.out, "\rsweep: 3 of 3 done"));
    assert_true(r.n_out > 4 && strcmp(r.out + r.n_out - 4, "\r\033[K") == 0);
    assert_non_null(strstr(command_read_file(arena, "rows.txt", NULL), "best        --set"));
    remove("rows.txt");
    r = command_run_program(arena, 120, (const char *const[]){"sh", "-c", command, NULL});
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.err, "");
    remove("rows.txt");
    arena_free(arena);
}

/* The store takes the first predictions but not the rest, because files may not grow beyond a
 * limit. */
static void a_point_that_could_not_be_stored_is_named(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *command = arena_print(arena,
                                      "trap '' XFSZ; ulimit -f 450; '%s' sweep '%s' --db %s/t.db "
                                      "-j 1 --set mesh.dp_shard=-1 --try mesh.tp=2 "
                                      "--try seed=1,2,3,4,5,6,7,8",
                                      TANDEM_COMMAND, llama, folder);
    CommandResult r =
        command_run_program(arena, 120, (const char *const[]){"sh", "-c", command, NULL});
    if (r.exit_code != 7 || strstr(r.err, "error[store-error]: mesh.tp=2 seed=") == NULL ||
        strstr(r.err, " was not stored: ") == NULL)
        fail_msg("code %d: %s", r.exit_code, r.err);
    assert_non_null(strstr(r.out, "best        --set mesh.tp=2"));
    arena_free(arena);
}

static int64_t stored(Arena *arena, const char *db)
{
    Diag d = diag_in(arena);
    Store *store = store_open(db, true, &d);
    if (store == NULL) return 0; /* the store does not exist yet */
    DbStatement *st = db_prepare(store_db(store), &d, "SELECT count(*) FROM run", "");
    int64_t n = db_step(st, &d) ? db_int(st, 0) : 0;
    store_close(store);
    return n;
}

/* Starts a sweep of n seeds in its own process group and waits until two predictions are stored. */
static pid_t start_sweep(Arena *arena, int n, const char *db)
{
    Str seeds = str_in(arena);
    for (int i = 1; i <= n; i++) str_print(&seeds, i == 1 ? "seed=%d" : ",%d", i);
    char *const argv[] = {(char *)(uintptr_t)TANDEM_COMMAND,
                          (char *)(uintptr_t) "sweep",
                          (char *)(uintptr_t)llama,
                          (char *)(uintptr_t) "--try",
                          (char *)(uintptr_t)str_text(&seeds),
                          (char *)(uintptr_t) "--db",
                          (char *)(uintptr_t)db,
                          (char *)(uintptr_t) "-qj2",
                          NULL};
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        if (freopen("/dev/null", "w", stdout) != NULL) execv(argv[0], argv);
        _exit(127);
    }
    setpgid(child, child);
    for (int i = 0; i < 6000 && stored(arena, db) < 2; i++)
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    return child;
}

/* Returns the number of processes of the group that have not ended. */
static uint32_t n_running(Arena *arena, pid_t group)
{
    uint32_t n = 0;
    DIR *all = opendir("/proc");
    assert_non_null(all);
    for (struct dirent *one; (one = readdir(all)) != NULL;) {
        const char *path = arena_print(arena, "/proc/%s/stat", one->d_name);
        const char *text =
            isdigit((unsigned char)one->d_name[0]) ? command_read_file(arena, path, NULL) : NULL;
        /* The process's name may contain any character, also ')'. */
        const char *end = text != NULL ? strrchr(text, ')') : NULL;
        char state, *after = NULL;
        if (end == NULL || strlen(end) < 4) continue;
        state = end[2];
        strtol(end + 3, &after, 10); /* the process's parent */
        n += state != 'Z' && state != 'X' && strtol(after, NULL, 10) == group;
    }
    closedir(all);
    return n;
}

/* `kill` reaches only the first process of the sweep, and the others must end, too. */
static void ending_a_sweep_ends_all_its_processes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    pid_t child = start_sweep(arena, 200, db);
    assert_true(n_running(arena, child) >= 3);
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (int i = 0; i < 2000 && n_running(arena, child) > 0; i++)
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    uint32_t left = n_running(arena, child);
    kill(-child, SIGKILL);
    assert_int_equal(left, 0);
    /* the processes ended before all points were done */
    assert_in_range(stored(arena, db), 2, 199);
    arena_free(arena);
}

static void a_killed_sweep_continues_from_its_stored_points(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    pid_t child = start_sweep(arena, 8, db);
    assert_int_equal(kill(-child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(stored(arena, db) >= 2);
    CommandResult r = COMMAND(arena, 60, "db", "check", "--db", db);
    assert_int_equal(r.exit_code, 0);
    r = COMMAND(arena, 300, "sweep", llama, "--try", "seed=1,2,3,4,5,6,7,8", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(stored(arena, db), 8); /* the stored points were not simulated a second time */
    arena_free(arena);
}

/* `compare` of two predictions, before and after a change, shows the values of both. */
static void compare_shows_the_values_of_both_runs(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    json_t *one = DOCUMENT(arena, 0, "sim", llama, "--db", db);
    json_t *two = DOCUMENT(arena, 0, "sim", llama, "--db", db, "--set", "batch.micro=2");
    json_t *both = DOCUMENT(arena, 0, "compare", "1", "2", "--db", db);
    const json_t *lines = json_object_get(both, "lines");
    static const char *const what[] = {"step", "MFU", "memory of the worst rank"};
    static const char *const key[] = {"step_ps", "mfu", "peak_bytes"};
    uint32_t found = 0;
    double busy = 0, all = 0;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        for (size_t k = 0; k < 3; k++) {
            if (strcmp(word(line, "what"), what[k]) != 0) continue;
            assert_true(document_number(line, "first") == document_number(one, key[k]));
            assert_true(document_number(line, "second") == document_number(two, key[k]));
            found++;
        }
        if (strstr(word(line, "what"), ", busy") != NULL) busy += document_number(line, "second");
    }
    const json_t *axes = json_object_get(two, "communication");
    for (size_t i = 0; i < json_array_size(axes); i++)
        all += document_number(json_array_get(axes, i), "busy_ps");
    assert_int_equal(found, 3);
    assert_true(all > 0 && busy == all);
    json_decref(one);
    json_decref(two);
    json_decref(both);
    CommandResult r = COMMAND(arena, 60, "compare", "1", "2", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "reduce_scatter dp_shard, exposed"));
    r = COMMAND(arena, 60, "compare", "1", "9", "--db", db);
    assert_int_equal(r.exit_code, 7);
    r = COMMAND(arena, 60, "compare", "1", "x", "--db", db);
    assert_int_equal(r.exit_code, 2);
    arena_free(arena);
}

static void a_training_has_a_length_and_a_price(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *root =
        DOCUMENT(arena, 0, "sim", llama, "--db", "none", "--tokens", "1.5T", "--price", "2");
    const json_t *t = json_object_get(root, "training");
    double seconds = 1.5e12 / document_number(root, "tokens_per_s");
    assert_true(document_number(t, "seconds") / seconds > .999999 &&
                document_number(t, "seconds") / seconds < 1.00001);
    assert_true(document_number(t, "device_hours") / (seconds / 3600 * 16) > .999999);
    double steps = 1.5e12 / (document_number(root, "global_batch") * document_number(root, "seq"));
    assert_true(document_number(t, "steps") / steps > .9999 &&
                document_number(t, "steps") / steps < 1.0001);
    assert_true(document_number(t, "usd") / document_number(t, "device_hours") > 1.999999);
    json_t *failing =
        DOCUMENT(arena, 0, "sim", llama, "--db", "none", "--tokens", "1.5T", "--mtbf", "1h");
    const json_t *f = json_object_get(failing, "training");
    double goodput = document_number(f, "goodput");
    assert_true(goodput > 0 && goodput < 1);
    assert_true(document_number(f, "seconds") * goodput / seconds > .999999);
    assert_true(document_number(f, "steps") / steps > .9999 &&
                document_number(f, "steps") / steps < 1.0001);
    json_decref(root);
    json_decref(failing);
    static const char *const wrong[] = {"0", "x", "1Q", "1TT", "-3", "1e30", "nan"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CommandResult r = COMMAND(arena, 60, "sim", llama, "--db", "none", "--tokens", wrong[i]);
        assert_int_equal(r.exit_code, 2);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_must_fit_as_its_runtime_uses_memory),
        cmocka_unit_test(rows_are_ranked_and_losers_have_reasons),
        cmocka_unit_test(rows_are_in_the_requested_order),
        cmocka_unit_test(csv_has_a_row_for_each_point),
        cmocka_unit_test(if_no_point_fits_the_nearest_miss_comes_first),
        cmocka_unit_test(a_warning_of_all_points_is_printed_once),
        cmocka_unit_test(a_stored_point_is_not_computed_again),
        cmocka_unit_test(an_exported_recipe_makes_the_same_plan),
        cmocka_unit_test(a_dry_run_lists_the_points),
        cmocka_unit_test(mistakes_are_reported_before_any_point_runs),
        cmocka_unit_test(progress_is_shown_only_on_terminals),
        cmocka_unit_test(a_point_that_could_not_be_stored_is_named),
        cmocka_unit_test(ending_a_sweep_ends_all_its_processes),
        cmocka_unit_test(a_killed_sweep_continues_from_its_stored_points),
        cmocka_unit_test(compare_shows_the_values_of_both_runs),
        cmocka_unit_test(a_training_has_a_length_and_a_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
