/* The double of cublasLt on the double of CUDA. Products run when their stream reaches them, on
 * addresses of device memory that the double may touch. For other calls of products.c, the stream
 * runs kernels of the CPU. */
#include <string.h>

#include "kernels/cuda/product/product.h"
#include "kernels/cuda/product/products.h"
#include "kernels/number.h"
#include "kernels/product.h"
#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/double/private.h"

void cublas_double_enqueue(void *stream, void (*run)(void *), const void *args, size_t bytes)
{
    double_launch(stream, run, args, bytes);
}

void *cublas_double_at(const void *device)
{
    if (!double_is_device(device)) double_misuse("a product on memory of the host");
    return double_translate(device);
}

void cublas_double_spend(double ms)
{
    world()->now_ms += ms;
}

/* ---- contractions of the adapter ---- */

#define RUN(name)                                                                                  \
    static bool run_##name(const KernelArgs *a, const CudaContext *cuda, CudaError *error)         \
    {                                                                                              \
        return cuda_contract(OP_##name, a, cuda, error);                                           \
    }
#define RUN_3(name)               RUN(name) RUN(name##_d0) RUN(name##_d1)
#define CONTRACT(name, signature) CONTRACT_FORMS(RUN_3, name)
#define PRODUCT(name, signature)  RUN_3(name)
#include "planner/ir/op/ops.def"

static CudaKernel contraction(OpKind op)
{
    static const CudaKernel table[OP_COUNT] = {
#define ROW(name)                 [OP_##name] = run_##name,
#define ROW_3(name)               ROW(name) ROW(name##_d0) ROW(name##_d1)
#define CONTRACT(name, signature) CONTRACT_FORMS(ROW_3, name)
#define PRODUCT(name, signature)  ROW_3(name)
#include "planner/ir/op/ops.def"
    };
    return table[op];
}

static uint64_t workspace(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args)
{
    return cuda_contract_workspace(op, dtype, elements, n_args);
}

const DoubleProducts double_products = {contraction, cuda_contract_accepts, workspace};

/* ---- device kernels that products.c calls ---- */

bool product_plain(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    KernelArgs own = *args;
    own.n_args = args->n_in + 1; /* inputs and the output, without the library's scratch */
    return double_kernel(op)(&own, cuda, error);
}

/* Prepares 8-bit operands for the library, one number after another. */
typedef struct EightBit {
    Gemm gemm;
    KernelArgs args;
} EightBit;

static void turn(const GemmMatrix *x, const ProductMatrix *stored, int64_t batch,
                 const KernelArgs *args, uint8_t *to)
{
    const uint8_t *from = x->turned ? double_translate(args->ptr[x->arg]) : NULL;
    for (int64_t k = 0; x->turned && k < batch; k++)
        for (int64_t i = 0; i < x->rows; i++)
            for (int64_t j = 0; j < x->columns; j++)
                to[(k * x->columns + j) * x->rows + i] =
                    from[k * stored->batch_stride + i * stored->leading + j];
}

/* A tensor of zeros does not determine a scale. */
static void bound(const KernelArgs *args, uint32_t operand, void *to)
{
    uint32_t arg = 2 + operand;
    float *scale = to;
    for (int64_t i = 0; i < args->elements[arg]; i++) {
        float amax =
            (float)number_read(args->dtype[arg], double_translate(args->ptr[arg]), (uint64_t)i);
        scale[i] = amax < 1e-12f ? 1e-12f : amax;
    }
}

static void prepare(void *self)
{
    const EightBit *e = self;
    const Gemm *g = &e->gemm;
    const KernelArgs *args = &e->args;
    const GemmScratch s = gemm_scratch(g, args);
    const Product p = product_of(args->binding, args->size);
    uint8_t *scratch = double_translate(args->ptr[args->n_args - 1]);
    turn(&g->a, &p.y, g->batch, args, scratch + s.turned_a);
    turn(&g->b, &p.x, g->batch, args, scratch + s.turned_b);
    bound(args, g->a.arg, scratch + s.scale_a);
    bound(args, g->b.arg, scratch + s.scale_b);
}

bool product_prepare_eight_bit(const Gemm *g, const KernelArgs *args, const CudaContext *cuda,
                               CudaError *error)
{
    const EightBit e = {*g, *args};
    (void)error;
    double_launch(cuda->stream, prepare, &e, sizeof e);
    return true;
}

/* Applies both scales to a product that lies in the scratch, one number after another. */
typedef struct Scale {
    EightBit of;
    int64_t first;
} Scale;

static void scale(void *self)
{
    const Scale *x = self;
    const Gemm *g = &x->of.gemm;
    const KernelArgs *args = &x->of.args;
    const GemmScratch s = gemm_scratch(g, args);
    const Product p = product_of(args->binding, args->size);
    const char *scratch = double_translate(args->ptr[args->n_args - 1]);
    const float *sum = (const float *)(const void *)(scratch + s.unscaled);
    const float *a = (const float *)(const void *)(scratch + s.scale_a);
    const float *b = (const float *)(const void *)(scratch + s.scale_b);
    void *z = double_translate(args->ptr[g->d.arg]);
    const DType t = args->dtype[g->d.arg];
    for (int64_t k = 0; k < g->batch; k++)
        for (int64_t j = 0; j < g->chunk; j++)
            for (int64_t i = 0; i < g->m; i++) {
                uint64_t at = (uint64_t)(k * p.z.batch_stride + (x->first + j) * p.z.leading + i);
                float row = (float)args->attrs.scale * b[x->first + j];
                float scaled = sum[(k * g->chunk + j) * g->m + i] * row * a[i];
                double old = args->attrs.accumulate & 1 ? number_read(t, z, at) : 0;
                number_write(t, z, at, old + (double)scaled);
            }
}

bool product_scale_rows(const Gemm *g, const KernelArgs *args, int64_t first,
                        const CudaContext *cuda, CudaError *error)
{
    const Scale x = {{*g, *args}, first};
    (void)error;
    double_launch(cuda->stream, scale, &x, sizeof x);
    return true;
}

typedef struct Fill {
    DType dtype;
    void *at;
    uint64_t n;
} Fill;

static void fill(void *args)
{
    const Fill *f = args;
    for (uint64_t i = 0; i < f->n; i++)
        number_write(f->dtype, double_translate(f->at), i, (double)(i % 7) / 7 - .5);
}

bool product_fill(DType t, void *x, uint64_t bytes, uint32_t which, const CudaContext *cuda,
                  CudaError *error)
{
    Fill f = {t, x, bytes / dtype_bytes(t)};
    (void)error, (void)which;
    double_launch(cuda->stream, fill, &f, sizeof f);
    return true;
}

bool cuda_pass(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return double_kernel(OP_pass)(args, cuda, error);
}
