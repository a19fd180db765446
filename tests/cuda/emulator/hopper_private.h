/* Shared by the files of Hopper's emulator on the CPU. */
#ifndef TANDEM_TESTS_CUDA_HOPPER_PRIVATE_H
#define TANDEM_TESTS_CUDA_HOPPER_PRIVATE_H

#include "tests/cuda/emulator/mma_on_cpu.h"

HopperFault hopper_fault(void);
/* Reports the rule that a kernel has broken, and ends the test. */
void hopper_broken(const char *rule);
/* Returns the address of `bytes` of shared memory that a descriptor names. */
unsigned char *hopper_memory(uint32_t window, uint32_t bytes);
uint32_t hopper_swizzle(uint32_t window);
/* Returns the number of products that were never awaited, in all launches since the last call. */
uint32_t hopper_products_under_way(void);

#endif
