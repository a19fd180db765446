/* Kernels that are not plain arithmetic: lookups in parts of a table, the update of weights and its
 * norm, ops that only move data, and initial values. Also the table of kernels itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/ir/graph.h"
#include "tests/support/ops/eval.h"

enum { SEED = 12 };

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static Value filled(Arena *arena, DType real, uint64_t stream, uint32_t n, const int64_t *dim)
{
    Value v = value_new(arena, real, n, dim);
    for (int64_t i = 0; i < value_elements(&v); i++)
        value_set(&v, i, rng_normal(SEED, stream, (uint64_t)i));
    return v;
}

static void every_op_but_communications_has_a_kernel(void **state)
{
    (void)state;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++)
        assert_int_equal(kernel_cpu(op) != NULL, op_info(op)->class_ != OP_CLASS_comm);
    assert_true(kernel_cpu(OP_silu) != kernel_cpu(OP_gelu));
}

static void kernels_accept_only_their_dtypes(void **state)
{
    (void)state;
    const DType f32 = DT_f32, f64 = DT_f64, i32 = DT_i32;
    assert_true(kernel_cpu_accepts(OP_linear, (DType[]){f32, f32, f32}, 3));
    assert_false(kernel_cpu_accepts(OP_linear, (DType[]){f32, f64, f32}, 3));
    assert_true(kernel_cpu_accepts(OP_embed, (DType[]){i32, f64, f64}, 3));
    assert_false(kernel_cpu_accepts(OP_embed, (DType[]){f64, f64, f64}, 3));
    assert_true(kernel_cpu_accepts(OP_xent_loss, (DType[]){f32, f32, f32, i32, f64, f64}, 6));
    assert_false(kernel_cpu_accepts(OP_xent_loss, (DType[]){f64, f64, f64, i32, f32, f64}, 6));
    assert_true(kernel_cpu_accepts(OP_adamw, (DType[]){f32, f32, f32, f32, f64, f32, f32, f32}, 8));
    assert_false(
        kernel_cpu_accepts(OP_adamw, (DType[]){f32, f32, f32, f32, f32, f32, f32, f32}, 8));
    assert_true(kernel_cpu_accepts(OP_cast, (DType[]){f32, f64}, 2));
    assert_true(kernel_cpu_accepts(OP_cast, (DType[]){DT_bf16, f32}, 2));
    const DType mixed[] = {DT_bf16, DT_f16, f32, DT_u8}, doubles[] = {DT_bf16, DT_bf16, f64, DT_u8};
    assert_true(kernel_cpu_accepts(OP_linear, mixed, 4));
    /* A product of 16-bit numbers needs scratch, which is the fourth argument. */
    assert_false(kernel_cpu_accepts(OP_linear, mixed, 3));
    assert_false(kernel_cpu_accepts(OP_linear, doubles, 4));
    const DType eight[] = {DT_e4m3, DT_e5m2, f64, f64, f64, DT_u8}, more[] = {f64, f64, DT_e4m3};
    const int64_t one_each[] = {6, 3, 1, 1, 5};
    /* A product may compute in fp64, if it has scratch for that. */
    assert_true(kernel_cpu_accepts(OP_linear_tensorwise, eight, 6));
    assert_int_equal(kernel_cpu_workspace(OP_linear_tensorwise, eight, one_each, 5), 64 + 3 * 8);
    assert_true(kernel_cpu_accepts(OP_quantise_range, more, 3));
    assert_false(kernel_cpu_accepts(OP_linear, (DType[]){DT_e4m3, DT_e4m3, f64, DT_u8}, 4));
    assert_true(kernel_cpu_accepts(OP_silu, mixed, 2)); /* silu needs no scratch */
    assert_false(kernel_cpu_accepts(OP_linear, (DType[]){f32, f32, f32, DT_u8}, 4));
    const int64_t elements[] = {6, 3, 5};
    assert_int_equal(kernel_cpu_workspace(OP_linear, mixed, elements, 3), 64 + 3 * 4);
    assert_int_equal(kernel_cpu_workspace(OP_silu, mixed, elements, 2), 0);
    assert_false(kernel_cpu_accepts(OP_cast, (DType[]){i32, f32}, 2));
    assert_true(kernel_cpu_accepts(OP_pack, (DType[]){i32, i32}, 2));
    assert_false(kernel_cpu_accepts(OP_pack, (DType[]){i32, f64}, 2));
    assert_false(kernel_cpu_accepts(OP_all_reduce, (DType[]){f32, f32}, 2));
}

