/* Attention and its gradient with the instructions of compute capability 9.0, on their emulator,
 * compared with the CPU kernels in fp64. The emulator runs threads in several orders, and lets
 * boxes (copies of tiles into shared memory) and products complete early or late. All must give the
 * same bits. Each rule of those instructions is broken once, and the test must find each fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/number.h"
#include "tests/cuda/attention/attention_case.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/emulator/mma_on_cpu.h"

#include "kernels/cuda/attention/exp2.cuh"

static const AttentionCase cases[] = {
    /* full and partial tiles; groups of heads; several sequences */
    {.dtype = DT_bf16, .b = 1, .s = 128, .T = 128, .g = 1, .r = 1, .E = 128, .causal = true},
    {.dtype = DT_bf16, .b = 2, .s = 37, .T = 37, .g = 2, .r = 2, .E = 64, .causal = true},
    {.dtype = DT_f16, .b = 1, .s = 200, .T = 333, .g = 2, .r = 1, .E = 64},
    {.dtype = DT_f16, .b = 2, .s = 129, .T = 129, .g = 1, .r = 2, .E = 128, .causal = true},
    /* heads that do not fill their tile */
    {.dtype = DT_bf16, .b = 1, .s = 130, .T = 130, .g = 1, .r = 3, .E = 72, .causal = true},
    {.dtype = DT_f16, .b = 1, .s = 65, .T = 65, .g = 2, .r = 1, .E = 40, .causal = true},
    {.dtype = DT_bf16, .b = 1, .s = 1, .T = 1, .g = 1, .r = 1, .E = 8, .causal = true},
    /* more tiles than the ring of slots holds */
    {.dtype = DT_bf16,
     .b = 1,
     .s = 70,
     .T = 700,
     .g = 1,
     .r = 1,
     .E = 64,
     .start_s = 630,
     .causal = true},
    {.dtype = DT_bf16, .b = 1, .s = 257, .T = 520, .g = 1, .r = 1, .E = 128},
    /* a part of the sequence */
    {.dtype = DT_bf16,
     .b = 1,
     .s = 40,
     .T = 300,
     .g = 1,
     .r = 1,
     .E = 128,
     .start_s = 60,
     .causal = true,
     .accumulate = true},
    /* a part in two chunks, of which one ends inside a tile of 128 queries and inside a tile of
     * 64 */
    {.dtype = DT_bf16,
     .b = 1,
     .s = 260,
     .T = 520,
     .g = 1,
     .r = 1,
     .E = 64,
     .second_s = 390,
     .causal = true},
    {.dtype = DT_f16,
     .b = 2,
     .s = 140,
     .T = 560,
     .g = 1,
     .r = 2,
     .E = 128,
     .start_s = 140,
     .second_s = 350,
     .causal = true,
     .accumulate = true},
    {.dtype = DT_bf16, .b = 1, .s = 90, .T = 180, .g = 1, .r = 1, .E = 128, .second_s = 135},
    /* the heads of a group use the ring of slots one after another */
    {.dtype = DT_f16, .b = 1, .s = 200, .T = 70, .g = 1, .r = 3, .E = 64, .accumulate = true},
};

/* Cases with full tiles, whose gradient is one kernel. Several blocks of keys add to a tile of
 * queries, but with a causal mask not all blocks do. Heads are visited in chunks. In some cases,
 * all queries of a tile see no key. */
static const AttentionCase full[] = {
    {.dtype = DT_bf16, .b = 1, .s = 128, .T = 128, .g = 1, .r = 1, .E = 64, .causal = true},
    {.dtype = DT_bf16, .b = 2, .s = 256, .T = 256, .g = 1, .r = 2, .E = 64, .causal = true},
    {.dtype = DT_f16, .b = 1, .s = 128, .T = 384, .g = 2, .r = 1, .E = 40, .accumulate = true},
    {.dtype = DT_f16,
     .b = 1,
     .s = 192,
     .T = 256,
     .g = 1,
     .r = 2,
     .E = 128,
     .start_s = 64,
     .causal = true,
     .accumulate = true},
    {.dtype = DT_bf16, .b = 2, .s = 64, .T = 256, .g = 1, .r = 1, .E = 72},
    {.dtype = DT_bf16,
     .b = 1,
     .s = 256,
     .T = 512,
     .g = 1,
     .r = 1,
     .E = 64,
     .second_s = 384,
     .causal = true},
};

