/* Compares blocks of numbers that share a scale with a simple implementation. That finds a scale by
 * trying every power of two, rounds by trying every number of the type, and multiplies by a loop
 * over all index letters. */
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

enum { BLOCK = 32, SEED = 77 };
static const double largest = 448;

static void run(OpKind op, const Attrs *attrs, Value *value)
{
    const Signature *sig = &op_info(op)->sig;
    const uint32_t n = (uint32_t)sig->n_in + sig->n_out;
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
    for (uint32_t i = 0; i < n; i++) {
        dtype[i] = value[i].dtype;
        elements[i] = value_elements(&value[i]);
    }
    int64_t bytes = (int64_t)kernel_cpu_workspace(op, dtype, elements, n);
    Value scratch = {.dtype = DT_u8};
    if (bytes > 0) scratch = value_new(arena, DT_u8, 1, &bytes);
    Control control = {.step = 0};
    eval_op_scratch(op, attrs, value, sig->n_in, sig->n_out, bytes > 0 ? &scratch : NULL, &control);
}

/* ---- the obvious implementation ---- */

/* Returns the least power of two from 2^-127 for which `most` does not exceed the largest number.
 */
static double obvious_scale(double most)
{
    double scale = ldexp(1, -127);
    while (most > largest * scale && scale < ldexp(1, 127)) scale *= 2;
    return scale;
}

/* Returns the number of the type that is nearest to x; of two equally near numbers, the one with an
 * even code. */
static double obvious_round(double x)
{
    double best = NAN;
    for (int code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        const double is = number_read(DT_e4m3, &byte, 0);
        if (isnan(is) || signbit(is) != signbit(x)) continue;
        const double apart = fabs(is - x), before = fabs(best - x);
        if (isnan(best) || apart < before || (apart == before && code % 2 == 0)) best = is;
    }
    return best;
}

/* ---- quantising ---- */

/* An op and the dimension of its input that has blocks. */
typedef struct BlocksCase {
    OpKind op;
    int blocked;
    uint8_t n_dims;
    int64_t dim[4];
} BlocksCase;

