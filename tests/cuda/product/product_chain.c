/* See product_chain.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cublasLt.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/product/product_chain.h"

enum { MOST = 1 << 14, SEED = 11 };

const Form product_forms[] = {
    {"bias", {OP_linear, OP_bias}, .epilogue = CUBLASLT_EPILOGUE_BIAS},
    {"bias of heads", {OP_linear_q, OP_bias}, .epilogue = CUBLASLT_EPILOGUE_BIAS},
    {"bias, other", {OP_linear_o, OP_bias, OP_add}, .epilogue = CUBLASLT_EPILOGUE_BIAS},
    {"other", {OP_linear, OP_add}, .epilogue = CUBLASLT_EPILOGUE_DEFAULT},
    {"gelu", {OP_linear, OP_gelu}, .epilogue = CUBLASLT_EPILOGUE_GELU},
    {"gelu, kept",
     {OP_linear, OP_gelu},
     .epilogue = CUBLASLT_EPILOGUE_GELU_AUX,
     .reads_input = true},
    {"bias, gelu", {OP_linear, OP_bias, OP_gelu}, .epilogue = CUBLASLT_EPILOGUE_GELU_BIAS},
    {"bias, gelu, kept",
     {OP_linear_t, OP_bias, OP_gelu},
     .epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
     .reads_input = true},
    {"gelu's gradient", {OP_linear_d0, OP_gelu_grad}, .epilogue = CUBLASLT_EPILOGUE_DGELU},
    {"bias's gradient", {OP_linear_d1, OP_bias_grad}, .epilogue = CUBLASLT_EPILOGUE_BGRADA},
    {"bias's gradient, added",
     {OP_linear_kv_d1, OP_bias_grad},
     .epilogue = CUBLASLT_EPILOGUE_BGRADA,
     .adds = true},
    {"of the left",
     {OP_linear_t_d1, OP_bias_grad},
     .epilogue = CUBLASLT_EPILOGUE_BGRADB,
     .adds = true},
};
const uint32_t product_n_forms = sizeof product_forms / sizeof product_forms[0];

static void *array(Chain *ch, DType t, int64_t n, uint64_t stream)
{
    char *at = target_alloc((uint64_t)n * dtype_bytes(t));
    assert_true(ch->n_blocks < sizeof ch->block / sizeof ch->block[0]);
    ch->block[ch->n_blocks++] = at;
    for (int64_t i = 0; i < n; i++)
        number_write(t, at, (uint64_t)i, rng_normal(SEED, stream, (uint64_t)i));
    return at;
}

static void set_arg(KernelArgs *a, uint32_t i, void *at, DType t, int64_t n)
{
    a->ptr[i] = at;
    a->dtype[i] = t;
    a->elements[i] = n;
    if (i >= a->n_args) a->n_args = i + 1;
}

static double gelu(double x, bool derivative)
{
    const double k = sqrt(2 / acos(-1)), c = 0.044715, t = tanh(k * (x + c * x * x * x));
    return derivative ? .5 * (1 + t) + .5 * x * (1 - t * t) * k * (1 + 3 * c * x * x)
                      : .5 * x * (1 + t);
}

/* Adds the bias to the expected result `value` [m,n] in fp64. */
static void add_rows(Chain *ch, OpKind op, const Form *f, DType t)
{
    KernelArgs *a = &ch->args[ch->n];
    const KernelArgs *before = ch->part[ch->n - 1].args;
    int64_t n = ch->p.m * ch->p.n;
    void *value = before->ptr[before->n_in];
    *a = (KernelArgs){.n_in = op_info(op)->sig.n_in, .rows = n};
    set_arg(a, op == OP_add ? 1 : 0, value, t, n);
    if (op == OP_bias) {
        set_arg(a, 1, array(ch, t, ch->p.n, 21), t, ch->p.n);
        a->rows = ch->p.n, a->size['b'] = 1, a->size['s'] = ch->p.m;
    } else if (op != OP_gelu) {
        set_arg(a, op == OP_add ? 0 : 1, array(ch, t, n, 22), t, n);
    }
    set_arg(a, a->n_in, array(ch, t, n, 23), t, n);
    for (int64_t i = 0; i < n; i++) {
        double *x = &ch->must[i];
        if (op == OP_gelu) ch->must_kept[i] = *x;
        if (op == OP_bias) *x += number_read(t, a->ptr[1], (uint64_t)(i % ch->p.n));
        if (op == OP_add) *x += number_read(t, a->ptr[0], (uint64_t)i);
        if (op == OP_gelu) *x = gelu(*x, false);
        if (op == OP_gelu_grad) *x *= gelu(number_read(t, a->ptr[1], (uint64_t)i), true);
    }
    ch->part[ch->n - 1].unread = !(op == OP_gelu && f->reads_input);
    ch->part[ch->n++] = (CudaChainPart){op, a, 0};
}

