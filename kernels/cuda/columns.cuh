/* Sums over the rows of a matrix, column by column, in two stages. In the first stage, each block
 * adds up some rows and stores the result as one row of the scratch memory. In the second stage,
 * those rows are added in order. */
#ifndef TANDEM_KERNELS_CUDA_COLUMNS_CUH
#define TANDEM_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

/* Largest number of blocks (and so of rows of partial sums) in the gradients of norms: four blocks
 * for each of an H100's 132 multiprocessors. It is the same on all devices, so that all devices
 * compute the same bits. */
enum { COLUMN_PARTS = 528 };

static inline uint64_t column_parts(int64_t rows)
{
    return (uint64_t)(rows < COLUMN_PARTS ? rows : COLUMN_PARTS);
}

/* The sums of `columns` columns. If `accumulate` is true, they are added to `out`. */
typedef struct ColumnOut {
    Array out;
    bool accumulate;
} ColumnOut;

enum { COLUMN_OUTS = 2 };

/* The second stage: adds up the rows of x [rows, n_outs, columns], and writes the sums of each of
 * the matrices [rows, columns] to its output. */
bool columns_finish(const float *x, int64_t rows, int64_t columns, const ColumnOut *outs,
                    uint32_t n_outs, const CudaContext *cuda, CudaError *error);

#endif