/* A cache for the keys of 3 of the 4 groups of one case, and of one group of most other cases. */
enum { L2_BYTES = 64 * 1024 };

static CudaContext context(void)
{
    return (CudaContext){.n_sms = 1, .compute_capability = 90, .l2_bytes = L2_BYTES};
}

static bool is_one; /* true: one kernel computes the gradient */

static bool call(const AttentionRun *run, const CudaContext *cuda, CudaError *error)
{
    return is_one && run->op == OP_attention_grad
               ? cuda_attention_one(&run->device, cuda, error)
               : cuda_attention_hopper(run->op, &run->device, cuda, error);
}

/* Launches with a schedule of the emulator. Bit 0 of `when`: boxes arrive early; bit 1: products
 * read early. With an odd seed, some warps run far ahead of others. */
static void launch(const AttentionRun *run, uint32_t when, uint64_t seed)
{
    CudaError error = {""};
    const CudaContext cuda = context();
    device_set_seed(seed);
    device_boxes_arrive_early(when & 1);
    device_products_read_early(when >> 1 & 1);
    if (!call(run, &cuda, &error)) fail_msg("%s", error.text);
    compare_check();
    assert_int_equal(device_hopper_under_way(), 0);
}

static size_t out_bytes(const AttentionRun *run, uint32_t o)
{
    const KernelArgs *a = &run->device;
    return (size_t)a->elements[run->n_in + o] * dtype_bytes(a->dtype[run->n_in + o]);
}

/* Checks the log of sums. It is as exact as its polynomials: scores of 16-bit inputs are summed in
 * fp32, and probabilities are added before they are rounded. */
static void sums_are_near(const AttentionRun *run)
{
    if (run->op != OP_attention) return;
    for (int64_t k = 0; k < run->cpu.elements[4]; k++) {
        const double is = ((const double *)run->cpu.ptr[4])[k];
        const double d = fabs(((const float *)run->device.ptr[4])[k] - is);
        if (!(d <= 4e-6 + 1e-6 * fabs(is)))
            fail_msg("log of sums %lld: %g is off by %g", (long long)k, is, d);
    }
}

/* Runs four times from the same memory. All runs must give equal bits, and these must be near the
 * CPU's results. */
static void run_and_compare(const AttentionRun *run)
{
    const CudaContext cuda = context();
    void *before[3], *first[3];
    char why[ATTENTION_WHY];
    assert_true(cuda_attention_hopper_takes(run->op, &run->device, &cuda));
    for (uint32_t when = 0; when < 4; when++) {
        for (uint32_t o = 0; o < run->n_out; o++) {
            void *at = run->device.ptr[run->n_in + o];
            if (when == 0)
                before[o] =
                    memcpy(arena_array(run->arena, out_bytes(run, o), 1), at, out_bytes(run, o));
            memcpy(at, before[o], out_bytes(run, o));
        }
        launch(run, when, when * 7);
        for (uint32_t o = 0; o < run->n_out; o++) {
            void *at = run->device.ptr[run->n_in + o];
            if (when == 0)
                first[o] =
                    memcpy(arena_array(run->arena, out_bytes(run, o), 1), at, out_bytes(run, o));
            assert_memory_equal(at, first[o], out_bytes(run, o));
        }
    }
    kernel_cpu(run->op)(&run->cpu);
    sums_are_near(run);
    for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++)
        if (!attention_is_near(run, i, why))
            fail_msg("%lld queries, %lld keys, heads of %lld: %s", (long long)run->c->s,
                     (long long)run->c->T, (long long)run->c->E, why);
}

