/* CUDA kernels of routing with equal, infinite or NaN logits, which tests with random numbers
 * hardly ever have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/workspace.h"
#include "tests/cuda/compare.h"

/* The first of several equal logits wins, and 0 equals -0. The test covers logits that are all
 * negative, and more experts than a warp has lanes. */
static void ties_go_to_the_first(void **state)
{
    (void)state;
    enum { N = 70, K = 5, ROWS = 4 };
    static const struct {
        float usual, other;
        int32_t at[2], must[K];
    } rows[ROWS] = {{1, 1, {3, 4}, {0, 1, 2, 3, 4}},
                    {-0.0f, 0.0f, {1, 69}, {0, 1, 2, 3, 4}},
                    {-2, -1, {69, 33}, {33, 69, 0, 1, 2}},
                    {-INFINITY, 3, {64, 65}, {64, 65, 0, 1, 2}}};
    float *logits = compare_alloc(ROWS * N * sizeof *logits, 0);
    int32_t *ids = compare_alloc(ROWS * K * sizeof *ids, 0);
    const Value args[] = {{DT_f32, 3, {1, ROWS, N}, logits}, {DT_i32, 3, {1, ROWS, K}, ids}};
    Binding binding;
    CudaError error;
    for (int i = 0; i < ROWS * N; i++) {
        const int row = i / N, e = i % N;
        bool other = e == rows[row].at[0] || e == rows[row].at[1];
        logits[i] = other ? rows[row].other : rows[row].usual;
    }
    KernelArgs a = eval_args(OP_topk, NULL, args, 1, 1, NULL, &binding);
    for (uint64_t order = 0; order < 3; order++) {
        memset(ids, 0x7f, ROWS * K * sizeof *ids);
        assert_true(TARGET_RUN(order, cuda_topk(&a, target_context(), &error), &error));
        for (int row = 0; row < ROWS; row++)
            assert_memory_equal(ids + row * K, rows[row].must, sizeof rows[row].must);
    }
    compare_free();
}

/* If logits are NaN, the ids must still be different, and NaNs come first, as on the CPU. A NaN may
 * be anywhere, also next to infinite logits. */
static void routing_puts_nan_first(void **state)
{
    (void)state;
    enum { N = 40, K = 5 };
    static const struct {
        int from, by; /* every by-th expert from `from` on */
        float usual, first;
        int32_t must[K];
    } rows[] = {{N - 1, 1, 1, 2, {N - 1, 0, 1, 2, 3}},
                {0, 1, 1, NAN, {0, 1, 2, 3, 4}},
                {7, 31, INFINITY, INFINITY, {7, 38, 0, 1, 2}},
                {33, 40, -INFINITY, INFINITY, {33, 0, 1, 2, 3}},
                {3, 13, 1, NAN, {0, 3, 16, 29, 1}}};
    float *logits = compare_alloc(N * sizeof *logits, 0);
    int32_t *ids = compare_alloc(K * sizeof *ids, 0), cpu[K];
    const Value args[] = {{DT_f32, 3, {1, 1, N}, logits}, {DT_i32, 3, {1, 1, K}, ids}};
    const Value same[] = {args[0], {DT_i32, 3, {1, 1, K}, cpu}};
    Binding binding;
    CudaError error;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int e = 0; e < N; e++) {
            logits[e] = e == 0 ? rows[i].first : rows[i].usual;
            if (e >= rows[i].from && (e - rows[i].from) % rows[i].by == 0)
                logits[e] = i % 2 ? NAN : -NAN;
        }
        KernelArgs a = eval_args(OP_topk, NULL, args, 1, 1, NULL, &binding);
        assert_true(TARGET_RUN(0, cuda_topk(&a, target_context(), &error), &error));
        eval_op(OP_topk, NULL, same, 1, 1, NULL, NULL, 0);
        assert_memory_equal(cpu, rows[i].must, sizeof cpu);
        assert_memory_equal(ids, rows[i].must, sizeof cpu);
    }
    compare_free();
}

/* If a logit of a sequence is NaN, its balance loss is NaN. The balance loss of another sequence
 * does not change, nor do its charges. */
static void nan_shows_in_its_sequences_balance_only(void **state)
{
    (void)state;
    enum { B = 2, S = 9, N = 5, K = 2 };
    float *logits = compare_alloc(B * S * N * sizeof *logits, 0);
    float *balance = compare_alloc(B * sizeof *balance, 0), *x = compare_alloc(B * S * 4, 0);
    int32_t *ids = compare_alloc(B * S * K * sizeof *ids, 0);
    const Value args[] = {
        {DT_f32, 3, {B, S, N}, logits}, {DT_i32, 3, {B, S, K}, ids}, {DT_f32, 1, {B}, balance}};
    const Value charged = {DT_f32, 2, {B, S}, x}, both[] = {charged, args[2], charged};
    const Attrs attrs = {.scale = 2};
    const int64_t elements[] = {B * S * N, B * S * K, B};
    const uint64_t bytes = cuda_compute_workspace(OP_balance, NULL, elements, 3);
    Binding binding;
    CudaError error;
    for (int i = 0; i < B * S * N; i++) logits[i] = 0;
    for (int i = 0; i < B * S * K; i++) ids[i] = i / K % N;
    for (int i = 0; i < B * S; i++) x[i] = (float)i;
    logits[S * N + 3] = NAN;
    KernelArgs a = eval_args(OP_balance, &attrs, args, 2, 1, NULL, &binding);
    a.ptr[a.n_args++] = compare_alloc(bytes, 0);
    assert_true(TARGET_RUN(0, cuda_balance(&a, target_context(), &error), &error));
    assert_true(fabsf(balance[0] - 2) < 1e-5F && isnan(balance[1]));
    a = eval_args(OP_charge, NULL, both, 2, 1, NULL, &binding); /* in place */
    assert_true(TARGET_RUN(0, cuda_charge(&a, target_context(), &error), &error));
    for (int i = 0; i < S; i++) assert_true(x[i] == (float)i - balance[0] && isnan(x[S + i]));
    compare_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_go_to_the_first),
        cmocka_unit_test(routing_puts_nan_first),
        cmocka_unit_test(nan_shows_in_its_sequences_balance_only),
    };
    return cmocka_run_group_tests_name("CUDA kernels of routing", tests, NULL, NULL);
}
