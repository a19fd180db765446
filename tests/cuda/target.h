/* Where the kernels under test run. The same cases are linked with target_cpu.c, which runs threads
 * on the CPU (device_on_cpu.h), and with tests/gpu/target_gpu.c, for a device: `make gpu-check`. */
#ifndef TANDEM_TESTS_CUDA_TARGET_H
#define TANDEM_TESTS_CUDA_TARGET_H

#include "kernels/cuda/cuda.h"

/* `bytes` of memory, from a multiple of 256 on, that kernels use, and the host too while no kernel
 * runs. Ends the test where there is none. */
void *target_alloc(uint64_t bytes);
void target_free(void *at);
/* Parts of it that neither may touch until they are permitted again; where something can see it
 * (the address sanitizer; watch.h: kernels alone). */
void target_forbid(void *at, uint64_t bytes);
void target_permit(void *at, uint64_t bytes);

/* The context that tests launch with: stream, control block, fault word, the device's own numbers.
 * Both may be changed, and are then to be put back. */
CudaContext *target_context(void);
CudaControl *target_control(void);
/* May kernels be told that they run on a device of this capability? */
bool target_has(uint32_t compute_capability);
/* Does it have what devices of this capability alone have? */
bool target_is(uint32_t compute_capability);

/* What is launched between the two has run when the second returns true. `order` is another way for
 * each number: on the CPU the order of threads, and when copies arrive, 0 being the plainest; on a
 * device 0 launches at once, others capture a graph and launch that. `launched`: what the kernel
 * function said; false ends it, with its error. */
void target_begin(uint64_t order);
bool target_end(bool launched, CudaError *error);
#define TARGET_RUN(order, call, error) (target_begin(order), target_end((call), (error)))
/* How many kernels the last pair with an order other than 0 launched. */
uint32_t target_launches(void);

/* Before the first call of an instruction: the libraries that may carry it out choose how. */
bool target_prepare(OpKind op, const KernelArgs *args, CudaError *error);
/* Products that a library carries out; 0 where there is none. */
uint32_t target_library_calls(void);
/* Attention by a library; NULL: there is none. *taken: it takes this instruction. */
const CudaAttentionLibrary *target_attention(OpKind op, const KernelArgs *args, bool *taken);

#endif