static void each_case_matches_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Arena *arena = arena_new();
        AttentionRun run = attention_run(arena, &cases[i], NULL);
        run_and_compare(&run);
        AttentionRun gradient = gradient_run(arena, &cases[i], NULL, &run);
        run_and_compare(&gradient);
        compare_free();
        arena_free(arena);
    }
}

static void one_kernel_gradients_match_the_cpu(void **state)
{
    (void)state;
    const CudaContext cuda = context();
    for (size_t i = 0; i < sizeof full / sizeof full[0]; i++) {
        Arena *arena = arena_new();
        AttentionRun run = attention_run(arena, &full[i], NULL);
        kernel_cpu(run.op)(&run.cpu);
        AttentionRun gradient = gradient_run(arena, &full[i], NULL, &run);
        assert_true(cuda_attention_one_takes(&gradient.device, &cuda));
        is_one = true;
        run_and_compare(&gradient);
        is_one = false;
        compare_free();
        arena_free(arena);
    }
}

/* Checks output i. Hopper's numbers must equal those of mma.sync except for rounding. If a query
 * sees nothing, they must be exactly 0 (the log of sums: minus infinity). */
static void compare_ways(const AttentionRun *run, const AttentionRun *other, uint32_t i,
                         int64_t see_nothing)
{
    for (int64_t k = 0; k < run->device.elements[i]; k++) {
        double x = number_read(run->device.dtype[i], run->device.ptr[i], (uint64_t)k);
        double y = number_read(run->device.dtype[i], other->device.ptr[i], (uint64_t)k);
        bool is_lse = run->op == OP_attention && i == 4;
        if (k / (is_lse ? 1 : run->c->E) >= see_nothing)
            assert_true(fabs(x - y) <= 0.02 + 0.02 * fabs(y));
        else
            assert_true(is_lse ? x == y && isinf(x) && x < 0 : x == 0 && y == 0);
    }
}

/* For queries before the first key, the CPU kernel has no result. Hopper's kernels must agree with
 * mma.sync's there. */
static void check_queries_that_see_nothing(int64_t s, int64_t T)
{
    enum { NOTHING = 150 };
    const AttentionCase c = {.dtype = DT_bf16,
                             .b = 1,
                             .s = s,
                             .T = T,
                             .g = 1,
                             .r = 1,
                             .E = 64,
                             .start_s = -NOTHING,
                             .causal = true};
    Arena *arena = arena_new();
    AttentionRun run = attention_run(arena, &c, NULL), other = attention_run(arena, &c, NULL);
    CudaContext cuda = context();
    CudaError error = {""};
    launch(&run, 0, 0);
    assert_true(cuda_attention(&other.device, &cuda, &error));
    compare_ways(&run, &other, 3, NOTHING);
    compare_ways(&run, &other, 4, NOTHING);
    AttentionRun back = gradient_run(arena, &c, NULL, &run);
    AttentionRun other_back = gradient_run(arena, &c, NULL, &run);
    for (uint32_t i = 4; i < 6; i++) {
        memcpy(back.device.ptr[i], other.device.ptr[i - 1], out_bytes(&other, i - 4));
        memcpy(other_back.device.ptr[i], other.device.ptr[i - 1], out_bytes(&other, i - 4));
    }
    launch(&back, 0, 0);
    assert_true(cuda_attention_grad(&other_back.device, &cuda, &error));
    for (uint32_t i = 6; i < 9; i++) compare_ways(&back, &other_back, i, i == 6 ? NOTHING : 0);
    compare_free();
    arena_free(arena);
}

/* With 150 queries before the first key, no block adds to the first tile of 128 queries. */
static void queries_may_see_nothing(void **state)
{
    (void)state;
    check_queries_that_see_nothing(270, 100);
    is_one = true;
    check_queries_that_see_nothing(256, 128);
    is_one = false;
}

