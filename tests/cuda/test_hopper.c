/* Attention by the instructions of compute capability 9.0, on their emulator: against the CPU
 * kernel in fp64; in several orders of threads, with boxes and products that come early and late,
 * to the same bits; and each rule of those instructions broken once, which must be seen. */
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
#include "tests/cuda/attention_case.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/mma_on_cpu.h"

static const AttentionCase cases[] = {
    /* whole tiles; ragged ones; groups of heads; several sequences */
    {.dtype = DT_bf16, .b = 1, .s = 128, .T = 128, .g = 1, .r = 1, .E = 128, .causal = true},
    {.dtype = DT_bf16, .b = 2, .s = 37, .T = 37, .g = 2, .r = 2, .E = 64, .causal = true},
    {.dtype = DT_f16, .b = 1, .s = 200, .T = 333, .g = 2, .r = 1, .E = 64},
    {.dtype = DT_f16, .b = 2, .s = 129, .T = 129, .g = 1, .r = 2, .E = 128, .causal = true},
    /* heads that do not fill their tile */
    {.dtype = DT_bf16, .b = 1, .s = 130, .T = 130, .g = 1, .r = 3, .E = 72, .causal = true},
    {.dtype = DT_f16, .b = 1, .s = 65, .T = 65, .g = 2, .r = 1, .E = 40, .causal = true},
    {.dtype = DT_bf16, .b = 1, .s = 1, .T = 1, .g = 1, .r = 1, .E = 8, .causal = true},
    /* the ring more than once around */
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
     .causal = true},
};

static CudaContext context(void)
{
    return (CudaContext){.n_sms = 2, .compute_capability = 90};
}

/* Bit 0: boxes arrive early; bit 1: products read early. An odd seed lets warps run far. */
static void launch(const AttentionRun *run, uint32_t when, uint64_t seed)
{
    CudaError error = {""};
    const CudaContext cuda = context();
    device_set_seed(seed);
    device_boxes_arrive_early(when & 1);
    device_products_read_early(when >> 1 & 1);
    if (!cuda_attention_hopper(&run->device, &cuda, &error)) fail_msg("%s", error.text);
    compare_check();
}

static void each_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Arena *arena = arena_new();
        AttentionRun run = attention_run(arena, &cases[i], NULL);
        const CudaContext cuda = context();
        void *first[2];
        char why[ATTENTION_WHY];
        assert_true(cuda_attention_hopper_takes(&run.device, &cuda));
        for (uint32_t when = 0; when < 4; when++) {
            launch(&run, when, when * 7);
            assert_int_equal(device_hopper_under_way(), 0);
            for (uint32_t j = 0; j < 2; j++) {
                size_t bytes =
                    (size_t)run.device.elements[3 + j] * dtype_bytes(run.device.dtype[3 + j]);
                if (when == 0)
                    first[j] = memcpy(arena_array(arena, bytes, 1), run.device.ptr[3 + j], bytes);
                assert_memory_equal(run.device.ptr[3 + j], first[j], bytes);
                memset(run.device.ptr[3 + j], 0xff, bytes);
                if (when == 3) memcpy(run.device.ptr[3 + j], first[j], bytes);
            }
        }
        kernel_cpu(run.op)(&run.cpu);
        for (uint32_t j = 3; j < 5; j++)
            if (!attention_is_near(&run, j, why)) fail_msg("case %d, %s", (int)i, why);
        compare_free();
        arena_free(arena);
    }
}

