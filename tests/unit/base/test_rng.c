/* Philox4x32-10 gives its authors' known answers, and the distributions pass statistical tests.
 * Initial weights, dropout and synthetic data come from these numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "planner/base/normal.h"
#include "planner/base/rng.h"

/* Random123 1.14, tests/kat_vectors, the lines "philox4x32 10". */
static void equals_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } expected[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(expected[i].counter, expected[i].key, out);
        for (size_t j = 0; j < 4; j++) assert_int_equal(out[j], expected[i].out[j]);
    }
    /* Seed, stream and index have the positions that the header states. */
    assert_int_equal(rng_u64(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e),
                             UINT64_C(0x85a308d3243f6a88)),
                     UINT64_C(0x94fdccebd16cfe09));
}

enum { DRAWS = 200000 };

static void rng_uniform_is_uniform(void **state)
{
    (void)state;
    double sum = 0, squares = 0;
    unsigned bucket[16] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = rng_uniform(7, 3, i);
        assert_true(u >= 0 && u < 1);
        sum += u, squares += u * u;
        bucket[(unsigned)(u * 16)]++;
    }
    double mean = sum / DRAWS, variance = squares / DRAWS - mean * mean;
    /* Within five standard errors. */
    assert_true(fabs(mean - 0.5) < 5 * sqrt(1.0 / 12 / DRAWS));
    assert_true(fabs(variance - 1.0 / 12) < 5 * sqrt(1.0 / 180 / DRAWS));
    double chi2 = 0, share = DRAWS / 16.0;
    for (int i = 0; i < 16; i++) chi2 += (bucket[i] - share) * (bucket[i] - share) / share;
    assert_true(chi2 < 15 + 5 * sqrt(30.0));
}

static void rng_normal_is_normal(void **state)
{
    (void)state;
    double moment[5] = {0};
    unsigned beyond_two = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = rng_normal(11, 5, i), power = 1;
        assert_true(isfinite(x) && fabs(x) < 8.7);
        for (int k = 1; k <= 4; k++) moment[k] += (power *= x) / DRAWS;
        beyond_two += fabs(x) > 2;
    }
    double error = 1 / sqrt(DRAWS);
    assert_true(fabs(moment[1]) < 5 * error);
    assert_true(fabs(moment[2] - 1) < 5 * sqrt(2.0) * error);
    assert_true(fabs(moment[3]) < 5 * sqrt(15.0) * error);
    assert_true(fabs(moment[4] - 3) < 5 * sqrt(96.0) * error);
    assert_true(fabs((double)beyond_two / DRAWS - 0.0455003) < 5 * 0.21 * error);
}

/* These functions replace those of the mathematical library. They differ from it only by rounding.
 */
static void logarithm_and_cosine_match_the_c_library(void **state)
{
    (void)state;
    const double turn = 6.283185307179586476925;
    assert_true(normal_log(1) == 0 && normal_cos_turn(0) == 1 && normal_cos_turn(0.5) == -1);
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = rng_uniform(3, 8, i), x = i % 2 ? 1 - u : ldexp(1 - u, -(int)(i % 52));
        assert_true(fabs(normal_log(x) - log(x)) <= 6e-16 * fabs(log(x)));
        assert_true(fabs(normal_cos_turn(u) - cos(turn * u)) <= 1.5e-15);
    }
}

static void rng_below_reaches_every_number_below_its_bound(void **state)
{
    (void)state;
    unsigned seen[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t x = rng_below(1, 2, i, 7);
        assert_true(x < 7);
        seen[x]++;
    }
    for (int i = 0; i < 7; i++) assert_true(seen[i] > 9500 && seen[i] < 10500);
    assert_int_equal(rng_below(1, 2, 3, 1), 0);
    assert_true(rng_below(1, 2, 3, UINT64_MAX) < UINT64_MAX);
}

static void streams_seeds_and_indices_give_different_numbers(void **state)
{
    (void)state;
    unsigned equal = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        equal += rng_u64(1, 1, i) == rng_u64(1, 2, i);
        equal += rng_u64(1, 1, i) == rng_u64(2, 1, i);
        equal += rng_u64(1, 1, i) == rng_u64(1, 1, i + 1);
        /* A number's high half affects the result as much as its low half. */
        equal += rng_u64(1, 1, i) == rng_u64(1, 1, i + (UINT64_C(1) << 32));
        equal += rng_u64(1, 1, i) == rng_u64(1 + (UINT64_C(1) << 32), 1, i);
        assert_int_equal(rng_u64(9, 8, i), rng_u64(9, 8, i));
    }
    assert_int_equal(equal, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_known_answers),
        cmocka_unit_test(rng_uniform_is_uniform),
        cmocka_unit_test(rng_normal_is_normal),
        cmocka_unit_test(logarithm_and_cosine_match_the_c_library),
        cmocka_unit_test(rng_below_reaches_every_number_below_its_bound),
        cmocka_unit_test(streams_seeds_and_indices_give_different_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
