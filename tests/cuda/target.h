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
/* target_forbid forbids kernels and the host to access these bytes, until target_permit allows it
 * again. Only some builds notice a violation (with the address sanitizer, or with watch.h, which
 * sees kernels only). */
void target_forbid(void *at, uint64_t bytes);
void target_permit(void *at, uint64_t bytes);

/* Returns the context for the tests' launches: stream, control block, fault word and properties of
 * the device. Tests may change the control block and the properties, and must then restore them. */
CudaContext *target_context(void);
CudaControl *target_control(void);
/* Returns true if tests may run kernels as if the device had this compute capability. */
bool target_has(uint32_t compute_capability);
/* Returns true if the device has the features of exactly this compute capability. */
bool target_is(uint32_t compute_capability);

/* Sets the name of the case that runs now. The target's error messages contain it. */
void target_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *target_case_now(void);

/* The launches between target_begin and target_end have completed when target_end returns true.
 * Each `order` selects another order of execution. On the CPU, this is the order of threads and the
 * time at which copies arrive; 0 is the simplest. On a device, order 0 launches directly, and any
 * other order captures a graph and launches it. `launched` is the result of the kernel function; if
 * it is false, the test ends with the function's error. */
void target_begin(uint64_t order);
bool target_end(bool launched, CudaError *error);
#define TARGET_RUN(order, call, error) (target_begin(order), target_end((call), (error)))
/* Returns the number of kernels that were launched between the last target_begin with an order
 * other than 0 and its target_end. */
uint32_t target_launches(void);

/* To be called before the first call of an instruction, so that libraries can decide whether to
 * execute it. */
bool target_prepare(OpKind op, const KernelArgs *args, CudaError *error);
/* Returns the number of products that a library executes; 0 without a library. */
uint32_t target_library_calls(void);
/* Returns a library's attention; NULL: there is none. *taken: it accepts this instruction. */
const CudaAttentionLibrary *target_attention(OpKind op, const KernelArgs *args, bool *taken);

#endif
