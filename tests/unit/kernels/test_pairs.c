/* Compares NVFP4's numbers with an obvious implementation: it rounds by trying every number of a
 * type, finds squares by comparing coordinates, and multiplies by a loop over all index letters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "planner/ir/op/op_private.h"
#include "tests/support/ops/eval.h"
#include "tests/support/test_arena.h"

enum { BLOCK = 16, SEED = 78 };
static const double largest = 6, largest_scale = 448;

static void run(OpKind op, const Attrs *attrs, Value *value)
{
    const Signature *sig = &op_info(op)->sig;
    Control control = {.step = 0};
    eval_op_scratch(op, attrs, value, sig->n_in, sig->n_out, NULL, &control);
}

/* Returns the nearest of these numbers; of two equally near numbers, the one at an even place. */
static double nearest(double x, const double *numbers, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        const double apart = fabs(numbers[i] - fabs(x)), before = fabs(numbers[best] - fabs(x));
        if (apart < before || (apart == before && i % 2 == 0)) best = i;
    }
    return copysign(numbers[best], x);
}

static double obvious_round(double x)
{
    static const double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    return nearest(x, numbers, 8);
}

static double obvious_scale(double x)
{
    double numbers[127];
    for (int code = 0; code < 127; code++) {
        const uint8_t byte = (uint8_t)code;
        numbers[code] = number_read(DT_e4m3, &byte, 0);
    }
    return nearest(x, numbers, 127);
}

/* ---- the type ---- */

static void numbers_of_e2m1_round_to_the_nearest(void **state)
{
    (void)state;
    for (int i = -70; i <= 70; i++) {
        const double x = i / 8., pair[2] = {x, -x};
        uint8_t byte = 0xff, other = 0;
        number_cast(DT_f64x2, pair, DT_e2m1x2, &byte, 2);
        assert_true(number_read(DT_e2m1x2, &byte, 0) == obvious_round(x));
        assert_true(number_read(DT_e2m1x2, &byte, 1) == obvious_round(-x));
        /* Writing one number keeps the other half of the byte. */
        number_write(DT_e2m1x2, &other, 1, -x);
        assert_true(number_read(DT_e2m1x2, &other, 0) == 0);
        number_write(DT_e2m1x2, &other, 0, x);
        assert_int_equal(byte, other);
        double back[2];
        number_cast(DT_e2m1x2, &byte, DT_f64x2, back, 2);
        assert_true(back[0] == obvious_round(x) && back[1] == obvious_round(-x));
    }
    const double ends[2] = {(double)INFINITY, (double)NAN};
    uint8_t byte;
    number_cast(DT_f64x2, ends, DT_e2m1x2, &byte, 2);
    assert_int_equal(byte, 7);
}

/* ---- quantising ---- */

/* An op, the dimension that it splits into blocks, and the other dimension of its square blocks;
 * -1: its blocks are rows. */
typedef struct PairsCase {
    OpKind op;
    int blocked, other;
    uint8_t n_dims;
    int64_t dim[4];
} PairsCase;

