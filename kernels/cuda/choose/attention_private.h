/* Functions that only the files of the choice among attention's kernels share. */
#ifndef TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_PRIVATE_H
#define TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_PRIVATE_H

#include "kernels/cuda/choose/attention_chooser.h"

/* ---- attention_time.c */

typedef struct AttentionTimes {
    CudaAttentionKernel best;
    int64_t median_ps;
    double ms[CUDA_ATTENTION_KERNELS]; /* milliseconds of each candidate; 0: it was not timed, or
                                          its results are wrong */
    bool timed;                        /* false: there was not enough free memory for timing */
    bool wrong;      /* the results of a candidate differ from those of mma.sync by more than
                        rounding */
    char about[200]; /* if `wrong`: which candidate, and by how much its results differ */
    bool hangs;      /* a candidate did not end within its time limit; *error says which one */
} AttentionTimes;

/* Times all candidates for one call. Returns false with *error if a launch failed or a kernel did
 * not end within options->patience_s. */
bool attention_time(OpKind op, const AttentionChooserOptions *options, const KernelArgs *args,
                    const CudaContext *cuda, AttentionTimes *times, CudaError *error);

/* Launches one kernel for the call. Sets *taken to false if the library refuses the call. */
bool attention_launch(CudaAttentionKernel kernel, OpKind op, const CudaAttentionLibrary *library,
                      const KernelArgs *args, const CudaContext *cuda, bool *taken,
                      CudaError *error);
const char *attention_kernel_name(CudaAttentionKernel kernel);

#endif
