/* Every CUDA and NCCL call of the backend is made to fail, one at a time. The run must end with
 * code 6 and a diagnostic that names the call, and must leave nothing behind. The test also checks
 * how other ranks react when a rank fails, hangs, stops or dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/backend/ranks.h"
#include "tests/cuda/double/double.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static Plan *plan_of(uint32_t shard, bool offload)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.groups = 2, t.head_dim = 2, t.dim = 6, t.hidden = 8, t.vocab = 11, t.layers = 1;
    t.dp_shard = shard;
    t.microbatches = 4;
    t.fsdp2.offload = offload;
    t.clip = 1;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    return plan;
}

static Plan *registered(Plan *plan)
{
    plan->nccl.registration = NCCL_REGISTER_buffer;
    return plan;
}

/* Two stages that send each other messages. */
static Plan *pipeline(void)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.groups = 2, t.head_dim = 2, t.dim = 6, t.hidden = 8, t.vocab = 11, t.layers = 2;
    t.pp = 2;
    t.microbatches = 4;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    return plan;
}

static RanksRun run_of(Plan *plan)
{
    RanksRun run = {.plan = plan, .data = data_synthetic(3, 11, 0, arena), .trace = true};
    run.cuda.graphs = CUDA_GRAPHS_cut;
    return run;
}

/* ---- one rank: each call, the first time, the last, and in between ---- */

static const struct Call {
    const char *name;
    int code;
    const char *rule; /* NULL: the call only releases something, so its failure is not reported */
} calls[] = {
    {"cudaGetDeviceCount", 100, "cuda-no-device"},
    {"cudaGetDeviceCount", 35, "cuda-driver"},
    {"cudaSetDevice", 101, "cuda"},
    {"cudaGetDeviceProperties", 1, "cuda"},
    {"cudaMemGetInfo", 1, "cuda"},
    {"cudaDriverGetVersion", 1, "cuda"},
    {"cudaRuntimeGetVersion", 1, "cuda"},
    {"ncclGetVersion", 3, "nccl"},
    {"cudaMalloc", 2, "cuda-memory"},
    {"cudaMallocHost", 2, "cuda-memory"},
    {"cudaMemset", 1, "cuda"},
    {"cudaMemcpy", 700, "cuda"},
    {"cudaMemcpyAsync", 700, "cuda"},
    {"cudaDeviceGetStreamPriorityRange", 1, "cuda"},
    {"cudaStreamCreateWithPriority", 2, "cuda-memory"},
    {"cudaEventCreateWithFlags", 2, "cuda-memory"},
    {"cudaEventCreate", 2, "cuda-memory"},
    {"cudaEventRecord", 700, "cuda"},
    {"cudaEventRecordWithFlags", 700, "cuda"},
    {"cudaEventQuery", 700, "cuda"},
    {"cudaEventElapsedTime", 400, "cuda"},
    {"cudaStreamBeginCapture", 900, "cuda"},
    {"cudaStreamEndCapture", 901, "cuda"},
    {"cudaGraphInstantiate", 2, "cuda-memory"},
    {"cudaGraphUpload", 2, "cuda-memory"},
    {"cudaGraphLaunch", 700, "cuda"},
    {"cudaMemsetAsync", 700, "cuda"},
    {"cudaStreamSynchronize", 700, "cuda"},
    {"init", 719, "cuda"},
    {"kernel", 719, "cuda"},
    {"cudaFree", 700, NULL},
    {"cudaFreeHost", 700, NULL},
    {"cudaStreamDestroy", 700, NULL},
    {"cudaEventDestroy", 700, NULL},
    {"cudaGraphDestroy", 700, NULL},
    {"cudaGraphExecDestroy", 700, NULL},
};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

static uint32_t fail_at(RanksRun *run, const struct Call *c, uint32_t nth)
{
    char script[96];
    snprintf(script, sizeof script, "seed=2 %s@%u=fail:%d", c->name, nth, c->code);
    run->script = script;
    ranks_run(run, arena);
    const char *said = run->rank[0].said;
    if (run->rank[0].fine || strstr(said, arena_print(arena, "error[%s]", c->rule)) == NULL ||
        strstr(said, c->name) == NULL || strstr(said, "not released") != NULL)
        fail_msg("%s: %s", script, *said ? said : "it went well");
    /* The place that a message must name: the instruction of a kernel, the tensor of initial
     * values, or the step if a wait for the device fails. */
    const char *place = strcmp(c->name, "kernel") == 0           ? "instruction"
                        : strcmp(c->name, "init") == 0           ? "initial values of "
                        : strcmp(c->name, "cudaEventQuery") == 0 ? "step "
                                                                 : "exec/cuda/";
    assert_non_null(strstr(said, place));
    return 1;
}

