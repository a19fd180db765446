/* A product with fused ops as one call of the library, on its double or on a device. The library
 * applies the fused ops itself, so every form is compared with fp64. Combinations for which the
 * library has no call must not be fused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/product/product_chain.h"
#include "tests/cuda/runtime_double.h"

/* Checks that only the double allows. */
#ifdef TANDEM_GPU
static void assert_one_call(const Form *f)
{
    (void)f;
}
#else
static void assert_one_call(const Form *f)
{
    assert_int_equal(cublas_double.products, 1);
    assert_int_equal(cublas_double.last_epilogue, f->epilogue);
    assert_int_equal(cublas_double.with_epilogue, 1);
}
#endif

/* Returns true if the form is one call of the library. It is launched directly, or from a captured
 * graph. */
static bool check_form(const Form *f, uint64_t draw, DType in, DType out)
{
    cublas_double_reset();
    CudaContext cuda = chain_open_products(&chain_hopper);
    CudaError error = {""};
    Chain ch = chain_of(f, draw, in, out);
    chain_point(&ch);
    bool must = !(f->op[ch.n - 1] == OP_gelu || f->op[ch.n - 1] == OP_gelu_grad) || ch.p.n % 8 == 0;
    uint32_t n = chain_length(&ch, ch.n, &cuda);
    bool taken = n == ch.n;
    if (taken) {
        target_begin(draw / 4 % 2);
        if (!target_end(cuda_products_chain(ch.part, n, &cuda, &error), &error))
            fail_msg("%s: %s", f->name, error.text);
        const char *wrong = chain_wrong(&ch, f);
        if (wrong) fail_msg("%s, draw %u: %s", f->name, (unsigned)draw, wrong);
        assert_one_call(f);
    }
    assert_true(taken <= must); /* otherwise only the bias may be fused */
    if (target_context()->products == NULL) assert_true(taken == must);
    cuda_products_close(cuda.products);
    assert_int_equal(cublas_double.objects + runtime_double.objects, 0);
    chain_free(&ch);
    return taken;
}

/* The double accepts every call that its manual allows. A device's library need not have a
 * repeatable algorithm for each form (the backend then runs the parts one by one). But it must have
 * some for bf16. */
static void every_form_matches_fp64(void **state)
{
    (void)state;
    static const DType types[][2] = {
        {DT_bf16, DT_bf16}, {DT_f32, DT_f32}, {DT_f16, DT_f16}, {DT_bf16, DT_f32}};
    uint32_t n_forms = 0;
    for (uint32_t i = 0; i < product_n_forms; i++) {
        uint32_t done[4] = {0}, all = 0;
        for (uint64_t draw = 0; draw < 24; draw++)
            done[draw % 4] +=
                check_form(&product_forms[i], draw, types[draw % 4][0], types[draw % 4][1]);
        for (int k = 0; k < 4; k++) all += done[k];
        printf("told: a product with %s: one call in %u of 6 in bf16, %u in fp32, %u in fp16, %u "
               "in bf16 to fp32\n",
               product_forms[i].name, done[0], done[1], done[2], done[3]);
        n_forms += done[0] > 0;
        if (target_context()->products == NULL) assert_true(all > 3);
    }
    assert_true(n_forms >= product_n_forms / 2);
}

#ifndef TANDEM_GPU
/* If the library leaves out a fused op, the numbers of each form must show it. */
static void a_missing_fused_op_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < product_n_forms; i++) {
        const Form *f = &product_forms[i];
        cublas_double_reset();
        cublas_double.forgets = true;
        CudaContext cuda = chain_open_products(&chain_hopper);
        CudaError error = {""};
        Chain ch = chain_of_eights(f->name);
        chain_point(&ch);
        assert_int_equal(chain_length(&ch, ch.n, &cuda), ch.n);
        assert_true(cuda_products_chain(ch.part, ch.n, &cuda, &error));
        if (chain_wrong(&ch, f) == NULL) fail_msg("%s: nothing is seen", f->name);
        cuda_products_close(cuda.products);
        chain_free(&ch);
    }
}
#endif

