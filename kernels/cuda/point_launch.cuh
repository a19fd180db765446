/* Element-wise ops on matrices: one launch for any of them. */
#ifndef TANDEM_KERNELS_CUDA_POINT_LAUNCH_CUH
#define TANDEM_KERNELS_CUDA_POINT_LAUNCH_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise.cuh"

enum { POINT_INPUTS = 3 };

typedef enum Spread { SPREAD_flat, SPREAD_row, SPREAD_column } Spread;

typedef struct PointArgs {
    Array in[POINT_INPUTS], out;            /* [rows, row] */
    int32_t spread[POINT_INPUTS];           /* flat: [rows, row]; row: [rows]; column: [row] */
    int64_t pitch[POINT_INPUTS], out_pitch; /* elements between rows */
    int32_t op;
    float scale;
    bool accumulate;
    int64_t rows, row, valid; /* valid: of each row; beyond it the result is 0 */
    int64_t per_row, n;       /* groups of eight in a row; in all */
} PointArgs;

/* Returns arguments for the op on [rows, row], all flat. */
PointArgs point_args(const KernelArgs *args, Point op, int64_t rows, int64_t row);
bool point_launch(uint32_t n_in, PointArgs p, const CudaContext *cuda, CudaError *error);

#endif
