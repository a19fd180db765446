/* Attention by graphs of the library cuDNN, which is loaded at run time. Each distinct shape gets
 * its own graph of operations, made before the first step. Our own kernels compute the calls that
 * cuDNN does not accept (dropout, parts of a sequence, the gradient), and all calls if cuDNN is
 * missing. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H
#define TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudnnAttention CudnnAttention;

/* Loads cuDNN. Returns NULL with *error in three cases: the library was not found, Tandem was built
 * without support for it, or it cannot use the current device. `device_json` is NULL, or for tests
 * the properties of a device in the form that cuDNN prints them. */
CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error);
/* Makes cuDNN's execution plan for an instruction and sets *taken to true. Sets *taken to false if
 * cuDNN does not accept the instruction. This function may allocate memory. */
bool cudnn_attention_prepare(CudnnAttention *cudnn, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error);
/* Launches a prepared instruction on cuda->stream. Sets *taken to false if the instruction was not
 * prepared; the caller must then use its own kernels. */
bool cudnn_attention_run(void *cudnn, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error);
/* Returns how much device memory, in bytes, cuDNN's execution plans use outside of the arena. */
uint64_t cudnn_attention_bytes(const CudnnAttention *cudnn);
void cudnn_attention_close(CudnnAttention *cudnn);

#ifdef __cplusplus
}
#endif

#endif
