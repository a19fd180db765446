/* Shared by the files of attention's ways. */
#ifndef TANDEM_KERNELS_CUDA_WAYS_ATTENTION_PRIVATE_H
#define TANDEM_KERNELS_CUDA_WAYS_ATTENTION_PRIVATE_H

#include "kernels/cuda/ways/attention_ways.h"

/* ---- attention_time.c */

typedef struct AttentionTimes {
    AttentionWay best;
    int64_t median_ps;
    bool timed;      /* false: no memory to spare */
    bool wrong;      /* a way differs from mma.sync's by more than rounding: */
    char about[200]; /* which, and by how much */
    bool hangs;      /* a kernel did not end: with *error */
} AttentionTimes;

/* False with *error: a launch failed, or did not end within patience_s. */
bool attention_time(OpKind op, const AttentionWaysOptions *options, const KernelArgs *args,
                    const CudaContext *cuda, AttentionTimes *times, CudaError *error);

/* Launches one way; *taken is false where the library refuses. */
bool attention_launch(AttentionWay way, OpKind op, const CudaAttentionLibrary *library,
                      const KernelArgs *args, const CudaContext *cuda, bool *taken,
                      CudaError *error);
const char *attention_way_name(AttentionWay way);

#endif