static void each_call_fails_and_is_named(void **state)
{
    (void)state;
    RanksRun run = run_of(plan_of(1, false));
    run.options.measure = true;
    run.script = "seed=2";
    ranks_run(&run, arena);
    if (!run.rank[0].fine) fail_msg("%s", run.rank[0].said);
    uint32_t total[N_CALLS], n_failed = 0;
    for (uint32_t i = 0; i < N_CALLS; i++) total[i] = double_calls(calls[i].name);
    for (uint32_t i = 0; i < N_CALLS; i++) {
        if (total[i] == 0) fail_msg("%s is never called", calls[i].name);
        if (calls[i].rule == NULL) continue;
        uint32_t last = total[i], nth[] = {1, 2, last / 2, last};
        for (int k = 0; k < 4; k++) {
            bool again = nth[k] == 0 || nth[k] > last;
            for (int j = 0; j < k; j++) again = again || nth[j] == nth[k];
            if (!again) n_failed += fail_at(&run, &calls[i], nth[k]);
        }
    }
    printf("%u calls failed, each was named\n", n_failed);
    assert_true(n_failed > 60);
}

static void what_a_machine_lacks_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *script, *told;
        uint32_t device;
    } cases[] = {
        {"devices=0", "error[cuda-no-device]", 0},
        {"driver=12090", "error[cuda-driver]: rank 0, exec/cuda/device.c", 0},
        {"capability=75", "has compute capability 7.5, but 8.0 is needed", 0},
        {"memory=20000", "error[cuda-memory]: rank 0, exec/cuda/memory.c", 0},
        {"memory=20000", "hint: the arena needs ", 0},
        {"devices=2", "there is no device 4; CUDA shows 2 devices here, counted from 0", 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RanksRun run = run_of(plan_of(1, false));
        run.script = cases[i].script;
        run.cuda.device = cases[i].device;
        ranks_run(&run, arena);
        if (run.rank[0].fine || !strstr(run.rank[0].said, cases[i].told) ||
            strstr(run.rank[0].said, "not released"))
            fail_msg("%s: %s", cases[i].script, run.rank[0].said);
    }
}

/* ---- two ranks ---- */

/* Time limits [s]. FAR_S is a deadline so late that errors must be reported long before it, within
 * SOON_S. HANG_S is the deadline of runs that hang: long enough for the run to reach the hang, even
 * if many processes share the cores. */
#define FAR_S  900
#define SOON_S 100
#define HANG_S 8

static void told(const RanksRun *run, const char *what, const char *by_any)
{
    bool found = strstr(run->errors, by_any) != NULL;
    for (Rank r = 0; r < run->plan->mesh.n_ranks; r++) {
        if (run->rank[r].fine) fail_msg("%s: rank %u went on", what, r);
        found = found || strstr(run->rank[r].said, by_any) != NULL;
    }
    if (!found)
        fail_msg("%s: nobody said \"%s\" but: %s| %s| %s", what, by_any, run->errors,
                 run->rank[0].said, run->rank[1].said);
}

