/* Shared by the files that choose among attention's kernels. */
#ifndef TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_PRIVATE_H
#define TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_PRIVATE_H

#include "kernels/cuda/choose/attention_chooser.h"

/* ---- attention_time.c */

typedef struct AttentionTimes {
    CudaAttentionKernel best;
    int64_t median_ps;
    double ms[CUDA_ATTENTION_KERNELS]; /* 0: not timed, or wrong */
    bool timed;                        /* false: there was no spare memory */
    bool wrong;      /* a kernel's result differs from mma.sync's by more than rounding: */
    char about[200]; /* ... which kernel, and by how much */
    bool hangs;      /* a kernel did not end; *error is set */
} AttentionTimes;

/* Returns false with *error if a launch failed or did not end within patience_s. */
bool attention_time(OpKind op, const AttentionChooserOptions *options, const KernelArgs *args,
                    const CudaContext *cuda, AttentionTimes *times, CudaError *error);

/* Launches one kernel; *taken is false if the library refuses the call. */
bool attention_launch(CudaAttentionKernel kernel, OpKind op, const CudaAttentionLibrary *library,
                      const KernelArgs *args, const CudaContext *cuda, bool *taken,
                      CudaError *error);
const char *attention_kernel_name(CudaAttentionKernel kernel);

#endif
