/* Attention by cuDNN's graphs, where that library is found at run time: an operation graph for each
 * shape, made once, before the first step. Without it, or for what it does not take (dropout, parts
 * of a sequence, gradients that are added to), our own kernels run. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H
#define TANDEM_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudnnAttention CudnnAttention;

/* Loads the library; NULL with *error where it is not found, this build has none, or it cannot open
 * the current device. `device_json`: NULL, or a device that is described instead of present
 * (cuDNN's own form of device properties), for checks. */
CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error);
/* Makes the plan of an instruction, if the library takes it; *taken says so. Allocates. */
bool cudnn_attention_prepare(CudnnAttention *cudnn, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error);
/* Launches a prepared instruction on cuda->stream; *taken is false where none was prepared: the
 * caller's own kernels are to run. */
bool cudnn_attention_run(void *cudnn, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error);
/* Device memory that plans use beside the arena. */
uint64_t cudnn_attention_bytes(const CudnnAttention *cudnn);
void cudnn_attention_close(CudnnAttention *cudnn);

#ifdef __cplusplus
}
#endif

#endif
