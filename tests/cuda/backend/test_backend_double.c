/* Tests the double of CUDA itself: it must find the faults for which it was made. A race gives
 * different results with different seeds, and a missing wait in a plan changes its numbers. The
 * host cannot touch device memory. Calls that CUDA forbids are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/backend/ranks.h"
#include "tests/cuda/double/double.h"
#include "tests/support/plans/tiny.h"

static cudaStream_t stream[2];
static cudaEvent_t event;
static int *host, *device;

static void begin(const char *script)
{
    double_begin(script);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamCreateWithPriority(&stream[i], cudaStreamNonBlocking, 0), 0);
    assert_int_equal(cudaEventCreate(&event), 0);
    assert_int_equal(cudaMallocHost((void **)&host, 64), 0);
    assert_int_equal(cudaMalloc((void **)&device, 64), 0);
}

static void end(void)
{
    Arena *arena = arena_new();
    Str s = str_in(arena);
    for (int i = 0; i < 2; i++) cudaStreamDestroy(stream[i]);
    cudaEventDestroy(event);
    assert_false(double_is_clean(&s));
    cudaFreeHost(host);
    assert_non_null(strstr(str_text(&s), "1 device block(s) not released"));
    cudaFree(device);
    assert_true(double_is_clean(&s));
    arena_free(arena);
}

/* host[0] is copied to the device on one stream and back to host[1] on another. */
static int through(const char *script, bool waits)
{
    begin(script);
    host[0] = 5;
    host[1] = 0;
    cudaMemset(device, 0, 64);
    cudaStreamSynchronize(cudaStreamLegacy);
    cudaMemcpyAsync(device, host, 4, cudaMemcpyHostToDevice, stream[0]);
    cudaEventRecord(event, stream[0]);
    if (waits) cudaStreamWaitEvent(stream[1], event, 0);
    cudaMemcpyAsync(host + 1, device, 4, cudaMemcpyDeviceToHost, stream[1]);
    assert_int_equal(host[1], 0); /* the late copy has not run */
    assert_int_equal(cudaDeviceSynchronize(), 0);
    int result = host[1];
    end();
    return result;
}

static void a_missing_wait_changes_results(void **state)
{
    (void)state;
    int right = 0, wrong = 0;
    for (int seed = 0; seed < 20; seed++) {
        char script[32];
        snprintf(script, sizeof script, "seed=%d", seed);
        assert_int_equal(through(script, true), 5);
        if (through(script, false) == 5)
            right++;
        else
            wrong++;
    }
    assert_true(right > 0 && wrong > 0);
}

/* The host's synchronous writes use no stream. They arrive at any time, and our streams do not wait
 * for them. */
static void the_default_stream_writes_late(void **state)
{
    (void)state;
    int pageable = 9;
    begin("seed=1");
    cudaMemcpy(device, &pageable, 4, cudaMemcpyHostToDevice);
    cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, stream[0]);
    cudaStreamSynchronize(stream[0]);
    assert_int_not_equal(host[0], 9);
    cudaStreamSynchronize(cudaStreamLegacy);
    cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, stream[0]);
    cudaStreamSynchronize(stream[0]);
    assert_int_equal(host[0], 9);
    end();
}

/* A copy may write a word twice. If the host clears the word as soon as it reads it, the word may
 * come back. */
static void a_copy_may_write_again(void **state)
{
    (void)state;
    int once = 0, again = 0;
    for (int seed = 0; seed < 40; seed++) {
        char script[32];
        snprintf(script, sizeof script, "seed=%d", seed);
        begin(script);
        cudaMemset(device, 1, 64);
        cudaStreamSynchronize(cudaStreamLegacy);
        host[0] = 0;
        cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, stream[0]);
        cudaEventRecord(event, stream[0]);
        while (host[0] == 0) cudaEventQuery(event);
        host[0] = 0;
        assert_int_equal(cudaDeviceSynchronize(), 0);
        if (host[0] == 0)
            once++;
        else
            again++;
        end();
    }
    assert_true(once > 0 && again > 0);
}

/* Runs `what` in a child process. Returns the signal that ended it; 0 if it ended normally. If
 * `follows` is true, the child may go on with its parent's double. */
static int signal_of_child(void (*what)(void), bool follows)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        (void)freopen("/dev/null", "w", stderr);
        if (follows) double_follow();
        what();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int signal_of(void (*what)(void))
{
    return signal_of_child(what, true);
}

static void count_devices(void)
{
    int n;
    cudaGetDeviceCount(&n);
}

/* Outside of this test, a child that uses CUDA after its parent did ends the test. */
static void a_child_of_a_user_of_cuda_is_refused(void **state)
{
    (void)state;
    begin("");
    assert_int_equal(signal_of_child(count_devices, false), SIGABRT);
    assert_int_equal(signal_of_child(count_devices, true), 0);
    end();
}

static void touch_device_memory(void)
{
    *(volatile int *)device = 1;
}

