/* The arguments of all kernels for the gradients of norms, and the functions that say which kernel
 * computes a call. */
#ifndef TANDEM_KERNELS_CUDA_NORM_GRAD_CUH
#define TANDEM_KERNELS_CUDA_NORM_GRAD_CUH

#include "kernels/cuda/norm/norm.cuh"

typedef struct NormGradArgs {
    Array dy, x, weight, mean, r, dx;
    float *parts; /* partial sums of dweight and dbias: [parts, sums, width] */
    Rows rows;
    int32_t sums; /* 1: only dweight is summed; 2: dweight and dbias */
    bool accumulate, centred;
    bool in_shared; /* true: the sums of a group of threads are in shared memory, [groups, sums,
                       pitch]; false: they are in `parts` */
    /* pitch: elements between two rows of sums in shared memory; apart: elements between the sums
     * of column k and column k + 1 of a group of eight columns */
    int32_t pitch, apart;
    Amax amax; /* for the largest magnitude of dx */
} NormGradArgs;

/* norm_grad_columns.cu: computes the gradient for rows of 264 to 2048 bf16 numbers, a multiple of
 * eight. */
bool norm_grad_has_columns(const NormGradArgs *p, int64_t width);
/* Returns the number of blocks, each of which makes one row of partial sums. Returns 0 if these
 * kernels cannot compute rows of this width. */
int64_t norm_grad_column_parts(int64_t n, int64_t width);
bool norm_grad_columns(NormGradArgs p, const CudaContext *cuda, CudaError *error);

#endif
