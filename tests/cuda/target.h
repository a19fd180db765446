/* The target on which the kernels under test run. The same cases are linked with target_cpu.c,
 * which runs threads on the CPU (device_on_cpu.h), and with tests/gpu/target_gpu.c, which uses a
 * device (`make gpu-check`). */
#ifndef TANDEM_TESTS_CUDA_TARGET_H
#define TANDEM_TESTS_CUDA_TARGET_H

#include "kernels/cuda/cuda.h"

/* Returns `bytes` of memory, aligned to 256. Kernels may use it, and so may the host while no
 * kernel runs. Ends the test if there is none. */
void *target_alloc(uint64_t bytes);
void target_free(void *at);
/* Forbids kernels and host to access parts of it until they are permitted again. Only some builds
 * can see a violation (the address sanitizer; watch.h: of kernels only). */
void target_forbid(void *at, uint64_t bytes);
void target_permit(void *at, uint64_t bytes);

/* Returns the context for the tests' launches: stream, control block, fault word and properties of
 * the device. Tests may change the control block and the properties, and must then restore them. */
CudaContext *target_context(void);
CudaControl *target_control(void);
/* True if the tests may run kernels as if the device had this capability. */
bool target_has(uint32_t compute_capability);
/* True if it has the features of exactly this capability. */
bool target_is(uint32_t compute_capability);

/* Sets the name of the case that runs now. Errors of the target, which may end the program, print
 * it. */
void target_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *target_case_now(void);

/* The launches between these two calls have run when the second one returns true. Each `order`
 * selects another execution order. On the CPU, it is the order of threads and the time when copies
 * arrive; 0 is the plainest. On a device, order 0 launches at once, and any other order captures a
 * graph and launches it. `launched` is the result of the kernel function; false ends the test with
 * the function's error. */
void target_begin(uint64_t order);
bool target_end(bool launched, CudaError *error);
#define TARGET_RUN(order, call, error) (target_begin(order), target_end((call), (error)))
/* Returns the number of kernels that the last pair with an order other than 0 launched. */
uint32_t target_launches(void);

/* Called before the first call of an instruction, so that libraries can decide whether to execute
 * it. */
bool target_prepare(OpKind op, const KernelArgs *args, CudaError *error);
/* Returns the number of products that a library executes; 0 without a library. */
uint32_t target_library_calls(void);
/* Returns a library's attention; NULL: there is none. *taken: it accepts this instruction. */
const CudaAttentionLibrary *target_attention(OpKind op, const KernelArgs *args, bool *taken);

#endif
