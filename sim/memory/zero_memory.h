/* Memory that DeepSpeed's ZeRO uses besides the plan's buffers:
 *   - buckets
 *   - weights that are fetched early and kept for their next use
 *   - 16-bit weights between steps, besides the optimizer's fp32 weights
 *   - copies that reductions and updates make
 * The model follows the files stage3.py, partitioned_param_coordinator.py, partition_parameters.py
 * (all_gather_coalesced), coalesced_collectives.py and stage_1_and_2.py of
 * deepspeed/runtime/zero. */
#ifndef TANDEM_SIM_MEMORY_ZERO_MEMORY_H
#define TANDEM_SIM_MEMORY_ZERO_MEMORY_H

#include "sim/runtime/runtime.h"

typedef struct ZeroTensor {
    Pc from, to; /* allocated before instruction `from` is issued, and freed after instruction
                    `to` */
    uint64_t bytes;
    Stream stream;      /* the stream whose pool the tensor uses */
    bool only_at_first; /* exists only in the first step, in which DeepSpeed records uses */
} ZeroTensor;

typedef struct ZeroMemory {
    LIST(ZeroTensor) tensors;   /* in the order of their requests; entry 0 is unused */
    bool *replaced;             /* [buffer of the plan]: true if ZeRO's tensors replace it */
    uint64_t resident_bytes[4]; /* bytes of permanent tensors; 0: the entry is unused */
} ZeroMemory;

/* Finds ZeRO's tensors. If the framework's profile (Runtime) has no buckets, there are no such
 * tensors, and no buffer is replaced. */
void zero_memory(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena,
                 ZeroMemory *zero);

#endif
