/* Bytes of a model's weights under a framework's profile: its costs and settings, such as those of
 * Megatron (Runtime). */
#ifndef TANDEM_SIM_MEMORY_MODEL_BYTES_H
#define TANDEM_SIM_MEMORY_MODEL_BYTES_H

#include "sim/runtime/runtime.h"

/* Returns the bytes of the weights divided by their bytes in 16 bits. If a frozen base has 8-bit
 * products, the weights of its blocks exist only in 8 bits (Transformer Engine's
 * fp8_model_init). */
double model_weight_part(const Plan *plan, const Program *p, const Runtime *runtime);
/* Returns the bytes of the whole model while it is being built, before it is sharded. These bytes
 * are not in use during steps. */
uint64_t model_whole_bytes(const Plan *plan, const Runtime *runtime);

#endif
