/* Quantisation and the transposed copy of its output, fused into one kernel. The bits equal those
 * of the two single ops, for any scales, sizes and alignment of arguments. Also pairs that must not
 * be fused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"

/* The dimensions of x are [2, rows / 2, columns], [rows, columns] or [2, rows / 2, columns]. */
typedef struct Pair {
    OpKind quantise, turn;
    CudaKernel first, second;
    char scales; /* 'a': one for all, 'r': one for each row, 'c': one for each column */
} Pair;

#define PAIR(how, what, scales)                                                                    \
    {                                                                                              \
        OP_##how, OP_turn_##what, cuda_##how, cuda_turn_##what, scales                             \
    }
static const Pair pairs[] = {
    PAIR(quantise, tokens, 'a'),
    PAIR(quantise, first, 'a'),
    PAIR(quantise, last, 'a'),
    PAIR(quantise_of_tokens, tokens, 'r'),
    PAIR(quantise_over_tokens, tokens, 'c'),
    PAIR(quantise_of_first, first, 'r'),
    PAIR(quantise_over_first, first, 'c'),
    PAIR(quantise_of_last, last, 'c'),
    PAIR(quantise_over_last, last, 'r'),
};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0], X = 0, AMAX, EIGHT_BIT, TURNED, VALUES };

typedef struct Run {
    Value value[VALUES];
    Binding binding[2];
    KernelArgs args[2];
    CudaChainPart part[2];
} Run;

static Value value_of(DType t, uint32_t n, const int64_t *dim, bool odd)
{
    Value v = {.dtype = t, .n_dims = (uint8_t)n};
    for (uint32_t d = 0; d < n; d++) v.dim[d] = dim[d];
    v.at = compare_alloc((uint64_t)value_elements(&v) * dtype_bytes(t), odd ? dtype_bytes(t) : 0);
    return v;
}

/* Fills in numbers up to the largest magnitudes, which are drawn separately, and beyond them. A few
 * numbers are NaN. */
static void fill(Run *r)
{
    const Value *x = &r->value[X], *amax = &r->value[AMAX];
    for (int64_t i = 0; i < value_elements(x); i++)
        number_write(x->dtype, x->at, (uint64_t)i,
                     i % 97 == 13 ? (double)NAN : 2 * rng_normal(8, 1, (uint64_t)i));
    for (int64_t i = 0; i < value_elements(amax); i++)
        number_write(amax->dtype, amax->at, (uint64_t)i,
                     i % 7 == 5 ? 0 : 1 + rng_uniform(8, 2, (uint64_t)i));
}

static Run run_of(const Pair *p, int64_t rows, int64_t columns, DType real, DType eight, bool odd)
{
    Run r;
    const bool tokens = p->turn == OP_turn_tokens, last = p->turn == OP_turn_last;
    const int64_t halves[] = {2, rows / 2, columns}, two[] = {rows, columns};
    const int64_t turned_tokens[] = {columns, 2, rows / 2}, turned_two[] = {columns, rows};
    const int64_t *dim = tokens || last ? halves : two;
    const int64_t *turned = tokens || last ? turned_tokens : turned_two;
    const uint32_t n = tokens || last ? 3 : 2;
    const Attrs attrs = {.scale = eight == DT_e4m3 ? 448 : 57344};
    memset(&r, 0, sizeof r);
    r.value[X] = value_of(real, n, dim, odd);
    r.value[AMAX] = p->scales == 'a'   ? value_of(DT_f32, 0, NULL, odd)
                    : p->scales == 'r' ? value_of(DT_f32, n - 1, dim, odd)
                                       : value_of(DT_f32, 1, dim + n - 1, odd);
    r.value[EIGHT_BIT] = value_of(eight, n, dim, odd);
    r.value[TURNED] = value_of(eight, n, turned, odd);
    fill(&r);
    r.args[0] = eval_args(p->quantise, &attrs, r.value, 2, 1, NULL, &r.binding[0]);
    r.args[1] = eval_args(p->turn, NULL, r.value + EIGHT_BIT, 1, 1, NULL, &r.binding[1]);
    r.part[0] = (CudaChainPart){p->quantise, &r.args[0], 0};
    r.part[1] = (CudaChainPart){p->turn, &r.args[1], 0};
    return r;
}

static void fix(Run *r)
{
    for (int k = 0; k < 2; k++) r->part[k].args = &r->args[k], r->args[k].binding = &r->binding[k];
}