/* A rank has a part of a table. Ids outside it give zero, and only the part's rows get a
 * gradient. */
static void a_part_of_a_table_serves_only_its_own_ids(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    enum { V = 3, START = 4, VALID = 2, K = 2 };
    Value ids = value_new(arena, DT_i32, DIMS(1, 5));
    static const double id[] = {4, 0, 5, 6, 4}; /* id 6 is that of the padding row */
    for (int i = 0; i < 5; i++) value_set(&ids, i, id[i]);
    Value table = filled(arena, DT_f64, 1, DIMS(V, K)), y = value_new(arena, DT_f64, DIMS(1, 5, K));
    Value dtable = value_new(arena, DT_f64, DIMS(V, K));
    Part part = {0};
    part.start['v'] = START;
    part.valid['v'] = VALID;
    eval_op(OP_embed, NULL, (Value[]){ids, table, y}, 2, 1, &part, NULL, 0);
    for (int i = 0; i < 5 * K; i++) {
        int row = (int)id[i / K] - START;
        bool mine = row >= 0 && row < VALID;
        assert_true(value_get(&y, i) == (mine ? value_get(&table, row * K + i % K) : 0));
    }
    for (int i = 0; i < 5 * K; i++) value_set(&y, i, i + 1);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        Attrs attrs = {.accumulate = accumulate};
        eval_op(OP_embed_grad, &attrs, (Value[]){y, ids, dtable}, 2, 1, &part, NULL, 0);
        int times = accumulate + 1;
        assert_true(value_get(&dtable, 0) == times * (1 + 9)); /* id 4 occurs twice */
        assert_true(value_get(&dtable, 3) == times * 6);
        /* The padding row gets no gradient. */
        assert_true(value_get(&dtable, 4) == 0 && value_get(&dtable, 5) == 0);
    }
    arena_free(arena);
}

/* Compares three steps of AdamW with its paper's definition. */
static void adamw_follows_its_paper(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Attrs attrs = {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.2};
    Value p = filled(arena, DT_f64, 1, DIMS(9)), clip = value_new(arena, DT_f64, DIMS(2));
    Value m = value_new(arena, DT_f64, DIMS(9)), v = value_new(arena, DT_f64, DIMS(9));
    double expected[9], em[9] = {0}, ev[9] = {0};
    for (int i = 0; i < 9; i++) {
        expected[i] = value_get(&p, i);
        value_set(&m, i, 0), value_set(&v, i, 0);
    }
    value_set(&clip, 0, 123), value_set(&clip, 1, 0.5);
    for (int t = 1; t <= 3; t++) {
        Value g = filled(arena, DT_f64, 10 + (uint64_t)t, DIMS(9));
        Control control = {.step = t - 1, .lr = 0.01 * t};
        eval_op(OP_adamw, &attrs, (Value[]){p, m, v, g, clip, p, m, v}, 5, 3, NULL, &control, 0);
        for (int i = 0; i < 9; i++) {
            double grad = 0.5 * value_get(&g, i);
            em[i] = 0.8 * em[i] + 0.2 * grad;
            ev[i] = 0.9 * ev[i] + 0.1 * grad * grad;
            double mhat = em[i] / (1 - pow(0.8, t)), vhat = ev[i] / (1 - pow(0.9, t));
            expected[i] -= control.lr * (mhat / (sqrt(vhat) + 1e-6) + 0.2 * expected[i]);
            assert_true(fabs(value_get(&p, i) - expected[i]) < 1e-14);
            assert_true(fabs(value_get(&m, i) - em[i]) < 1e-15);
        }
    }
    arena_free(arena);
}

