/* Shared by the files of Hopper's emulator on the CPU. */
#ifndef TANDEM_TESTS_CUDA_HOPPER_PRIVATE_H
#define TANDEM_TESTS_CUDA_HOPPER_PRIVATE_H

#include "tests/cuda/emulator/mma_on_cpu.h"

HopperFault hopper_fault(void);
/* Reports the rule that a kernel has broken, and ends the test. */
void hopper_broken(const char *rule);
/* Returns the address of `bytes` of shared memory to which a descriptor refers. */
unsigned char *hopper_memory(uint32_t window, uint32_t bytes);
uint32_t hopper_swizzle(uint32_t window);
/* Bulk copies: bulks_on_hopper.c. */
void hopper_check_bulk(const void *global, const unsigned char *shared, uint32_t bytes);
void hopper_bulks_arrive_early(bool early);
uint32_t hopper_bulks_under_way(void);
/* Returns the number of products that no thread has awaited, in all launches since the last
 * call. */
uint32_t hopper_products_under_way(void);

#endif