static void check(const Pair *p, int64_t rows, int64_t columns, DType real, DType eight, bool odd)
{
    Run r = run_of(p, rows, columns, real, eight, odd);
    CudaError error;
    const size_t n = (size_t)(rows * columns);
    unsigned char *straight = malloc(n), *turned = malloc(n);
    assert_true(straight != NULL && turned != NULL);
    fix(&r);
    assert_true(TARGET_RUN(0, p->first(&r.args[0], target_context(), &error), &error));
    assert_true(TARGET_RUN(0, p->second(&r.args[1], target_context(), &error), &error));
    memcpy(straight, r.value[EIGHT_BIT].at, n);
    memcpy(turned, r.value[TURNED].at, n);
    for (int64_t i = 0; i < rows; i++) /* the definition of a transposed copy */
        for (int64_t j = 0; j < columns; j++)
            assert_int_equal(turned[j * rows + i], straight[i * columns + j]);
    for (uint32_t unread = 0; unread < 2; unread++) {
        memset(r.value[EIGHT_BIT].at, 0xa5, n);
        memset(r.value[TURNED].at, 0xa5, n);
        r.part[0].unread = unread;
        assert_int_equal(kernel_cuda_chain_length(r.part, 2), 2);
        assert_true(
            TARGET_RUN(1 + unread, kernel_cuda_chain(r.part, 2, target_context(), &error), &error));
        assert_int_equal(target_launches(), 1);
        assert_memory_equal(r.value[TURNED].at, turned, n);
        if (unread) memset(straight, 0xa5, n);
        assert_memory_equal(r.value[EIGHT_BIT].at, straight, n);
        compare_check();
    }
    free(straight), free(turned);
    compare_free();
}

static void one_kernel_gives_the_bits_of_two(void **state)
{
    (void)state;
    static const int64_t size[][2] = {{2, 1},    {16, 16},   {6, 9},     {128, 128}, {130, 264},
                                      {256, 40}, {144, 129}, {1040, 24}, {34, 4104}};
    static const DType reals[] = {DT_bf16, DT_f16, DT_f32};
    for (size_t p = 0; p < N_PAIRS; p++)
        for (size_t s = 0; s < sizeof size / sizeof size[0]; s++)
            for (int k = 0; k < 3; k++)
                check(&pairs[p], size[s][0], size[s][1], reals[k], k == 1 ? DT_e5m2 : DT_e4m3,
                      (p + s + (size_t)k) % 4 == 3);
}

/* Each op is launched alone if the copy is of another tensor, if the scales belong to another
 * matrix, or if numbers have more than 8 bits. */
static void other_pairs_are_not_fused(void **state)
{
    (void)state;
    Run r = run_of(&pairs[0], 32, 16, DT_bf16, DT_e4m3, false);
    fix(&r);
    assert_int_equal(kernel_cuda_chain_length(r.part, 1), 0);
    CudaChainPart other[2] = {r.part[1], r.part[0]};
    assert_int_equal(kernel_cuda_chain_length(other, 2), 0);
    KernelArgs elsewhere = r.args[1];
    elsewhere.ptr[0] = r.value[X].at;
    CudaChainPart moved[2] = {r.part[0], {OP_turn_tokens, &elsewhere, 0}};
    assert_int_equal(kernel_cuda_chain_length(moved, 2), 0);
    compare_free();
    Run wide = run_of(&pairs[0], 32, 16, DT_bf16, DT_f32, false);
    fix(&wide);
    assert_int_equal(kernel_cuda_chain_length(wide.part, 2), 0);
    compare_free();
    Run rows = run_of(&pairs[3], 32, 16, DT_bf16, DT_e4m3, false), last;
    last = run_of(&pairs[2], 32, 16, DT_bf16, DT_e4m3, false);
    fix(&rows), fix(&last);
    last.args[1].ptr[0] = rows.args[0].ptr[2];
    /* the same elements, divided into other rows */
    last.args[1].rows = 8, last.args[1].size['n'] = 64;
    CudaChainPart mixed[2] = {rows.part[0], last.part[1]};
    assert_int_equal(kernel_cuda_chain_length(mixed, 2), 0);
    compare_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kernel_gives_the_bits_of_two),
        cmocka_unit_test(other_pairs_are_not_fused),
    };
    return cmocka_run_group_tests_name("quantised and turned", tests, NULL, NULL);
}
