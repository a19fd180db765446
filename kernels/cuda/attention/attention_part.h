/* The calls of attention that do the work of a part of the keys. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_PART_H
#define TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_PART_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PartCalls {
    OpKind op; /* attention, or its gradient */
    const KernelArgs *args;
    KernelArgs call; /* the newest call; it has no scratch of its own */
    int64_t i;
} PartCalls;

static inline void attention_part_calls(PartCalls *at, OpKind op, const KernelArgs *args)
{
    at->op = op;
    at->args = args;
    at->i = 0;
}
/* Finds the next call; false: there is none. */
bool attention_part_next(PartCalls *at);

#ifdef __cplusplus
}
#endif

#endif
