/* Makes the initial values of parameters on the device, with the same bits as kernel_init_value on
 * the CPU. */
#ifndef TANDEM_KERNELS_CUDA_INIT_H
#define TANDEM_KERNELS_CUDA_INIT_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call. Elements `at` to at + n - 1 of a buffer get the initial values of elements `global` to
 * global + n - 1 of a tensor. Each value is rounded to the dtype `rest`, then to the dtype of the
 * buffer. */
typedef struct CudaInit {
    void *buffer;
    DType dtype, rest; /* each may be fp32, bf16 or fp16 */
    uint64_t at, global, n;
    uint64_t seed, stream;
    int kind; /* an InitKind */
    double a, b;
} CudaInit;

bool cuda_init_takes(DType dtype); /* true: the kernel can write numbers of this dtype */
/* Launches the kernel on cuda->stream. */
bool cuda_init(const CudaInit *init, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
