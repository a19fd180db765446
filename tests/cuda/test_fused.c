/* Kernels of several ops that do not give the bits of the ops one by one, against the CPU's ops in
 * fp64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"

/* ---- the sums of cross-entropy over one row of logits */

enum { TOP, TOTAL, PICKED, SUMS };

typedef struct Logits {
    int64_t rows, width, start, valid, all; /* valid: 0: none here */
    DType real;
    bool odd;
    OpKind pick;
    double scale;
} Logits;

/* Which numbers a row has in place of its largest: 0: nothing special. */
typedef enum Special {
    SPECIAL_none,
    SPECIAL_nan,
    SPECIAL_inf,
    SPECIAL_minus_inf,
    SPECIALS
} Special;

typedef struct Row {
    Value z, label, sum[SUMS]; /* on the device */
    Value exact_z, exact[SUMS];
    unsigned char *first;
} Row;

static Value value_at(DType t, uint32_t n_dims, int64_t rows, int64_t width, bool odd)
{
    Value v = {t, (uint8_t)n_dims, {1, rows, width}, NULL};
    v.at = compare_alloc((uint64_t)value_elements(&v) * dtype_bytes(t), odd ? dtype_bytes(t) : 0);
    return v;
}

static double special_number(Special s)
{
    return s == SPECIAL_nan ? (double)NAN : s == SPECIAL_inf ? (double)INFINITY : -(double)INFINITY;
}

static Row rows_new(const Logits *l, Special special, Arena *arena)
{
    Row r;
    const int64_t wide[] = {1, l->rows, l->width}, one[] = {1, l->rows};
    r.z = value_at(l->real, 3, l->rows, l->width, l->odd);
    r.exact_z = value_new(arena, DT_f64, 3, wide);
    for (int64_t i = 0; i < l->rows * l->width; i++) {
        double x = l->scale * rng_normal(3, (uint64_t)l->width, (uint64_t)i);
        bool all = special == SPECIAL_minus_inf; /* the row has no other */
        int64_t row = i / l->width, v = i % l->width;
        if (special != SPECIAL_none && row == 1 && (all || v == l->valid / 2))
            x = special_number(special);
        if (v >= l->valid) x = (double)NAN; /* padding: never read */
        number_write(l->real, r.z.at, (uint64_t)i, x);
        value_set(&r.exact_z, i, number_read(l->real, r.z.at, (uint64_t)i));
    }
    r.label = value_at(DT_i32, 2, l->rows, 1, false);
    for (int64_t i = 0; i < l->rows; i++) {
        int64_t id = (int64_t)(rng_u64(4, 1, (uint64_t)i) % (uint64_t)l->all);
        if (i % 2 == 0 && l->valid > 0) id = l->start + id % l->valid;
        value_set(&r.label, i, i % 5 == 4 ? -1 : (double)id);
    }
    for (int k = 0; k < SUMS; k++) {
        r.sum[k] = value_at(DT_f32, 2, l->rows, 1, false);
        r.exact[k] = value_new(arena, DT_f64, 2, one);
    }
    return r;
}

static void check_sum(const Logits *l, const Row *r, int which, double room)
{
    static const char *const names[] = {"maximum", "sum", "picked"};
    for (int64_t i = 0; i < l->rows; i++) {
        double got = value_get(&r->sum[which], i), want = value_get(&r->exact[which], i);
        bool fine = isfinite(want) ? fabs(got - want) <= room * (1 + fabs(want))
                                   : got == want || (isnan(got) && isnan(want));
        if (!fine)
            fail_msg("%s of row %lld, %lld wide, %s: %.9g, not %.9g", names[which], (long long)i,
                     (long long)l->width, dtype_name(l->real), got, want);
    }
}

/* In which order the plan has the two behind the maximum; with one of them alone. */
typedef enum Order { PICK_FIRST, SUM_FIRST, SUM_ALONE, PICK_ALONE, ORDERS } Order;

