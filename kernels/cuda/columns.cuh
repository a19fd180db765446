/* Sums over the rows of a matrix in two stages. First each block adds some rows into its own row of
 * the scratch. Then those rows are added in order. */
#ifndef TANDEM_KERNELS_CUDA_COLUMNS_CUH
#define TANDEM_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

/* Rows of partial sums in the norms' gradients: four blocks on each of an H100's 132 processors.
 * The number is the same on all devices, so that all give the same bits. */
enum { COLUMN_PARTS = 528 };

static inline uint64_t column_parts(int64_t rows)
{
    return (uint64_t)(rows < COLUMN_PARTS ? rows : COLUMN_PARTS);
}

/* The second stage: x [rows,columns] -> out [columns], set or added to. The rows are `pitch`
 * apart. */
bool columns_finish(const float *x, int64_t rows, int64_t pitch, Array out, int64_t columns,
                    bool accumulate, const CudaContext *cuda, CudaError *error);

#endif
