/* Shared by the two files of the double of cublasLt. */
#ifndef TANDEM_TESTS_CUDA_CUBLAS_PRIVATE_H
#define TANDEM_TESTS_CUDA_CUBLAS_PRIVATE_H

#include <cublasLt.h>

#include "kernels/number.h"
#include "tests/cuda/cublas/cublas_double.h"

/* The library's own types are opaque arrays of words, or pointers. These are the objects behind
 * them. */

typedef struct Operation {
    cublasComputeType_t compute;
    cublasOperation_t a, b;
    cublasLtMatmulMatrixScale_t mode_a, mode_b;
    const float *scale_a, *scale_b;
    int8_t fast;
    uint32_t epilogue;
    void *vector, *aux;
    int64_t aux_leading;
} Operation;

typedef struct Described {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batch;
} Described;

/* A launch, as it was described when it was issued. */
typedef struct Launch {
    Operation o;
    Described a, b, d;
    const void *at_a, *at_b, *at_c;
    void *at_d;
    float factor, old;
    int32_t way;
} Launch;

/* ---- cublas_multiply.c */
DType cublas_type(cudaDataType type);
bool cublas_is_eight(DType t);
bool cublas_has_bias(uint32_t epilogue);
bool cublas_has_vector(uint32_t epilogue);
bool cublas_has_aux(uint32_t epilogue);
void cublas_multiply(void *launch);

#endif