static void run_fused(const Logits *l, Row *r, const Part *part, const Attrs *attrs, Order order,
                      uint64_t way)
{
    Binding b[SUMS];
    CudaError error;
    const Value max[] = {r->z, r->sum[TOP]}, total[] = {r->z, r->sum[TOP], r->sum[TOTAL]};
    const Value picked[] = {r->z, r->label, r->sum[PICKED]};
    KernelArgs first = eval_args(OP_xent_max, attrs, max, 1, 1, part, &b[0]);
    KernelArgs sum = eval_args(OP_xent_sumexp, attrs, total, 2, 1, part, &b[1]);
    KernelArgs pick = eval_args(l->pick, attrs, picked, 2, 1, part, &b[2]);
    CudaChainPart run[] = {
        {OP_xent_max, &first, 0}, {l->pick, &pick, 0}, {OP_xent_sumexp, &sum, 0}};
    const CudaChainPart its_sum = run[2];
    if (order == SUM_FIRST || order == SUM_ALONE) run[2] = run[1], run[1] = its_sum;
    uint32_t n = order == PICK_FIRST || order == SUM_FIRST ? 3 : 2;
    for (int k = 0; k < SUMS; k++) memset(r->sum[k].at, 0xff, (uint64_t)l->rows * sizeof(float));
    assert_int_equal(kernel_cuda_chain_length(run, n), n);
    assert_true(TARGET_RUN(way, kernel_cuda_chain(run, n, target_context(), &error), &error));
    assert_int_equal(target_launches(), 1);
    compare_check();
}

static void check_logits(const Logits *l, Special special, Order order)
{
    Arena *arena = arena_new();
    Row r = rows_new(l, special, arena);
    const Sizes whole = {{['b'] = 1, ['s'] = l->rows, ['v'] = l->all}, {0, 0}};
    Binding global;
    Part part = {.start = {['v'] = l->start},
                 .valid = {['v'] = l->valid > 0 ? l->valid : PART_EMPTY},
                 .global = &global};
    const Attrs attrs = {.smoothing = 0.1};
    compare_global(OP_xent_max, &whole, &global);
    const Value max[] = {r.exact_z, r.exact[TOP]};
    const Value total[] = {r.exact_z, r.exact[TOP], r.exact[TOTAL]};
    const Value picked[] = {r.exact_z, r.label, r.exact[PICKED]};
    eval_op(OP_xent_max, &attrs, max, 1, 1, &part, NULL, 0);
    eval_op(OP_xent_sumexp, &attrs, total, 2, 1, &part, NULL, 0);
    eval_op(l->pick, &attrs, picked, 2, 1, &part, NULL, 0);
    float first[SUMS][64];
    assert_true(l->rows <= 64);
    for (int again = 0; again < 2; again++) {
        run_fused(l, &r, &part, &attrs, order, again ? 9 : 1);
        check_sum(l, &r, TOP, 0);
        if (order != PICK_ALONE) check_sum(l, &r, TOTAL, 2e-6);
        if (order != SUM_ALONE) check_sum(l, &r, PICKED, 2e-6 * l->scale);
        for (int k = 0; k < SUMS; k++) {
            if (again) assert_memory_equal(first[k], r.sum[k].at, (size_t)l->rows * sizeof(float));
            memcpy(first[k], r.sum[k].at, (size_t)l->rows * sizeof(float));
        }
    }
    compare_free();
    arena_free(arena);
}

static void sums_over_whole_vocabularies(void **state)
{
    (void)state;
    static const int64_t width[] = {1, 7, 8, 11, 40, 255, 256, 300, 4096, 4101, 9001};
    static const DType reals[] = {DT_f32, DT_bf16, DT_f16};
    for (size_t w = 0; w < sizeof width / sizeof width[0]; w++)
        for (int t = 0; t < 3; t++)
            for (int order = 0; order < ORDERS; order++) {
                bool wide = width[w] > 1000;
                Logits l = {wide ? 3 : 9,
                            width[w],
                            0,
                            width[w],
                            width[w],
                            reals[t],
                            t == 1 && !wide,
                            order % 2 ? OP_xent_smooth : OP_xent_pick,
                            order < 2 ? 1 : 20};
                check_logits(&l, SPECIAL_none, (Order)order);
            }
}

