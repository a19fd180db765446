/* Makes initial values of parameters on the device, with the same bits as kernel_init_value on the
 * CPU. */
#ifndef TANDEM_KERNELS_CUDA_INIT_H
#define TANDEM_KERNELS_CUDA_INIT_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements [at, at + n) of a buffer get the values of elements [global, global + n) of a tensor,
 * rounded to `rest` and then to the buffer's dtype. */
typedef struct CudaInit {
    void *buffer;
    DType dtype, rest; /* fp32, bf16 or fp16 */
    uint64_t at, global, n;
    uint64_t seed, stream;
    int kind; /* InitKind */
    double a, b;
} CudaInit;

bool cuda_init_takes(DType dtype);
bool cuda_init(const CudaInit *init, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