static const BlocksCase layouts[] = {
    {OP_quantise_blocks_last, 2, 3, {2, 3, 3 * BLOCK}},
    {OP_quantise_blocks_first, 0, 3, {2 * BLOCK, 3, 5}},
    {OP_quantise_blocks_inner, 1, 3, {3, 2 * BLOCK, 5}},
    {OP_quantise_blocks_tokens, 1, 4, {2, 2 * BLOCK, 3, 2}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

typedef struct Quantise {
    Value value[3]; /* x, its blocks, their scales */
    /* blocks: blocks in the dimension; behind: elements of the later dimensions */
    int64_t blocks, behind;
} Quantise;

static Quantise quantise_of(const BlocksCase *l, DType from)
{
    Quantise q = {.behind = 1};
    int64_t split[MAX_DIMS], scales[MAX_DIMS];
    int n = 0;
    for (int d = 0; d < l->n_dims; d++) {
        const bool is = d == l->blocked;
        scales[d] = split[n++] = is ? l->dim[d] / BLOCK : l->dim[d];
        if (is) split[n++] = BLOCK;
        if (d > l->blocked) q.behind *= l->dim[d];
    }
    q.blocks = l->dim[l->blocked] / BLOCK;
    q.value[0] = value_new(arena, from, l->n_dims, l->dim);
    q.value[1] = value_new(arena, DT_e4m3, (uint32_t)n, split);
    q.value[2] = value_new(arena, DT_e8m0, l->n_dims, scales);
    value_poison(&q.value[1]), value_poison(&q.value[2]);
    return q;
}

static void run_quantise(const BlocksCase *l, Quantise *q)
{
    const Attrs attrs = {.scale = largest, .group = BLOCK};
    run(l->op, &attrs, q->value);
}

/* Returns the place in x of element j of block i. Blocks are numbered like their scales. */
static int64_t place(const Quantise *q, int64_t i, int64_t j)
{
    return (i / q->behind * BLOCK + j) * q->behind + i % q->behind;
}

static void check_block(const Quantise *q, int64_t i)
{
    double most = 0;
    for (int64_t j = 0; j < BLOCK; j++)
        most = fmax(most, fabs(value_get(&q->value[0], place(q, i, j))));
    const double scale = value_get(&q->value[2], i);
    assert_true(scale == obvious_scale(most));
    for (int64_t j = 0; j < BLOCK; j++) {
        const double x = value_get(&q->value[0], place(q, i, j));
        const double is = value_get(&q->value[1], place(q, i, j));
        assert_true(is == obvious_round(x / scale));
        /* Rounding changes a number by at most half of its last bit, or half of the smallest
         * number. */
        assert_true(fabs(is * scale - x) <= fabs(x) * 0x1p-4 + scale * 0x1p-10);
    }
}

/* Fills x with numbers of any size, zeros, and blocks at the edge of the next power of two. */
static void fill(Value *x, uint64_t draw)
{
    for (int64_t i = 0; i < value_elements(x); i++) {
        const uint64_t at = (uint64_t)i, kind = rng_below(SEED, draw, at, 8);
        const int exponent = (int)rng_below(SEED, draw + 1, at, 240) - 125;
        double y = ldexp(rng_normal(SEED, draw + 2, at), draw % 3 ? exponent / 8 : exponent);
        if (kind == 0) y = 0;
        if (kind == 1) y = ldexp(448, exponent / 8);
        value_set(x, i, y);
    }
}

static void quantised_blocks_equal_a_simple_implementation(void **state)
{
    (void)state;
    static const DType from[] = {DT_bf16, DT_f32, DT_f64};
    for (size_t k = 0; k < N_LAYOUTS; k++)
        for (uint64_t draw = 0; draw < 9; draw++) {
            Quantise q = quantise_of(&layouts[k], from[draw / 3]);
            fill(&q.value[0], draw);
            run_quantise(&layouts[k], &q);
            for (int64_t i = 0; i < value_elements(&q.value[2]); i++) check_block(&q, i);
            arena_reset(arena);
        }
}

/* Numbers that are quantised already do not change. A factor that is a power of two changes only
 * scales. */
static void quantising_twice_changes_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        Quantise once = quantise_of(&layouts[k], DT_f32), again = quantise_of(&layouts[k], DT_f32);
        Quantise moved = quantise_of(&layouts[k], DT_f32);
        const int64_t n = value_elements(&once.value[0]), blocks = value_elements(&once.value[2]);
        for (int64_t i = 0; i < n; i++)
            value_set(&once.value[0], i, rng_normal(SEED, 9, (uint64_t)i));
        run_quantise(&layouts[k], &once);
        for (int64_t i = 0; i < blocks; i++)
            for (int64_t j = 0; j < BLOCK; j++) {
                const int64_t at = place(&once, i, j);
                const double x = value_get(&once.value[1], at) * value_get(&once.value[2], i);
                value_set(&again.value[0], at, x);
                value_set(&moved.value[0], at, 0x1p-20 * value_get(&once.value[0], at));
            }
        run_quantise(&layouts[k], &again);
        run_quantise(&layouts[k], &moved);
        assert_memory_equal(once.value[1].at, moved.value[1].at, (size_t)n);
        for (int64_t i = 0; i < blocks; i++) {
            const double scale = value_get(&once.value[2], i);
            assert_true(value_get(&moved.value[2], i) == scale * 0x1p-20);
            for (int64_t j = 0; j < BLOCK; j++) {
                const int64_t at = place(&once, i, j);
                assert_true(value_get(&again.value[1], at) * value_get(&again.value[2], i) ==
                            value_get(&once.value[1], at) * scale);
            }
        }
        arena_reset(arena);
    }
}

/* Sets one number of a block of zeros to x. Returns the block's scale, and that number in *is. */
static double with_one(double x, DType from, double *is)
{
    Quantise q = quantise_of(&layouts[0], from);
    for (int64_t i = 0; i < value_elements(&q.value[0]); i++) value_set(&q.value[0], i, 0);
    value_set(&q.value[0], 5, x);
    run_quantise(&layouts[0], &q);
    *is = value_get(&q.value[1], 5);
    return value_get(&q.value[2], 0);
}

static void the_smallest_and_largest_numbers_are_quantised(void **state)
{
    (void)state;
    double is;
    assert_true(with_one(0, DT_f32, &is) == 0x1p-127 && is == 0);
    assert_true(with_one(448, DT_f32, &is) == 1 && is == 448);
    assert_true(with_one(-448.001, DT_f32, &is) == 2 && is == -224);
    assert_true(with_one(0x1p-140, DT_f32, &is) == 0x1p-127 && is == 0);
    assert_true(with_one(0x1p-130, DT_f32, &is) == 0x1p-127 && is == 0x1p-3);
    assert_true(with_one(0x1.FEp127, DT_f32, &is) == 0x1p120 && is == 256);
    assert_true(with_one((double)INFINITY, DT_f32, &is) == 0x1p127 && is == 448);
    assert_true(with_one(-1e300, DT_f64, &is) == 0x1p127 && is == -448);
    assert_true(isnan(with_one((double)NAN, DT_f32, &is)) && isnan(is));
}

