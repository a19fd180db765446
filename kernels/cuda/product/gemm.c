/* Describes contractions in the form that cublasLtMatmul takes. */
#include "kernels/cuda/product/gemm.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/product/products.h"
#include "kernels/number.h"
#include "kernels/product.h"

/* sizes and leading dimensions of 8-bit operands must be multiples of this number of elements */
enum { EIGHT_BIT_MULTIPLE = 16 };

static bool is_eight_bit(DType t)
{
    return t == DT_e4m3 || t == DT_e5m2;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + GEMM_ALIGN - 1) / GEMM_ALIGN * GEMM_ALIGN;
}

uint32_t gemm_alignment(const void *at, int64_t stride_bytes)
{
    uint64_t bits = (uint64_t)(uintptr_t)at | (uint64_t)stride_bytes | GEMM_ALIGN;
    return (uint32_t)(bits & (~bits + 1)); /* isolate the lowest bit that is set */
}

/* Describes operand x. In memory, a row-major x [rows, columns] is a column-major x^T, so our inner
 * index is the library's first one. */
static void describe(GemmMatrix *g, const KernelArgs *args, uint32_t arg, const ProductMatrix *x,
                     int64_t rows, int64_t columns)
{
    g->arg = arg;
    g->dtype = args->dtype[arg];
    g->transposed = x->transposed;
    g->rows = x->transposed ? rows : columns;
    g->columns = x->transposed ? columns : rows;
    g->leading = x->leading;
    g->stride = x->batch_stride;
    g->align = gemm_alignment(args->ptr[arg], x->batch_stride * (int64_t)dtype_bytes(g->dtype));
}

/* Replaces the description of an 8-bit operand by that of its transposed copy, which is
 * contiguous. */
static void turn(GemmMatrix *g, int64_t batch)
{
    int64_t rows = g->columns, columns = g->rows;
    const uint32_t of_row = gemm_alignment(NULL, g->leading);
    g->source_align = of_row < g->align ? of_row : g->align;
    g->turned = true;
    g->transposed = !g->transposed;
    g->rows = rows;
    g->columns = columns;
    g->leading = rows > 0 ? rows : 1;
    g->stride = batch > 1 ? g->leading * columns : 0;
    g->align = gemm_alignment(NULL, g->stride);
    g->turned_bytes = (uint64_t)(rows * columns * batch);
}

GemmRules gemm_rules(uint32_t compute_capability, bool tf32)
{
    /* from the documentation of cuBLAS: 8-bit data types, and the table of scaling modes */
    return (GemmRules){.tf32 = tf32,
                       .eight_bit = compute_capability >= 89,
                       .eight_bit_k_major = compute_capability < 100 || compute_capability >= 120,
                       .outer_scales = compute_capability == 90};
}

static uint64_t unscaled_bytes(uint64_t elements)
{
    uint64_t bytes = elements * sizeof(float);
    return aligned(bytes < GEMM_UNSCALED_BYTES ? bytes : GEMM_UNSCALED_BYTES);
}

/* Returns the largest number of columns of D that divides n, fits into the workspace in fp32, and
 * keeps 8-bit operands aligned; 0: there is none. */
static int64_t chunk_of(const Gemm *g, const GemmRules *rules)
{
    const uint64_t most = rules->unscaled_bytes ? rules->unscaled_bytes : GEMM_UNSCALED_BYTES;
    const uint64_t column = (uint64_t)(g->m * g->batch) * sizeof(float);
    for (int64_t parts = 1; parts <= g->n / EIGHT_BIT_MULTIPLE; parts++) {
        int64_t chunk = g->n / parts;
        if (g->n % parts == 0 && chunk % EIGHT_BIT_MULTIPLE == 0 &&
            (uint64_t)chunk * column <= most)
            return chunk;
    }
    return 0;
}

/* Changes the description: the product without its scales is written to the workspace as fp32
 * numbers. */
