/* Scratch that kernels need: a WorkspaceBytes of each family, for the table. */
#ifndef TANDEM_KERNELS_CUDA_WORKSPACE_H
#define TANDEM_KERNELS_CUDA_WORKSPACE_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t CudaWorkspace_function(OpKind op, const DType *dtype, const int64_t *elements,
                                        uint32_t n_args);
CudaWorkspace_function cuda_columns_workspace, cuda_norm_grad_workspace, cuda_amax_workspace,
    cuda_embed_grad_workspace, cuda_sumsq_workspace, cuda_loss_workspace;

#ifdef __cplusplus
}
#endif

#endif
