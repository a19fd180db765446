/* The place where the kernels under test run. The same cases are linked with target_cpu.c, which
 * runs threads on the CPU (device_on_cpu.h), and with tests/gpu/target_gpu.c for a device: `make
 * gpu-check`. */
#ifndef TANDEM_TESTS_CUDA_TARGET_H
#define TANDEM_TESTS_CUDA_TARGET_H

#include "kernels/cuda/cuda.h"

/* Returns `bytes` of memory, aligned to 256, which kernels use, and the host too while no kernel
 * runs. Ends the test if there is none. */
void *target_alloc(uint64_t bytes);
void target_free(void *at);
/* Forbids parts of it to both until they are permitted again. Only some builds can see a violation
 * (the address sanitizer; watch.h: of kernels only). */
void target_forbid(void *at, uint64_t bytes);
void target_permit(void *at, uint64_t bytes);

/* Returns the context for the tests' launches: stream, control block, fault word, the device's own
 * numbers. Tests may change both, and must then restore them. */
CudaContext *target_context(void);
CudaControl *target_control(void);
/* True if kernels may be told that they run on a device of this capability. */
bool target_has(uint32_t compute_capability);
/* True if it has the features of this capability alone. */
bool target_is(uint32_t compute_capability);

/* Names the case that runs now. An error of the target, which may end the program, says it. */
void target_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *target_case_now(void);

/* Everything launched between the two calls has run when the second returns true. Each `order` runs
 * the work in another way. On the CPU it selects the order of threads and the time when copies
 * arrive; 0 is the plainest. On a device, order 0 launches at once; any other order captures
 * a graph and launches it. `launched`: the result of the kernel function; false ends the test with
 * its error. */
void target_begin(uint64_t order);
bool target_end(bool launched, CudaError *error);
#define TARGET_RUN(order, call, error) (target_begin(order), target_end((call), (error)))
/* Returns the number of kernels that the last pair with an order other than 0 launched. */
uint32_t target_launches(void);

/* Called before an instruction's first call: libraries that may carry it out make their choice. */
bool target_prepare(OpKind op, const KernelArgs *args, CudaError *error);
/* Returns the number of products that a library carries out; 0 without a library. */
uint32_t target_library_calls(void);
/* Returns a library's attention; NULL: there is none. *taken: it accepts this instruction. */
const CudaAttentionLibrary *target_attention(OpKind op, const KernelArgs *args, bool *taken);

#endif
