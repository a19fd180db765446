/* The description of a product for the library, for each row of ops.def, both gradients, and all
 * scalings. A loop executes the description, column-major with its leading dimensions. The result
 * must equal the sum that the signature defines. The test does the same with our own kernels, which
 * prepare 8-bit operands and compute products of any types, and with the backend's call, which uses
 * the library on a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/product/product.h"
#include "kernels/product.h"
#include "tests/cuda/product/contraction.h"

enum { GUARD = CONTRACTION_GUARD };
static const GemmRules hopper = {
    .eight_bit = true, .eight_bit_k_major = true, .outer_scales = true};
/* unlike Hopper, Blackwell reads 8-bit operands in any layout */
static const GemmRules blackwell = {.eight_bit = true, .outer_scales = true};

/* The range of draws, which determine the shapes of a case. Under compute-sanitizer, which is a
 * hundred times slower, only two run: one that calls the library, and one that uses the plain
 * kernel. */
static uint64_t first_draw(void)
{
    return getenv("TANDEM_FEW_CASES") ? 1 : 0;
}

static uint64_t end_of_draws(void)
{
#ifdef __SANITIZE_ADDRESS__
    const uint64_t all = 3; /* more draws would take longer and test the same code */
#else
    const uint64_t all = 8;
#endif
    return getenv("TANDEM_FEW_CASES") ? 3 : all;
}

static double element(const Contraction *c, const GemmMatrix *x, const void *turned, int64_t batch,
                      int64_t row, int64_t column)
{
    assert_in_range(row, 0, x->rows - 1);
    assert_in_range(column, 0, x->columns - 1);
    const void *at = x->turned ? turned : c->args.ptr[x->arg];
    return number_read(x->dtype, at, (uint64_t)(batch * x->stride + column * x->leading + row));
}

static uint64_t with_guard(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args)
{
    return gemm_scratch_bytes(op, dtype, elements, n_args, GUARD);
}

/* Prepares the operands in the scratch, as a launch does before its product. */
static void prepare(Contraction *c, const Gemm *g)
{
    CudaError error;
    contraction_add_scratch(c, with_guard);
    assert_true(
        TARGET_RUN(0, product_prepare_eight_bit(g, &c->args, target_context(), &error), &error));
    const uint8_t *scratch = c->args.ptr[c->args.n_args - 1];
    for (uint32_t i = 0; i < GUARD; i++) /* the library's own scratch begins here */
        assert_int_equal(scratch[gemm_scratch(g, &c->args).library + i], 0xff);
}

static void run_described(Contraction *c, const Gemm *g, double *d)
{
    bool scaled = g->scaling != SCALING_none;
    if (scaled) prepare(c, g);
    const GemmScratch scratch = gemm_scratch(g, &c->args);
    char *at_scratch = c->args.ptr[c->args.n_args - 1];
    const void *ta = at_scratch + scratch.turned_a, *tb = at_scratch + scratch.turned_b;
    for (int64_t batch = 0; batch < g->batch; batch++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                double sum = 0, scale = 1;
                for (int64_t k = 0; k < g->k; k++)
                    sum += (g->a.transposed ? element(c, &g->a, ta, batch, k, i)
                                            : element(c, &g->a, ta, batch, i, k)) *
                           (g->b.transposed ? element(c, &g->b, tb, batch, j, k)
                                            : element(c, &g->b, tb, batch, k, j));
                if (scaled) {
                    const float *a = (const float *)(void *)(at_scratch + scratch.scale_a);
                    const float *b = (const float *)(void *)(at_scratch + scratch.scale_b);
                    bool rows = g->scaling == SCALING_rowwise;
                    scale = c->args.attrs.scale * (double)a[rows ? i : 0] * (double)b[rows ? j : 0];
                }
                int64_t at = batch * g->d.stride + j * g->d.leading + i;
                assert_in_range(at, 0, c->args.elements[g->d.arg] - 1);
                d[at] = (g->accumulate ? d[at] : 0) + scale * sum;
            }
}

/* Runs our own kernel, or the backend's call. The latter uses a library if the target has one that
 * accepts the call. It runs in two orders, which must give the same bits. */