static void scale_after(Gemm *g, const GemmRules *rules)
{
    g->scaled_after = true;
    g->accumulate = false;
    g->chunk = chunk_of(g, rules);
    g->d.dtype = DT_f32;
    g->d.rows = g->m;
    g->d.columns = g->chunk;
    g->d.leading = g->m > 0 ? g->m : 1;
    g->d.stride = g->batch > 1 ? g->m * g->chunk : 0;
    g->d.align = GEMM_ALIGN;
    /* each chunk of B must begin at an address with the alignment of B */
    uint32_t align = gemm_alignment(NULL, g->b.transposed ? g->chunk : g->chunk * g->b.leading);
    if (align < g->b.align) g->b.align = align;
}

void gemm_of(OpKind op, const KernelArgs *args, const GemmRules *rules, Gemm *g)
{
    assert(op_info(op)->class_ == OP_CLASS_contract);
    Product p = product_of(args->binding, args->size);
    memset(g, 0, sizeof *g); /* clears padding bytes as well, because descriptions are compared byte
                                by byte */
    g->m = p.n;
    g->n = p.m;
    g->k = p.k;
    g->batch = p.batch;
    g->scaling = op_info(op)->scaling;
    g->accumulate = (args->attrs.accumulate & 1) != 0;
    describe(&g->a, args, p.right, &p.y, p.k, p.n);
    describe(&g->b, args, p.left, &p.x, p.m, p.k);
    describe(&g->d, args, args->binding->n_in, &p.z, p.m, p.n);
    g->tf32 = rules->tf32 && g->a.dtype == DT_f32 && g->b.dtype == DT_f32;
    g->chunk = g->n;
    if (!is_eight_bit(g->a.dtype) || !is_eight_bit(g->b.dtype)) return;
    if (rules->eight_bit_k_major && !g->a.transposed) turn(&g->a, g->batch);
    if (rules->eight_bit_k_major && g->b.transposed) turn(&g->b, g->batch);
    if (g->scaling == SCALING_rowwise && !rules->outer_scales) scale_after(g, rules);
}

/* Returns true if the library has this combination of dtypes. Only dtypes that plans use are
 * listed. */
static bool has_types(const Gemm *g)
{
    DType a = g->a.dtype, b = g->b.dtype, d = g->d.dtype;
    if (is_eight_bit(a) && is_eight_bit(b))
        return !(a == DT_e5m2 && b == DT_e5m2) && (d == DT_bf16 || d == DT_f16 || d == DT_f32);
    if (a != b || is_eight_bit(a)) return false;
    return d == a || (d == DT_f32 && (a == DT_bf16 || a == DT_f16));
}

/* Returns true if an 8-bit operand, or the copy that a kernel makes of it, is aligned as the
 * library demands. */
static bool is_aligned(const GemmMatrix *x)
{
    return x->align >= EIGHT_BIT_MULTIPLE && x->leading % EIGHT_BIT_MULTIPLE == 0 &&
           (!x->turned || x->source_align >= GEMM_TURN_WORD);
}

bool gemm_is_for_library(const Gemm *g, const GemmRules *rules)
{
    if (!has_types(g)) return false;
    if (!is_eight_bit(g->a.dtype)) return g->scaling == SCALING_none;
    return rules->eight_bit && g->chunk > 0 && g->m % EIGHT_BIT_MULTIPLE == 0 &&
           g->n % EIGHT_BIT_MULTIPLE == 0 && g->k % EIGHT_BIT_MULTIPLE == 0 && is_aligned(&g->a) &&
           is_aligned(&g->b);
}

GemmScratch gemm_scratch(const Gemm *g, const KernelArgs *args)
{
    GemmScratch s = {0};
    if (g->scaling == SCALING_none) return s;
    s.scale_b = s.scale_a + aligned((uint64_t)args->elements[2 + g->a.arg] * sizeof(float));
    s.turned_a = s.scale_b + aligned((uint64_t)args->elements[2 + g->b.arg] * sizeof(float));
    s.turned_b = s.turned_a + aligned(g->a.turned_bytes);
    s.unscaled = s.turned_b + aligned(g->b.turned_bytes);
    s.library = s.unscaled;
    if (g->scaled_after) s.library += unscaled_bytes((uint64_t)(g->m * g->chunk * g->batch));
    return s;
}

