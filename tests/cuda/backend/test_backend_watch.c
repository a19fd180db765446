/* When a run must end because ranks wait too long, and when it must continue. Work that only takes
 * long (opening, poison, capturing, data) is not a hang, however short the timeout is. A hang is
 * reported within the timeout and some seconds. The report names the instruction, the communicator
 * and the missing ranks. */
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

#include "tests/cuda/backend/ranks.h"
#include "tests/cuda/double/double.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

#define HANG_ALONE_S 2.0 /* for runs of one process, which no other process delays */

static RanksRun run_of(uint32_t shard, double timeout_s)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.groups = 2, t.head_dim = 2, t.dim = 6, t.hidden = 8, t.vocab = 11, t.layers = 1;
    t.dp_shard = shard;
    t.microbatches = 2;
    RanksRun run = {.plan = tiny_plan(&t, false, arena, &d),
                    .data = data_synthetic(3, 11, 0, arena)};
    assert_non_null(run.plan);
    run.options.timeout_s = timeout_s;
    return run;
}

static bool is_rank(const char *rank)
{
    const char *mine = getenv("RANK");
    return mine != NULL && strcmp(mine, rank) == 0;
}

/* Time limits [s]. FAR_S is a deadline so late that errors must be reported long before it, within
 * SOON_S. HANG_S is the deadline of runs that hang: long enough for the run to reach the hang, even
 * if many processes share the cores. SLOW_S is shorter than the work that only takes long. */
#define FAR_S  900
#define SOON_S 100
#define HANG_S 8
#define SLOW_S 4

/* ---- work that only takes long ---- */

static void late_fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                      int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)first;
    if (step == 0 && microbatch == 0 && is_rank("1")) usleep(SLOW_S * 1500000);
    for (int64_t i = 0; i < n * seq; i++) tokens[i] = labels[i] = (int32_t)(i % 11);
}

static void slow_work_is_no_hang(void **state)
{
    (void)state;
    static const DataSource late = {.self = NULL, .fill = late_fill};
    static const struct {
        const char *script;
        CudaGraphs graphs;
        bool poison, is_late;
    } cases[] = {
        {"cublasLtCreate@1=slow:6000", CUDA_GRAPHS_none, false, false},
        {"ncclCommInitRankConfig@1=slow:6000", CUDA_GRAPHS_none, false, false},
        {"ncclCommWindowRegister@1=slow:6000", CUDA_GRAPHS_none, false, false},
        {"cudaGraphInstantiate@1=slow:6000", CUDA_GRAPHS_whole, false, false},
        /* events of the traced step */
        {"cudaEventCreate@3=slow:6000", CUDA_GRAPHS_cut, false, false},
        {"cudaEventElapsedTime@3=slow:6000", CUDA_GRAPHS_cut, false, false},
        {"cudaMemcpy@9=slow:6000", CUDA_GRAPHS_none, true, false},
        {"", CUDA_GRAPHS_none, false, true},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    RanksRun runs[N];
    for (size_t i = 0; i < N; i++) {
        runs[i] = run_of(2, SLOW_S);
        runs[i].script = arena_print(arena, "seed=3 rank=1 %s", cases[i].script);
        runs[i].cuda.graphs = cases[i].graphs;
        runs[i].options.poison = cases[i].poison;
        runs[i].trace = true;
        if (cases[i].is_late) runs[i].data = &late;
    }
    ranks_run_all(runs, N, arena);
    for (size_t i = 0; i < N; i++)
        for (Rank r = 0; r < 2; r++)
            if (!runs[i].rank[r].fine)
                fail_msg("%s: rank %u: %s%s", runs[i].script, r, runs[i].rank[r].said,
                         runs[i].errors);
}

/* ---- hangs, faults and deaths ---- */

static void dying_fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                       int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)first, (void)microbatch, (void)step;
    if (is_rank("1")) raise(SIGKILL);
    memset(tokens, 0, (size_t)(n * seq) * sizeof *tokens);
    memset(labels, 0, (size_t)(n * seq) * sizeof *labels);
}

static bool is_told(const RanksRun *run, const char *what)
{
    return strstr(run->errors, what) || strstr(run->rank[0].said, what) ||
           strstr(run->rank[1].said, what);
}