static void sgd_follows_its_definition(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Attrs attrs = {.weight_decay = 0.5};
    Control control = {.lr = 0.1};
    Value p = filled(arena, DT_f32, 1, DIMS(5)), g = filled(arena, DT_f32, 2, DIMS(5));
    Value before = filled(arena, DT_f32, 1, DIMS(5)), clip = value_new(arena, DT_f64, DIMS(2));
    value_set(&clip, 1, 0.25);
    eval_op(OP_sgd, &attrs, (Value[]){p, g, clip, p}, 3, 1, NULL, &control, 0);
    for (int i = 0; i < 5; i++) {
        double x = value_get(&before, i), step = 0.25 * value_get(&g, i) + 0.5 * x;
        assert_true(fabs(value_get(&p, i) - (x - 0.1 * step)) < 1e-6);
    }
    arena_free(arena);
}

/* A flat unit comes in parts, and the table has two sums. Only elements [lo, hi) count. */
static void the_norm_of_gradients_sets_the_clip_factor(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Value x = filled(arena, DT_f32, 1, DIMS(40)), table = value_new(arena, DT_f64, DIMS(2));
    Value out = value_new(arena, DT_f64, DIMS(2)), factor = value_new(arena, DT_f64, 0, NULL);
    value_set(&factor, 0, 1);
    Attrs attrs = {.lo = 3, .hi = 37, .clip = 2};
    const Value sum = {.dtype = DT_f64, .n_dims = 1, .dim = {1}, .at = table.at};
    double expected = 0;
    for (int i = 3; i < 37; i++) expected += pow(value_get(&x, i), 2);
    value_set(&table, 0, -1), value_set(&table, 1, 4);
    for (int part = 0; part < 4; part++) {
        Value piece = {.dtype = DT_f32, .n_dims = 1, .dim = {10}, .at = (float *)x.at + 10 * part};
        Part p = {0};
        p.start['x'] = 10 * part;
        attrs.accumulate = part > 0;
        eval_op(OP_sumsq, &attrs, (Value[]){piece, sum}, 1, 1, &p, NULL, 0);
    }
    assert_true(fabs(value_get(&table, 0) - expected) < 1e-12 * expected);
    assert_true(value_get(&table, 1) == 4); /* the other sum is unchanged */
    eval_op(OP_clip_coef, &attrs, (Value[]){table, factor, out}, 2, 1, NULL, NULL, 0);
    double norm = sqrt(expected + 4);
    assert_true(fabs(value_get(&out, 0) - norm) < 1e-12);
    assert_true(fabs(value_get(&out, 1) - 2 / (norm + 1e-6)) < 1e-12);
    /* A bound above the gradient's norm changes nothing, and neither does a bound of 0. */
    attrs.clip = 1000;
    eval_op(OP_clip_coef, &attrs, (Value[]){table, factor, out}, 2, 1, NULL, NULL, 0);
    assert_true(value_get(&out, 1) == 1);
    attrs.clip = 0;
    eval_op(OP_clip_coef, &attrs, (Value[]){table, factor, out}, 2, 1, NULL, NULL, 0);
    assert_true(value_get(&out, 1) == 1);
    attrs.clip = 2; /* clipping must not hide a NaN */
    value_set(&table, 1, NAN);
    eval_op(OP_clip_coef, &attrs, (Value[]){table, factor, out}, 2, 1, NULL, NULL, 0);
    assert_true(isnan(value_get(&out, 0)) && isnan(value_get(&out, 1)));
    arena_free(arena);
}

/* Checks ops that only move data. OP_pack stores all slices one after the other, and OP_unpack
 * inverts it. Padding is zero, for any element size. */
