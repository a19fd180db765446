/* Contractions through the library's calls, on its double. Every row of the op table must give the
 * result that its signature defines. Choices of algorithms are timed, stored and found again, and
 * failing calls are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/product/gemm.h"
#include "kernels/cuda/product/products.h"
#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/product/contraction.h"
#include "tests/cuda/runtime_double.h"

/* Choices that are stored in the test's memory. */
enum { MAX_KEPT = 32, CHOICE_BYTES = 64 };
typedef struct Kept {
    uint32_t n, gets;
    struct {
        char device[160], call[GEMM_NAME_BYTES];
        char choice[CHOICE_BYTES];
        int64_t median_ps;
    } at[MAX_KEPT];
} Kept;

static bool kept_get(void *self, const char *device, const char *call, void *choice, size_t bytes)
{
    Kept *kept = self;
    kept->gets++;
    assert_int_equal(bytes, CHOICE_BYTES);
    for (uint32_t i = 0; i < kept->n; i++)
        if (!strcmp(kept->at[i].device, device) && !strcmp(kept->at[i].call, call)) {
            memcpy(choice, kept->at[i].choice, bytes);
            return true;
        }
    return false;
}

static void kept_put(void *self, const char *device, const char *call, const void *choice,
                     size_t bytes, int64_t median_ps)
{
    Kept *kept = self;
    assert_true(kept->n < MAX_KEPT);
    (void)snprintf(kept->at[kept->n].device, sizeof kept->at[0].device, "%s", device);
    (void)snprintf(kept->at[kept->n].call, sizeof kept->at[0].call, "%s", call);
    memcpy(kept->at[kept->n].choice, choice, bytes);
    kept->at[kept->n++].median_ps = median_ps;
}

typedef struct Session {
    CudaContext cuda;
    CudaError error;
} Session;

static Session open_products(const CudaProductOptions *options)
{
    Session s = {.cuda = {.n_sms = 2, .compute_capability = options->compute_capability}};
    s.cuda.products = cuda_products_open(options, &s.error);
    assert_non_null(s.cuda.products);
    return s;
}

static void close_products(Session *s)
{
    cuda_products_close(s->cuda.products);
    assert_int_equal(cublas_double.objects + runtime_double.objects, 0);
}

/* Decides on the algorithms after preparation, as a run of a single rank does. */
static void settle_alone(Session *s)
{
    CudaProductChoice all[8];
    uint32_t n = cuda_products_counts(s->cuda.products).calls;
    assert_in_range(n, 1, 8);
    cuda_products_choices(s->cuda.products, all);
    assert_true(cuda_products_settle(s->cuda.products, all, n, 0, &s->error));
}

static const CudaProductOptions hopper = {
    .compute_capability = 90, .device = "H100", .kernel = kernel_cuda};

static void assert_result(Contraction *c, const double *must, double tolerance)
{
    uint32_t z = c->args.n_in;
    for (int64_t i = 0; i < c->args.elements[z]; i++) {
        double is = number_read(c->args.dtype[z], c->args.ptr[z], (uint64_t)i);
        if (!(fabs(is - must[i]) <= tolerance * (1 + fabs(must[i]))))
            fail_msg("%s [%d] is %.9g, not %.9g", op_info(c->op)->name, (int)i, is, must[i]);
    }
}

/* Returns how many products the library computed in one call; 0: none. */
static int64_t check_row(OpKind op, uint64_t draw, DType in, DType out, uint32_t capability)
{
    CudaProductOptions options = hopper;
    options.compute_capability = capability;
    /* half of the draws divide the product into several chunks */
    options.unscaled_bytes = draw & 2 ? 4096 : 0;
    cublas_double_reset();
    cublas_double.capability = capability;
    Session s = open_products(&options);
    Contraction c = contraction_of(op, draw, in, out);
    contraction_add_scratch(&c, cuda_contract_workspace);
    double *must = contraction_expected(&c);
    assert_true(cuda_contract_accepts(op, c.args.dtype, c.args.n_args));
    if (!cuda_contract(op, &c.args, &s.cuda, &s.error)) fail_msg("%s", s.error.text);
    assert_result(&c, must, out == DT_f32 ? 1e-4 : 1e-2);
    assert_int_equal(cuda_products_counts(s.cuda.products).calls, 1);
    Gemm g;
    const GemmRules rules = {.tf32 = false};
    gemm_of(op, &c.args, &rules, &g);
    contraction_free(&c);
    close_products(&s);
    return cublas_double.products ? g.batch : 0;
}

