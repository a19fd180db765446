/* Kernels on the target count how often each expert is chosen. The counts must equal those made by
 * hand, and are added to earlier counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "kernels/cuda/experts/choices.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/target.h"

enum { MOST = 3000, EXPERTS_MOST = 70 };

static void check(int64_t n, int64_t n_experts)
{
    CudaError error = {""};
    const size_t bytes = MOST * sizeof(int32_t), counts = (EXPERTS_MOST + 1) * sizeof(uint64_t);
    uint64_t must[EXPERTS_MOST + 1];
    target_case("%lld choices of %lld experts", (long long)n, (long long)n_experts);
    int32_t *ids = compare_alloc(bytes, 0), *slots = compare_alloc(bytes, 0);
    uint64_t *is = compare_alloc(counts, 0);
    for (int64_t e = 0; e <= EXPERTS_MOST; e++) must[e] = is[e] = (uint64_t)e << 33;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)rng_below(7, (uint64_t)n_experts, (uint64_t)i, (uint64_t)n_experts);
        slots[i] = rng_below(8, 0, (uint64_t)i, 3) ? (int32_t)i : -1;
        must[ids[i]]++;
        must[EXPERTS_MOST] += slots[i] < 0;
    }
    const CudaChoices choices = {ids, slots, n, n_experts, is, is + EXPERTS_MOST};
    if (!TARGET_RUN(0, cuda_choices(&choices, target_context(), &error), &error))
        fail_msg("%s: %s", target_case_now(), error.text);
    compare_check();
    assert_memory_equal(is, must, counts);
    compare_free();
}

static void choices_are_counted_as_by_hand(void **state)
{
    (void)state;
    static const int64_t experts[] = {1, 7, 8, 9, 64, 70};
    for (int k = 0; k < 6; k++)
        for (int64_t n = 1; n <= MOST; n = 5 * n + 1) check(n, experts[k]);
    check(MOST, 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_counted_as_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
