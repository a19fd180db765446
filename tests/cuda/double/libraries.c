/* The double's kernels are the CPU's (adapter.c), so the library that products call has nothing to
 * do here. Other tests link with the library's own double (cublas_double.c). */
#include "kernels/cuda/product/products.h"
#include "tests/cuda/double/private.h"

#include <stdio.h>

const DoubleProducts double_products;

struct CudaProducts {
    char nothing;
};
static struct CudaProducts products;

CudaProducts *cuda_products_open(const CudaProductOptions *options, CudaError *error)
{
    (void)options;
    Scripted s = double_script("cublasLtCreate");
    if (s.kind != SCRIPT_fail) return &products;
    snprintf(error->text, sizeof error->text, "cublasLtCreate: %d", s.code);
    return NULL;
}

/* The backend must pass every contraction to this function, with the scratch that the workspace
 * table states. */
bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error)
{
    (void)error;
    double_script("cuda_products_prepare");
    return cuda->products == &products && op_info(op)->class_ == OP_CLASS_contract &&
           args->binding != NULL && cuda->stream != NULL;
}

/* Accepts all ops that the plan fuses with a product. */
bool cuda_products_prepare_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                 CudaError *error)
{
    (void)cuda, (void)error;
    double_script("cuda_products_prepare_chain");
    return n > 1 && op_info(part[0].op)->class_ == OP_CLASS_contract;
}

bool cuda_products_chain_length(const CudaChainPart *part, uint32_t *n, const CudaContext *cuda,
                                CudaError *error)
{
    (void)part, (void)n, (void)cuda, (void)error;
    return true;
}

bool cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                         CudaError *error)
{
    return kernel_cuda_chain(part, n, cuda, error);
}

CudaProductCounts cuda_products_counts(const CudaProducts *p)
{
    (void)p;
    return (CudaProductCounts){0};
}

bool cuda_products_plain(const CudaProducts *p, uint32_t i, char *text, size_t bytes)
{
    (void)p;
    /* a scripted failure counts as one more refused product */
    Scripted s = double_script("cuda_products_plain");
    if (s.kind != SCRIPT_fail) return false;
    snprintf(text, bytes, "product %u: %d", i, s.code);
    return true;
}

void cuda_products_choices(const CudaProducts *p, CudaProductChoice *all)
{
    (void)p, (void)all;
}

bool cuda_products_settle(CudaProducts *p, const CudaProductChoice *all, uint32_t n,
                          uint32_t n_before, CudaError *error)
{
    (void)p, (void)all, (void)n_before, (void)error;
    return n == 0;
}

void cuda_products_close(CudaProducts *p)
{
    (void)p;
}
