/* OpenBLAS, loaded when the first kernel is asked for. */
#ifndef TANDEM_KERNELS_CPU_BLAS_H
#define TANDEM_KERNELS_CPU_BLAS_H

#include <cblas.h>

/* The products of OpenBLAS. */
typedef struct CpuBlas {
    __typeof__(cblas_dgemm) *dgemm;
    __typeof__(cblas_sgemm) *sgemm;
} CpuBlas;

/* Returns the products. The first call loads OpenBLAS and prepares it for the products of one rank.
 * Ends the process if kernel_cpu_blas_missing was not asked, and OpenBLAS cannot be loaded. */
const CpuBlas *cpu_blas(void);

#endif
