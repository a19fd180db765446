/* Between the norms and the chains: one kernel of a sum and the norm of it. */
#ifndef TANDEM_KERNELS_CUDA_FUSED_NORM_H
#define TANDEM_KERNELS_CUDA_FUSED_NORM_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `sum` an add, `args` a rmsnorm or layernorm (`op`) of its output, which is not written where it
 * is unread. */
bool cuda_add_norm(const KernelArgs *sum, bool unread, OpKind op, const KernelArgs *args,
                   const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
