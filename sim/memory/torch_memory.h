/* Computes the device memory that another framework would take for a plan: the plan's buffers, and
 * tensors that only this framework makes. They are allocated and freed in the order of the program
 * by the model of PyTorch's allocator. */
#ifndef TANDEM_SIM_MEMORY_TORCH_MEMORY_H
#define TANDEM_SIM_MEMORY_TORCH_MEMORY_H

#include "sim/memory/torch_allocator.h"
#include "sim/runtime/runtime.h"

/* Replays two steps of program `p`. The peaks are those of the second step and of building the
 * whole model. Weights exist from the start. So do optimizer states, unless the framework's
 * profile (Runtime) says that the first step makes them (`makes_states`). Gradients exist from
 * their first use to the end of the step, as with set_to_none. A buffer is allocated when the host
 * issues the instruction that uses it first, on the stream of this instruction. It is freed when
 * the host has issued the instruction that uses it last. All segments together may have at most
 * limit_bytes bytes. */
TorchStats torch_memory(const Plan *plan, const Program *p, const Runtime *runtime,
                        const Device *device, uint64_t limit_bytes);
/* The same as torch_memory. If `in_full` is true, it replays all micro-batches, also those that
 * change nothing. Sets *n_left_out (unless it is NULL) to the number of micro-batches that the
 * second step has left out. */
TorchStats torch_memory_how(const Plan *plan, const Program *p, const Runtime *runtime,
                            const Device *device, uint64_t limit_bytes, bool in_full,
                            uint32_t *n_left_out);

#endif
