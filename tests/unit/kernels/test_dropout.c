/* Dropout drops the stated fraction of elements and keeps the mean. Its mask depends on every part
 * of the key. Otherwise ranks or steps would drop the same elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/support/ops/eval.h"

enum { B = 4, S = 32, K = 64, N = B * S * K };

typedef struct Key {
    uint64_t seed;
    int64_t step, site;
    uint32_t microbatch;
} Key;

static void draw(Key key, double p, Value *y, Arena *arena)
{
    const int64_t dim[] = {B, S, K};
    Value x = value_new(arena, DT_f64, 3, dim);
    *y = value_new(arena, DT_f64, 3, dim);
    for (int64_t i = 0; i < N; i++) value_set(&x, i, 1);
    Control control = {.step = key.step, .seed = key.seed};
    Attrs attrs = {.drop = p, .site = key.site};
    eval_op(OP_dropout, &attrs, (Value[]){x, *y}, 1, 1, NULL, &control, key.microbatch);
}

static void dropout_keeps_its_rate_and_the_mean(void **state)
{
    (void)state;
    static const double probabilities[] = {0, 0.1, 0.5, 0.9};
    for (size_t k = 0; k < 4; k++) {
        Arena *arena = arena_new();
        double p = probabilities[k], sum = 0;
        int64_t kept = 0;
        Value y;
        draw((Key){1, 0, 1, 0}, p, &y, arena);
        for (int64_t i = 0; i < N; i++) {
            double v = value_get(&y, i);
            assert_true(v == 0 || v == 1 / (1 - p));
            kept += v != 0;
            sum += v;
        }
        double deviation = sqrt(N * p * (1 - p));
        assert_true(fabs((double)kept - N * (1 - p)) <= 4 * deviation);
        assert_true(fabs(sum - N) <= 4 * deviation / (1 - p) + 1e-6);
        arena_free(arena);
    }
}

/* Changing any part of the key gives another, independent mask: half of the elements agree. */
static void every_part_of_the_key_changes_the_mask(void **state)
{
    (void)state;
    const Key first = {1, 0, 1, 0};
    const Key others[] = {{2, 0, 1, 0}, {1, 1, 1, 0}, {1, 0, 2, 0}, {1, 0, 1, 1}};
    Arena *arena = arena_new();
    Value a, b;
    draw(first, 0.5, &a, arena);
    draw(first, 0.5, &b, arena);
    assert_memory_equal(a.at, b.at, N * sizeof(double));
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        int64_t alike = 0;
        draw(others[k], 0.5, &b, arena);
        for (int64_t i = 0; i < N; i++) alike += value_get(&a, i) == value_get(&b, i);
        assert_true(fabs((double)alike - N / 2.0) < 4 * sqrt(N / 4.0));
    }
    arena_free(arena);
}

/* All values are equal, so dropout in attention drops a part of the sum of probabilities. It keeps
 * the mean and does not change the log-sum-exp. */
static void attention_drops_probabilities_and_keeps_the_mean(void **state)
{
    (void)state;
    enum { HEADS = 4, T = 64, E = 2, ROWS = 2 * T * HEADS };
    Arena *arena = arena_new();
    const int64_t q[] = {2, T, HEADS, 1, E}, k[] = {2, T, HEADS, E}, lse[] = {2, T, HEADS, 1};
    Value in[3] = {value_new(arena, DT_f64, 5, q), value_new(arena, DT_f64, 4, k),
                   value_new(arena, DT_f64, 4, k)};
    Value out[2][2];
    for (int64_t i = 0; i < ROWS * E; i++)
        value_set(&in[0], i, sin((double)i)), value_set(&in[1], i, cos((double)i)),
            value_set(&in[2], i, 1);
    Control control = {.step = 0, .seed = 3};
    for (int drop = 0; drop < 2; drop++) {
        Attrs attrs = {.scale = 0.7, .drop = drop ? 0.25 : 0, .site = 1};
        out[drop][0] = value_new(arena, DT_f64, 5, q);
        out[drop][1] = value_new(arena, DT_f64, 4, lse);
        Value args[] = {in[0], in[1], in[2], out[drop][0], out[drop][1]};
        eval_op(OP_attention, &attrs, args, 3, 2, NULL, &control, 0);
    }
    double sum = 0;
    int64_t changed = 0;
    for (int64_t i = 0; i < ROWS * E; i++) {
        assert_true(fabs(value_get(&out[0][0], i) - 1) < 1e-12);
        sum += value_get(&out[1][0], i);
        changed += fabs(value_get(&out[1][0], i) - 1) > 1e-6;
    }
    assert_true(changed > ROWS * E * 9 / 10);
    assert_true(fabs(sum / (ROWS * E) - 1) < 0.02);
    assert_memory_equal(out[0][1].at, out[1][1].at, ROWS * sizeof(double));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_keeps_its_rate_and_the_mean),
        cmocka_unit_test(every_part_of_the_key_changes_the_mask),
        cmocka_unit_test(attention_drops_probabilities_and_keeps_the_mean)};
    return cmocka_run_group_tests_name("dropout", tests, NULL, NULL);
}