#ifndef TANDEM_GPU /* our own rules, which do not depend on the library */
/* ---- ops that form no such call ---- */

typedef void Spoil(Chain *ch);

static void spoil_unread(Chain *ch)
{
    /* an intermediate value becomes an input of another instruction, too */
    ch->part[0].unread = 0;
}
static void spoil_bias_address(Chain *ch)
{
    ch->args[1].ptr[1] = (char *)ch->args[1].ptr[1] + 2;
}
static void spoil_bias_type(Chain *ch)
{
    ch->args[1].dtype[1] = DT_f32;
}
static void spoil_bias_size(Chain *ch)
{
    ch->args[1].elements[1] -= 1;
}
static void spoil_input_address(Chain *ch)
{
    ch->args[1].ptr[2] = ch->args[2].ptr[0] = (char *)ch->args[2].ptr[0] + 8;
}
static void spoil_value(Chain *ch)
{
    ch->args[1].ptr[0] = ch->args[1].ptr[1];
}
static void spoil_other(Chain *ch)
{
    /* the term that is added is the product's own operand */
    ch->args[1].ptr[0] = ch->args[0].ptr[0];
}
static void spoil_out(Chain *ch)
{
    ch->args[1].ptr[2] = ch->args[0].ptr[0];
}
static void spoil_accumulates(Chain *ch)
{
    ch->args[1].attrs.accumulate = 1;
}
static void spoil_product(Chain *ch)
{
    ch->args[0].attrs.accumulate = 1;
}
static void spoil_hidden(Chain *ch)
{
    ch->args[2].ptr[0] =
        ch->args[0].ptr[2]; /* the last part reads x w, but memory only has x w + bias */
}
static void spoil_sums_type(Chain *ch)
{
    ch->args[1].dtype[1] = DT_f16;
}
static void spoil_sums_of(Chain *ch)
{
    ch->args[1].ptr[0] = ch->args[1].ptr[1];
}

