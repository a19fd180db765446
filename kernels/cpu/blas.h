/* OpenBLAS, which is loaded when the program asks for the first kernel. */
#ifndef TANDEM_KERNELS_CPU_BLAS_H
#define TANDEM_KERNELS_CPU_BLAS_H

#include <cblas.h>

/* The matrix products of OpenBLAS. */
typedef struct CpuBlas {
    __typeof__(cblas_dgemm) *dgemm;
    __typeof__(cblas_sgemm) *sgemm;
} CpuBlas;

/* Returns the matrix products. The first call loads OpenBLAS and sets it to one thread. If OpenBLAS
 * cannot be loaded and the caller has not asked kernel_cpu_blas_missing before, the process
 * ends. */
const CpuBlas *cpu_blas(void);

#endif