static void each_product_equals_its_definition(void **state)
{
    (void)state;
    uint32_t by_library = 0, several = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || op_info(op)->flags & OP_BLOCKS) continue;
        bool scaled = op_info(op)->scaling != SCALING_none;
        for (uint64_t draw = 0; draw < 4; draw++) {
            const DType in = scaled ? DT_e4m3 : DT_bf16, out = draw & 2 ? DT_f32 : DT_bf16;
            several += check_row(op, draw, in, out, 90) > 1;
            by_library += cublas_double.products;
            several += check_row(op, draw, scaled ? DT_e4m3 : DT_f32, DT_f32, 100) > 1;
            by_library += cublas_double.products;
        }
    }
    assert_true(by_library > 4 * 7 * 9); /* the library computes most rows */
    assert_true(several >= 3 * 4);       /* some rows take one product for each expert */
}

/* Except on 9.0, the library has no scale for each row. Except on 10 and 11, it reads 8-bit
 * operands only along k. It must still compute every product that it computes on 9.0: in chunks,
 * whose scales a kernel of our own applies. */
static void rowwise_products_work_on_every_device(void **state)
{
    (void)state;
    static const uint32_t others[] = {89, 100, 103, 120, 121};
    uint32_t of_chunks = 0, inside = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->class_ != OP_CLASS_contract || info->scaling != SCALING_rowwise) continue;
        for (uint64_t draw = 0; draw < 4; draw++) {
            const DType out = draw & 2 ? DT_f32 : DT_bf16;
            const int64_t n = check_row(op, draw, DT_e4m3, out, 90);
            assert_int_equal(cublas_double.rowwise, cublas_double.products);
            inside += cublas_double.rowwise;
            for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
                assert_int_equal(check_row(op, draw, DT_e4m3, out, others[i]), n);
                assert_int_equal(cublas_double.rowwise, 0);
                of_chunks += cublas_double.products > 1;
            }
        }
    }
    assert_true(inside > 0 && of_chunks > 0);
}

/* No kernel multiplies operands with block scales, so a plan with them does not run. */
static void block_scales_are_refused(void **state)
{
    (void)state;
    const DType dtype[] = {DT_e4m3, DT_e4m3, DT_e8m0, DT_e8m0, DT_bf16, DT_u8};
    const DType same[] = {DT_e4m3, DT_e4m3, DT_f32, DT_f32, DT_bf16, DT_u8};
    uint32_t n = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract || !(op_info(op)->flags & OP_BLOCKS)) continue;
        assert_false(cuda_contract_accepts(op, dtype, 6));
        assert_false(cuda_contract_accepts(op, same, 6));
        n++;
    }
    assert_true(n > 20);
    assert_true(cuda_contract_accepts(OP_linear_rowwise, same, 6));
}