/* Queries before the first key, which the CPU kernel has no result for: as mma.sync's kernel. */
static void queries_may_see_nothing(void **state)
{
    (void)state;
    enum { NOTHING = 150 };
    const AttentionCase c = {.dtype = DT_bf16,
                             .b = 1,
                             .s = 270,
                             .T = 100,
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
    assert_int_equal(device_hopper_under_way(), 0);
    assert_true(cuda_attention(&other.device, &cuda, &error));
    for (uint32_t i = 3; i < 5; i++)
        for (int64_t k = 0; k < run.device.elements[i]; k++) {
            double x = number_read(run.device.dtype[i], run.device.ptr[i], (uint64_t)k);
            double y = number_read(run.device.dtype[i], other.device.ptr[i], (uint64_t)k);
            bool sees = k / (i == 3 ? c.E : 1) >= NOTHING;
            if (sees)
                assert_true(fabs(x - y) <= 0.02);
            else
                assert_true(i == 3 ? x == 0 && y == 0 : x == y && isinf(x) && x < 0);
        }
    compare_free();
    arena_free(arena);
}

static void others_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    AttentionCase c = cases[0];
    AttentionRun run = attention_run(arena, &c, NULL);
    CudaContext cuda = context();
    assert_true(cuda_attention_hopper_takes(&run.device, &cuda));
    static const uint32_t elsewhere[] = {80, 89, 100, 120};
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        cuda.compute_capability = elsewhere[i];
        assert_false(cuda_attention_hopper_takes(&run.device, &cuda));
    }
    cuda.compute_capability = 90;
    c.E = 136;
    run = attention_run(arena, &c, NULL);
    assert_false(cuda_attention_hopper_takes(&run.device, &cuda));
    c.E = 60;
    run = attention_run(arena, &c, NULL);
    assert_false(cuda_attention_hopper_takes(&run.device, &cuda));
    c = cases[0];
    c.dtype = DT_f32;
    run = attention_run(arena, &c, NULL);
    assert_false(cuda_attention_hopper_takes(&run.device, &cuda));
    compare_free();
    arena_free(arena);
}

/* ---- rules broken once each ---- */

static const char *const fault_names[HOPPER_n_faults] = {
    "sound",
    "no wait for boxes",
    "no wait for slots",
    "wrong phase",
    "no wait for products",
    "one group too many under way",
    "no products_fence",
    "no barriers_ready",
    "one arrival too few",
    "half the bytes expected",
    "tensor not swizzled",
    "matrix not swizzled",
    "wrong stride",
    "no mask of the tail",
};

/* In a process of its own: does the test of these numbers fail? With six tiles of keys the ring
 * goes around. */
static bool is_seen(HopperFault fault, int head, uint32_t when, uint64_t seed)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        alarm(120);
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(3);
        const AttentionCase c = {
            .dtype = DT_bf16, .b = 1, .s = 70, .T = 700, .g = 1, .r = 1, .E = head};
        AttentionRun run = attention_run(arena_new(), &c, NULL);
        const CudaContext cuda = context();
        CudaError error;
        char why[ATTENTION_WHY];
        kernel_cpu(run.op)(&run.cpu);
        /* The kernel believes in keys that the tensor does not have: they are zero, not hidden. */
        if (fault == HOPPER_no_tail_mask) run.device.size['T'] += HOPPER_TAIL;
        device_hopper_fault(fault);
        device_set_seed(seed);
        device_boxes_arrive_early(when & 1);
        device_products_read_early(when >> 1 & 1);
        if (!cuda_attention_hopper(&run.device, &cuda, &error)) _exit(3);
        _exit(device_hopper_under_way() > 0 || !attention_is_near(&run, 3, why) ||
              !attention_is_near(&run, 4, why));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    bool fails = aborted || (WIFEXITED(status) && WEXITSTATUS(status) == 1);
    if (!fails && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        fail_msg("%s: the process ends with status %x", fault_names[fault], (unsigned)status);
    return fails;
}

/* Four ways for boxes and products to come; a fault need be seen in one of them. */
static void each_fault_is_seen(void **state)
{
    (void)state;
    for (int fault = 0; fault < HOPPER_n_faults; fault++)
        for (int head = 64; head <= 128; head += 64) {
            uint32_t i = 0;
            while (i < 4 && !is_seen((HopperFault)fault, head, i, i * 5 + 1)) i++;
            if ((fault == HOPPER_sound) != (i == 4))
                fail_msg("%s, heads of %d: %s", fault_names[fault], head,
                         i == 4 ? "seen in no run" : "a run fails");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_case),
        cmocka_unit_test(queries_may_see_nothing),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(each_fault_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
