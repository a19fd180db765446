/* The process that evaluates a script may end, stay silent, or not start, and system calls of its
 * parent may fail. The parent reports each of these, does not wait for ever, and leaves no process
 * and no open file behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/front/child/child.h"
#include "planner/front/stream.h"
#include "tests/support/command.h"
#include "tests/unit/front/process/impostor.h"

static const char plan[] =
    "return plan { model = require 'models.llama' 'tiny', batch = { seq = 8 } }";
static const char sweep[] = "return sweep { plan = 'plans/tiny_text.lua',\n"
                            "  vary = { ['mesh.tp'] = { 1, 2 } },\n"
                            "  score = function(result) return result.mfu end }";

/* The ways to use a script. Each starts a process for it. */
typedef enum Use { USE_once, USE_held, USE_sweep, USES } Use;

static bool evaluate_sweep(Arena *arena, Diag *d)
{
    const char *path = arena_print(arena, "%s/s.lua", command_new_folder(arena));
    command_write_file(path, sweep);
    bool is_plan;
    FrontSweep *s = front_sweep_open(path, arena, &is_plan, d);
    if (s == NULL) return false;
    static const FrontPairs none;
    FrontPairs result = {NULL, 0, 0};
    list_push(arena, &result, ((FrontPair){.key = "mfu", .value = "0.5"}));
    SweepAnswer answer;
    const bool fine = front_sweep_call(s, SWEEP_score, &none, &result, "a point", &answer, d);
    if (fine) assert_true(answer.number > 0.4 && answer.number < 0.6);
    front_sweep_close(s);
    return fine;
}

/* Returns the errors; "" if there are none. */
static const char *evaluate(Use use, Arena *arena)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    const FrontOptions options = {.cpu_seconds = 2};
    bool fine = false;
    if (use == USE_once) {
        fine = front_load_text("plan.lua", plan, &options, arena, &config, &graph, &d);
    } else if (use == USE_held) {
        FrontScript *script = front_open("plan.lua", plan, 2, arena);
        fine = front_load_held(script, &options, arena, &config, &graph, &d);
        front_close(script);
    } else {
        fine = evaluate_sweep(arena, &d);
    }
    assert_int_equal(fine, d.n_errors == 0);
    assert_true(d.n_errors <= 1);
    Str text = str_in(arena);
    diag_print(&d, &text);
    return str_text(&text);
}

static uint32_t count_open_files(void)
{
    uint32_t n = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL) n++;
    closedir(all);
    return n;
}

