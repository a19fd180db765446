/* Scaled rotations (kernels/rope.h). The expected numbers come from the published formula of YaRN,
 * computed outside of this program for the published configurations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "planner/ir/graph.h"
#include "tests/support/ops/eval.h"

static const Control no_control = {0};

enum { E = 64, HALF = E / 2 };

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Rotates the vector (1, 0) in every pair at position 1. Stores each pair's angle and length. */
static void rotate_once(const Attrs *attrs, double angle[HALF], double length[HALF])
{
    Arena *arena = arena_new();
    Value x = value_new(arena, DT_f64, DIMS(1, 1, 1, E));
    Value y = value_new(arena, DT_f64, DIMS(1, 1, 1, E));
    Value args[2] = {x, y};
    Part part = {0};
    part.start['s'] = 1;
    for (int e = 0; e < E; e++) value_set(&x, e, e < HALF);
    eval_op(OP_rope, attrs, args, 1, 1, &part, &no_control, 0);
    for (int e = 0; e < HALF; e++) {
        double first = value_get(&y, e), second = value_get(&y, e + HALF);
        angle[e] = atan2(second, first);
        length[e] = hypot(first, second);
    }
    arena_free(arena);
}

static void assert_relative(double have, double want)
{
    if (!(fabs(have - want) <= 1e-12 * fabs(want))) print_error("%.17g, not %.17g\n", have, want);
    assert_true(fabs(have - want) <= 1e-12 * fabs(want));
}

typedef struct Pair {
    int e;
    double frequency;
} Pair;

static void check_yarn(const Attrs *attrs, const Pair *pairs, size_t n, double gain)
{
    double angle[HALF], length[HALF];
    rotate_once(attrs, angle, length);
    for (size_t i = 0; i < n; i++) assert_relative(angle[pairs[i].e], pairs[i].frequency);
    for (int e = 0; e < HALF; e++) assert_relative(length[e], gain);
}

/* DeepSeek-V3 rotates 64 elements with base 10000. At pair 10.47, a rotation turns 32 times within
 * 4096 tokens, and at pair 22.51 once. So the ramp runs from pair 10 to pair 23. */
static void yarn_rounds_its_ramp_to_whole_pairs(void **state)
{
    (void)state;
    const Attrs attrs = {.theta = 1e4,
                         .rope_factor = 40,
                         .rope_low = 1,
                         .rope_high = 32,
                         .rope_context = 4096,
                         .rope_yarn = 2};
    const Pair pairs[] = {
        {0, 1.0},
        {5, 0.23713737056616552},         /* below the ramp, the angle is kept */
        {10, 0.056234132519034908},       /* the ramp begins here */
        {16, 0.01 * (7 + 6.0 / 40) / 13}, /* on the ramp, 7 of 13 parts are kept */
        {23, 0.0013335214321633240 / 40}, /* the ramp ends here */
        {28, 7.9056941504209490e-06},     /* above the ramp, a fortieth is left */
    };
    check_yarn(&attrs, pairs, sizeof pairs / sizeof *pairs, 1);
}

/* gpt-oss rotates 64 elements with base 150000 and does not round: the ramp runs from 8.09 to
 * 17.40. The attention factor is 0.1 ln 32 + 1. */
static void yarn_without_rounding_has_its_attention_factor(void **state)
{
    (void)state;
    const Attrs attrs = {.theta = 15e4,
                         .rope_factor = 32,
                         .rope_low = 1,
                         .rope_high = 32,
                         .rope_gain = 1.3465735902799727,
                         .rope_context = 4096,
                         .rope_yarn = 1};
    const Pair pairs[] = {
        {0, 1.0},
        {8, 0.050813274815461475},  /* this pair is below the ramp */
        {9, 0.03170569618466377},   /* this one is 9.75 % up the ramp */
        {12, 0.006794959489732219}, /* this one is 42.0 % up the ramp */
        {16, 0.00045648391922324086},
        {28, 9.242089502428302e-07}, /* this one is above the ramp */
    };
    check_yarn(&attrs, pairs, sizeof pairs / sizeof *pairs, 1.3465735902799727);
}

/* If both limits are equal and not rounded, the ramp is a step at pair 17.398, which turns once. A
 * ramp that would begin before the first pair begins at the first pair. */
static void a_ramp_may_be_a_step_or_begin_before_the_first_pair(void **state)
{
    (void)state;
    double angle[HALF], length[HALF];
    Attrs attrs = {.theta = 15e4,
                   .rope_factor = 32,
                   .rope_low = 1,
                   .rope_high = 1,
                   .rope_context = 4096,
                   .rope_yarn = 1};
    rotate_once(&attrs, angle, length);
    for (int e = 0; e < HALF; e++)
        assert_relative(angle[e], pow(15e4, -e / 32.0) / (e <= 17 ? 1 : 32));
    attrs.rope_high = 1e4; /* more turns than any pair makes: pair 0 makes 652 */
    rotate_once(&attrs, angle, length);
    for (int e = 0; e < 18; e++) {
        double kept = 1 - e / 17.398024501588560;
        if (kept < 0) kept = 0;
        assert_relative(angle[e], pow(15e4, -e / 32.0) * (kept + (1 - kept) / 32));
    }
}

/* LongRoPE divides the frequency of each pair by another factor. Phi-3's attention factor for
 * 131072 tokens after 4096 is sqrt(1 + ln 32 / ln 4096) = sqrt(17 / 12). */
