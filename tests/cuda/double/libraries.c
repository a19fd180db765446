/* The double's kernels are the CPU's (adapter.c): the libraries that a device's kernels call have
 * nothing to do. They have doubles of their own (cublas_double.c). */
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/products.h"
#include "tests/cuda/double/private.h"

#include <stdio.h>

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

/* Every contraction is to come here, with the scratch that the workspace table gave it. */
bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error)
{
    (void)error;
    double_script("cuda_products_prepare");
    return cuda->products == &products && op_info(op)->class_ == OP_CLASS_contract &&
           args->binding != NULL && cuda->stream != NULL;
}

void cuda_products_close(CudaProducts *p)
{
    (void)p;
}

CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error)
{
    (void)device_json;
    snprintf(error->text, sizeof error->text, "the double has no cuDNN");
    return NULL;
}

bool cudnn_attention_prepare(CudnnAttention *cudnn, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error)
{
    (void)cudnn, (void)op, (void)args, (void)taken, (void)error;
    return false;
}

bool cudnn_attention_run(void *cudnn, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error)
{
    (void)cudnn, (void)op, (void)args, (void)cuda, (void)taken, (void)error;
    return false;
}

void cudnn_attention_close(CudnnAttention *cudnn)
{
    (void)cudnn;
}