static void run_kernel(Contraction *c, CudaKernel kernel, double *d)
{
    uint32_t z = c->args.n_in;
    size_t bytes = (size_t)c->args.elements[z] * dtype_bytes(c->args.dtype[z]);
    void *before = memcpy(arena_array(c->arena, bytes, 1), c->args.ptr[z], bytes);
    void *first = arena_array(c->arena, bytes, 1);
    const CudaContext *cuda = target_context();
    CudaError error = {""};
    for (uint64_t order = 0; order < 8; order += 7) {
        memcpy(c->args.ptr[z], before, bytes);
        target_begin(order);
        bool launched = kernel != NULL ? kernel(&c->args, cuda, &error)
                                       : product_plain(c->op, &c->args, cuda, &error);
        if (!target_end(launched, &error)) fail_msg("%s: %s", target_case_now(), error.text);
        if (order == 0) memcpy(first, c->args.ptr[z], bytes);
    }
    if (memcmp(first, c->args.ptr[z], bytes) != 0)
        fail_msg("%s: other bits in another order", target_case_now());
    for (int64_t i = 0; i < c->args.elements[z]; i++)
        d[i] = number_read(c->args.dtype[z], c->args.ptr[z], (uint64_t)i);
}

typedef enum Way { WAY_described, WAY_plain, WAY_called } Way;

static CudaKernel called(Contraction *c)
{
    CudaError error = {""};
    contraction_add_scratch(c, cuda_contract_workspace);
    if (!target_prepare(c->op, &c->args, &error)) fail_msg("%s: %s", target_case_now(), error.text);
    return kernel_cuda(c->op);
}

/* Checks one case in one way. Returns the number of products. */
static int64_t check(OpKind op, uint64_t draw, const GemmRules *rules, DType in, DType out, Way way)
{
    static const char *const ways[] = {"as described", "by the plain kernel",
                                       "as the backend calls"};
    target_case("%s, draw %llu, %s to %s, %s", op_info(op)->name, (unsigned long long)draw,
                dtype_name(in), dtype_name(out), ways[way]);
    Contraction c = contraction_of(op, draw, in, out);
    Gemm g;
    gemm_of(op, &c.args, rules, &g);
    uint32_t z = c.args.n_in;
    size_t n = (size_t)c.args.elements[z];
    double *is = arena_array(c.arena, n, sizeof *is), *must = contraction_expected(&c);
    for (size_t i = 0; i < n; i++) is[i] = g.accumulate ? number_read(out, c.args.ptr[z], i) : NAN;
    if (way == WAY_described)
        run_described(&c, &g, is);
    else
        run_kernel(&c, way == WAY_called ? called(&c) : NULL, is);
    /* with fast accumulation, the library adds 8-bit products with only 14 bits */
    bool few_bits = way == WAY_called && g.scaling != SCALING_none && out == DT_f32;
    double tolerance = way == WAY_described ? 1e-12 : out != DT_f32 ? 1e-2 : few_bits ? 4e-3 : 1e-5;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(is[i] - must[i]) <= tolerance * (1 + fabs(must[i]))))
            fail_msg("%s: [%zu] is %.17g, not %.17g", target_case_now(), i, is[i], must[i]);
    contraction_free(&c);
    return g.batch;
}

static void each_product_equals_its_definition(void **state)
{
    (void)state;
    uint32_t n_rows = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || op_info(op)->flags & OP_BLOCKS) continue;
        bool scaled = op_info(op)->scaling != SCALING_none;
        for (uint64_t draw = first_draw(); draw < end_of_draws(); draw++) {
            check(op, draw, &hopper, scaled ? DT_e4m3 : DT_f64, scaled ? DT_bf16 : DT_f64,
                  WAY_described);
            check(op, draw, &blackwell, scaled ? DT_e5m2 : DT_f32, DT_f32, WAY_described);
            if (draw == 1 || draw == 6) {
                check(op, draw, &hopper, scaled ? DT_e4m3 : DT_bf16, DT_bf16, WAY_called);
                check(op, draw, &hopper, scaled ? DT_e4m3 : DT_f32, DT_f32, WAY_called);
                if (!scaled) check(op, draw, &hopper, DT_f16, DT_f16, WAY_called);
            }
            if (draw != 2 && draw != 5) continue;
            check(op, draw, &hopper, scaled ? DT_e4m3 : DT_f32, DT_f32, WAY_plain);
            check(op, draw, &hopper, scaled ? DT_e5m2 : DT_bf16, DT_bf16, WAY_plain);
        }
        n_rows++;
    }
    assert_true(n_rows >= 7 * 9);
    /* If a device's library accepted none of them, only our own kernel would have been tested. */
    assert_true(target_library_calls() != 0 || target_context()->products == NULL);
}