static void check_moves(DType dtype, int64_t outer, int64_t middle, int64_t inner, int64_t parts)
{
    Arena *arena = arena_new();
    int64_t size = (middle + parts - 1) / parts;
    size_t bytes = dtype_bytes(dtype), part_bytes = (size_t)(outer * size * inner) * bytes;
    Value whole = value_new(arena, dtype, DIMS(outer, middle, inner));
    Value packed = value_new(arena, dtype, DIMS(parts, outer, size, inner));
    Value slice = value_new(arena, dtype, DIMS(outer, size, inner));
    Value back = value_new(arena, dtype, DIMS(outer, middle, inner));
    /* No byte of the data is zero, but padding is. */
    for (size_t i = 0; i < (size_t)value_elements(&whole) * bytes; i++)
        ((uint8_t *)whole.at)[i] = (uint8_t)(1 + rng_below(SEED, 3, i, 255));
    Extents x = {outer, middle, inner, 0, size};
    Attrs attrs = {.parts = parts, .dim = 1};
    eval_reshape(OP_pack, &attrs, &whole, &packed, &x);
    for (int64_t part = 0; part < parts; part++) {
        x.part_start = part * size;
        eval_reshape(OP_slice, &attrs, &whole, &slice, &x);
        assert_memory_equal(slice.at, (char *)packed.at + (size_t)part * part_bytes, part_bytes);
        /* OP_place keeps the part and sets all elements around it to zero. */
        eval_reshape(OP_place, &attrs, &slice, &back, &x);
        for (int64_t i = 0; i < outer * middle * inner; i++) {
            const int64_t at = i / inner % middle;
            const bool in_part = at >= part * size && at < (part + 1) * size;
            static const char zero[8];
            assert_memory_equal((char *)back.at + (size_t)i * bytes,
                                in_part ? (char *)whole.at + (size_t)i * bytes : zero, bytes);
        }
        for (int64_t i = 0; i < outer * size * inner; i++) {
            int64_t at = part * size + i / inner % size;
            int64_t from = (i / inner / size * middle + at) * inner + i % inner;
            static const char zero[8];
            assert_memory_equal((char *)slice.at + (size_t)i * bytes,
                                at < middle ? (char *)whole.at + (size_t)from * bytes : zero,
                                bytes);
        }
    }
    eval_reshape(OP_unpack, &attrs, &packed, &back, &x);
    assert_memory_equal(back.at, whole.at, (size_t)value_elements(&whole) * bytes);
    value_poison(&back);
    eval_reshape(OP_copy, &attrs, &whole, &back, &x);
    assert_memory_equal(back.at, whole.at, (size_t)value_elements(&whole) * bytes);
    arena_free(arena);
}

static void packing_and_unpacking_are_inverse(void **state)
{
    (void)state;
    static const DType dtypes[] = {DT_f64, DT_f32, DT_bf16, DT_u8, DT_i32};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        check_moves(dtypes[i], 3, 8, 2, 4);
        check_moves(dtypes[i], 2, 7, 3, 3); /* the parts have 3, 3 and 1 rows */
        check_moves(dtypes[i], 1, 4, 1, 3); /* the parts have 2, 2 and 0 rows */
        check_moves(dtypes[i], 4, 5, 2, 1);
    }
}