static void other_combinations_are_not_fused(void **state)
{
    (void)state;
    static const struct {
        const char *form;
        Spoil *spoil;
        uint32_t length;
    } cases[] = {{"bias", spoil_unread, 0},
                 {"bias", spoil_bias_address, 0},
                 {"bias", spoil_bias_type, 0},
                 {"bias", spoil_bias_size, 0},
                 {"bias", spoil_accumulates, 0},
                 {"bias", spoil_product, 0},
                 {"bias", spoil_value, 0},
                 {"bias, gelu, kept", spoil_input_address, 2}, /* only the bias can be fused */
                 {"bias, gelu, kept", spoil_bias_type, 0},
                 {"other", spoil_other, 0},
                 {"other", spoil_out, 0},
                 {"bias, other", spoil_hidden, 2},
                 {"gelu's gradient", spoil_accumulates, 0},
                 {"gelu's gradient", spoil_value, 0},
                 {"bias's gradient", spoil_sums_type, 0},
                 {"bias's gradient", spoil_sums_of, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cublas_double_reset();
        CudaContext cuda = chain_open_products(&chain_hopper);
        Chain ch = chain_of_eights(cases[i].form);
        chain_point(&ch);
        assert_int_equal(chain_length(&ch, ch.n, &cuda), ch.n);
        cases[i].spoil(&ch);
        uint32_t n = chain_length(&ch, ch.n, &cuda);
        if (n != cases[i].length) fail_msg("%s, case %u: %u", cases[i].form, (unsigned)i, n);
        cuda_products_close(cuda.products);
        chain_free(&ch);
    }
}

#endif

/* With 8-bit operands, only the addition of another term may be fused. */
static void with_8_bits_only_a_sum_is_fused(void **state)
{
    (void)state;
    static const OpKind behind[] = {OP_add, OP_bias, OP_gelu};
    for (uint32_t i = 0; i < 3; i++) {
        Form f = {
            "8 bits", {OP_linear_tensorwise, behind[i]}, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
        cublas_double_reset();
        CudaContext cuda = chain_open_products(&chain_hopper);
        CudaError error = {""};
        Chain ch = chain_of(&f, 3, DT_e4m3, DT_bf16);
        chain_point(&ch);
        uint32_t n = chain_length(&ch, ch.n, &cuda);
        assert_true(n == 0 || i == 0);
        if (target_context()->products == NULL) assert_int_equal(n, i == 0 ? 2 : 0);
        if (n == 2) {
            assert_true(TARGET_RUN(1, cuda_products_chain(ch.part, 2, &cuda, &error), &error));
            const char *wrong = chain_wrong(&ch, &f);
            if (wrong) fail_msg("8 bits: %s", wrong);
        }
        cuda_products_close(cuda.products);
        chain_free(&ch);
    }
}

#ifndef TANDEM_GPU
/* Calls that the library itself refuses, each with an error. */
static void forbidden_calls_are_refused(void **state)
{
    (void)state;
    cublas_double_reset();
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t limits;
    cublasLtMatmulHeuristicResult_t found[16];
    static _Alignas(256) float memory[64];
    float *vector = memory, *odd = memory + 1;
    int64_t fine_leading = 8, bad_leading = 12;
    uint32_t align = 256;
    int n = 0;
    assert_int_equal(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 8, 8, 8), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 8, 8, 8), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 8, 8, 8), 0);
    assert_int_equal(cublasLtMatmulPreferenceCreate(&limits), 0);
    for (int i = 0; i < 4; i++)
        (void)cublasLtMatmulPreferenceSetAttribute(
            limits,
            (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
            &align, sizeof align);
    const struct {
        uint32_t epilogue;
        void *vector, *aux;
        int64_t leading;
        bool fine;
    } cases[] = {{CUBLASLT_EPILOGUE_BIAS, vector, NULL, 0, true},
                 {CUBLASLT_EPILOGUE_BIAS, NULL, NULL, 0, false},
                 {CUBLASLT_EPILOGUE_BIAS, odd, NULL, 0, false},
                 {CUBLASLT_EPILOGUE_BIAS, vector, vector, fine_leading, false},
                 {CUBLASLT_EPILOGUE_GELU, vector, NULL, 0, false},
                 {CUBLASLT_EPILOGUE_GELU_AUX, NULL, vector, fine_leading, true},
                 {CUBLASLT_EPILOGUE_GELU_AUX, NULL, vector, bad_leading, false},
                 {CUBLASLT_EPILOGUE_GELU_AUX, NULL, vector, 0, false},
                 {CUBLASLT_EPILOGUE_DGELU, NULL, NULL, fine_leading, false},
                 {CUBLASLT_EPILOGUE_DGELU, NULL, odd, fine_leading, false},
                 {CUBLASLT_EPILOGUE_BGRADB, NULL, NULL, 0, false},
                 {CUBLASLT_EPILOGUE_RELU, NULL, NULL, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
#define SET(name, value)                                                                           \
    (void)cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##name, &value, sizeof value)
        SET(EPILOGUE, cases[i].epilogue);
        SET(BIAS_POINTER, cases[i].vector);
        SET(EPILOGUE_AUX_POINTER, cases[i].aux);
        SET(EPILOGUE_AUX_LD, cases[i].leading);
#undef SET
        cublasLtHandle_t handle = (cublasLtHandle_t)(void *)memory;
        cublasStatus_t s =
            cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, limits, 16, found, &n);
        if ((s == CUBLAS_STATUS_SUCCESS) != cases[i].fine) fail_msg("case %u", (unsigned)i);
        (void)cublasLtMatmulDescDestroy(desc);
    }
    (void)cublasLtMatrixLayoutDestroy(a);
    (void)cublasLtMatrixLayoutDestroy(b);
    (void)cublasLtMatrixLayoutDestroy(d);
    (void)cublasLtMatmulPreferenceDestroy(limits);
    assert_int_equal(cublas_double.objects + runtime_double.objects, 0);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_matches_fp64),
        cmocka_unit_test(with_8_bits_only_a_sum_is_fused),
#ifndef TANDEM_GPU
        cmocka_unit_test(a_missing_fused_op_is_found),
        cmocka_unit_test(other_combinations_are_not_fused),
        cmocka_unit_test(forbidden_calls_are_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
