/* Gives the double the CPU's kernels (DoubleKernels in private.h). */
#include "kernels/cuda/cuda.h"
#include "tests/cuda/double/private.h"

static void run(OpKind op, const KernelArgs *args, const CudaContext *cuda)
{
    (void)cuda;
    kernel_cpu(op)(args);
}

const DoubleKernels double_kernels = {kernel_cpu_workspace, run, NULL};
