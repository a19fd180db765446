/* Between the chains and the families that have kernels of several ops. */
#ifndef TANDEM_KERNELS_CUDA_FUSED_H
#define TANDEM_KERNELS_CUDA_FUSED_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs are of numbers above 8 bits; what is left out is launched alone. */
static inline bool fused_takes(DType t)
{
    return t == DT_f32 || t == DT_bf16 || t == DT_f16;
}

/* Each family: how many of the leading parts it makes one kernel of, 0: none; and that kernel. */
typedef uint32_t CudaRunLength(const CudaChainPart *part, uint32_t n);
typedef bool CudaRun(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                     CudaError *error);

/* A norm: of a sum, which is not written where it is unread; with the largest magnitude of what it
 * makes; or both. */
CudaRunLength cuda_norm_length;
CudaRun cuda_norm_run;

/* A norm's gradient, and the largest magnitude of that of its input. */
CudaRunLength cuda_norm_grad_length;
CudaRun cuda_norm_grad_run;

/* The sums of cross-entropy, in one pass over their logits: the maximum, then, in any order, the
 * sum of exponentials and what the label picks. */
CudaRunLength cuda_xent_length;
CudaRun cuda_xent_run;

/* What quantises, and the transposed copy of what it makes. */
CudaRunLength cuda_turn_length;
CudaRun cuda_turn_run;

/* Do the elements that are dropped lie side by side in the whole tensor? *first: where they begin.
 */
bool cuda_dropout_is_flat(const KernelArgs *args, int64_t *first);

#ifdef __cplusplus
}
#endif

#endif
