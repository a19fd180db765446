/* Attention by cuDNN's graphs, if cuDNN is found at run time. Each shape has one operation graph,
 * made before the first step. If cuDNN is missing or does not accept a call (dropout, parts of a
 * sequence, the gradient), our own kernels run. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H
#define TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudnnAttention CudnnAttention;

/* Loads the library. Returns NULL with *error if the library is not found, if this build has no
 * support for it, or if it cannot use the current device. `device_json`: NULL, or for tests a
 * description of a device (cuDNN's own form of device properties). */
CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error);
/* Makes the plan of an instruction if the library accepts the instruction; *taken says whether it
 * did. It may allocate. */
bool cudnn_attention_prepare(CudnnAttention *cudnn, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error);
/* Launches a prepared instruction on cuda->stream. *taken is false if the instruction was not
 * prepared; the caller's own kernels must then run. */
bool cudnn_attention_run(void *cudnn, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error);
/* Returns the device memory that plans use outside the arena. */
uint64_t cudnn_attention_bytes(const CudnnAttention *cudnn);
void cudnn_attention_close(CudnnAttention *cudnn);

#ifdef __cplusplus
}
#endif

#endif
