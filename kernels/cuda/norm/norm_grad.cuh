/* Arguments of the kernels of the norms' gradients, and which of them handles a call. */
#ifndef TANDEM_KERNELS_CUDA_NORM_GRAD_CUH
#define TANDEM_KERNELS_CUDA_NORM_GRAD_CUH

#include "kernels/cuda/norm/norm.cuh"

typedef struct NormGradArgs {
    Array dy, x, weight, mean, r, dx;
    float *parts; /* [parts, sums, width] */
    Rows rows;
    int32_t sums; /* 1: dweight; 2: dweight and dbias */
    bool accumulate, centred;
    bool in_shared; /* sums of a group of threads are in shared memory: [groups, sums, pitch]; else
                       directly in `parts` */
    /* apart: distance in shared memory between the sums of column k and of column k + 1 of a group
     * of eight */
    int32_t pitch, apart;
    Amax amax; /* the largest magnitude of dx */
} NormGradArgs;

/* norm_grad_columns.cu: rows of 264 to 2048 bf16 numbers, a multiple of eight. */
bool norm_grad_has_columns(const NormGradArgs *p, int64_t width);
/* Returns the number of blocks, each with a row of partial sums; 0 if these kernels never handle
 * rows of this width. */
int64_t norm_grad_column_parts(int64_t n, int64_t width);
bool norm_grad_columns(NormGradArgs p, const CudaContext *cuda, CudaError *error);

#endif
