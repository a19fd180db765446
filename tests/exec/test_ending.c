/* If a rank waits too long, the run ends with a report. The test checks which ranks it names, in
 * which order, and what it says about each. A wrong report would send the user to a rank that only
 * waits. The test needs no MPI. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/ending.h"
#include "tests/exec/synthetic.h"

enum { RANKS = 4 };

static jmp_buf ended;
static int exit_code;
static char told[STATUS_TEXT], told_rule[32];

static void end(void *self, int code)
{
    (void)self;
    exit_code = code;
    longjmp(ended, 1);
}

static void record(void *self, const char *rule, const char *text)
{
    (void)self;
    snprintf(told_rule, sizeof told_rule, "%s", rule);
    snprintf(told, sizeof told, "%s", text);
}

/* Starts a process that waits until it is killed. With `stopped`, the process is stopped
 * (SIGSTOP). */
static pid_t start(bool stopped)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;) pause();
    if (!stopped) return pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    return pid;
}

static void run_out_of_time(const Ending *e, const Comm *c, Pc pc, double waited_s)
{
    if (setjmp(ended) == 0) ending_timeout(e, c, pc, waited_s);
}

static const char *line_of(Rank r)
{
    static char name[32];
    snprintf(name, sizeof name, "\n  rank %u ", r);
    const char *at = strstr(told, name);
    if (at == NULL) fail_msg("rank %u is not in %s", r, told);
    return at;
}

/* Rank 0 waits for a sum over tp. The other rank of that group, rank 1, is alive. Rank 2 is
 * stopped. Rank 3 shares no group with rank 0 here. The report names all ranks: first the ranks
 * that block others, then the rest of the group, then all others. */
static void the_report_names_every_rank(void **state)
{
    (void)state;
    Synthetic y = {.arena = arena_new()};
    make_every_transfer(&y, DT_f32);
    Status *status = calloc(1, sizeof *status + RANKS * sizeof *status->slots);
    assert_non_null(status);
    status->n_ranks = RANKS;
    Program *p = synthetic_program(&y);
    Pc wait = 0;
    for (Pc pc = 1; pc < p->code.n && !wait; pc++)
        if (p->code.at[pc].stream == STREAM_tp) wait = pc;
    const pid_t pid[RANKS] = {getpid(), start(false), start(true), start(false)};
    for (Rank r = 0; r < RANKS; r++) {
        status->slots[r].pid = pid[r];
        status->slots[r].state = r == 3 ? STATUS_open : STATUS_stepping;
        status->slots[r].step = 2;
        if (r != 3) status->slots[r].unfinished[STREAM_compute] = 1;
    }
    const AxisSet tp = axis(&y, AXIS_tp);
    const Comm c = {.op = OP_all_reduce,
                    .axes = tp,
                    .match = p->code.at[wait].match,
                    .leader = mesh_group(&y.plan->mesh, 0, tp)};
    const Ending e = {.plan = y.plan,
                      .arena = y.arena,
                      .n_ranks = RANKS,
                      .step = 2,
                      .status = status,
                      .abort = end,
                      .record = record};
    run_out_of_time(&e, &c, wait, 1.5);
    for (Rank r = 1; r < RANKS; r++) kill(pid[r], SIGKILL), waitpid(pid[r], NULL, 0);
    assert_int_equal(exit_code, 6);
    assert_string_equal(told_rule, "timeout");
    assert_non_null(strstr(told, "step 2: rank 0 waited 1.5 s for "));
    assert_true(line_of(2) < line_of(1) && line_of(1) < line_of(3));
    assert_null(strstr(told, "\n  rank 0 "));
    assert_non_null(strstr(line_of(2), "its process is stopped) is at step 2, instruction 1"));
    assert_non_null(strstr(line_of(1), "the plan expects it to reach instruction "));
    assert_null(strstr(line_of(3), "the plan expects"));
    assert_non_null(strstr(line_of(3), "its process is alive) is between steps, after step 2"));
    assert_int_equal(status->verdict, 2);
    assert_string_equal(status->rule, "timeout");
    free(status);
    arena_free(y.arena);
}

/* If the positions of the other ranks are unknown, the message says so. */
static void without_a_launcher_it_says_so(void **state)
{
    (void)state;
    Synthetic y = {.arena = arena_new()};
    make_every_transfer(&y, DT_f32);
    const Ending e = {.plan = y.plan,
                      .arena = y.arena,
                      .rank = 3,
                      .n_ranks = RANKS,
                      .abort = end,
                      .record = record};
    run_out_of_time(&e, NULL, 0, 2);
    assert_int_equal(exit_code, 6);
    assert_non_null(
        strstr(told, "rank 3 waited 2.0 s for the other ranks; the positions of the other ranks"));
    arena_free(y.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_names_every_rank),
        cmocka_unit_test(without_a_launcher_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