static void add_sums(Chain *ch, const Form *f)
{
    KernelArgs *a = &ch->args[1];
    bool left = f->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    uint32_t operand = left ? ch->p.left : ch->p.right;
    int64_t n = left ? ch->p.m : ch->p.n, k = ch->p.k;
    DType in = ch->c.args.dtype[operand], out = ch->c.args.dtype[ch->c.args.n_in];
    *a = (KernelArgs){.n_in = 1, .rows = n};
    a->size['b'] = 1, a->size['s'] = k;
    a->attrs.accumulate = f->adds;
    set_arg(a, 0, ch->c.args.ptr[operand], in, n * k);
    set_arg(a, 1, array(ch, out, n, 24), out, n);
    ch->must_sums = arena_array(ch->c.arena, (size_t)n, sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        ch->must_sums[i] = f->adds ? number_read(out, a->ptr[1], (uint64_t)i) : 0;
        for (int64_t j = 0; j < k; j++)
            ch->must_sums[i] += number_read(in, a->ptr[0], (uint64_t)(j * n + i));
    }
    /* the kernel of bias_grad needs scratch memory */
    set_arg(a, 2, array(ch, DT_f32, 1 << 16, 25), DT_u8, 1 << 18);
    ch->part[ch->n++] = (CudaChainPart){OP_bias_grad, a, 0};
}

Chain chain_of(const Form *f, uint64_t draw, DType in, DType out)
{
    Chain ch = {.c = contraction_of(f->op[0], draw, in, out), .n = 1};
    if (f->op[1] != OP_bias_grad) ch.c.args.attrs.accumulate = 0;
    ch.p = product_of(ch.c.args.binding, ch.c.args.size);
    ch.must = contraction_expected(&ch.c);
    ch.must_kept = arena_array(ch.c.arena, MOST, sizeof(double));
    contraction_add_scratch(&ch.c, cuda_contract_workspace);
    ch.part[0] = (CudaChainPart){f->op[0], &ch.args[0], 0};
    ch.args[0] = ch.c.args;
    for (uint32_t i = 1; i < PARTS && f->op[i]; i++) {
        if (f->op[i] == OP_bias_grad)
            add_sums(&ch, f);
        else
            add_rows(&ch, f->op[i], f, out);
    }
    return ch;
}

/* Lets the parts point to the chain's own arguments. Needed after the chain was moved. */
void chain_point(Chain *ch)
{
    for (uint32_t i = 0; i < ch->n; i++) ch->part[i].args = &ch->args[i];
}

static const char *far(const Chain *ch, const char *name, DType t, const void *is,
                       const double *must, int64_t n)
{
    double tolerance = t == DT_f32 ? 2e-5 : t == DT_f16 ? 2e-3 : 1e-2;
    for (int64_t i = 0; i < n; i++) {
        double x = number_read(t, is, (uint64_t)i);
        if (!(fabs(x - must[i]) <= tolerance * (1 + fabs(must[i]))))
            return arena_print(ch->c.arena, "%s [%d] is %.9g, not %.9g", name, (int)i, x, must[i]);
    }
    return NULL;
}

const char *chain_wrong(const Chain *ch, const Form *f)
{
    uint32_t last = f->op[1] == OP_bias_grad ? 0 : ch->n - 1;
    const KernelArgs *a = &ch->args[last];
    DType t = a->dtype[a->n_in];
    const int64_t n = ch->p.m * ch->p.n;
    const char *wrong = far(ch, f->name, t, a->ptr[a->n_in], ch->must, n);
    if (!wrong && f->reads_input)
        wrong = far(ch, "GELU's input", t, ch->args[last].ptr[0], ch->must_kept, n);
    if (!wrong && ch->must_sums)
        wrong = far(ch, "sums", t, ch->args[1].ptr[1], ch->must_sums, ch->args[1].elements[1]);
    return wrong;
}

void chain_free(Chain *ch)
{
    for (uint32_t i = 0; i < ch->n_blocks; i++) target_free(ch->block[i]);
    contraction_free(&ch->c);
}

static const Form *form(const char *name)
{
    for (uint32_t i = 0; i < product_n_forms; i++)
        if (strcmp(product_forms[i].name, name) == 0) return &product_forms[i];
    fail_msg("%s", name);
    return NULL;
}

/* Returns a chain of this form in which n is a multiple of 8. */
Chain chain_of_eights(const char *name)
{
    for (uint64_t draw = 0;; draw++) {
        Chain ch = chain_of(form(name), draw, DT_bf16, DT_bf16);
        if (ch.p.n % 8 == 0) return ch;
        chain_free(&ch);
    }
}

const CudaProductOptions chain_hopper = {.compute_capability = 90, .device = "H100"};

CudaContext chain_open_products(const CudaProductOptions *options)
{
    CudaError error;
    CudaContext cuda = *target_context();
    CudaProductOptions mine = *options;
    /* without a device, the double is used */
    if (cuda.products == NULL) cuda.compute_capability = 90;
    mine.compute_capability = cuda.compute_capability;
    mine.kernel = kernel_cuda;
    cuda.products = cuda_products_open(&mine, &error);
    assert_non_null(cuda.products);
    return cuda;
}

uint32_t chain_length(const Chain *ch, uint32_t n, const CudaContext *cuda)
{
    CudaError error = {""};
    if (!cuda_products_chain_length(ch->part, &n, cuda, &error)) fail_msg("%s", error.text);
    return n;
}
