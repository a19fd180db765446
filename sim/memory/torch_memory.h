/* The device memory that another framework would hold: the plan's buffers and the profile's own
 * tensors, in the order of the program, through the model of PyTorch's allocator. */
#ifndef TANDEM_SIM_MEMORY_TORCH_MEMORY_H
#define TANDEM_SIM_MEMORY_TORCH_MEMORY_H

#include "sim/memory/torch_allocator.h"
#include "sim/runtime/runtime.h"

/* Two steps of `p`; peaks are those of the second, or of the whole model as it is made before.
 * Weights and optimizer state are there from the start; gradients from their first use to the end
 * of the step, as set_to_none has it. A buffer is had by the stream of the instruction that touches
 * it first, when the host issues that, and given back when it has issued the last. limit_bytes: for
 * segments. */
TorchStats torch_memory(const Plan *plan, const Program *p, const Runtime *runtime,
                        const Device *device, uint64_t limit_bytes);

#endif