/* A product that the library refuses is reported with its sizes, types and the reason. */
static void refused_products_are_reported(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        OpKind op;
        uint64_t draw;
        DType in, out;
        bool no_algorithm;
    } rows[] = {
        {NULL, OP_linear, 5, DT_bf16, DT_bf16, false},
        {"its types, sizes or alignment", OP_linear, 5, DT_f32, DT_bf16, false},
        {"its types, sizes or alignment", OP_linear_rowwise, 0, DT_e4m3, DT_bf16, false},
        {"cublasLt does not support it", OP_linear, 5, DT_bf16, DT_bf16, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[640] = "";
        cublas_double_reset();
        cublas_double.refuses = rows[i].no_algorithm;
        Session s = open_products(&hopper);
        Contraction c = contraction_of(rows[i].op, rows[i].draw, rows[i].in, rows[i].out);
        contraction_add_scratch(&c, cuda_contract_workspace);
        assert_true(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
        assert_int_equal(cuda_products_plain(s.cuda.products, 0, text, sizeof text),
                         rows[i].why != NULL);
        if (rows[i].why) {
            assert_non_null(strstr(text, rows[i].why));
            assert_non_null(strstr(text, dtype_name(rows[i].in)));
            assert_non_null(strstr(text, " batch 1 "));
        }
        assert_false(cuda_products_plain(s.cuda.products, 1, text, sizeof text));
        assert_int_equal(cublas_double.products, 0);
        close_products(&s);
        contraction_free(&c);
    }
}

/* The library's workspace must begin at a multiple of 256 bytes, as planned scratch does. */
static void the_workspace_is_aligned(void **state)
{
    (void)state;
    for (int off = 0; off <= 256; off += 64) {
        cublas_double_reset();
        Session s = open_products(&hopper);
        Contraction c = contraction_of(OP_linear, 0, DT_bf16, DT_bf16);
        contraction_add_scratch(&c, cuda_contract_workspace);
        const uint32_t last = c.args.n_args - 1;
        c.args.ptr[last] = (char *)c.args.ptr[last] + off;
        const bool fine = cuda_contract(OP_linear, &c.args, &s.cuda, &s.error);
        c.args.ptr[last] = (char *)c.args.ptr[last] - off;
        assert_int_equal(fine, off % 256 == 0);
        contraction_free(&c);
        close_products(&s);
    }
}

static void the_fastest_algorithm_is_stored_and_found(void **state)
{
    (void)state;
    static const double ms[][DOUBLE_WAYS] = {
        {0.1, 3, 2, 1}, {0.1, 3, 1, 2}, {0.1, 1, 2, 3}, {0.1, -1, 2, 3}};
    static const int fastest[] = {DOUBLE_WAY_backwards, DOUBLE_WAY_split, DOUBLE_WAY_plain,
                                  DOUBLE_WAY_split};
    for (uint32_t i = 0; i < 4; i++) {
        Kept kept = {0};
        const KernelChoices choices = {&kept, kept_get, kept_put};
        CudaProductOptions options = hopper;
        options.kept = &choices;
        options.tune = true;
        Contraction c = contraction_of(OP_linear, 5, DT_bf16, DT_bf16);
        contraction_add_scratch(&c, cuda_contract_workspace);
        for (uint32_t again = 0; again < 2; again++) {
            cublas_double_reset();
            memcpy(cublas_double.ms, ms[i], sizeof ms[i]);
            Session s = open_products(&options);
            assert_true(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
            settle_alone(&s);
            CudaProductCounts n = cuda_products_counts(s.cuda.products);
            assert_int_equal(n.timed, again ? 0 : 1);
            assert_int_equal(n.kept, again ? 1 : 0);
            if (again) assert_int_equal(cublas_double.products, 0);
            assert_true(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
            assert_int_equal(cublas_double.last_way, fastest[i]);
            assert_int_equal(cuda_products_counts(s.cuda.products).calls, 1);
            close_products(&s);
        }
        assert_int_equal(kept.n, 1);
        assert_int_equal(kept.at[0].median_ps, (int64_t)(ms[i][fastest[i]] * 1e9));
        contraction_free(&c);
    }
}

/* Another device, another library version and another call each have their own choice. */
static void choices_belong_to_their_device(void **state)
{
    (void)state;
    Kept kept = {0};
    const KernelChoices choices = {&kept, kept_get, kept_put};
    CudaProductOptions options = hopper;
    options.kept = &choices;
    options.tune = true;
    for (uint32_t i = 0; i < 4; i++) {
        cublas_double_reset();
        if (i == 1) options.device = "H200";
        if (i == 2) cublas_double.version++;
        Session s = open_products(&options);
        Contraction c = contraction_of(OP_linear, i == 3 ? 6 : 5, DT_bf16, DT_bf16);
        contraction_add_scratch(&c, cuda_contract_workspace);
        assert_true(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
        settle_alone(&s);
        close_products(&s);
        contraction_free(&c);
        assert_int_equal(kept.n, i + 1);
    }
}

/* Stored choices are not used if the library refuses them, or if they are not repeatable. */
static void bad_choices_are_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        Kept kept = {0};
        const KernelChoices choices = {&kept, kept_get, kept_put};
        CudaProductOptions options = hopper;
        options.kept = &choices;
        options.tune = true;
        cublas_double_reset();
        Session s = open_products(&options);
        Contraction c = contraction_of(OP_linear, 5, DT_bf16, DT_bf16);
        contraction_add_scratch(&c, cuda_contract_workspace);
        assert_true(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
        settle_alone(&s);
        close_products(&s);
        if (i == 0)
            memset(kept.at[0].choice, 0x77, CHOICE_BYTES);
        else /* the scheme for sums that are not repeatable */
            kept.at[0].choice[12] = 1;
        options.tune = false;
        s = open_products(&options);
        assert_true(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
        assert_int_equal(cuda_products_counts(s.cuda.products).kept, 0);
        assert_true(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
        /* the plain algorithm is the first repeatable one */
        assert_int_equal(cublas_double.last_way, DOUBLE_WAY_plain);
        close_products(&s);
        contraction_free(&c);
    }
}

/* Without memory for timing, the first repeatable algorithm of the library is used, and nothing is
 * stored. */
static void without_memory_nothing_is_timed(void **state)
{
    (void)state;
    Kept kept = {0};
    const KernelChoices choices = {&kept, kept_get, kept_put};
    CudaProductOptions options = hopper;
    options.kept = &choices;
    options.tune = true;
    cublas_double_reset();
    runtime_double.no_memory = true;
    Session s = open_products(&options);
    Contraction c = contraction_of(OP_linear, 5, DT_bf16, DT_bf16);
    contraction_add_scratch(&c, cuda_contract_workspace);
    assert_true(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
    assert_true(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
    assert_int_equal(cublas_double.last_way, DOUBLE_WAY_plain);
    assert_int_equal(kept.n, 0);
    close_products(&s);
    contraction_free(&c);
    runtime_double.no_memory = false;
}

/* If the device fails during timing, the message names the timed product, and does not say that
 * memory is missing. */
static void a_device_lost_in_timing_is_reported(void **state)
{
    (void)state;
    CudaProductOptions options = hopper;
    options.tune = true;
    static const struct {
        uint32_t at;
        const char *way;
    } cases[] = {{1, "timing algorithm 1 of 3 of "}, {9, "timing algorithm 2 of 3 of "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[GEMM_NAME_BYTES];
        Gemm g;
        cublas_double_reset();
        runtime_double.waits = 0;
        runtime_double.lost_at = cases[i].at;
        Session s = open_products(&options);
        Contraction c = contraction_of(OP_linear, 5, DT_bf16, DT_bf16);
        contraction_add_scratch(&c, cuda_contract_workspace);
        assert_false(cuda_products_prepare(c.op, &c.args, &s.cuda, &s.error));
        gemm_of(c.op, &c.args, &(GemmRules){.eight_bit = true, .eight_bit_k_major = true}, &g);
        gemm_name(&g, name);
        name[100] = 0; /* only the beginning of a long name is stored */
        assert_non_null(strstr(s.error.text, cases[i].way));
        assert_non_null(strstr(s.error.text, name));
        assert_non_null(strstr(s.error.text, ": cudaEventSynchronize: an illegal address"));
        runtime_double.lost_at = 0;
        close_products(&s);
        contraction_free(&c);
    }
}

/* For each call, an algorithm is chosen once, however often the call occurs, and whether or not it
 * was prepared. */
static void an_algorithm_is_chosen_once(void **state)
{
    (void)state;
    cublas_double_reset();
    Session s = open_products(&hopper);
    Contraction c = contraction_of(OP_linear_tensorwise, 3, DT_e4m3, DT_bf16);
    contraction_add_scratch(&c, cuda_contract_workspace);
    for (uint32_t i = 0; i < 5; i++) assert_true(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
    assert_int_equal(cublas_double.suggested, 1);
    assert_int_equal(cublas_double.products, 5);
    /* forward products may use fast accumulation */
    assert_int_equal(cublas_double.fast, 5);
    close_products(&s);
    contraction_free(&c);
    s = open_products(&hopper);
    c = contraction_of(OP_linear_tensorwise_d1, 3, DT_e4m3, DT_bf16);
    contraction_add_scratch(&c, cuda_contract_workspace);
    cublas_double.fast = 0;
    assert_true(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
    /* the gradient of a weight may not use it */
    assert_int_equal(cublas_double.fast, 0);
    close_products(&s);
    contraction_free(&c);
}

static void failures_are_reported(void **state)
{
    (void)state;
    static const char *const calls[] = {"cublasLtMatmulDescCreate",
                                        "cublasLtMatmulDescSetAttribute",
                                        "cublasLtMatrixLayoutCreate",
                                        "cublasLtMatmulPreferenceCreate",
                                        "cublasLtMatmulPreferenceSetAttribute",
                                        "cublasLtMatmulAlgoGetHeuristic",
                                        "cublasLtMatmul"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        cublas_double_reset();
        Session s = open_products(&hopper);
        Contraction c = contraction_of(OP_linear, 5, DT_bf16, DT_bf16);
        contraction_add_scratch(&c, cuda_contract_workspace);
        cublas_double.fails = calls[i];
        assert_false(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
        assert_non_null(strstr(s.error.text, calls[i]));
        cublas_double.fails = NULL;
        assert_true(cuda_contract(c.op, &c.args, &s.cuda, &s.error));
        close_products(&s);
        contraction_free(&c);
    }
    cublas_double_reset();
    cublas_double.fails = "cublasLtCreate";
    CudaError error = {""};
    assert_null(cuda_products_open(&hopper, &error));
    assert_non_null(strstr(error.text, "cublasLtCreate"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_product_equals_its_definition),
        cmocka_unit_test(rowwise_products_work_on_every_device),
        cmocka_unit_test(block_scales_are_refused),
        cmocka_unit_test(refused_products_are_reported),
        cmocka_unit_test(the_workspace_is_aligned),
        cmocka_unit_test(the_fastest_algorithm_is_stored_and_found),
        cmocka_unit_test(choices_belong_to_their_device),
        cmocka_unit_test(bad_choices_are_refused),
        cmocka_unit_test(without_memory_nothing_is_timed),
        cmocka_unit_test(a_device_lost_in_timing_is_reported),
        cmocka_unit_test(an_algorithm_is_chosen_once),
        cmocka_unit_test(failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
