/* Between the chains and the families that have kernels of several ops. */
#ifndef TANDEM_KERNELS_CUDA_FUSED_H
#define TANDEM_KERNELS_CUDA_FUSED_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `sum` an add, `args` a rmsnorm or layernorm (`op`) of its output, which is not written where it
 * is unread. */
bool cuda_add_norm(const KernelArgs *sum, bool unread, OpKind op, const KernelArgs *args,
                   const CudaContext *cuda, CudaError *error);

/* How many of the leading parts are the sums of cross-entropy over the same logits: the maximum,
 * then, in any order, the sum of exponentials and what the label picks. 0: no such run. */
uint32_t cuda_xent_length(const CudaChainPart *part, uint32_t n);
/* All of them in one pass over the logits. */
bool cuda_xent_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                   CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
