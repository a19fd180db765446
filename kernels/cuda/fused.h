/* Kernels that compute several ops: the interface between the chains and the families of
 * kernels. */
#ifndef TANDEM_KERNELS_CUDA_FUSED_H
#define TANDEM_KERNELS_CUDA_FUSED_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True for types of more than 8 bits, because only these are fused. */
static inline bool fused_takes(DType t)
{
    return t == DT_f32 || t == DT_bf16 || t == DT_f16;
}

/* For each family of kernels: the number of leading parts that it can run as one kernel (0: none),
 * and that kernel. */
typedef uint32_t CudaRunLength(const CudaChainPart *part, uint32_t n);
typedef bool CudaRun(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                     CudaError *error);

/* A norm, together with the sum before it (written only if read elsewhere), with the largest
 * magnitude of its output, or with both. */
CudaRunLength cuda_norm_length;
CudaRun cuda_norm_run;

/* A norm's gradient, and the largest magnitude of the input's gradient. */
CudaRunLength cuda_norm_grad_length;
CudaRun cuda_norm_grad_run;

/* The sums of cross-entropy in one pass over the logits: the maximum, then, in any order, the
 * sum of exponentials and the label's logit. */
CudaRunLength cuda_xent_length;
CudaRun cuda_xent_run;

/* A gated unit, silu(gate) * up, or its gradient; no other op joins it. */
CudaRunLength cuda_gate_length;
CudaRun cuda_gate_run;

/* A quantisation, and the transposed copy of its output. */
CudaRunLength cuda_turn_length;
CudaRun cuda_turn_run;

/* True if the elements that dropout covers are contiguous in the whole tensor; *first is the global
 * index of the first one. */
bool cuda_dropout_is_flat(const KernelArgs *args, int64_t *first);

#ifdef __cplusplus
}
#endif

#endif