static void assert_says(Use use, const char *expected)
{
    Arena *arena = arena_new();
    const uint32_t before = count_open_files();
    alarm(60); /* the parent must not wait for ever */
    const char *text = evaluate(use, arena);
    alarm(0);
    if (expected == NULL ? text[0] != 0 : strstr(text, expected) == NULL)
        fail_msg("use %d: expected '%s' in '%s'", use, expected ? expected : "nothing", text);
    assert_int_equal(count_open_files(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    arena_free(arena);
}

static void a_process_that_cannot_start_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        int error;
        const char *says;
    } cases[] = {
        {"socketpair", EMFILE, "error[front-process]: socketpair: Too many open files"},
        {"pipe", EMFILE, "error[front-process]: pipe: Too many open files"},
        {"fork", EAGAIN, "error[front-process]: fork: Resource temporarily unavailable"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (Use use = USE_once; use < USES; use++) {
            impostor_fail(cases[i].function, cases[i].error);
            assert_says(use, cases[i].says);
            assert_true(impostor_fail(NULL, 0));
        }
}

static void a_failed_transfer_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        int error;
        const char *says;
    } cases[] = {
        {"send", ENOBUFS,
         "error[front-process]: the process that evaluates the script cannot be "
         "reached: No buffer space available"},
        {"recv", EIO, "cannot be reached: Input/output error"},
        {"poll", EINVAL, "cannot be reached: Invalid argument"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (Use use = USE_once; use < USES; use++) {
            impostor_fail(cases[i].function, cases[i].error);
            assert_says(use, cases[i].says);
            assert_true(impostor_fail(NULL, 0));
        }
}

/* A signal that interrupts a call changes nothing. */
static void an_interrupted_call_is_repeated(void **state)
{
    (void)state;
    static const char *const functions[] = {"recv", "poll", "waitpid", "send"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (Use use = USE_once; use < USES; use++) {
            /* Only requests of held scripts and sweeps can be long enough to be interrupted. A
             * script that is used once gets no request. */
            if (use == USE_once && strcmp(functions[i], "send") == 0) continue;
            impostor_fail(functions[i], EINTR);
            assert_says(use, NULL);
            assert_true(impostor_fail(NULL, 0));
        }
}

static void a_silent_process_is_stopped(void **state)
{
    (void)state;
    const Impostor silent = {.bytes = "", .end = IMPOSTOR_stays};
    for (Use use = USE_once; use < USES; use++) {
        impostor_use(&silent);
        impostor_be_late(true);
        assert_says(use, "error[no-progress]: the script was stopped, because its process sent "
                         "nothing for ");
        impostor_be_late(false);
        impostor_use(NULL);
    }
}

/* A process that ends before its last record is explained by the way in which it ended. */
static void an_early_end_is_explained(void **state)
{
    (void)state;
    static const struct {
        ImpostorEnd end;
        int code;
        const char *says;
    } cases[] = {
        {IMPOSTOR_exits, 0,
         "error[script-crash]: the process that evaluates the script ended "
         "unexpectedly (exit code 0)"},
        {IMPOSTOR_exits, 9, "ended unexpectedly (exit code 9)"},
        {IMPOSTOR_exits, CHILD_NO_MEMORY, "error[out-of-memory]: "},
        {IMPOSTOR_exits, CHILD_NO_PROCESS, "error[front-process]: "},
        {IMPOSTOR_dies, SIGKILL, "error[no-progress]: the script was stopped after "},
        {IMPOSTOR_dies, SIGXCPU, "error[no-progress]: the script was stopped after "},
        {IMPOSTOR_dies, SIGABRT, "error[memory-limit]: "},
        {IMPOSTOR_dies, SIGTERM,
         "error[script-crash]: the process that evaluates the script ended "
         "unexpectedly (signal 15)"},
    };
    static const char part[] = {RECORD_file, 0, 0, 0, 40, 0, 0, 0, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (Use use = USE_once; use < USES; use++)
            /* cuts: no byte, a part of a header, or a part of a record */
            for (uint32_t cut = 0; cut < 3; cut++) {
                const Impostor impostor = {part, cut * (sizeof part / 2), cases[i].end,
                                           cases[i].code};
                impostor_use(&impostor);
                assert_says(use, cases[i].says);
                impostor_use(NULL);
            }
}

/* If a process sends a damaged header and does not end, the parent ends it. */
static void a_damaged_header_ends_the_process(void **state)
{
    (void)state;
    static const uint32_t headers[][2] = {
        {RECORD_none, 4}, {RECORD_KIND_COUNT, 4},
        {UINT32_MAX, 0},  {RECORD_file, STREAM_MOST_BYTES + 1},
        {RECORD_done, 0}, {RECORD_done, 5},
        {RECORD_ask, 3},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        for (Use use = USE_once; use < USES; use++) {
            char bytes[sizeof *headers + 8] = {0};
            memcpy(bytes, headers[i], sizeof *headers);
            const Impostor impostor = {bytes, sizeof bytes, IMPOSTOR_stays, 0};
            impostor_use(&impostor);
            assert_says(use, "error[front-damaged]: the process that evaluates the script sent "
                             "damaged data");
            impostor_use(NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_cannot_start_is_reported),
        cmocka_unit_test(a_failed_transfer_is_reported),
        cmocka_unit_test(an_interrupted_call_is_repeated),
        cmocka_unit_test(a_silent_process_is_stopped),
        cmocka_unit_test(an_early_end_is_explained),
        cmocka_unit_test(a_damaged_header_ends_the_process),
    };
    return cmocka_run_group_tests_name("a script's process", tests, NULL, NULL);
}