static void longrope_divides_each_pair_by_its_own_factor(void **state)
{
    (void)state;
    double angle[HALF], length[HALF];
    Attrs attrs = {.theta = 1e4, .rope_gain = 1.1902380714238083};
    for (int e = 0; e < HALF; e++) attrs.rope_pair[e] = 1.07 + e * e;
    rotate_once(&attrs, angle, length);
    assert_relative(angle[0], 1 / 1.07);
    assert_relative(angle[8], 0.1 / 65.07);
    assert_relative(angle[16], 0.01 / 257.07);
    assert_relative(angle[24], 0.001 / 577.07);
    for (int e = 0; e < HALF; e++) assert_relative(length[e], sqrt(17.0 / 12));
}

/* Stores the angle of each pair at one position. */
static void rotate_at(const Attrs *attrs, int64_t token, double angle[HALF])
{
    Arena *arena = arena_new();
    Value x = value_new(arena, DT_f64, DIMS(1, 1, 1, E));
    Value y = value_new(arena, DT_f64, DIMS(1, 1, 1, E));
    Value args[2] = {x, y};
    Part part = {0};
    part.start['s'] = token;
    for (int e = 0; e < E; e++) value_set(&x, e, e < HALF);
    eval_op(OP_rope, attrs, args, 1, 1, &part, &no_control, 0);
    for (int e = 0; e < HALF; e++) angle[e] = atan2(value_get(&y, e + HALF), value_get(&y, e));
    arena_free(arena);
}

static void assert_angle(double have, double want)
{
    assert_true(fabs(remainder(have - want, 2 * 3.14159265358979323846)) < 1e-12);
}

/* Qwen2-VL's decoder reads 5 tokens of text, an image of 2 rows and 3 columns, then text. Its paper
 * lists these positions (time, row, column): text 0 to 4; the image (5, 5, 5), (5, 5, 6), (5, 5,
 * 7), (5, 6, 5), (5, 6, 6), (5, 6, 7); the text after it begins at 8. */
static void tokens_of_an_image_rotate_by_time_row_and_column(void **state)
{
    (void)state;
    const Attrs attrs = {.theta = 1e4, .rows = 2, .columns = 3, .first = 5, .lo = 8, .hi = 20};
    static const int place[13][3] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4},
                                     {5, 5, 5}, {5, 5, 6}, {5, 5, 7}, {5, 6, 5}, {5, 6, 6},
                                     {5, 6, 7}, {8, 8, 8}, {9, 9, 9}};
    for (int s = 0; s < 13; s++) {
        double angle[HALF];
        rotate_at(&attrs, s, angle);
        for (int e = 0; e < HALF; e++)
            assert_angle(angle[e], place[s][e < 8 ? 0 : e < 20 ? 1 : 2] * pow(1e4, -e / 32.0));
    }
}

/* In Qwen2-VL's encoder, half of the pairs rotate by row and the others by column, with the same
 * frequencies. Patches come in blocks of 2 x 2, which are merged later. */
static void patches_of_an_encoder_rotate_by_row_and_column(void **state)
{
    (void)state;
    const Attrs attrs = {.theta = 1e4, .rows = 4, .columns = 6, .hi = HALF / 2, .count = 2};
    static const int place[][3] = {{0, 0, 0}, {1, 0, 1},  {2, 1, 0},  {3, 1, 1}, {4, 0, 2},
                                   {7, 1, 3}, {11, 1, 5}, {12, 2, 0}, {23, 3, 5}};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        double angle[HALF];
        rotate_at(&attrs, place[i][0], angle);
        for (int e = 0; e < HALF; e++)
            assert_angle(angle[e], place[i][e < 16 ? 1 : 2] * pow(1e4, -(e % 16) / 16.0));
    }
}

/* The gradient is the transpose of a rotation with a gain: <dy, rope(x)> = <rope_grad(dy), x>. */
static void the_gradient_of_rope_is_its_transpose(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Attrs attrs = {.theta = 100,
                         .rope_factor = 4,
                         .rope_low = 1,
                         .rope_high = 2,
                         .rope_gain = 1.25,
                         .rope_context = 30,
                         .rope_yarn = 1,
                         .rope_dims = 6};
    Value x = value_new(arena, DT_f64, DIMS(1, 3, 1, 8)),
          y = value_new(arena, DT_f64, DIMS(1, 3, 1, 8));
    Value dy = value_new(arena, DT_f64, DIMS(1, 3, 1, 8)),
          dx = value_new(arena, DT_f64, DIMS(1, 3, 1, 8));
    for (int i = 0; i < 24; i++) value_set(&x, i, sin(i + 1.0)), value_set(&dy, i, cos(3.0 * i));
    Value forward[2] = {x, y}, backward[2] = {dy, dx};
    Part part = {0};
    part.start['s'] = 2;
    eval_op(OP_rope, &attrs, forward, 1, 1, &part, &no_control, 0);
    eval_op(OP_rope_grad, &attrs, backward, 1, 1, &part, &no_control, 0);
    double left = 0, right = 0;
    for (int i = 0; i < 24; i++) {
        left += value_get(&dy, i) * value_get(&y, i);
        right += value_get(&dx, i) * value_get(&x, i);
    }
    assert_relative(left, right);
    /* Elements beyond rope_dims get no gain. */
    assert_true(value_get(&y, 7) == value_get(&x, 7));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn_rounds_its_ramp_to_whole_pairs),
        cmocka_unit_test(yarn_without_rounding_has_its_attention_factor),
        cmocka_unit_test(a_ramp_may_be_a_step_or_begin_before_the_first_pair),
        cmocka_unit_test(longrope_divides_each_pair_by_its_own_factor),
        cmocka_unit_test(tokens_of_an_image_rotate_by_time_row_and_column),
        cmocka_unit_test(patches_of_an_encoder_rotate_by_row_and_column),
        cmocka_unit_test(the_gradient_of_rope_is_its_transpose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
