/* An interrupted tandem run ends its ranks. One line reports the step that it reached and the
 * results that remain. It exits with 128 + the signal. A command that is killed leaves no process
 * behind. A rank that is stopped before its first step ends the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "exec/launch/status.h"
#include "exec/module/modules.h"
#include "store/store.h"
#include "tests/support/command.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

typedef struct Session {
    Arena *arena;
    const char *folder, *db, *out, *err;
    int code; /* the command's exit code; -1: a signal ended it */
} Session;

static void pause_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void pause_ms(long ms)
{
    pause_us(1000 * ms);
}

static const char *text_of(const Session *s, const char *path)
{
    const char *text = command_read_file(s->arena, path, NULL);
    return text != NULL ? text : "";
}

/* Returns true if the command line of process `id` names this run's store. */
static bool is_of_run(const Session *s, const char *id)
{
    char line[4096] = "";
    FILE *file = fopen(arena_print(s->arena, "/proc/%s/cmdline", id), "r");
    if (file == NULL) return false;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    for (size_t i = 0; i < length; i++)
        if (line[i] == 0) line[i] = ' ';
    return strstr(line, s->db) != NULL;
}

/* Returns the number of other processes whose command line names the store. */
static uint32_t n_processes(const Session *s)
{
    uint32_t n = 0;
    DIR *all = opendir("/proc");
    assert_non_null(all);
    for (struct dirent *one; (one = readdir(all)) != NULL;) n += is_of_run(s, one->d_name);
    closedir(all);
    return n;
}

static pid_t start(const Session *s, const char *more, const char *value)
{
    /* many layers are slow to plan */
    const char *layers = value != NULL ? "model.layers=60" : "model.layers=2";
    const char *const argv[] = {
        TANDEM_COMMAND, "run",  tiny,      "-n",      "2",  "--set", "mesh.dp_shard=1",
        "--set",        layers, "--steps", "1000000", "-v", "--db",  s->db,
        more,           value,  NULL};
    union {
        const char *const *read_only;
        char *const *plain;
    } arguments = {.read_only = argv};
    unlink(s->out);
    unlink(s->err);
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return child;
    if (freopen(s->out, "w", stdout) != NULL && freopen(s->err, "w", stderr) != NULL)
        execv(argv[0], arguments.plain);
    _exit(127);
}

/* Waits until `file` contains `word`. Fails if the command ends before that, or after 300 s. */
static void wait_for(const Session *s, pid_t child, const char *file, const char *word)
{
    siginfo_t end = {0};
    for (int i = 0; i < 3000 && strstr(text_of(s, file), word) == NULL && end.si_pid == 0; i++) {
        pause_ms(100);
        waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT);
    }
    if (strstr(text_of(s, file), word) != NULL) return;
    kill(child, SIGKILL);
    fail_msg("no '%s'; the command %s\n%s\n%s", word, end.si_pid ? "ended" : "went on",
             text_of(s, s->out), text_of(s, s->err));
}

/* Starts the command, sends it the signal when `file` contains `word`, and waits for its end. */
static void interrupt(Session *s, int number, const char *json, const char *file, const char *word)
{
    pid_t child = start(s, json, NULL);
    wait_for(s, child, file, word);
    assert_int_equal(kill(child, number), 0);
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 1200 && ended == 0; i++) {
        pause_ms(100);
        ended = waitpid(child, &status, WNOHANG);
    }
    if (ended == 0) kill(child, SIGKILL);
    s->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static Session session(void)
{
    Session s = {.arena = arena_new()};
    s.folder = command_new_folder(s.arena);
    s.db = arena_print(s.arena, "%s/t.db", s.folder);
    s.out = arena_print(s.arena, "%s/out", s.folder);
    s.err = arena_print(s.arena, "%s/err", s.folder);
    return s;
}

static RunRecord measured(const Session *s)
{
    Diag d = diag_in(s->arena);
    RunRecord record;
    Store *store = store_open(s->db, true, &d);
    assert_non_null(store);
    DbStatement *st =
        db_prepare(store_db(store), &d, "SELECT max(id) FROM run WHERE kind = 'measured'", "");
    assert_true(db_step(st, &d));
    const int64_t id = db_int(st, 0);
    db_reset(st);
    assert_true(store_load_run(store, id, s->arena, &record, NULL, &d));
    store_close(store);
    return record;
}

/* Returns the one line that reports the interruption. */
static const char *told(const Session *s)
{
    static const char begins[] = "error[run-interrupted]: ";
    const char *line = strstr(text_of(s, s->err), begins);
    if (line == NULL) fail_msg("code %d\n%s", s->code, text_of(s, s->err));
    assert_null(strstr(line + 1, begins));
    return arena_copy(s->arena, line + strlen(begins), strcspn(line + strlen(begins), "\n"));
}

static void an_interrupted_run_reports_its_step_and_results(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *name;
    } rows[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}};
    Session s = session();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        interrupt(&s, rows[i].number, NULL, s.out, "step    2 ");
        assert_int_equal(s.code, 128 + rows[i].number);
        const char *line = told(&s), *end;
        const char *before = arena_print(s.arena, "interrupted by %s at step ", rows[i].name);
        if (strncmp(line, before, strlen(before)) != 0) fail_msg("%s", line);
        char *after;
        const unsigned long step = strtoul(line + strlen(before), &after, 10);
        assert_in_range(step, 2, 999999);
        end = arena_print(s.arena,
                          " of 1000000; the ranks have ended and their weights are lost; %s lists "
                          "run %zu as failed",
                          s.db, i + 2); /* row 1 is the prediction, and each run adds a row */
        assert_string_equal(after, end);
        const RunRecord run = measured(&s);
        assert_string_equal(run.status, "failed");
        assert_int_equal(run.steps_done, step);
        assert_int_equal(n_processes(&s), 0);
    }
    arena_free(s.arena);
}