/* Without a key, a position has the score 0. If all real scores are far below, exp(0 - lse) is
 * infinite for it. */
static void scores_may_be_far_below_zero(void **state)
{
    (void)state;
    for (int64_t E = 64; E <= 128; E *= 2) {
        const AttentionCase c = {
            .dtype = DT_bf16, .b = 1, .s = 70, .T = 150, .g = 1, .r = 1, .E = E};
        Arena *arena = arena_new();
        AttentionRun run = attention_run(arena, &c, NULL);
        for (uint32_t i = 0; i < 2; i++)
            for (int64_t k = 0; k < run.device.elements[i]; k++) {
                const int near = k % E == 0 ? (int)(k / E % 7) : 0;
                const double x = (i == 0 ? -6 : 6) + near;
                number_write(DT_bf16, run.device.ptr[i], (uint64_t)k, x);
                ((double *)run.cpu.ptr[i])[k] = x;
            }
        run_and_compare(&run);
        assert_true(((const double *)run.cpu.ptr[4])[0] < -100);
        AttentionRun back = gradient_run(arena, &c, NULL, &run);
        AttentionRun other = gradient_run(arena, &c, NULL, &run);
        const CudaContext cuda = context();
        CudaError error = {""};
        launch(&back, 0, 0);
        assert_true(cuda_attention_grad(&other.device, &cuda, &error));
        for (uint32_t i = 6; i < 9; i++) compare_ways(&back, &other, i, 0);
        compare_free();
        arena_free(arena);
    }
}

/* Checks the largest relative error of 2^x, which the function's comment states, and limits, whole
 * powers and NaN. */
static void powers_of_two_are_exact_enough(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -126 * 4096; i <= 4096; i++) {
        const float x = (float)i / 4096, y = exp2_by_products(x, (float)(i & 1));
        const double is = exp2((double)x);
        if (i % 4096 == 0) assert_true(y == is);
        worst = fmax(worst, fabs(y / is - 1));
    }
    assert_true(worst <= 6.3e-6);
    assert_true(worst > 1e-6); /* otherwise exp2 itself would have run */
    for (float x = -126.f; x > -400; x -= 0.37f) {
        const float y = exp2_by_products(x, 1);
        assert_true(y >= 0 && y <= 1.2e-38f);
    }
    assert_true(exp2_by_products(-INFINITY, 0) == 0 && exp2_by_products(-1e30f, 0) == 0);
    assert_true(isnan(exp2_by_products(NAN, 0)) && isnan(exp2_by_products(-1, NAN)));
}

/* A NaN score shows in the result, wherever its key is. */
static void nan_is_not_hidden(void **state)
{
    (void)state;
    const AttentionCase c = {.dtype = DT_bf16, .b = 1, .s = 64, .T = 128, .g = 1, .r = 1, .E = 64};
    for (int64_t key = 0; key < c.T; key++) {
        Arena *arena = arena_new();
        AttentionRun run = attention_run(arena, &c, NULL);
        number_write(DT_bf16, run.device.ptr[1], (uint64_t)(key * c.E), NAN);
        launch(&run, 0, 0);
        for (int64_t k = 0; k < run.device.elements[3]; k++)
            assert_true(isnan(number_read(DT_bf16, run.device.ptr[3], (uint64_t)k)));
        compare_free();
        arena_free(arena);
    }
}

