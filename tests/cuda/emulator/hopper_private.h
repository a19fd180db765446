/* Shared by the files of Hopper's words on the CPU. */
#ifndef TANDEM_TESTS_CUDA_HOPPER_PRIVATE_H
#define TANDEM_TESTS_CUDA_HOPPER_PRIVATE_H

#include "tests/cuda/emulator/mma_on_cpu.h"

HopperFault hopper_fault(void);
/* Says which rule a kernel has broken, and ends the test. */
void hopper_broken(const char *rule);
/* `bytes` of shared memory from an address as descriptors have it. */
unsigned char *hopper_memory(uint32_t window, uint32_t bytes);
uint32_t hopper_swizzle(uint32_t window);
/* Products that were never waited for, of all launches since it was called last. */
uint32_t hopper_products_under_way(void);

#endif
