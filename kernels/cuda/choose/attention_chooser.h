/* Chooses the kernel for attention or its gradient if there are several: mma.sync kernels, kernels
 * with Hopper's own instructions (the gradient: two kernels, or one), a library. Each distinct call
 * is timed once before the first step, on separate memory. A kernel whose results differ from those
 * of mma.sync is not used. Without timing, the library gets the calls that it accepts, and mma.sync
 * the others. */
#ifndef TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_CHOOSER_H
#define TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_CHOOSER_H

#include "kernels/cuda/product/products.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The store keeps these numbers, so they must not change. */
typedef enum CudaAttentionKernel {
    CUDA_ATTENTION_mma,
    CUDA_ATTENTION_hopper,
    CUDA_ATTENTION_library,
    CUDA_ATTENTION_one, /* the gradient in one kernel, with Hopper's instructions */
    CUDA_ATTENTION_KERNELS
} CudaAttentionKernel;

typedef struct AttentionChooserOptions {
    /* time the calls that have no stored choice; otherwise they use mma.sync */
    bool tune;
    const KernelChoices *kept;           /* NULL: nothing is stored */
    const char *device;                  /* its name, for stored choices; copied */
    const CudaAttentionLibrary *library; /* NULL: none */
    double patience_s;                   /* time limit for a kernel that is timed */
} AttentionChooserOptions;

typedef struct AttentionChooser AttentionChooser;

AttentionChooser *attention_chooser_open(const AttentionChooserOptions *options, CudaError *error);
/* Chooses for an instruction. It may allocate, launch and wait. */
bool attention_chooser_prepare(AttentionChooser *w, OpKind op, const KernelArgs *args,
                               const CudaContext *cuda, CudaError *error);
/* The `run` of a CudaAttentionLibrary. A call that was not prepared uses the library or
 * mma.sync. */
bool attention_chooser_run(void *chooser, OpKind op, const KernelArgs *args,
                           const CudaContext *cuda, bool *taken, CudaError *error);
void attention_chooser_close(AttentionChooser *w);

/* All ranks must compute the same call with the same kernel. Each rank lists its choices, in any
 * order. For each call, all ranks then take the choice of the lowest rank that has one. If any rank
 * found a kernel wrong, all take mma.sync. Choices are stored only after that. */
enum { ATTENTION_NAME_BYTES = 120 };
typedef struct AttentionChoice {
    char call[ATTENTION_NAME_BYTES]; /* empty: none */
    int32_t kernel;                  /* an CudaAttentionKernel */
    int32_t wrong;                   /* the results of a kernel differed from those of mma.sync */
} AttentionChoice;
uint32_t attention_chooser_n(const AttentionChooser *w);
void attention_chooser_tell(const AttentionChooser *w, AttentionChoice *choice);
void attention_chooser_adopt(AttentionChooser *w, const AttentionChoice *all, uint32_t n);

/* After a failure: true if a kernel that exceeded its time still runs. In that case nothing may
 * wait for the device, not even to free memory, and the process must end without its exit
 * handlers. */
bool attention_chooser_hang(const AttentionChooser *w);

/* Returns the fault found in a kernel, for a warning; NULL: none. */
const char *attention_chooser_wrong(const AttentionChooser *w);

#ifdef __cplusplus
}
#endif

#endif