/* Ops with one product for each expert, which sets or adds to its output, with each layout. */
static void one_product_for_each_expert_is_described(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++)
        for (Way way = WAY_described; way <= WAY_called; way++) {
            const OpKind op = (OpKind)(OP_linear_experts + k);
            const DType real = way == WAY_described ? DT_f64 : DT_bf16;
            /* odd draws accumulate: seen[1] */
            bool seen[2] = {false, false};
            for (uint64_t draw = 0; draw < 2 || !seen[0] || !seen[1]; draw++) {
                assert_in_range(draw, 0, 40);
                seen[draw & 1] |= check(op, draw, &hopper, real, real, way) > 1;
            }
        }
}

/* Before 10.0, the library accepts only 8-bit operands that are contiguous along k. Others are
 * transposed. */
static void eight_bit_operands_lie_along_k(void **state)
{
    (void)state;
    uint32_t n_turned = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || op_info(op)->scaling == SCALING_none ||
            op_info(op)->flags & OP_BLOCKS)
            continue;
        Contraction c = contraction_of(op, 2, DT_e4m3, DT_bf16);
        Gemm g, free_g;
        gemm_of(op, &c.args, &hopper, &g);
        assert_true(g.a.transposed && !g.b.transposed);
        assert_int_equal(g.a.rows, g.k);
        assert_int_equal(g.b.rows, g.k);
        gemm_of(op, &c.args, &blackwell, &free_g);
        assert_false(free_g.a.turned || free_g.b.turned);
        n_turned += g.a.turned + g.b.turned;
        if (op_info(op)->along == op) assert_false(g.a.turned || g.b.turned);
        contraction_free(&c);
    }
    assert_true(n_turned > 0);
}

static void scratch_is_enough(void **state)
{
    (void)state;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || op_info(op)->flags & OP_BLOCKS) continue;
        for (uint64_t draw = first_draw(); draw < end_of_draws(); draw++) {
            bool scaled = op_info(op)->scaling != SCALING_none;
            Contraction c = contraction_of(op, draw, scaled ? DT_e4m3 : DT_bf16, DT_bf16);
            Gemm g;
            gemm_of(op, &c.args, &hopper, &g);
            GemmScratch s = gemm_scratch(&g, &c.args);
            uint64_t all =
                gemm_scratch_bytes(op, c.args.dtype, c.args.elements, c.args.n_args, 1000);
            assert_true(s.library + 1000 <= all);
            assert_int_equal(s.library % GEMM_ALIGN, 0);
            if (scaled) {
                /* the same product on Ada, where scales may be applied after the product */
                Gemm after;
                const GemmRules ada = gemm_rules(89, false);
                gemm_of(op, &c.args, &ada, &after);
                assert_true(gemm_scratch(&after, &c.args).library + 1000 <= all);
                if (op_info(op)->along == op && !after.scaled_after) /* no operand is copied */
                    assert_int_equal(all, s.turned_a + 1000);
                assert_true(s.scale_a + 4 * (uint64_t)c.args.elements[2 + g.a.arg] <= s.scale_b);
                assert_true(s.scale_b + 4 * (uint64_t)c.args.elements[2 + g.b.arg] <= s.turned_a);
                assert_true(s.turned_a + g.a.turned_bytes <= s.turned_b);
                assert_true(s.turned_b + g.b.turned_bytes <= s.library);
            } else {
                assert_int_equal(s.library, 0);
            }
            contraction_free(&c);
        }
    }
}

/* Equal calls compare equal byte by byte. Properties on which the library's choice may depend also
 * change the name. */
static void names_tell_calls_apart(void **state)
{
    (void)state;
    Contraction c = contraction_of(OP_linear, 2, DT_bf16, DT_bf16);
    Gemm g, again, other;
    char name[GEMM_NAME_BYTES], changed[GEMM_NAME_BYTES];
    memset(&g, 0x55, sizeof g);
    gemm_of(OP_linear, &c.args, &hopper, &g);
    gemm_of(OP_linear, &c.args, &hopper, &again);
    assert_memory_equal(&g, &again, sizeof g);
    gemm_name(&g, name);
    c.args.attrs.accumulate = 1;
    gemm_of(OP_linear, &c.args, &hopper, &other);
    gemm_name(&other, changed);
    assert_string_not_equal(name, changed);
    c.args.attrs.accumulate = 0;
    c.args.ptr[1] = (char *)c.args.ptr[1] + 2;
    gemm_of(OP_linear, &c.args, &hopper, &other);
    gemm_name(&other, changed);
    assert_string_not_equal(name, changed);
    contraction_free(&c);
}

