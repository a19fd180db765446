/* Kernels that compute several ops at once. Cross-entropy does not give the bits of the single ops,
 * so it is compared with the CPU's ops in fp64. All other kernels must give the bits of the single
 * ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/workspace.h"
#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"
#include "tests/support/sample.h"

/* ---- the sums of cross-entropy over one row of logits */

enum { TOP, TOTAL, PICKED, SUMS };

typedef struct Logits {
    /* valid: the number of labels that exist here; 0: none */
    int64_t rows, width, start, valid, all;
    DType real;
    bool odd;
    OpKind pick;
    double scale;
} Logits;

/* A special number that takes the place of a row's largest one. SPECIAL_none: no special number. */
typedef enum Special {
    SPECIAL_none,
    SPECIAL_nan,
    SPECIAL_inf,
    SPECIAL_minus_inf,
    SPECIAL_half_minus_inf, /* takes the place of each number in the row's first half */
    SPECIALS
} Special;

typedef struct Row {
    Value z, label, sum[SUMS]; /* the device's copies */
    Value exact_z, exact[SUMS];
    unsigned char *first;
} Row;

static Value value_at(DType t, uint32_t n_dims, int64_t rows, int64_t width, bool odd)
{
    Value v = {t, (uint8_t)n_dims, {1, rows, width}, NULL};
    if (n_dims == 1) v.dim[0] = width;
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
        int64_t row = i / l->width, v = i % l->width;
        bool all = special == SPECIAL_minus_inf || /* all numbers of the row are replaced */
                   (special == SPECIAL_half_minus_inf && v < l->valid / 2);
        if (special != SPECIAL_none && row == 1 && (all || v == l->valid / 2))
            x = special_number(special);
        if (v >= l->valid) x = (double)NAN; /* NaN in the padding, which must never be read */
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

/* The order in which the plan has the two sums after the maximum, or only one of them. */
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
    for (int again = 0; again < SAMPLE(2, 1); again++) {
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

static void whole_vocabularies_match_the_cpu(void **state)
{
    (void)state;
    /* from a width of 8,192 on, groups of a bf16 row are added in pairs */
    static const int64_t width[] = {1, 7, 8, 11, 40, 255, 256, 300, 4096, 4101, 9001, 16376};
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

/* A part of a vocabulary, a padded part with an odd number of ids, and a part that is only padding.
 * Each runs in fp32, in unaligned bf16, and in aligned bf16. */
static void parts_of_vocabularies_match_the_cpu(void **state)
{
    (void)state;
    static const struct {
        int64_t start, valid;
    } parts[] = {{0, 40}, {40, 40}, {80, 21}, {101, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int order = 0; order < ORDERS; order++)
            for (int k = 0; k < 3; k++) {
                Logits l = {10,
                            40,
                            parts[i].start,
                            parts[i].valid,
                            101,
                            k ? DT_bf16 : DT_f32,
                            k == 1,
                            k ? OP_xent_smooth : OP_xent_pick,
                            3};
                check_logits(&l, SPECIAL_none, (Order)order);
            }
}

/* A NaN shows in the result, rows of minus infinity have no sum, and large numbers do not
 * overflow. */
static void numbers_that_are_not_finite_show(void **state)
{
    (void)state;
    static const int64_t width[] = {5, 64, 4101, 16376};
    for (size_t w = 0; w < 4; w++)
        for (int special = 1; special < SPECIALS; special++)
            for (int order = 0; order < 2; order++) {
                Logits l = {3, width[w], 0, width[w], width[w], DT_f32, false, OP_xent_pick, 80};
                if (w == 3) l.real = DT_bf16;
                check_logits(&l, (Special)special, (Order)order);
            }
}

/* Runs that must not become one kernel: they use other logits, the maximum of other logits, two ops
 * of one kind, or no maximum before them. */
static void other_runs_are_not_fused(void **state)
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

/* If the gradient of the logits overwrites the logits, it has the same bits as in separate
 * memory. */
static void a_gradient_over_the_logits_has_the_same_bits(void **state)
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
                value_set(&dsum, i, i == 2 ? 0 : 0.25); /* 0: the label is ignored */
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

/* ---- the largest magnitude of the output of a norm or its gradient: the bits of the single ops */

enum { MOST_VALUES = 16, MOST_PARTS = 3 };

typedef struct Parts {
    uint32_t n, n_values;
    CudaChainPart part[MOST_PARTS];
    CudaKernel kernel[MOST_PARTS];
    KernelArgs args[MOST_PARTS];
    Binding binding[MOST_PARTS];
    Value value[MOST_VALUES];
    void *start[MOST_VALUES], *alone[MOST_VALUES];
    Arena *arena;
} Parts;

static uint64_t bytes_of(const Value *v)
{
    return (uint64_t)value_elements(v) * dtype_bytes(v->dtype);
}

/* Adds a random value to the run. If an output accumulates, its old contents belong to the run. */
static Value drawn(Parts *p, DType t, uint32_t n_dims, int64_t rows, int64_t width, bool odd)
{
    Value v = value_at(t, n_dims, rows, width, odd);
    for (int64_t i = 0; i < value_elements(&v); i++)
        number_write(t, v.at, (uint64_t)i, rng_normal(8, p->n_values, (uint64_t)i));
    p->start[p->n_values] = arena_alloc(p->arena, bytes_of(&v) + 1);
    p->alone[p->n_values] = arena_alloc(p->arena, bytes_of(&v) + 1);
    memcpy(p->start[p->n_values], v.at, bytes_of(&v));
    assert_true(p->n_values < MOST_VALUES);
    return p->value[p->n_values++] = v;
}

static void add_part(Parts *p, OpKind op, CudaKernel kernel, const Attrs *attrs, const Value *v)
{
    const Signature *sig = &op_info(op)->sig;
    uint32_t k = p->n++, n = (uint32_t)sig->n_in + sig->n_out;
    KernelArgs *a = &p->args[k];
    *a = eval_args(op, attrs, v, sig->n_in, sig->n_out, NULL, &p->binding[k]);
    uint64_t bytes = cuda_compute_workspace(op, a->dtype, a->elements, n);
    if (bytes > 0) {
        a->ptr[n] = compare_alloc(bytes, 0), a->dtype[n] = DT_u8;
        a->elements[n] = (int64_t)bytes, a->n_args = n + 1;
    }
    p->kernel[k] = kernel;
    p->part[k] = (CudaChainPart){op, a, 0};
}

static void check_parts(Parts *p, uint32_t launches)
{
    CudaError error;
    for (uint32_t k = 0; k < p->n; k++)
        assert_true(TARGET_RUN(0, p->kernel[k](&p->args[k], target_context(), &error), &error));
    for (uint32_t i = 0; i < p->n_values; i++)
        memcpy(p->alone[i], p->value[i].at, bytes_of(&p->value[i]));
    for (uint64_t way = 1; way < SAMPLE(10, 2); way += 4) {
        for (uint32_t i = 0; i < p->n_values; i++)
            memcpy(p->value[i].at, p->start[i], bytes_of(&p->value[i]));
        assert_int_equal(kernel_cuda_chain_length(p->part, p->n), p->n);
        assert_true(
            TARGET_RUN(way, kernel_cuda_chain(p->part, p->n, target_context(), &error), &error));
        assert_int_equal(target_launches(), launches);
        for (uint32_t i = 0; i < p->n_values; i++)
            assert_memory_equal(p->value[i].at, p->alone[i], bytes_of(&p->value[i]));
        compare_check();
    }
    compare_free();
    arena_free(p->arena);
}

typedef struct NormCase {
    DType t;
    int64_t rows, width;
    bool layer, adds, of_rows, odd;
} NormCase;

static void add_amax(Parts *p, const NormCase *c, Value of)
{
    Value most = drawn(p, DT_f32, c->of_rows ? 2 : 1, c->rows, 1, false);
    if (!c->of_rows) most.n_dims = 0;
    add_part(p, c->of_rows ? OP_amax_of_tokens : OP_amax,
             c->of_rows ? cuda_amax_of_tokens : cuda_amax, NULL, (const Value[]){of, most});
}

static void check_norm(const NormCase *c)
{
    Parts p = {.arena = arena_new()};
    const Attrs attrs = {.eps = 1e-5};
    Value x = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
    if (c->adds) {
        Value more = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
        Value sum = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
        add_part(&p, OP_add, cuda_add, NULL, (const Value[]){x, more, sum});
        x = sum;
    }
    Value w = drawn(&p, c->t, 1, 0, c->width, c->odd), b = drawn(&p, c->t, 1, 0, c->width, c->odd);
    Value y = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
    Value mean = drawn(&p, DT_f32, 2, c->rows, 1, false);
    Value r = drawn(&p, DT_f32, 2, c->rows, 1, false);
    if (c->layer)
        add_part(&p, OP_layernorm, cuda_layernorm, &attrs, (const Value[]){x, w, b, y, mean, r});
    else
        add_part(&p, OP_rmsnorm, cuda_rmsnorm, &attrs, (const Value[]){x, w, y, r});
    add_amax(&p, c, y);
    check_parts(&p, 1);
}

static void check_norm_grad(const NormCase *c)
{
    Parts p = {.arena = arena_new()};
    /* the gradient is added to the residual's gradient */
    const Attrs attrs = {.accumulate = c->adds ? 7 : 0};
    Value dy = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
    Value x = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
    Value w = drawn(&p, c->t, 1, 0, c->width, c->odd);
    Value mean = drawn(&p, DT_f32, 2, c->rows, 1, false);
    Value r = drawn(&p, DT_f32, 2, c->rows, 1, false);
    Value dx = drawn(&p, c->t, 3, c->rows, c->width, c->odd);
    Value dw = drawn(&p, DT_f32, 1, 0, c->width, false),
          db = drawn(&p, DT_f32, 1, 0, c->width, false);
    if (c->layer)
        add_part(&p, OP_layernorm_grad, cuda_layernorm_grad, &attrs,
                 (const Value[]){dy, x, w, mean, r, dx, dw, db});
    else
        add_part(&p, OP_rmsnorm_grad, cuda_rmsnorm_grad, &attrs,
                 (const Value[]){dy, x, w, r, dx, dw});
    add_amax(&p, c, dx);
    check_parts(&p, 2); /* the second launch finishes all sums over rows */
}

static void norms_with_a_maximum_give_the_bits_of_single_ops(void **state)
{
    (void)state;
    static const DType reals[] = {DT_f32, DT_bf16, DT_f16};
    static const int64_t width[] = {13, 64, 520, 2056, 8200};
    for (int t = 0; t < 3; t++)
        for (size_t w = 0; w < sizeof width / sizeof width[0]; w++)
            for (int k = 0; k < 8; k++) {
                NormCase c = {
                    reals[t],     width[w] > 2000 ? 3 : 19, width[w], (k & 1) != 0, (k & 2) != 0,
                    (k & 4) != 0, t == 1 && k % 3 == 0};
                check_norm(&c);
                check_norm_grad(&c);
            }
}

/* A NaN counts as the largest number. A maximum is not fused if it is of another tensor, of other
 * rows, or in fewer bits. */
static void other_maxima_are_not_fused(void **state)
{
    (void)state;
    Parts p = {.arena = arena_new()};
    const Attrs attrs = {.eps = 1e-5};
    CudaError error;
    Value x = drawn(&p, DT_f32, 3, 4, 16, false), y = drawn(&p, DT_f32, 3, 4, 16, false);
    Value w = drawn(&p, DT_f32, 1, 0, 16, false), r = drawn(&p, DT_f32, 2, 4, 1, false);
    Value most = drawn(&p, DT_f32, 1, 0, 1, false), half = drawn(&p, DT_bf16, 1, 0, 1, false);
    most.n_dims = half.n_dims = 0;
    value_set(&x, 21, (double)NAN);
    add_part(&p, OP_rmsnorm, cuda_rmsnorm, &attrs, (const Value[]){x, w, y, r});
    add_part(&p, OP_amax, cuda_amax, NULL, (const Value[]){y, most});
    assert_true(TARGET_RUN(1, kernel_cuda_chain(p.part, 2, target_context(), &error), &error));
    assert_true(isnan(value_get(&most, 0)));
    p.n = 1;
    add_part(&p, OP_amax, cuda_amax, NULL, (const Value[]){x, most});
    assert_int_equal(kernel_cuda_chain_length(p.part, 2), 0);
    p.n = 1;
    add_part(&p, OP_amax, cuda_amax, NULL, (const Value[]){y, half});
    assert_int_equal(kernel_cuda_chain_length(p.part, 2), 0);
    compare_free();
    arena_free(p.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_vocabularies_match_the_cpu),
        cmocka_unit_test(parts_of_vocabularies_match_the_cpu),
        cmocka_unit_test(numbers_that_are_not_finite_show),
        cmocka_unit_test(other_runs_are_not_fused),
        cmocka_unit_test(a_gradient_over_the_logits_has_the_same_bits),
        cmocka_unit_test(norms_with_a_maximum_give_the_bits_of_single_ops),
        cmocka_unit_test(other_maxima_are_not_fused),
    };
    return cmocka_run_group_tests_name("fused CUDA kernels", tests, NULL, NULL);
}
