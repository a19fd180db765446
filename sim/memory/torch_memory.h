/* Computes the device memory that another framework would hold: the plan's buffers and the
 * profile's own tensors, allocated and freed in program order by the model of PyTorch's
 * allocator. */
#ifndef TANDEM_SIM_MEMORY_TORCH_MEMORY_H
#define TANDEM_SIM_MEMORY_TORCH_MEMORY_H

#include "sim/memory/torch_allocator.h"
#include "sim/runtime/runtime.h"

/* Runs two steps of `p`. The peaks are taken over the second step and over the building of the
 * whole model. Weights and optimizer state exist from the start; gradients from their first use to
 * the end of the step, as with set_to_none. A buffer is allocated on the stream of the instruction
 * that first touches it, when the host issues that instruction. It is freed when the host has
 * issued the last instruction that touches it. limit_bytes: the limit for all segments together. */
TorchStats torch_memory(const Plan *plan, const Program *p, const Runtime *runtime,
                        const Device *device, uint64_t limit_bytes);

#endif