/* In a zigzag, part p of n has chunks p and 2n - 1 - p. */
static void packing_follows_the_chunks_of_a_zigzag(void **state)
{
    (void)state;
    enum { OUTER = 2, PARTS = 3, HALF = 2, INNER = 3, WHOLE_SIZE = 2 * PARTS * HALF };
    Arena *arena = arena_new();
    Value whole = value_new(arena, DT_i32, DIMS(OUTER, WHOLE_SIZE, INNER));
    Value packed = value_new(arena, DT_i32, DIMS(PARTS, OUTER, 2 * HALF, INNER));
    Value back = value_new(arena, DT_i32, DIMS(OUTER, WHOLE_SIZE, INNER));
    const Extents x = {OUTER, WHOLE_SIZE, INNER, 0, 2 * HALF};
    const Attrs attrs = {.parts = PARTS, .dim = 1, .chunks = 2};
    for (int64_t i = 0; i < value_elements(&whole); i++) ((int32_t *)whole.at)[i] = (int32_t)i;
    eval_reshape(OP_pack, &attrs, &whole, &packed, &x);
    for (int64_t i = 0; i < value_elements(&packed); i++) {
        const int64_t column = i % INNER, at = i / INNER % (2 * HALF),
                      outer = i / INNER / (2 * HALF) % OUTER, part = i / INNER / (2 * HALF) / OUTER;
        const int64_t chunk = at < HALF ? part : 2 * PARTS - 1 - part;
        const int64_t from = (outer * WHOLE_SIZE + chunk * HALF + at % HALF) * INNER + column;
        assert_int_equal(((int32_t *)packed.at)[i], from);
    }
    value_poison(&back);
    eval_reshape(OP_unpack, &attrs, &packed, &back, &x);
    assert_memory_equal(back.at, whole.at, (size_t)value_elements(&whole) * 4);
    arena_free(arena);
}

static void casts_round_and_fills_set_a_constant(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Value wide = filled(arena, DT_f64, 1, DIMS(3, 5)),
          narrow = value_new(arena, DT_f32, DIMS(3, 5));
    Value again = value_new(arena, DT_f64, DIMS(3, 5));
    eval_op(OP_cast, NULL, (Value[]){wide, narrow}, 1, 1, NULL, NULL, 0);
    eval_op(OP_cast, NULL, (Value[]){narrow, again}, 1, 1, NULL, NULL, 0);
    for (int i = 0; i < 15; i++)
        assert_true(value_get(&again, i) == (double)(float)value_get(&wide, i));
    eval_op(OP_fill, NULL, &again, 0, 1, NULL, NULL, 0);
    eval_op(OP_fill, &(Attrs){.scale = 1.5}, &narrow, 0, 1, NULL, NULL, 0);
    for (int i = 0; i < 15; i++)
        assert_true(value_get(&again, i) == 0 && value_get(&narrow, i) == 1.5);
    arena_free(arena);
}

static void initial_values_follow_their_distribution(void **state)
{
    (void)state;
    enum { N = 40000 };
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = kernel_init_value(1, 2, i, INIT_normal, 0.5, 0.1);
        assert_true(x == kernel_init_value(1, 2, i, INIT_normal, 0.5, 0.1));
        sum += x / N;
        square += (x - 0.5) * (x - 0.5) / N;
        double u = kernel_init_value(1, 2, i, INIT_uniform, -2, 3);
        assert_true(u >= -2 && u < 3);
    }
    assert_true(fabs(sum - 0.5) < 0.002 && fabs(sqrt(square) - 0.1) < 0.002);
    assert_true(kernel_init_value(1, 2, 3, INIT_normal, 0, 1) !=
                kernel_init_value(1, 3, 3, INIT_normal, 0, 1));
    assert_true(kernel_init_value(1, 2, 3, INIT_normal, 0, 1) !=
                kernel_init_value(2, 2, 3, INIT_normal, 0, 1));
    assert_true(kernel_init_value(1, 2, 3, INIT_zeros, 5, 5) == 0);
    assert_true(kernel_init_value(1, 2, 3, INIT_ones, 5, 5) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_but_communications_has_a_kernel),
                                       cmocka_unit_test(kernels_accept_only_their_dtypes),
                                       cmocka_unit_test(adamw_follows_its_paper),
                                       cmocka_unit_test(a_part_of_a_table_serves_only_its_own_ids),
                                       cmocka_unit_test(sgd_follows_its_definition),
                                       cmocka_unit_test(the_norm_of_gradients_sets_the_clip_factor),
                                       cmocka_unit_test(packing_and_unpacking_are_inverse),
                                       cmocka_unit_test(packing_follows_the_chunks_of_a_zigzag),
                                       cmocka_unit_test(casts_round_and_fills_set_a_constant),
                                       cmocka_unit_test(initial_values_follow_their_distribution)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
