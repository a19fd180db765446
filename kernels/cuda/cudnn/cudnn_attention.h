/* Attention by cuDNN's graphs, if that library is found at run time: one operation graph for each
 * shape, made before the first step. Without the library, or for calls that it does not accept
 * (dropout, parts of a sequence, the gradient), our own kernels run. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H
#define TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudnnAttention CudnnAttention;

/* Loads the library. Returns NULL with *error if it is not found, if this build has none, or if it
 * cannot open the current device. `device_json`: NULL, or for tests a description of a device
 * (cuDNN's own form of device properties). */
CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error);
/* Makes the plan of an instruction if the library accepts it; *taken says whether it did. It may
 * allocate. */
bool cudnn_attention_prepare(CudnnAttention *cudnn, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error);
/* Launches a prepared instruction on cuda->stream. *taken is false if it was not prepared; the
 * caller's own kernels must then run. */
bool cudnn_attention_run(void *cudnn, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error);
/* Returns the device memory that plans use outside the arena. */
uint64_t cudnn_attention_bytes(const CudnnAttention *cudnn);
void cudnn_attention_close(CudnnAttention *cudnn);

#ifdef __cplusplus
}
#endif

#endif