static const PairsCase layouts[] = {
    {OP_quantise_pairs_last, 2, -1, 3, {2, 3, 3 * BLOCK}},
    {OP_quantise_pairs_first, 0, -1, 3, {2 * BLOCK, 3, 5}},
    {OP_quantise_pairs_inner, 1, -1, 3, {3, 2 * BLOCK, 5}},
    {OP_quantise_pairs_tokens, 1, -1, 4, {2, 2 * BLOCK, 3, 2}},
    {OP_quantise_squares_first, 0, 3, 4, {2 * BLOCK, 2, 3, 2 * BLOCK}},
    {OP_quantise_squares_last, 3, 0, 4, {2 * BLOCK, 2, 3, 3 * BLOCK}},
    {OP_quantise_squares_inner, 2, 3, 4, {2, 3, 2 * BLOCK, 3 * BLOCK}},
    {OP_quantise_squares_outer, 3, 2, 4, {2, 3, 2 * BLOCK, 3 * BLOCK}},
    {OP_quantise_squares_first, 0, 1, 2, {3 * BLOCK, 2 * BLOCK}},
    {OP_quantise_squares_last, 1, 0, 2, {3 * BLOCK, 2 * BLOCK}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

typedef struct Quantise {
    const PairsCase *l;
    Value value[4]; /* x, its largest magnitude, pairs, scales */
} Quantise;

static Quantise quantise_of(const PairsCase *l, DType from, DType pairs, DType scale)
{
    Quantise q = {.l = l};
    int64_t split[MAX_DIMS], scales[MAX_DIMS];
    int n = 0;
    for (int d = 0; d < l->n_dims; d++) {
        scales[d] = split[n++] = d == l->blocked ? l->dim[d] / BLOCK : l->dim[d];
        if (d == l->blocked) split[n++] = BLOCK / 2;
    }
    q.value[0] = value_new(arena, from, l->n_dims, l->dim);
    q.value[1] = value_new(arena, from == DT_f64 ? DT_f64 : DT_f32, 0, NULL);
    q.value[2] = value_new(arena, pairs, (uint32_t)n, split);
    q.value[3] = value_new(arena, scale, l->n_dims, scales);
    return q;
}

/* Runs the op. Returns x's largest magnitude, which is an input of the op. */
static double run_quantise(Quantise *q)
{
    const Attrs attrs = {.scale = largest * largest_scale, .group = BLOCK};
    double most = 0;
    for (int64_t i = 0; i < value_elements(&q->value[0]); i++)
        most = fmax(most, fabs(value_get(&q->value[0], i)));
    value_set(&q->value[1], 0, most);
    run(q->l->op, &attrs, q->value);
    return fmax(most, 1e-12);
}

static void coordinates(const PairsCase *l, int64_t i, int64_t at[4])
{
    for (int d = l->n_dims; d-- > 0; i /= l->dim[d]) at[d] = i % l->dim[d];
}

/* Returns the place of element i among the numbers of pairs. Stores the place of its scale. */
static int64_t places(const PairsCase *l, int64_t i, int64_t *scale)
{
    int64_t at[4], pair = 0;
    coordinates(l, i, at);
    *scale = 0;
    for (int d = 0; d < l->n_dims; d++) {
        const bool is = d == l->blocked;
        *scale = *scale * (is ? l->dim[d] / BLOCK : l->dim[d]) + (is ? at[d] / BLOCK : at[d]);
        pair = pair * (is ? l->dim[d] / 2 : l->dim[d]) + (is ? at[d] / 2 : at[d]);
    }
    return 2 * pair + at[l->blocked] % 2;
}

/* Returns a number that only the elements with the same scale have in common. */
static int64_t block_of(const PairsCase *l, int64_t i)
{
    int64_t at[4], block = 0;
    coordinates(l, i, at);
    for (int d = 0; d < l->n_dims; d++) {
        const int64_t run = d == l->blocked || d == l->other ? BLOCK : 1;
        block = block * l->dim[d] + at[d] / run;
    }
    return block;
}

/* Returns the largest magnitude of each block. */
static double *largest_of_blocks(const Quantise *q)
{
    const int64_t n = value_elements(&q->value[0]);
    double *most = arena_array(arena, (size_t)n, sizeof *most);
    for (int64_t i = 0; i < n; i++) {
        double *of_block = &most[block_of(q->l, i)];
        *of_block = fmax(*of_block, fabs(value_get(&q->value[0], i)));
    }
    return most;
}

/* most: the largest magnitude in the block of element i; whole: that of all elements. */
static void check_number(const Quantise *q, double most, double whole, int64_t i)
{
    const bool rounds = q->value[3].dtype == DT_e4m3;
    const double factor = largest * largest_scale / whole, x = value_get(&q->value[0], i);
    int64_t at_scale;
    const int64_t at = places(q->l, i, &at_scale);
    const double scale = value_get(&q->value[3], at_scale), is = value_get(&q->value[2], at);
    const double wanted = most / 6 * factor;
    assert_true(rounds ? scale == obvious_scale(wanted) : fabs(scale - wanted) <= 1e-12 * wanted);
    const double part = scale == 0 ? 0 : fmax(-6, fmin(6, x * factor / scale));
    assert_true(rounds ? is == obvious_round(part) : fabs(is - part) <= 1e-12);
    if (!rounds) assert_true(fabs(is * scale / factor - x) <= 1e-12 * fabs(x));
}

static void fill(Value *x, uint64_t draw)
{
    for (int64_t i = 0; i < value_elements(x); i++) {
        const uint64_t at = (uint64_t)i;
        const int exponent = (int)rng_below(SEED, draw + 1, at, 24) - 12;
        double y = ldexp(rng_normal(SEED, draw + 2, at), draw % 2 ? exponent : 0);
        if (rng_below(SEED, draw, at, 8) == 0) y = 0;
        value_set(x, i, y);
    }
}

static void quantised_pairs_equal_a_simple_implementation(void **state)
{
    (void)state;
    static const DType from[] = {DT_bf16, DT_f32, DT_f64};
    for (size_t k = 0; k < N_LAYOUTS; k++)
        for (uint64_t draw = 0; draw < 4; draw++) {
            /* The proofs run the op with wide types, so that nothing is rounded. */
            const bool wide = draw == 3;
            Quantise q = quantise_of(&layouts[k], from[draw % 3 + (wide ? 2 : 0)],
                                     wide ? DT_f64x2 : DT_e2m1x2, wide ? DT_f64 : DT_e4m3);
            fill(&q.value[0], draw);
            const double whole = run_quantise(&q);
            const double *most = largest_of_blocks(&q);
            for (int64_t i = 0; i < value_elements(&q.value[0]); i++)
                check_number(&q, most[block_of(q.l, i)], whole, i);
            arena_reset(arena);
        }
}

/* Both products that read a weight must read the same numbers. */
static void squares_agree_in_both_directions(void **state)
{
    (void)state;
    static const int both[][2] = {{8, 9}, {6, 7}};
    for (int k = 0; k < 2; k++) {
        Quantise a = quantise_of(&layouts[both[k][0]], DT_f32, DT_e2m1x2, DT_e4m3);
        Quantise b = quantise_of(&layouts[both[k][1]], DT_f32, DT_e2m1x2, DT_e4m3);
        fill(&a.value[0], 1), fill(&b.value[0], 1);
        (void)run_quantise(&a), (void)run_quantise(&b);
        for (int64_t i = 0; i < value_elements(&a.value[0]); i++) {
            int64_t x, y;
            const int64_t at = places(a.l, i, &x), other = places(b.l, i, &y);
            assert_true(value_get(&a.value[2], at) == value_get(&b.value[2], other));
            assert_true(value_get(&a.value[3], x) == value_get(&b.value[3], y));
        }
        arena_reset(arena);
    }
}

/* Sets number 5 of a tensor of zeros to x, and number 0 of the next block to `next`. Returns the
 * scale of number 5, and its quantised value in *is. */
static double with_one(double x, double next, double *is)
{
    Quantise q = quantise_of(&layouts[0], DT_f32, DT_e2m1x2, DT_e4m3);
    for (int64_t i = 0; i < value_elements(&q.value[0]); i++) value_set(&q.value[0], i, 0);
    value_set(&q.value[0], 5, x), value_set(&q.value[0], BLOCK, next);
    (void)run_quantise(&q);
    *is = value_get(&q.value[2], 5);
    return value_get(&q.value[3], 0);
}

static void the_smallest_and_largest_numbers_are_quantised(void **state)
{
    (void)state;
    double is;
    assert_true(with_one(0, 0, &is) == 0 && is == 0);
    assert_true(with_one(-7, 1, &is) == 448 && is == -6);
    assert_true(with_one(0x1p-20, 1, &is) == 0 && is == 0); /* the scale is too small for e4m3 */
    assert_true(with_one(0x1p-17, 1, &is) == 0x1p-8 && is == 6);
    (void)with_one((double)NAN, 1, &is);
    Quantise q = quantise_of(&layouts[0], DT_f32, DT_e2m1x2, DT_e4m3);
    for (int64_t i = 0; i < value_elements(&q.value[0]); i++) value_set(&q.value[0], i, 1);
    value_set(&q.value[0], 5, (double)NAN);
    const Attrs attrs = {.scale = largest * largest_scale, .group = BLOCK};
    value_set(&q.value[1], 0, 1);
    run(q.l->op, &attrs, q.value);
    assert_true(isnan(value_get(&q.value[3], 0)) && value_get(&q.value[3], 1) == 448);
}

/* ---- products ---- */

/* Returns the size of an index letter. The sizes give several tiles of the kernel, and parts of
 * tiles. */
static int64_t letter_size(char letter)
{
    if (letter == 'A') return BLOCK / 2;
    return letter == 'k' || letter == 'n' ? 3 : letter == 'b' || letter == 's' ? 7 : 2;
}

static int64_t element_at(const SigTerm *term, const int64_t at['z' + 1])
{
    int64_t i = 0;
    for (uint32_t d = 0; d < term->n_dims; d++)
        i = i * letter_size(term->dim[d].letter) + at[(int)term->dim[d].letter];
    return i;
}

static bool combination(const Binding *b, int64_t i, int64_t at['z' + 1])
{
    for (uint32_t k = 0; k < b->n_letters; k++) {
        at[(int)b->letters[k]] = i % letter_size(b->letters[k]);
        i /= letter_size(b->letters[k]);
    }
    return i == 0;
}

static void make_values(const Signature *sig, DType out, Value v[7], Dims dims[7])
{
    const bool wide = out == DT_f64;
    for (uint32_t i = 0; i < 7; i++) {
        const SigTerm *term = sig_term(sig, i);
        int64_t *dim = arena_array(arena, MAX_DIMS, sizeof *dim);
        for (uint32_t d = 0; d < term->n_dims; d++) dim[d] = letter_size(term->dim[d].letter);
        dims[i] = (Dims){term->n_dims, dim};
        const DType dtype = i < 2   ? (wide ? DT_f64x2 : DT_e2m1x2)
                            : i < 4 ? (wide ? DT_f64 : DT_e4m3)
                            : i < 6 ? (wide ? DT_f64 : DT_f32)
                                    : out;
        v[i] = value_new(arena, dtype, term->n_dims, dim);
        const int64_t n = value_elements(&v[i]) * dtype_numbers(dtype);
        for (int64_t e = 0; e < n; e++) {
            const double x = 3 * rng_normal(SEED, i, (uint64_t)e);
            value_set(&v[i], e, i < 2 || i == 6 ? x : fabs(x) + .5);
        }
    }
}

static void check_product(OpKind op, DType out, bool accumulate)
{
    const Signature *sig = &op_info(op)->sig;
    Value v[7];
    Dims dims[7];
    Binding b;
    make_values(sig, out, v, dims);
    assert_true(op_bind(op, dims, 6, dims + 6, 1, &b, (Loc){0}, NULL));
    const int64_t n = value_elements(&v[6]);
    double *sum = arena_array(arena, (uint64_t)n, sizeof *sum),
           *size = arena_array(arena, (uint64_t)n, sizeof *size);
    for (int64_t e = 0; accumulate && e < n; e++) sum[e] = value_get(&v[6], e);
    int64_t at['z' + 1] = {0};
    const Attrs attrs = {.group = BLOCK, .scale = .3, .accumulate = accumulate};
    for (int64_t i = 0; combination(&b, i, at); i++)
        for (int half = 0; half < 2; half++) {
            double x = attrs.scale * value_get(&v[4], 0) * value_get(&v[5], 0);
            for (uint32_t k = 0; k < 4; k++) {
                const int64_t e = element_at(&sig->in[k], at);
                x *= value_get(&v[k], k < 2 ? 2 * e + half : e);
            }
            sum[element_at(&sig->out[0], at)] += x;
            size[element_at(&sig->out[0], at)] += fabs(x);
        }
    if (!accumulate) value_poison(&v[6]);
    run(op, &attrs, v);
    const double unit = out == DT_f64 ? 1e-14 : out == DT_f32 ? 1e-6 : 5e-3;
    for (int64_t e = 0; e < n; e++) {
        const double is = value_get(&v[6], e);
        if (!(fabs(is - sum[e]) <= unit * (size[e] + fabs(sum[e]))))
            fail_msg("%s: %g, not %g", op_info(op)->name, is, sum[e]);
    }
    arena_reset(arena);
}

static void products_of_pairs_equal_a_simple_implementation(void **state)
{
    (void)state;
    static const DType out[] = {DT_f32, DT_bf16, DT_f64};
    uint32_t n = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->scaling != SCALING_pairs) continue;
        for (int k = 0; k < 3; k++) check_product(op, out[k], (n + (uint32_t)k) % 2);
        n++;
    }
    assert_true(n == 8 * 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_of_e2m1_round_to_the_nearest),
        TEST(quantised_pairs_equal_a_simple_implementation),
        TEST(squares_agree_in_both_directions),
        TEST(the_smallest_and_largest_numbers_are_quantised),
        TEST(products_of_pairs_equal_a_simple_implementation),
    };
    return cmocka_run_group_tests_name("pairs", tests, NULL, NULL);
}
