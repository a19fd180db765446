/* Memory that DeepSpeed's ZeRO takes in addition to the plan's buffers. These are buckets, weights
 * that are fetched ahead and kept for their next use, 16-bit weights at rest beside the optimizer's
 * fp32 weights, and the copies that reductions and updates make. Modelled after
 * deepspeed/runtime/zero: stage3.py, partitioned_param_coordinator.py, partition_parameters.py
 * (all_gather_coalesced), coalesced_collectives.py and stage_1_and_2.py. */
#ifndef TANDEM_SIM_MEMORY_ZERO_MEMORY_H
#define TANDEM_SIM_MEMORY_ZERO_MEMORY_H

#include "sim/runtime/runtime.h"

typedef struct ZeroTensor {
    Pc from, to; /* allocated before instruction `from` is issued, freed after `to` */
    uint64_t bytes;
    Stream stream;      /* the stream from whose pool it comes */
    bool only_at_first; /* only in the first step, which DeepSpeed records */
} ZeroTensor;

typedef struct ZeroMemory {
    LIST(ZeroTensor) tensors;   /* in the order of their requests; [0]: none */
    bool *replaced;             /* [buffer of the plan]: ZeRO's tensors replace it */
    uint64_t resident_bytes[4]; /* bytes of permanent tensors; 0: none */
} ZeroMemory;

/* Finds ZeRO's tensors. If the profile has no buckets, there are no such tensors, and no buffer is
 * replaced. */
void zero_memory(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena,
                 ZeroMemory *zero);

#endif