uint64_t gemm_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args,
                            uint64_t library_bytes)
{
    uint64_t bytes = library_bytes;
    if (n_args < 5) return bytes;
    for (uint32_t i = 2; i < 4; i++) bytes += aligned((uint64_t)elements[i] * sizeof(float));
    for (uint32_t i = 0; i < 2; i++)
        if (is_eight_bit(dtype[i]) && !op_lies_along(op, i))
            bytes += aligned((uint64_t)elements[i]);
    if (op_info(op)->scaling == SCALING_rowwise) bytes += unscaled_bytes((uint64_t)elements[4]);
    return bytes;
}

static void append(char *name, size_t *at, const GemmMatrix *x)
{
    int n = snprintf(name + *at, GEMM_NAME_BYTES - *at,
                     " %s%s %" PRId64 "x%" PRId64 " ld %" PRId64 " stride %" PRId64 " align %u",
                     dtype_name(x->dtype), x->transposed ? "T" : "", x->rows, x->columns,
                     x->leading, x->stride, x->align);
    assert(n > 0 && *at + (size_t)n < GEMM_NAME_BYTES);
    *at += (size_t)n;
}

static void append_along(char *name, size_t at, const GemmAlong *a)
{
    static const char *const gelus[] = {"", " gelu", " gelu grad"};
    const struct {
        bool is;
        const char *name;
        uint32_t align;
    } places[] = {{a->bias, "bias", a->bias_align},
                  {a->other, "other", a->other_align},
                  {a->input, "input", a->input_align},
                  {a->sums == 'A', "sums of A", a->sums_align},
                  {a->sums == 'B', "sums of B", a->sums_align}};
    int n = snprintf(name + at, GEMM_NAME_BYTES - at, "%s%s", gelus[a->gelu],
                     a->adds_sums ? " adds" : "");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        assert(n >= 0 && at + (size_t)n < GEMM_NAME_BYTES);
        at += (size_t)n;
        n = 0;
        if (places[i].is)
            n = snprintf(name + at, GEMM_NAME_BYTES - at, " %s align %u", places[i].name,
                         places[i].align);
    }
    assert(n >= 0 && at + (size_t)n < GEMM_NAME_BYTES);
}

void gemm_name(const Gemm *g, char name[GEMM_NAME_BYTES])
{
    static const char *const scalings[SCALINGS] = {"", " tensorwise", " rowwise", " blocks",
                                                   " pairs"};
    int n = snprintf(name, GEMM_NAME_BYTES, "%" PRId64 "x%" PRId64 "x%" PRId64 " batch %" PRId64,
                     g->m, g->n, g->k, g->batch);
    assert(n > 0 && n < GEMM_NAME_BYTES);
    size_t at = (size_t)n;
    append(name, &at, &g->a);
    append(name, &at, &g->b);
    append(name, &at, &g->d);
    n = snprintf(name + at, GEMM_NAME_BYTES - at, "%s%s%s%s", scalings[g->scaling],
                 g->scaled_after ? " after" : "", g->accumulate ? " accumulate" : "",
                 g->tf32 ? " tf32" : "");
    assert(n >= 0 && at + (size_t)n < GEMM_NAME_BYTES);
    append_along(name, at + (size_t)n, &g->along);
}

bool cuda_contract_accepts(OpKind op, const DType *dtype, uint32_t n_args)
{
    uint32_t n_in = op_info(op)->sig.n_in;
    if (op_info(op)->flags & OP_BLOCKS) return false;
    if (n_args < n_in + 1u || n_args > n_in + 2u) return false;
    for (uint32_t i = 0; i <= n_in; i++)
        if (dtype[i] == DT_f64 || !number_is_real(dtype[i])) return false;
    return n_args == n_in + 1u || dtype[n_in + 1] == DT_u8;
}

uint64_t cuda_contract_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                 uint32_t n_args)
{
    assert(op_info(op)->class_ == OP_CLASS_contract);
    return gemm_scratch_bytes(op, dtype, elements, n_args, CUDA_PRODUCT_LIBRARY_BYTES);
}