static void the_host_cannot_touch_device_memory(void **state)
{
    (void)state;
    begin("");
    assert_int_equal(signal_of(touch_device_memory), SIGSEGV);
    end();
}

static void copy_neighbours(void)
{
    char *const at = (char *)device;
    cudaMemcpyAsync(at, at + 16, 16, cudaMemcpyDeviceToDevice, stream[0]);
    cudaMemcpy(at + 32, at + 16, 16, cudaMemcpyDeviceToDevice);
}
static void copy_overlapping_later(void)
{
    char *const at = (char *)device;
    cudaMemcpyAsync(at, at + 15, 16, cudaMemcpyDeviceToDevice, stream[0]);
}
static void copy_overlapping(void)
{
    char *const at = (char *)device;
    cudaMemcpy(at + 31, at + 16, 16, cudaMemcpyDeviceToDevice);
}

static void copies_must_not_overlap(void **state)
{
    (void)state;
    begin("");
    assert_int_equal(signal_of(copy_neighbours), 0);
    assert_int_equal(signal_of(copy_overlapping_later), SIGABRT);
    assert_int_equal(signal_of(copy_overlapping), SIGABRT);
    end();
}

/* Captured work runs at each launch of the graph, and not before. The capture fails if a stream is
 * not joined, or if a call is made that a capture forbids. */
static void captured_work_runs_only_at_launches(void **state)
{
    (void)state;
    begin("seed=3");
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    for (int how = 0; how < 3; how++) { /* joined, not joined, with an allocation inside */
        host[0] = 7;
        cudaMemset(device, 0, 64);
        cudaStreamSynchronize(cudaStreamLegacy);
        assert_int_equal(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal), 0);
        cudaEventRecord(event, stream[0]);
        cudaStreamWaitEvent(stream[1], event, 0);
        cudaMemcpyAsync(device, host, 4, cudaMemcpyHostToDevice, stream[1]);
        cudaEventRecord(event, stream[1]);
        if (how != 1) cudaStreamWaitEvent(stream[0], event, 0);
        void *more = NULL;
        if (how == 2) assert_int_equal(cudaMalloc(&more, 8), cudaErrorStreamCaptureUnsupported);
        cudaMemcpyAsync(host + 1, device, 4, cudaMemcpyDeviceToHost, stream[0]);
        cudaError_t error = cudaStreamEndCapture(stream[0], &graph);
        assert_int_equal(error, how == 0   ? cudaSuccess
                                : how == 1 ? cudaErrorStreamCaptureUnjoined
                                           : cudaErrorStreamCaptureInvalidated);
        if (how > 0) continue;
        assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), 0);
        cudaGraphDestroy(graph);
        for (int k = 0; k < 3; k++) {
            host[0] = 10 + k;
            host[1] = 0;
            assert_int_equal(cudaGraphLaunch(exec, stream[0]), 0);
            assert_int_equal(host[1], 0);
            cudaStreamSynchronize(stream[0]);
            assert_int_equal(host[1], 10 + k);
        }
        cudaGraphExecDestroy(exec);
    }
    assert_int_equal(cudaEventRecordWithFlags(event, stream[0], cudaEventRecordExternal),
                     cudaErrorIllegalState);
    end();
}

/* ---- plans with one wait removed ---- */

static Plan *tensor_plan(Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.tp = 2;
    t.tp_options.sequence = true;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    return plan;
}

static RanksRun case_of(const Plan *plan, const char *script, Arena *arena)
{
    return (RanksRun){.plan = plan,
                      .data = data_synthetic(3, 29, 0.1, arena),
                      .steps = 1,
                      .script = script,
                      .options.poison = true};
}

static bool differs(const RanksRun *run, const RankReport *right)
{
    const RankReport *r = &run->rank[0];
    return !r->fine || r->loss[0] != right->loss[0] || r->norm[0] != right->norm[0];
}

/* Returns a script that lets stream `first` run before all others. The backend creates the streams
 * that a program uses in the order of the enumeration. The queues hold a whole step, so nothing
 * runs before all of it is issued. */
static const char *script_for(Stream first, const Program *p, Arena *arena)
{
    uint32_t number = 1;
    for (Stream s = STREAM_none + 1; s < first; s++) {
        bool used = false;
        for (Pc pc = 1; pc < p->code.n; pc++) used = used || p->code.at[pc].stream == s;
        number += used;
    }
    return arena_print(arena, "first=%u queue=100000", number);
}

/* Returns true if the instruction waits only for fills. These write zeros to padding, which has
 * held zeros since the start. So leaving out this wait changes nothing. */
static bool waits_for_padding(const Program *p, const Instr *in)
{
    for (uint32_t k = 0; k < in->after.n; k++)
        if (p->code.at[p->after.at[in->after.first + k]].op != OP_fill) return false;
    return true;
}

/* If a wait is removed, its instruction runs as early as the other waits allow. The result must
 * then differ, whatever the load of this machine. */
