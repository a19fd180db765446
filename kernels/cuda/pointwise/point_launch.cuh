/* Element-wise ops on matrices. One function launches any of them. */
#ifndef TANDEM_KERNELS_CUDA_POINT_LAUNCH_CUH
#define TANDEM_KERNELS_CUDA_POINT_LAUNCH_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise/pointwise.cuh"

enum { POINT_INPUTS = 3 };

typedef enum Spread { SPREAD_flat, SPREAD_row, SPREAD_column } Spread;

typedef struct PointArgs {
    Array in[POINT_INPUTS], out;            /* inputs and output, each a matrix of `rows` rows with
                                               `row` elements */
    int32_t spread[POINT_INPUTS];           /* shape of each input: flat [rows, row]; row [rows],
                                               one number for each row; column [row], one number for
                                               each column */
    int64_t pitch[POINT_INPUTS], out_pitch; /* elements from the beginning of a row to the beginning
                                               of the next */
    int32_t op;
    float scale;
    bool accumulate;
    int64_t rows, row, valid; /* results are computed for the first `valid` elements of each row;
                                 the others become 0 */
    int64_t per_row, n;       /* groups of eight elements: in a row; in all rows */
} PointArgs;

/* Returns the arguments of `op` on matrices [rows, row]; all inputs are flat. */
PointArgs point_args(const KernelArgs *args, Point op, int64_t rows, int64_t row);
bool point_launch(uint32_t n_in, PointArgs p, const CudaContext *cuda, CudaError *error);

#endif
