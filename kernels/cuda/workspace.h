/* The functions that give the scratch bytes and the accepted dtypes of each family of kernels, and
 * of all families together. */
#ifndef TANDEM_KERNELS_CUDA_WORKSPACE_H
#define TANDEM_KERNELS_CUDA_WORKSPACE_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t CudaWorkspace_function(OpKind op, const DType *dtype, const int64_t *elements,
                                        uint32_t n_args);
CudaWorkspace_function cuda_columns_workspace, cuda_norm_grad_workspace, cuda_amax_workspace,
    cuda_embed_grad_workspace, cuda_sumsq_workspace, cuda_loss_workspace, cuda_balance_workspace,
    cuda_scan_grad_workspace, cuda_compute_workspace;
/* The same as kernel_cuda_accepts, for every row of the table of ops except contractions. */
bool cuda_compute_accepts(OpKind op, const DType *dtype, uint32_t n_args);

#ifdef __cplusplus
}
#endif

#endif