static void a_rank_that_fails_ends_the_others(void **state)
{
    (void)state;
    static const struct {
        const char *script, *told;
    } cases[] = {
        {"ncclGetUniqueId@1=fail:2", "ncclGetUniqueId: unhandled system error"},
        {"ncclMemAlloc@1=fail:2", "ncclMemAlloc: unhandled system error"},
        {"ncclCommInitRankConfig@1=fail:5", "ncclCommInitRankConfig: invalid usage"},
        {"ncclCommInitRankConfig@1=async:6", "exited or there was a network error"},
        {"ncclCommSplit@1=fail:3", "ncclCommSplit: internal error"},
        {"ncclCommSplit@1=async:6", "ncclCommSplit: remote process exited"},
        {"ncclCommGetAsyncError@3=fail:4", "invalid argument"},
        {"ncclCommRegister@1=fail:1", "ncclCommRegister: unhandled cuda error"},
        {"ncclGroupStart@1=fail:3", "ncclGroupStart: internal error"},
        {"ncclGroupEnd@1=fail:5", "ncclGroupEnd: invalid usage"},
        {"ncclSend@1=fail:5", "ncclSend: invalid usage"},
        {"ncclRecv@2=fail:5", "ncclRecv: invalid usage"},
        {"ncclAllReduce@1=fail:5", "ncclAllReduce: invalid usage"},
        {"ncclAllGather@2=fail:6", "ncclAllGather: remote process exited"},
        {"ncclReduceScatter@2=async:6", "remote process exited"},
        {"cudaEventQuery@9=fail:700", "cudaEventQuery"},
        {"cudaLaunchHostFunc@1=fail:1", "cudaLaunchHostFunc"},
        {"cudaStreamWaitEvent@5=fail:700", "cudaStreamWaitEvent"},
        {"cudaMalloc@2=fail:2", "rank 1 could not begin"},
        {"kernel@9=fail:719", "the kernel of"},
        {"cudaGetDeviceCount@1=fail:100", "rank 1 could not begin"},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    RanksRun runs[N];
    for (size_t i = 0; i < N; i++) {
        bool by_first = strstr(cases[i].script, "UniqueId") != NULL;
        RanksRun run =
            run_of(strstr(cases[i].script, "ncclSend@") || strstr(cases[i].script, "ncclRecv@")
                       ? registered(pipeline())
                       : registered(plan_of(2, true)));
        run.script = arena_print(arena, "seed=3 %s%s", by_first ? "" : "rank=1 ", cases[i].script);
        run.options.timeout_s = run.cuda.patience_s = FAR_S;
        runs[i] = run;
    }
    ranks_run_all(runs, N, arena);
    for (size_t i = 0; i < N; i++) {
        told(&runs[i], runs[i].script, cases[i].told);
        /* The other ranks must learn of it at once, not at a deadline. */
        if (runs[i].took_s > SOON_S) fail_msg("%s: it took %g s", runs[i].script, runs[i].took_s);
    }
}

static void windows_and_shared_devices_are_checked(void **state)
{
    (void)state;
    RanksRun run = run_of(plan_of(2, false));
    run.options.timeout_s = FAR_S;
    run.script = "ncclCommWindowRegister@1=fail:4";
    ranks_run(&run, arena);
    told(&run, run.script, "ncclCommWindowRegister: invalid argument");
    run.script = "windows=none";
    ranks_run(&run, arena);
    if (!run.rank[0].fine || !run.rank[1].fine) fail_msg("no windows: %s", run.rank[0].said);
    run.script = "uuid=same";
    ranks_run(&run, arena);
    told(&run, run.script, "error[device-shared]: ranks 0 and 1 are both on GPU-01010101-0101");
    run.script = "rank=1 capability=80";
    ranks_run(&run, arena);
    told(&run, run.script, "error[device-mismatch]");
    run.script = "devices=1 rank=1 uuid=same";
    run.cuda.share_device = true; /* as requested, both ranks use device 0 */
    ranks_run(&run, arena);
    if (!run.rank[0].fine || !run.rank[1].fine) fail_msg("shared: %s", run.rank[0].said);
    run.cuda.share_device = false;
    run.script = "devices=0";
    ranks_run(&run, arena);
    told(&run, run.script, "no CUDA");
}

/* The settings of the plan must reach NCCL for every communicator. */
static void the_plans_settings_reach_nccl(void **state)
{
    (void)state;
    static const struct {
        NcclSettings asks;
        const char *seen;
    } cases[] = {
        {{NCCL_REGISTER_auto, NCCL_CTAS_default, 0, 0}, "0-0:0"},
        {{NCCL_REGISTER_buffer, NCCL_CTAS_efficiency, 0, 6}, "0-6:1"},
        {{NCCL_REGISTER_window, NCCL_CTAS_zero, 2, 8}, "2-8:2"},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < N; k++) {
            Plan *plan = plan_of(2, false);
            plan->nccl = cases[i].asks;
            RanksRun run = run_of(plan);
            run.script = arena_print(arena, "seed=3 ctas=%s", cases[k].seen);
            ranks_run(&run, arena);
            if (i == k ? !run.rank[0].fine || !run.rank[1].fine : run.rank[0].fine)
                fail_msg("%s: %s", run.script, run.rank[0].said);
        }
}

/* A hang is reported at the deadline, a death at once. The message names the instruction. */
static void hangs_stops_and_deaths_are_reported(void **state)
{
    (void)state;
    static const struct {
        const char *script, *told, *too;
        double timeout_s;
    } cases[] = {
        {"ncclCommInitRankConfig@1=hang", "ncclCommInitRankConfig did not end within 8 s", "",
         HANG_S},
        {"ncclCommSplit@1=hang", "did not end within 8 s", "", HANG_S},
        {"ncclAllGather@3=hang", "error[timeout]: step 0: rank ", "all_gather", HANG_S},
        {"ncclReduceScatter@3=hang", "error[timeout]: step ", "reduce_scatter", HANG_S},
        /* The device's queue is full, so the calling thread itself hangs in CUDA. */
        {"queue=4 ncclAllGather@2=hang", "error[timeout]: step 0: rank ", "all_gather", HANG_S},
        {"ncclAllGather@4=stop", "its process is stopped", "the plan expects it to reach", HANG_S},
        /* Aborting NCCL may hang, too. All errors are reported before, and no code waits for it for
           ever. */
        {"ncclReduceScatter@3=fail:3 ncclCommAbort@1=hang", "ncclReduceScatter: internal error", "",
         FAR_S},
        {"ncclCommSplit@2=fail:3 ncclCommAbort@1=hang", "ncclCommSplit: internal error", "", FAR_S},
        {"ncclAllGather@4=kill", "error[rank-died]", "rank 1 has closed its connection", FAR_S},
        {"kernel@110=kill", "error[rank-died]", "rank 1 has closed its connection", FAR_S},
        {"ncclCommSplit@1=kill", "rank 1 has closed its connection", "", FAR_S},
        {"cudaSetDevice@1=kill", "rank 1 has closed its connection", "", FAR_S},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    RanksRun runs[N];
    for (size_t i = 0; i < N; i++) {
        runs[i] = run_of(plan_of(2, false));
        runs[i].script = arena_print(arena, "seed=3 rank=1 %s", cases[i].script);
        runs[i].options.timeout_s = runs[i].cuda.patience_s = cases[i].timeout_s;
        runs[i].cuda.graphs = CUDA_GRAPHS_none;
    }
    ranks_run_all(runs, N, arena);
    for (size_t i = 0; i < N; i++) {
        told(&runs[i], runs[i].script, cases[i].told);
        told(&runs[i], runs[i].script, cases[i].too);
        if (runs[i].took_s > SOON_S) fail_msg("%s: it took %g s", runs[i].script, runs[i].took_s);
    }
}

/* ---- numbers ---- */

static void a_norm_that_is_not_finite_skips_updates(void **state)
{
    (void)state;
    for (uint32_t shard = 1; shard <= 2; shard++) {
        RanksRun run = run_of(plan_of(shard, shard == 2));
        run.lr = 1e38; /* the second step overflows */
        run.script = "seed=4";
        ranks_run(&run, arena);
        assert_false(run.rank[0].fine);
        if (!strstr(run.rank[0].said, "error[not-finite]") ||
            !strstr(run.rank[0].said, "the first bad number is") ||
            !strstr(run.rank[0].said, "made by instruction") ||
            strstr(run.rank[0].said, "not released"))
            fail_msg("%s", run.rank[0].said);
    }
}

static void bad_fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                     int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)microbatch, (void)first;
    for (int64_t i = 0; i < n * seq; i++)
        tokens[i] = labels[i] = step == 2 ? 11 : (int32_t)(i % 11);
}