static void unsupported_calls_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    AttentionCase c = cases[0];
    AttentionRun run = attention_run(arena, &c, NULL);
    CudaContext cuda = context();
    assert_true(cuda_attention_hopper_takes(run.op, &run.device, &cuda));
    static const uint32_t elsewhere[] = {80, 89, 100, 120};
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        cuda.compute_capability = elsewhere[i];
        assert_false(cuda_attention_hopper_takes(run.op, &run.device, &cuda));
    }
    cuda.compute_capability = 90;
    c.E = 136;
    run = attention_run(arena, &c, NULL);
    assert_false(cuda_attention_hopper_takes(run.op, &run.device, &cuda));
    c.E = 60;
    run = attention_run(arena, &c, NULL);
    assert_false(cuda_attention_hopper_takes(run.op, &run.device, &cuda));
    c = cases[0];
    c.dtype = DT_f32;
    run = attention_run(arena, &c, NULL);
    assert_false(cuda_attention_hopper_takes(run.op, &run.device, &cuda));
    static const AttentionCase ragged[] = {
        {.dtype = DT_bf16, .b = 1, .s = 192, .T = 128, .g = 1, .r = 1, .E = 64},
        {.dtype = DT_bf16, .b = 1, .s = 96, .T = 128, .g = 1, .r = 1, .E = 128},
        {.dtype = DT_bf16, .b = 1, .s = 128, .T = 192, .g = 1, .r = 1, .E = 64},
        {.dtype = DT_bf16, .b = 1, .s = 384, .T = 768, .g = 1, .r = 1, .E = 64, .second_s = 576},
    };
    for (size_t i = 0; i < sizeof ragged / sizeof ragged[0]; i++) {
        run = attention_run(arena, &ragged[i], NULL);
        run = gradient_run(arena, &ragged[i], NULL, &run);
        assert_true(cuda_attention_hopper_takes(run.op, &run.device, &cuda));
        assert_false(cuda_attention_one_takes(&run.device, &cuda));
    }
    run = attention_run(arena, &full[0], NULL);
    run = gradient_run(arena, &full[0], NULL, &run);
    assert_true(cuda_attention_one_takes(&run.device, &cuda));
    run.device.elements[9]--; /* too little scratch */
    assert_false(cuda_attention_one_takes(&run.device, &cuda));
    compare_free();
    arena_free(arena);
}

/* ---- each rule is broken once ---- */

static const char *const fault_names[HOPPER_n_faults] = {
    "sound",
    "no wait for boxes",
    "no wait for slots",
    "wrong phase",
    "no wait for products",
    "one group too many under way",
    "no products_fence",
    "no barriers_ready",
    "no shared_to_async",
    "one arrival too few",
    "half the bytes expected",
    "tensor not swizzled",
    "matrix not swizzled",
    "wrong stride",
    "no mask of the tail",
    "no turn",
    "no wait for bulks",
};

/* The kernel in which faults are planted: the forward pass, or one of the gradient's kernels. Its
 * case uses the ring of slots more than once. */
typedef struct Subject {
    const char *kernel;
    bool of_gradient;
    uint32_t first_out, last_out; /* the outputs that this kernel writes */
    AttentionCase c;              /* the test replaces its E by each head size */
    bool one;                     /* the gradient is one kernel */
} Subject;

static const Subject subjects[] = {
    {"attention_hopper_",
     false,
     3,
     4,
     {.dtype = DT_bf16, .b = 1, .s = 70, .T = 700, .g = 1, .r = 1},
     false},
    {"attention_hopper_dq",
     true,
     6,
     6,
     {.dtype = DT_bf16, .b = 1, .s = 70, .T = 700, .g = 1, .r = 1},
     false},
    {"attention_hopper_dkv",
     true,
     7,
     8,
     {.dtype = DT_bf16, .b = 1, .s = 340, .T = 70, .g = 1, .r = 2},
     false},
    {"attention_hopper_dqkv",
     true,
     6,
     8,
     {.dtype = DT_bf16, .b = 1, .s = 256, .T = 256, .g = 1, .r = 2},
     true},
};

static struct Planted {
    const char *kernel;
    HopperFault fault;
} planted;

static void launch_with_fault(void *self, void *stream, const DeviceLaunch *launch)
{
    (void)self, (void)stream;
    const bool here = strstr(launch->name, planted.kernel) != NULL;
    if (!here && strstr(launch->name, "attention_hopper") != NULL) return; /* another kernel */
    device_hopper_fault(here ? planted.fault : HOPPER_sound);
    device_run(launch);
    device_hopper_fault(planted.fault); /* later tensor maps must have the fault, too */
}