static void hangs_and_deaths_are_reported_in_time(void **state)
{
    (void)state;
    static const DataSource dying = {.self = NULL, .fill = dying_fill};
    static const struct {
        const char *script, *told, *too;
        CudaGraphs graphs;
        bool dies;
        double timeout_s;
    } cases[] = {
        /* Between the first use of the communicators and the first step. */
        {"", "rank 1 has closed its connection", "error[rank-died]", CUDA_GRAPHS_none, true, FAR_S},
        {"ncclCommWindowRegister@1=kill", "rank 1 has closed its connection", "", CUDA_GRAPHS_none,
         false, FAR_S},
        {"cudaGraphInstantiate@1=kill", "rank 1 has closed its connection", "", CUDA_GRAPHS_whole,
         false, FAR_S},
        /* One rank's device is lost while the other ranks wait for it. Its first 60 or so launches
           load kernels, before communicators exist. */
        {"kernel@70=fault:700", "step 0: rank 1: cudaEventQuery: ",
         "\n  compute: at or after instr", CUDA_GRAPHS_none, false, FAR_S},
        {"kernel@122=fault:719", ": rank 1: cudaEventQuery: ", ": at or after instruction",
         CUDA_GRAPHS_cut, false, FAR_S},
        /* The report names the rank that does not arrive, and the instruction that it should have
           reached. */
        {"ncclAllReduce@2=hang", "error[timeout]: rank ", "to open dp_shard on dp_reduce of 2",
         CUDA_GRAPHS_none, false, HANG_S},
        {"ncclAllReduce@4=hang", "error[timeout]: step 0: rank ", "all_reduce dp_shard",
         CUDA_GRAPHS_none, false, HANG_S},
        {"ncclReduceScatter@6=hang", "error[timeout]: step 1: rank ", "dp_reduce reduce_scatter",
         CUDA_GRAPHS_whole, false, HANG_S},
        /* NCCL cannot abort this on the device, so no code waits for it after the report. */
        {"ncclAllGather@3=stays ncclReduceScatter@2=fail:3", "ncclReduceScatter: internal error",
         "error[nccl]", CUDA_GRAPHS_none, false, FAR_S},
        {"ncclAllGather@3=stays", "error[timeout]: step 0: rank ", "all_gather dp_shard",
         CUDA_GRAPHS_none, false, HANG_S},
        {"ncclAllReduce@2=stays", "to open dp_shard on dp_reduce of 2", "error[timeout]: rank ",
         CUDA_GRAPHS_none, false, HANG_S},
        {"ncclAllReduce@2=stays ncclCommAbort@1=hang", "to open dp_shard on dp_reduce of 2",
         "error[timeout]: rank ", CUDA_GRAPHS_none, false, HANG_S},
        /* If a host does not return from a call, the report says so. */
        {"cudaGraphInstantiate@1=stop", "its process is stopped) is preparing step 1 on the host",
         "error[timeout]", CUDA_GRAPHS_whole, false, HANG_S},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    RanksRun runs[N];
    for (size_t i = 0; i < N; i++) {
        runs[i] = run_of(2, cases[i].timeout_s);
        runs[i].script = arena_print(arena, "seed=3 rank=1 %s", cases[i].script);
        runs[i].cuda.graphs = cases[i].graphs;
        runs[i].cuda.patience_s = cases[i].timeout_s;
        if (cases[i].dies) runs[i].data = &dying;
    }
    ranks_run_all(runs, N, arena);
    for (size_t i = 0; i < N; i++) {
        const RanksRun *run = &runs[i];
        if (run->rank[0].fine || run->rank[1].fine || !is_told(run, cases[i].told) ||
            !is_told(run, cases[i].too))
            fail_msg("%s: %s| %s| %s", run->script, run->errors, run->rank[0].said,
                     run->rank[1].said);
        if (run->took_s > SOON_S) fail_msg("%s: it took %g s", run->script, run->took_s);
    }
}

/* Runs one rank, which ends its process. Returns its exit code and its standard error. */
static int told_at_the_end(RanksRun *run, char *text, size_t room)
{
    FILE *errors = tmpfile();
    int status = 0;
    assert_non_null(errors);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(errors), STDERR_FILENO);
        ranks_run(run, arena);
        _exit(run->rank[0].fine ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(errors);
    text[fread(text, 1, room - 1, errors)] = 0;
    fclose(errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* No other rank misses a single rank. So the run must end by itself, and report where the device
 * is. */
static void a_hanging_kernel_of_one_rank_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        CudaGraphs graphs;
        unsigned step;
    } cases[] = {{"kernel@9=hang", CUDA_GRAPHS_none, 0},
                 {"queue=4 kernel@9=hang", CUDA_GRAPHS_none, 0},
                 {"kernel@150=hang", CUDA_GRAPHS_cut, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        RanksRun run = run_of(1, HANG_ALONE_S);
        run.script = arena_print(arena, "seed=3 %s", cases[i].script);
        run.cuda.graphs = cases[i].graphs;
        const char *told = arena_print(
            arena, "error[timeout]: step %u: the device has not gone on for ", cases[i].step);
        int code = told_at_the_end(&run, text, sizeof text);
        if (code != 6 || !strstr(text, told) ||
            !strstr(text, "\n  compute: at or after instruction"))
            fail_msg("%s: exit %d: %s", run.script, code, text);
    }
}

/* Counts the kernels or, if `gathers`, the all_gathers of a step. */
static uint32_t count(const Program *p, bool gathers)
{
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        bool is_kernel = in->stream == STREAM_compute && in->op != OP_batch && in->op != OP_copy;
        n += gathers ? in->op == OP_all_gather : is_kernel;
    }
    return n;
}

/* The step is run again to find a bad number. One rank stops in it, and the other fails there. Its
 * streams wait for ever. So would any code that frees the search's pinned memory. */
static void an_error_is_reported_before_any_wait(void **state)
{
    (void)state;
    RanksRun run = run_of(2, FAR_S);
    const Program *p = &run.plan->programs.at[0];
    run.lr = 1e38; /* the second step overflows */
    run.cuda.graphs = CUDA_GRAPHS_none;
    run.script = arena_print(arena, "seed=3 rank=0 kernel@%u=fail:719 rank=1 ncclAllGather@%u=stop",
                             3 * count(p, false) - 1, 2 * count(p, true) + 1);
    ranks_run(&run, arena);
    if (run.rank[0].fine || !is_told(&run, "error[cuda]: rank 0, instruction") ||
        !is_told(&run, ": the kernel of ") || run.took_s > SOON_S)
        fail_msg("%s: after %g s: %s| %s", run.script, run.took_s, run.errors, run.rank[0].said);
}

/* ---- the files of --record ---- */

static const char *take_file(const char *folder, Rank r)
{
    const char *path = arena_print(arena, "%s/rank-%u.txt", folder, r);
    FILE *f = fopen(path, "r");
    enum { MOST = 16384 };
    char *text = arena_alloc(arena, MOST);
    assert_non_null(f);
    text[fread(text, 1, MOST - 1, f)] = 0;
    fclose(f);
    unlink(path);
    return text;
}

/* A rank that ends before the others has not died. */
static void ranks_may_end_at_different_times(void **state)
{
    (void)state;
    char *folder = arena_print(arena, "/tmp/tandem-record-XXXXXX");
    assert_non_null(mkdtemp(folder));
    RanksRun run = run_of(2, FAR_S);
    run.script = "rank=1 ncclCommFinalize@1=slow:2000";
    run.cuda.record = folder;
    ranks_run(&run, arena);
    for (Rank r = 0; r < 2; r++) {
        const char *text = take_file(folder, r);
        if (!strstr(text, " is over\n") || strstr(text, "error[")) fail_msg("%s", text);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* For each match number, compares the lines of both files that mention it. */
static void each_rank_keeps_a_record(void **state)
{
    (void)state;
    static const struct {
        const char *script, *in[2];
    } cases[] = {
        {"", {" is over\n", " is over\n"}},
        {"rank=1 ncclAllGather@3=hang", {" error[", " has begun instruction"}},
        {"rank=1 ncclAllGather@4=stop", {"error[timeout]: step ", " step 0 is "}},
        {"rank=1 kernel@70=kill", {" step 0 is ", " step 0 is "}},
        {"rank=1 kernel@70=fault:700", {" step 0 is ", "error[cuda]: step 0: rank 1"}},
        {"queue=4 rank=1 ncclAllGather@2=hang", {" step 0 is ", "error[timeout]: step 0: rank"}},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    RanksRun runs[N];
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < N; i++) {
        char *folder = arena_print(arena, "/tmp/tandem-record-XXXXXX");
        assert_non_null(mkdtemp(folder));
        runs[i] = run_of(2, HANG_S);
        runs[i].script = arena_print(arena, "seed=3 %s", cases[i].script);
        runs[i].cuda.record = folder;
        runs[i].cuda.graphs = CUDA_GRAPHS_none;
    }
    ranks_run_all(runs, N, arena);
    for (size_t i = 0; i < N; i++)
        for (Rank r = 0; r < 2; r++) {
            const char *text = take_file(runs[i].cuda.record, r);
            const char *who = arena_print(arena, "rank %u on %s: of 2 ranks, pid ", r, host);
            if (strncmp(text, who, strlen(who)) != 0 || !strstr(text, cases[i].in[r]))
                fail_msg("%s: rank %u: %s| %s| %s", runs[i].script, r, text, runs[i].rank[r].said,
                         runs[i].errors);
        }
    for (size_t i = 0; i < N; i++) assert_int_equal(rmdir(runs[i].cuda.record), 0);
    RanksRun run = run_of(1, 2);
    run.cuda.record = "/proc/nowhere";
    ranks_run(&run, arena);
    assert_non_null(
        strstr(run.rank[0].said, "error[rank-record]: cannot make the folder /proc/no"));
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slow_work_is_no_hang, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(ranks_may_end_at_different_times, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(hangs_and_deaths_are_reported_in_time, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_hanging_kernel_of_one_rank_is_reported, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(an_error_is_reported_before_any_wait, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(each_rank_keeps_a_record, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