/* Follows the library's tables. It accepts 8-bit numbers from 8.9 on, contiguous along k except on
 * 10 and 11, and a scale for each row only on 9.0. */
static void each_device_has_its_rules(void **state)
{
    (void)state;
    static const struct {
        uint32_t capability;
        bool eight_bit, k_major, outer;
    } rows[] = {{80, false, true, false},  {86, false, true, false},  {89, true, true, false},
                {90, true, true, true},    {100, true, false, false}, {103, true, false, false},
                {110, true, false, false}, {120, true, true, false},  {121, true, true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        GemmRules r = gemm_rules(rows[i].capability, i % 2);
        assert_int_equal(r.eight_bit, rows[i].eight_bit);
        assert_int_equal(r.eight_bit_k_major, rows[i].k_major);
        assert_int_equal(r.outer_scales, rows[i].outer);
        assert_int_equal(r.tf32, i % 2);
    }
}

static void unsupported_products_are_not_passed_on(void **state)
{
    (void)state;
    static const struct {
        DType in, out;
        OpKind op;
        bool hopper, ampere;
    } rows[] = {{DT_bf16, DT_bf16, OP_linear, true, true},
                {DT_bf16, DT_f32, OP_linear, true, true},
                {DT_f16, DT_f16, OP_linear, true, true},
                {DT_f32, DT_f32, OP_linear, true, true},
                {DT_f32, DT_bf16, OP_linear, false, false},
                {DT_f16, DT_bf16, OP_linear, false, false},
                {DT_e4m3, DT_bf16, OP_linear_tensorwise, true, false},
                {DT_e4m3, DT_f32, OP_linear_rowwise, true, false},
                {DT_e5m2, DT_bf16, OP_linear_tensorwise, false, false}};
    static const GemmRules ampere = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Contraction c = contraction_of(rows[i].op, 0, rows[i].in, rows[i].out);
        for (int l = 'a'; l <= 'z'; l++)
            if (c.args.size[l]) c.args.size[l] = c.binding->size[l] = 32;
        Gemm g;
        gemm_of(rows[i].op, &c.args, &hopper, &g);
        assert_int_equal(gemm_is_for_library(&g, &hopper), rows[i].hopper);
        gemm_of(rows[i].op, &c.args, &ampere, &g);
        assert_int_equal(gemm_is_for_library(&g, &ampere), rows[i].ampere);
        /* the library demands 8-bit rows of multiples of 16, and 24 is none */
        if (rows[i].in == DT_e4m3) {
            c.args.size['k'] = c.binding->size['k'] = 24;
            gemm_of(rows[i].op, &c.args, &hopper, &g);
            assert_false(gemm_is_for_library(&g, &hopper));
        }
        contraction_free(&c);
    }
}

/* Our kernel that transposes an operand reads words of four bytes, and writes an aligned copy. The
 * library would accept this copy, although the kernel cannot read an unaligned operand. */
static void transposed_operands_are_aligned_too(void **state)
{
    (void)state;
    bool turned = false;
    for (OpKind op = 0; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || op_info(op)->scaling != SCALING_tensorwise)
            continue;
        Contraction c = contraction_of(op, 0, DT_e4m3, DT_bf16);
        for (int l = 'a'; l <= 'z'; l++)
            if (c.args.size[l]) c.args.size[l] = c.binding->size[l] = 32;
        for (uint32_t i = 0; i < 2; i++)
            for (int off = 0; off <= 4; off++) {
                Gemm g;
                char *const own = c.args.ptr[i];
                c.args.ptr[i] = own + off;
                gemm_of(op, &c.args, &hopper, &g);
                c.args.ptr[i] = own;
                const GemmMatrix *x = g.a.arg == i ? &g.a : &g.b;
                if (x->turned) assert_int_equal(x->align, GEMM_ALIGN);
                turned |= x->turned;
                assert_int_equal(gemm_is_for_library(&g, &hopper),
                                 off == 0 || (x->turned && off == 4));
            }
        contraction_free(&c);
    }
    assert_true(turned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_product_equals_its_definition),
        cmocka_unit_test(one_product_for_each_expert_is_described),
        cmocka_unit_test(eight_bit_operands_lie_along_k),
        cmocka_unit_test(scratch_is_enough),
        cmocka_unit_test(names_tell_calls_apart),
        cmocka_unit_test(each_device_has_its_rules),
        cmocka_unit_test(unsupported_products_are_not_passed_on),
        cmocka_unit_test(transposed_operands_are_aligned_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
