/* Defines the names of kernels/cuda/product/mma.cuh for the CPU, with the layouts of the PTX
 * manual. Every lane passes its registers, and the warp meets. Each lane then computes the elements
 * of its result from the registers of all lanes. Copies arrive at once, or only when they are
 * awaited. */
#ifndef TANDEM_TESTS_CUDA_MMA_ON_CPU_H
#define TANDEM_TESTS_CUDA_MMA_ON_CPU_H

#include "tests/cuda/emulator/device_on_cpu.h"

typedef unsigned char *Shared;
static inline Shared shared_of(void *p)
{
    return p;
}
static inline void *shared_pointer(Shared at)
{
    return at;
}

#define UNROLL_1
#define UNROLL_4

void device_mma(DType t, float c[4], const uint32_t a[4], const uint32_t b[2]);
static inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    device_mma(DT_bf16, c, a, b);
}
static inline void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    device_mma(DT_f16, c, a, b);
}

void device_load_matrices(uint32_t r[4], Shared row, bool transposed);
static inline void load_matrices(uint32_t r[4], Shared row)
{
    device_load_matrices(r, row, false);
}
static inline void load_matrices_transposed(uint32_t r[4], Shared row)
{
    device_load_matrices(r, row, true);
}

void copy_start(Shared to, const void *from, bool whole);
void copies_commit(void);
void copies_wait(uint32_t groups);
/* For tests: copies arrive at once, while other threads may still read the old data. A device may
 * do either, or anything in between. */
void device_copies_arrive_early(bool early);
/* For tests, after a launch: returns the number of copies that no thread has awaited. */
uint32_t device_copies_under_way(void);

#include "tests/cuda/emulator/hopper_on_cpu.h"

#endif