/* Returns true if the results with this fault are wrong. */
static bool fails_with(HopperFault fault, const Subject *subject, int head)
{
    static const DeviceQueue queue = {.launch = launch_with_fault};
    const CudaContext cuda = context();
    CudaError error;
    char why[ATTENTION_WHY];
    AttentionCase c = subject->c;
    c.E = head;
    /* with this head size, tiles of the gradient have half the rows */
    if (subject->of_gradient && head == 128) c.s = (c.s + 1) / 2, c.T = (c.T + 1) / 2;
    AttentionRun run = attention_run(arena_new(), &c, NULL);
    kernel_cpu(run.op)(&run.cpu);
    if (subject->of_gradient) {
        run = gradient_run(run.arena, &c, NULL, &run);
        kernel_cpu(run.op)(&run.cpu);
    }
    /* The kernel expects keys that the tensor does not have. They read as zero instead of being
     * masked. */
    if (fault == HOPPER_no_tail_mask) run.device.size['T'] += HOPPER_TAIL;
    device_hopper_tail((uint64_t)run.device.size['T']);
    planted = (struct Planted){subject->kernel, fault};
    device_hopper_fault(fault);
    device_set_queue(&queue);
    is_one = subject->one;
    if (!call(&run, &cuda, &error)) _exit(3);
    bool fails = device_hopper_under_way() > 0;
    for (uint32_t i = subject->first_out; i <= subject->last_out; i++)
        fails = fails || !attention_is_near(&run, i, why);
    return fails;
}

/* Runs the case with the fault in a separate process. Returns true if the fault is found. */
static bool is_seen(HopperFault fault, const Subject *subject, int head, uint32_t when,
                    uint64_t seed)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        alarm(120);
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(3);
        device_set_seed(seed);
        device_boxes_arrive_early(when & 1);
        device_products_read_early(when >> 1 & 1);
        _exit(fails_with(fault, subject, head));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    bool fails = aborted || (WIFEXITED(status) && WEXITSTATUS(status) == 1);
    if (!fails && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        fail_msg("%s: the process ends with status %x", fault_names[fault], (unsigned)status);
    return fails;
}

#ifdef __SANITIZE_ADDRESS__
/* faults beyond this one show in wrong numbers, not in bad addresses */
enum { MOST_FAULTS = HOPPER_sound + 1 };
#else
enum { MOST_FAULTS = HOPPER_n_faults };
#endif

/* Boxes and products may complete in four ways. A fault must be found in at least one of them. (The
 * gradients need no mask for the tail if exp(0 - lse) is finite: positions without a key are
 * multiplied by 0.) */
static void each_fault_is_found(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof subjects / sizeof subjects[0]; k++)
        for (int fault = 0; fault < MOST_FAULTS; fault++)
            for (int head = 64; head <= 128; head += 64) {
                const Subject *s = &subjects[k];
                uint32_t i = 0;
                if (s->of_gradient && fault == HOPPER_no_tail_mask) continue;
                if (!s->one && (fault == HOPPER_no_turn || fault == HOPPER_no_bulks_wait)) continue;
                while (i < 4 && !is_seen((HopperFault)fault, s, head, i, i * 5 + 1)) i++;
                if ((fault == HOPPER_sound) != (i == 4))
                    fail_msg("%s, %s, heads of %d: %s", s->kernel, fault_names[fault], head,
                             i == 4 ? "seen in no run" : "a run fails");
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_case_matches_the_cpu),
        cmocka_unit_test(one_kernel_gradients_match_the_cpu),
        cmocka_unit_test(queries_may_see_nothing),
        cmocka_unit_test(scores_may_be_far_below_zero),
        cmocka_unit_test(powers_of_two_are_exact_enough),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(unsupported_calls_are_refused),
        cmocka_unit_test(each_fault_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
