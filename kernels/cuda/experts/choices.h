/* A kernel that counts how often tokens chose each expert, and how many of these choices were
 * dropped because the expert was full. A choice that is not dropped has a slot, a row of the
 * expert's input. */
#ifndef TANDEM_KERNELS_CUDA_EXPERTS_CHOICES_H
#define TANDEM_KERNELS_CUDA_EXPERTS_CHOICES_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All pointers point to device memory. */
typedef struct CudaChoices {
    const int32_t *ids, *slots; /* [n] each: the chosen expert; its slot, or a negative number if
                                   the choice was dropped */
    int64_t n, n_experts;
    uint64_t *chosen;  /* [n_experts]: the kernel adds its counts to these */
    uint64_t *dropped; /* one number, to which the kernel adds its count */
} CudaChoices;

bool cuda_choices(const CudaChoices *choices, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
