/* Tests the emulator that runs the threads of a device on the CPU. Barriers, shuffles and orders
 * must work as on a device. Otherwise the tests of kernels would miss mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emulator/device_on_cpu.h"

#include "kernels/cuda/device.cuh"

static const CudaContext cuda = {.n_sms = 4, .compute_capability = 90};

typedef struct ReverseArgs {
    const float *x;
    float *y;
    bool waits;
} ReverseArgs;

KERNEL(reverse, ReverseArgs, 96, 1)
{
    SHARED(float, held);
    uint32_t i = threadIdx.x, n = blockDim.x;
    held[i] = a.x[blockIdx.x * n + i];
    if (a.waits) __syncthreads();
    a.y[blockIdx.x * n + i] = held[n - 1 - i];
}

enum { THREADS = 70, BLOCKS = 3, ALL = THREADS * BLOCKS };

static uint32_t wrong_after_reverse(bool waits, uint64_t seed)
{
    float x[ALL], y[ALL];
    uint32_t wrong = 0;
    for (int i = 0; i < ALL; i++) x[i] = (float)i;
    ReverseArgs args = {x, y, waits};
    device_set_seed(seed);
    assert_true(LAUNCH(reverse, BLOCKS, THREADS, THREADS * sizeof(float), args, &cuda, NULL));
    for (int i = 0; i < ALL; i++)
        wrong += !(y[i] == (float)(i / THREADS * THREADS + THREADS - 1 - i % THREADS));
    return wrong;
}

static void barriers_order_threads(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        assert_int_equal(wrong_after_reverse(true, seed), 0);
        /* without the barrier, threads read NaNs */
        assert_true(wrong_after_reverse(false, seed) > 0);
    }
}

typedef struct SumArgs {
    const float *x;
    float *sum;
    uint32_t *odd;
} SumArgs;

KERNEL(sum_warps, SumArgs, 64, 1)
{
    float x = a.x[threadIdx.x];
    uint32_t odd = __ballot_sync(0xffffffffu, threadIdx.x % 2 == 1);
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    a.sum[threadIdx.x] = x;
    a.odd[threadIdx.x] = odd;
}

static void shuffles_exchange_lanes(void **state)
{
    (void)state;
    float x[64], sum[64];
    uint32_t odd[64];
    for (int i = 0; i < 64; i++) x[i] = (float)i;
    SumArgs args = {x, sum, odd};
    for (uint64_t seed = 0; seed < 4; seed++) {
        device_set_seed(seed);
        assert_true(LAUNCH(sum_warps, 1, 64, 0, args, &cuda, NULL));
        for (int i = 0; i < 64; i++) {
            assert_true(sum[i] == (i < 32 ? 496.0f : 1520.0f));
            assert_int_equal(odd[i], 0xaaaaaaaa);
        }
    }
}

typedef struct OrderArgs {
    uint32_t *order, *n;
} OrderArgs;

KERNEL(note_order, OrderArgs, 64, 1)
{
    a.order[(*a.n)++] = blockIdx.x * blockDim.x + threadIdx.x;
}

static void seeds_draw_orders(void **state)
{
    (void)state;
    uint32_t order[3][128];
    for (uint64_t seed = 0; seed < 3; seed++) {
        uint32_t n = 0;
        OrderArgs args = {order[seed], &n};
        device_set_seed(seed);
        assert_true(LAUNCH(note_order, 2, 64, 0, args, &cuda, NULL));
        assert_int_equal(n, 128);
    }
    for (uint32_t i = 0; i < 128; i++) assert_int_equal(order[0][i], i);
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[1], order[2], sizeof order[0]);
}

typedef struct HangArgs {
    bool too_far;
} HangArgs;

KERNEL(hang, HangArgs, 64, 1)
{
    SHARED(char, held);
    if (a.too_far) memset(held + 100, 0, 4);
    if (!a.too_far && threadIdx.x == 3) return;
    __syncthreads();
}

/* Returns true if this launch ends the process. */
static bool dies(bool too_far)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        HangArgs args = {too_far};
        fclose(stderr);
        LAUNCH(hang, 1, 64, 100, args, &cuda, NULL);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void mistakes_end_the_test(void **state)
{
    (void)state;
    assert_true(dies(false)); /* one thread never reaches the barrier */
    assert_true(dies(true));  /* the kernel uses more shared memory than it requested */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_order_threads),
        cmocka_unit_test(shuffles_exchange_lanes),
        cmocka_unit_test(seeds_draw_orders),
        cmocka_unit_test(mistakes_end_the_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
