/* Adds how often each expert was chosen to the run's counters. */
#include "kernels/cuda/experts/choices.h"

#include "kernels/cuda/experts/count.cuh"

enum { CHOICES_AT_ONCE = 1 << 24 }; /* a float counts exactly up to this number */

/* The last block counts the dropped choices; each other block counts eight experts. Only one block
 * writes a counter. */
KERNEL(choices_count, CudaChoices, COUNT_THREADS, 4)
{
    SHARED(float, held); /* [COUNT_WARPS, EIGHT] */
    const int64_t first = (int64_t)blockIdx.x * EIGHT, e = first + threadIdx.x;
    const bool drops = first >= a.n_experts;
    int32_t count[EIGHT] = {0};
    for (int64_t i = threadIdx.x; i < a.n; i += COUNT_THREADS) {
        const int32_t id = drops ? -1 : a.ids[i];
        UNROLL for (int k = 0; k < EIGHT; k++) count[k] += id == first + k;
        if (drops) count[0] += a.slots[i] < 0;
    }
    const float total = add_counts(count, held);
    if (drops && threadIdx.x == 0) *a.dropped += (uint64_t)total;
    if (!drops && threadIdx.x < EIGHT && e < a.n_experts) a.chosen[e] += (uint64_t)total;
}

bool cuda_choices(const CudaChoices *choices, const CudaContext *cuda, CudaError *error)
{
    CudaChoices part = *choices;
    for (int64_t at = 0; at < choices->n; at += CHOICES_AT_ONCE) {
        const int64_t left = choices->n - at;
        part.ids = choices->ids + at, part.slots = choices->slots + at;
        part.n = left < CHOICES_AT_ONCE ? left : CHOICES_AT_ONCE;
        if (!LAUNCH(choices_count, ceil_div(part.n_experts, EIGHT) + 1, COUNT_THREADS,
                    COUNT_WARPS * EIGHT * sizeof(float), part, cuda, error))
            return false;
    }
    return true;
}
