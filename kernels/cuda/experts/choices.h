/* Counts, on the device, how often each expert was chosen, and how many choices were dropped. */
#ifndef TANDEM_KERNELS_CUDA_EXPERTS_CHOICES_H
#define TANDEM_KERNELS_CUDA_EXPERTS_CHOICES_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All pointers are in device memory. */
typedef struct CudaChoices {
    const int32_t *ids, *slots; /* [n]: the chosen expert; its slot, below 0: dropped */
    int64_t n, n_experts;
    uint64_t *chosen;  /* [n_experts]: the counts are added to these */
    uint64_t *dropped; /* one number */
} CudaChoices;

bool cuda_choices(const CudaChoices *choices, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