static void a_token_beyond_the_vocabulary_is_reported(void **state)
{
    (void)state;
    const DataSource data = {.self = NULL, .fill = bad_fill};
    RanksRun run = run_of(plan_of(1, false));
    run.data = &data;
    run.script = "";
    ranks_run(&run, arena);
    assert_false(run.rank[0].fine);
    assert_non_null(strstr(run.rank[0].said, "error[cuda-data]: step 2: rank 0 read a token id "
                                             "that is not in the vocabulary, in instruction"));
}

/* Ranks that torchrun started have no MPI, but communication through the host needs it. */
static void through_the_host_without_mpi_is_refused(void **state)
{
    (void)state;
    RanksRun run = run_of(plan_of(2, false));
    run.cuda.via = CUDA_VIA_host;
    ranks_run(&run, arena);
    for (Rank r = 0; r < 2; r++) {
        assert_int_equal(run.rank[r].exit_code, 6);
        assert_non_null(strstr(run.rank[r].said, "error[cuda-comm]: --via host needs MPI"));
        assert_null(strstr(run.rank[r].said, "not released"));
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_call_fails_and_is_named, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(what_a_machine_lacks_is_reported, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_rank_that_fails_ends_the_others, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(windows_and_shared_devices_are_checked, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(the_plans_settings_reach_nccl, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(hangs_stops_and_deaths_are_reported, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_norm_that_is_not_finite_skips_updates, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(through_the_host_without_mpi_is_refused, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_token_beyond_the_vocabulary_is_reported, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
