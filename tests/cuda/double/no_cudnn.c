/* The double has no cuDNN. Opening it fails with this message. */
#include <stdio.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"

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
