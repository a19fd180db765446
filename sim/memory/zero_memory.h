/* Memory of DeepSpeed's ZeRO beyond the plan's buffers: its buckets, weights that are
 * fetched a module ahead and kept for their next use, weights in 16 bits at rest beside the
 * optimizer's in fp32, the copies of a reduction and of a step. As deepspeed/runtime/zero has it:
 * stage3.py, partitioned_param_coordinator.py, partition_parameters.py (all_gather_coalesced),
 * coalesced_collectives.py and stage_1_and_2.py. */
#ifndef TANDEM_SIM_MEMORY_ZERO_MEMORY_H
#define TANDEM_SIM_MEMORY_ZERO_MEMORY_H

#include "sim/runtime/runtime.h"

typedef struct ZeroTensor {
    Pc from, to; /* had before instruction `from` is issued, given back after `to` */
    uint64_t bytes;
    Stream stream;      /* whose pool it comes from */
    bool only_at_first; /* in the step that DeepSpeed records */
} ZeroTensor;

typedef struct ZeroMemory {
    LIST(ZeroTensor) tensors;   /* in the order in which they are asked for; [0] none */
    bool *replaced;             /* [buffer] the plan's: not had, these are instead */
    uint64_t resident_bytes[4]; /* each one tensor that stays; 0: none */
} ZeroMemory;

/* Nothing is replaced, and nothing is there, where the profile has no buckets. */
void zero_memory(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena,
                 ZeroMemory *zero);

#endif