/* A part of a vocabulary; one that is padded; one that has nothing but padding. */
static void sums_over_parts_of_vocabularies(void **state)
{
    (void)state;
    static const struct {
        int64_t start, valid;
    } parts[] = {{0, 40}, {40, 40}, {80, 21}, {101, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int order = 0; order < ORDERS; order++)
            for (int k = 0; k < 2; k++) {
                Logits l = {10,
                            40,
                            parts[i].start,
                            parts[i].valid,
                            101,
                            k ? DT_bf16 : DT_f32,
                            k,
                            k ? OP_xent_smooth : OP_xent_pick,
                            3};
                check_logits(&l, SPECIAL_none, (Order)order);
            }
}

/* What is not a number shows; rows of minus infinity have no sum; large ones do not overflow. */
static void sums_of_what_is_not_finite(void **state)
{
    (void)state;
    static const int64_t width[] = {5, 64, 4101};
    for (size_t w = 0; w < 3; w++)
        for (int special = 1; special < SPECIALS; special++)
            for (int order = 0; order < 2; order++) {
                Logits l = {3, width[w], 0, width[w], width[w], DT_f32, false, OP_xent_pick, 80};
                check_logits(&l, (Special)special, (Order)order);
            }
}

/* Runs that must stay apart: other logits, the maximum of others, two of a kind, no maximum first.
 */
static void what_is_no_such_run(void **state)
{
    (void)state;
    Logits l = {4, 16, 0, 16, 16, DT_f32, false, OP_xent_pick, 1};
    Arena *arena = arena_new();
    Row r = rows_new(&l, SPECIAL_none, arena), other = rows_new(&l, SPECIAL_none, arena);
    Binding b[4];
    const Value max[] = {r.z, r.sum[TOP]}, sum[] = {r.z, r.sum[TOP], r.sum[TOTAL]};
    const Value others[] = {other.z, r.sum[TOP], r.sum[TOTAL]};
    const Value below[] = {r.z, other.sum[TOP], r.sum[TOTAL]};
    KernelArgs a = eval_args(OP_xent_max, NULL, max, 1, 1, NULL, &b[0]);
    KernelArgs fine = eval_args(OP_xent_sumexp, NULL, sum, 2, 1, NULL, &b[1]);
    KernelArgs c = eval_args(OP_xent_sumexp, NULL, others, 2, 1, NULL, &b[2]);
    KernelArgs d = eval_args(OP_xent_sumexp, NULL, below, 2, 1, NULL, &b[3]);
    const CudaChainPart logits[] = {{OP_xent_max, &a, 0}, {OP_xent_sumexp, &c, 0}};
    const CudaChainPart tops[] = {{OP_xent_max, &a, 0}, {OP_xent_sumexp, &d, 0}};
    const CudaChainPart last[] = {{OP_xent_sumexp, &fine, 0}, {OP_xent_max, &a, 0}};
    const CudaChainPart twice[] = {
        {OP_xent_max, &a, 0}, {OP_xent_sumexp, &fine, 0}, {OP_xent_sumexp, &fine, 0}};
    assert_int_equal(kernel_cuda_chain_length(logits, 2), 0);
    assert_int_equal(kernel_cuda_chain_length(tops, 2), 0);
    assert_int_equal(kernel_cuda_chain_length(last, 2), 0);
    assert_int_equal(kernel_cuda_chain_length(twice, 3), 2);
    compare_free();
    arena_free(arena);
}

/* The gradient of the logits over the logits: the bits that it has elsewhere. */
static void a_gradient_in_the_place_of_the_logits(void **state)
{
    (void)state;
    static const DType reals[] = {DT_f32, DT_bf16, DT_f16};
    for (int t = 0; t < 3; t++)
        for (int odd = 0; odd < 2; odd++) {
            const int64_t rows = 5, width = odd ? 61 : 64;
            Binding b;
            CudaError error;
            Value z = value_at(reals[t], 3, rows, width, odd);
            Value apart = value_at(reals[t], 3, rows, width, odd);
            Value dsum = value_at(DT_f32, 2, rows, 1, false);
            Value top = value_at(DT_f32, 2, rows, 1, false);
            for (int64_t i = 0; i < rows * width; i++)
                number_write(reals[t], z.at, (uint64_t)i, rng_normal(6, 0, (uint64_t)i));
            for (int64_t i = 0; i < rows; i++) {
                value_set(&dsum, i, i == 2 ? 0 : 0.25); /* 0: ignored */
                value_set(&top, i, 1.5);
            }
            const Value away[] = {z, dsum, top, apart}, here[] = {z, dsum, top, z};
            KernelArgs first = eval_args(OP_xent_sumexp_grad, NULL, away, 3, 1, NULL, &b);
            assert_true(
                TARGET_RUN(0, cuda_xent_sumexp_grad(&first, target_context(), &error), &error));
            KernelArgs second = eval_args(OP_xent_sumexp_grad, NULL, here, 3, 1, NULL, &b);
            assert_true(
                TARGET_RUN(9, cuda_xent_sumexp_grad(&second, target_context(), &error), &error));
            assert_memory_equal(z.at, apart.at, (size_t)(rows * width) * dtype_bytes(reals[t]));
            compare_free();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_over_whole_vocabularies),
        cmocka_unit_test(sums_over_parts_of_vocabularies),
        cmocka_unit_test(sums_of_what_is_not_finite),
        cmocka_unit_test(what_is_no_such_run),
        cmocka_unit_test(a_gradient_in_the_place_of_the_logits),
    };
    return cmocka_run_group_tests_name("fused CUDA kernels", tests, NULL, NULL);
}