static void each_missing_wait_changes_results(void **state)
{
    (void)state;
    enum { SEEDS = 6, MOST = 100 };
    Arena *arena = arena_new();
    const Plan *whole = tensor_plan(arena);
    RanksRun right = {.plan = whole, .data = data_synthetic(3, 29, 0.1, arena), .steps = 1};
    ranks_loopback(&right, arena);
    const Program *p = &whole->programs.at[0];
    RanksRun legal[SEEDS + STREAM_COUNT], runs[MOST];
    uint32_t n_legal = 0, n = 0, n_of[STREAM_COUNT] = {0};
    Pc pc_of[MOST];
    for (int seed = 1; seed <= SEEDS; seed++)
        legal[n_legal++] = case_of(whole, arena_print(arena, "seed=%d", seed), arena);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->after.n == 0 || waits_for_padding(p, in)) continue;
        const char *script = script_for(in->stream, p, arena);
        if (n_of[in->stream]++ == 0) legal[n_legal++] = case_of(whole, script, arena);
        Plan *plan = tensor_plan(arena);
        plan->programs.at[0].code.at[pc].after.n = 0;
        assert_true(n < MOST);
        pc_of[n] = pc;
        runs[n++] = case_of(plan, script, arena);
    }
    ranks_run_all(legal, n_legal, arena);
    ranks_run_all(runs, n, arena);
    for (uint32_t i = 0; i < n_legal; i++)
        if (differs(&legal[i], right.rank)) fail_msg("%s: another result", legal[i].script);
    for (uint32_t i = 0; i < n; i++)
        if (!differs(&runs[i], right.rank)) fail_msg("the wait of %u is not missed", pc_of[i]);
    assert_true(n_of[STREAM_compute] > 20 && n_of[STREAM_tp] > 20);
    arena_free(arena);
}

/* A device may run branches of a graph one at a time. If each device has its own order, ranks wait
 * for each other for ever. In the order of capture, which is the order of issue, they do not
 * (docs/explanation/gpus.md). */
static void branches_in_any_order_wait_for_each_other(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.pp = 2;
    t.microbatches = 4;
    RanksRun run = {.plan = tiny_plan(&t, false, arena, &d),
                    .data = data_synthetic(3, 29, 0.1, arena)};
    assert_non_null(run.plan);
    run.cuda.graphs = CUDA_GRAPHS_whole;
    run.script = "seed=12 branches=serial";
    ranks_run(&run, arena);
    if (!run.rank[0].fine || !run.rank[1].fine) fail_msg("%s", run.rank[0].said);
    /* How often the device draws an order depends on the machine's load, so any step may get
     * stuck. */
    run.options.timeout_s = 6;
    run.steps = 50;
    run.script = "seed=12 branches=drawn";
    ranks_run(&run, arena);
    assert_false(run.rank[0].fine);
    if (!strstr(run.errors, "error[timeout]: step "))
        fail_msg("%s| %s", run.errors, run.rank[0].said);
    arena_free(arena);
}

/* Changes the plan: the product of the last fused gated unit now overwrites one of its inputs,
 * unlike the others. */
static void write_in_place(Plan *plan)
{
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        uint32_t n = 0;
        Pc last = 0;
        for (Pc pc = 2; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (in->op != OP_mul || p->code.at[pc - 1].op != OP_silu || !in->fuse) continue;
            n++;
            last = pc;
        }
        assert_true(n >= 2);
        const Instr *in = &p->code.at[last];
        const Buffer *up = &p->buffers.at[program_arg(p, in, 1)];
        Buffer *out = &p->buffers.at[program_arg(p, in, 2)];
        assert_true(!up->parent && !out->parent && up->bytes == out->bytes);
        out->offset = up->offset;
    }
}

/* A fused kernel may refuse such buffers, so this launch may need another kernel than the other
 * launches. All kernels must be loaded before communicators exist. */
static void launches_on_coinciding_buffers_are_loaded_early(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.dp_shard = 2;
    t.compile = true;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    write_in_place(plan);
    RanksRun run = {.plan = plan, .data = data_synthetic(3, 29, 0.1, arena), .steps = 1};
    run.script = "seed=5";
    run.cuda.graphs = CUDA_GRAPHS_none;
    ranks_run(&run, arena);
    for (Rank r = 0; r < 2; r++)
        if (!run.rank[r].fine) fail_msg("rank %u: %s%s", r, run.rank[r].said, run.errors);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_on_coinciding_buffers_are_loaded_early),
        cmocka_unit_test(a_missing_wait_changes_results),
        cmocka_unit_test(the_default_stream_writes_late),
        cmocka_unit_test(a_copy_may_write_again),
        cmocka_unit_test(a_child_of_a_user_of_cuda_is_refused),
        cmocka_unit_test(the_host_cannot_touch_device_memory),
        cmocka_unit_test(copies_must_not_overlap),
        cmocka_unit_test(captured_work_runs_only_at_launches),
        cmocka_unit_test(each_missing_wait_changes_results),
        cmocka_unit_test(branches_in_any_order_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
