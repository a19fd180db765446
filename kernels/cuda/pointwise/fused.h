/* Kernels that compute several ops in one launch. The file for chains of instructions calls the
 * functions declared here; each family of kernels defines its own. */
#ifndef TANDEM_KERNELS_CUDA_FUSED_H
#define TANDEM_KERNELS_CUDA_FUSED_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns true for dtypes of more than 8 bits; only these are fused. */
static inline bool fused_takes(DType t)
{
    return t == DT_f32 || t == DT_bf16 || t == DT_f16;
}

/* Two functions for each family of kernels. The first returns how many of the first parts of a
 * chain one kernel of the family can compute (0: none). The second launches that kernel. */
typedef uint32_t CudaRunLength(const CudaChainPart *part, uint32_t n);
typedef bool CudaRun(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                     CudaError *error);

/* A norm, fused with the sum before it, with the largest magnitude of its output, or with both. The
 * sum is written only if another instruction reads it. */
CudaRunLength cuda_norm_length;
CudaRun cuda_norm_run;

/* The gradient of a norm, and the largest magnitude of the gradient of its input. */
CudaRunLength cuda_norm_grad_length;
CudaRun cuda_norm_grad_run;

/* The three sums of cross-entropy in one pass over the logits: first the maximum, then in any order
 * the sum of exponentials and the logit of the label. */
CudaRunLength cuda_xent_length;
CudaRun cuda_xent_run;

/* A gated unit silu(gate) * up, or its gradient. No other op is fused with it. */
CudaRunLength cuda_gate_length;
CudaRun cuda_gate_run;

/* A quantisation, and the transposed copy of its output. */
CudaRunLength cuda_turn_length;
CudaRun cuda_turn_run;

/* Returns true if the local elements that dropout covers are contiguous in the whole tensor. *first
 * then gets the global index of the first of them. */
bool cuda_dropout_is_flat(const KernelArgs *args, int64_t *first);

#ifdef __cplusplus
}
#endif

#endif