/* ---- products ---- */

/* Returns the size of an index letter. The sizes give several tiles of the kernel, and parts of
 * tiles. */
static int64_t letter_size(char letter)
{
    if (letter == 'B') return BLOCK;
    return letter == 'k' || letter == 'n' ? 3 : letter == 'b' || letter == 's' ? 7 : 2;
}

/* Returns the place of a term's element at these values of the letters. */
static int64_t element_at(const SigTerm *term, const int64_t at['z' + 1])
{
    int64_t i = 0;
    for (uint32_t d = 0; d < term->n_dims; d++)
        i = i * letter_size(term->dim[d].letter) + at[(int)term->dim[d].letter];
    return i;
}

/* Sets the letters to combination i. Returns false after the last combination. */
static bool combination(const Binding *b, int64_t i, int64_t at['z' + 1])
{
    for (uint32_t k = 0; k < b->n_letters; k++) {
        at[(int)b->letters[k]] = i % letter_size(b->letters[k]);
        i /= letter_size(b->letters[k]);
    }
    return i == 0;
}

static void check_product(OpKind op, DType out, bool accumulate)
{
    const Signature *sig = &op_info(op)->sig;
    Value v[5];
    Binding b;
    Dims dims[5];
    for (uint32_t i = 0; i < 5; i++) {
        const SigTerm *term = sig_term(sig, i);
        int64_t *dim = arena_array(arena, MAX_DIMS, sizeof *dim);
        for (uint32_t d = 0; d < term->n_dims; d++) dim[d] = letter_size(term->dim[d].letter);
        dims[i] = (Dims){term->n_dims, dim};
        const DType wide = out == DT_f64 ? DT_f64 : DT_e4m3;
        v[i] = value_new(arena, i < 2 ? wide : i < 4 ? DT_e8m0 : out, term->n_dims, dim);
        for (int64_t e = 0; e < value_elements(&v[i]); e++) {
            const double x = 3 * rng_normal(SEED, i, (uint64_t)e);
            value_set(&v[i], e, i < 2 || i == 4 ? x : ldexp(1, (int)(x * 2)));
        }
    }
    assert_true(op_bind(op, dims, 4, dims + 4, 1, &b, (Loc){0}, NULL));
    const int64_t n = value_elements(&v[4]);
    double *sum = arena_array(arena, (uint64_t)n, sizeof *sum),
           *size = arena_array(arena, (uint64_t)n, sizeof *size);
    for (int64_t e = 0; accumulate && e < n; e++) sum[e] = value_get(&v[4], e);
    int64_t at['z' + 1] = {0};
    for (int64_t i = 0; combination(&b, i, at); i++) {
        double x = 1;
        for (uint32_t k = 0; k < 4; k++) x *= value_get(&v[k], element_at(&sig->in[k], at));
        sum[element_at(&sig->out[0], at)] += x;
        size[element_at(&sig->out[0], at)] += fabs(x);
    }
    const Attrs attrs = {.group = BLOCK, .accumulate = accumulate};
    if (!accumulate) value_poison(&v[4]);
    run(op, &attrs, v);
    const double unit = out == DT_f64 ? 1e-14 : out == DT_f32 ? 1e-5 : 5e-3;
    for (int64_t e = 0; e < n; e++) {
        const double is = value_get(&v[4], e);
        if (!(fabs(is - sum[e]) <= unit * (size[e] + fabs(sum[e]))))
            fail_msg("%s: %g, not %g", op_info(op)->name, is, sum[e]);
    }
    arena_reset(arena);
}

static void products_of_blocks_equal_a_simple_implementation(void **state)
{
    (void)state;
    static const DType out[] = {DT_f32, DT_bf16, DT_f64};
    uint32_t n = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || op_info(op)->scaling != SCALING_blocks)
            continue;
        for (int k = 0; k < 3; k++) check_product(op, out[k], (n + (uint32_t)k) % 2);
        n++;
    }
    assert_true(n == 8 * 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(quantised_blocks_equal_a_simple_implementation),
        TEST(quantising_twice_changes_nothing),
        TEST(the_smallest_and_largest_numbers_are_quantised),
        TEST(products_of_blocks_equal_a_simple_implementation),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