static void an_interrupted_run_writes_its_json_document(void **state)
{
    (void)state;
    Session s = session();
    json_error_t error;
    interrupt(&s, SIGINT, "--json", s.err, "step    2 ");
    assert_int_equal(s.code, 130);
    json_t *root = json_loads(text_of(&s, s.out), 0, &error);
    if (root == NULL) fail_msg("%s\n%s", error.text, text_of(&s, s.out));
    assert_true(json_is_false(json_object_get(root, "ok")));
    assert_int_equal(json_integer_value(json_object_get(root, "exit_code")), 130);
    json_t *list = json_object_get(root, "diagnostics");
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    assert_string_equal(json_string_value(json_object_get(last, "rule")), "run-interrupted");
    json_decref(root);
    arena_free(s.arena);
}

/* Ranks measure collectives before the run begins. A signal ends that, too. */
static void a_signal_also_ends_the_measuring(void **state)
{
    (void)state;
    Session s = session();
    interrupt(&s, SIGTERM, NULL, s.err, "collectives on 2 ranks");
    assert_int_equal(s.code, 143);
    const char *line = told(&s);
    if (strstr(line, "interrupted by SIGTERM while") != line || !strstr(line, s.db))
        fail_msg("%s", line);
    assert_null(strstr(text_of(&s, s.err), "calibrate-failed"));
    assert_int_equal(n_processes(&s), 0);
    arena_free(s.arena);
}

static void no_process_outlives_a_killed_command(void **state)
{
    (void)state;
    static const char *const flavours[] = {"openmpi", "mpich"};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof flavours / sizeof flavours[0]; i++) {
        Session s = session();
        if (module_path(flavours[i], NULL, s.arena) == NULL) continue;
        setenv("TANDEM_MPI", flavours[i], 1);
        pid_t child = start(&s, NULL, NULL);
        wait_for(&s, child, s.out, "step    2 ");
        assert_true(n_processes(&s) > 2);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        /* This takes 5 s on a machine with free cores. The limit is longer, so that a busy machine
         * passes. */
        for (int k = 0; k < 300 && n_processes(&s) > 0; k++) pause_ms(100);
        assert_int_equal(n_processes(&s), 0);
        unsetenv("TANDEM_MPI");
        arena_free(s.arena);
        n++;
    }
    assert_true(n > 0);
}

/* Maps the memory in which the ranks of the run report their positions. Its path is in the
 * environment of each of their processes. Returns NULL if the memory is not made yet. */
static Status *status_of(const Session *s)
{
    DIR *all = opendir("/proc");
    Status *status = NULL;
    assert_non_null(all);
    for (struct dirent *one; (one = readdir(all)) != NULL && status == NULL;) {
        if (!is_of_run(s, one->d_name)) continue; /* a process of another run */
        size_t n = 0;
        const char *line =
            command_read_file(s->arena, arena_print(s->arena, "/proc/%s/environ", one->d_name), &n);
        for (size_t at = 0; line != NULL && at < n; at += strlen(line + at) + 1)
            if (strncmp(line + at, STATUS_VARIABLE "=", strlen(STATUS_VARIABLE "=")) == 0) {
                setenv(STATUS_VARIABLE, line + at + strlen(STATUS_VARIABLE "="), 1);
                status = status_join(2);
                break;
            }
    }
    closedir(all);
    unsetenv(STATUS_VARIABLE);
    return status;
}

static void a_rank_stopped_before_its_first_step_is_named(void **state)
{
    (void)state;
    Session s = session();
    /* The first run of a store starts other ranks to measure collectives. This run spares the next
     * one from that. */
    interrupt(&s, SIGTERM, NULL, s.out, "step    2 ");
    pid_t child = start(&s, "--timeout", "3");
    Status *status = NULL;
    /* A step takes 2 ms, so the rank must be stopped at once. */
    for (int i = 0; i < 60000 && status == NULL; i++, pause_us(500)) {
        status = status_of(&s);
        if (status != NULL && atomic_load(&status->slots[1].pid) == 0) {
            status_unmap(status);
            status = NULL;
        }
    }
    assert_non_null(status);
    int32_t pid = atomic_load(&status->slots[1].pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(atomic_load(&status->slots[1].count), 0);
    status_unmap(status);
    int how = 0;
    pid_t ended = 0;
    for (int i = 0; i < 2400 && ended == 0; i++, pause_ms(100))
        ended = waitpid(child, &how, WNOHANG);
    if (ended == 0) kill(child, SIGKILL);
    assert_int_equal(ended, child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 6);
    const char *said = arena_print(s.arena, "rank 1 (pid %d, step 0) was stopped", (int)pid);
    if (!strstr(text_of(&s, s.err), said)) fail_msg("%s", text_of(&s, s.err));
    assert_int_equal(n_processes(&s), 0);
    arena_free(s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupted_run_reports_its_step_and_results),
        cmocka_unit_test(an_interrupted_run_writes_its_json_document),
        cmocka_unit_test(a_signal_also_ends_the_measuring),
        cmocka_unit_test(no_process_outlives_a_killed_command),
        cmocka_unit_test(a_rank_stopped_before_its_first_step_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
