/* Initial values that the target computes must have the bits of kernel_init_value, for each kind,
 * type and place. Otherwise, runs on a GPU and on the CPU would start from different weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/init.h"
#include "kernels/number.h"
#include "planner/ir/graph.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/target.h"

enum { N = 5000, AT = 3 };

static void check(CudaInit init)
{
    CudaError error = {""};
    const size_t size = dtype_bytes(init.dtype), bytes = (AT + N) * size;
    unsigned char must[(AT + N) * 4];
    target_case("kind %d, %s at rest, in %s, from %llu", init.kind, dtype_name(init.rest),
                dtype_name(init.dtype), (unsigned long long)init.global);
    memset(must, 0x5a, sizeof must);
    for (uint64_t i = 0; i < init.n; i++) {
        double rest;
        number_write(
            init.rest, &rest, 0,
            kernel_init_value(init.seed, init.stream, init.global + i, init.kind, init.a, init.b));
        number_write(init.dtype, must, AT + i, number_read(init.rest, &rest, 0));
    }
    init.buffer = compare_alloc(bytes, 0);
    memset(init.buffer, 0x5a, bytes);
    init.at = AT;
    if (!TARGET_RUN(0, cuda_init(&init, target_context(), &error), &error))
        fail_msg("%s: %s", target_case_now(), error.text);
    compare_check();
    const unsigned char *is = init.buffer;
    for (size_t i = 0; i < bytes; i++)
        if (is[i] != must[i])
            fail_msg("%s: byte %zu of element %zu is %02x, not %02x", target_case_now(), i % size,
                     i / size - AT, is[i], must[i]);
    compare_free();
}

static void initial_values_equal_the_cpus(void **state)
{
    (void)state;
    static const DType types[] = {DT_f32, DT_bf16, DT_f16};
    for (int kind = INIT_none; kind <= INIT_uniform; kind++)
        for (int rest = 0; rest < 3; rest++)
            for (int dtype = 0; dtype < 3; dtype++)
                for (int far = 0; far < 2; far++)
                    check((CudaInit){.dtype = types[dtype],
                                     .rest = types[rest],
                                     .global = far ? (UINT64_C(1) << 32) - N / 2 : 1,
                                     .n = far ? N - 1 : N,
                                     .seed = UINT64_C(0x123456789abcdef) + (uint64_t)kind,
                                     .stream = UINT64_C(0xfedcba9876543210),
                                     .kind = kind,
                                     .a = kind == INIT_uniform ? -0.03 : 0.001,
                                     .b = 0.02});
    assert_true(cuda_init_takes(DT_bf16) && !cuda_init_takes(DT_e4m3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(initial_values_equal_the_cpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
