/* Chooses the kernel that computes a call of attention or of its gradient. The candidates are the
 * kernels with mma.sync, the kernels with Hopper's own instructions (for the gradient: two kernels,
 * or one), and a library. Before the first step, each distinct call that Hopper's kernels accept is
 * timed once with each candidate, on separate memory. A candidate whose results differ from those
 * of the mma.sync kernel is not used. If timing is off, such a call uses its stored choice, or the
 * mma.sync kernels if there is none. Calls that Hopper's kernels do not accept are not timed. The
 * library computes such a call if it accepts the call. If not, the mma.sync kernels compute it. */
#ifndef TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_CHOOSER_H
#define TANDEM_KERNELS_CUDA_CHOOSE_ATTENTION_CHOOSER_H

#include "kernels/cuda/product/products.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The store keeps these numbers, so they must never change. */
typedef enum CudaAttentionKernel {
    CUDA_ATTENTION_mma,
    CUDA_ATTENTION_hopper,
    CUDA_ATTENTION_library,
    CUDA_ATTENTION_one, /* the gradient in one kernel with Hopper's instructions */
    CUDA_ATTENTION_KERNELS
} CudaAttentionKernel;

typedef struct AttentionChooserOptions {
    /* true: time each call that has no stored choice; false: such a call uses the mma.sync
     * kernels */
    bool tune;
    const KernelChoices *kept;           /* choices from earlier runs; NULL: there are none */
    const char *device;                  /* name of the device, under which choices are stored; it
                                            is copied */
    const CudaAttentionLibrary *library; /* NULL: no library was found */
    double patience_s;                   /* time limit for each timed kernel, in seconds */
} AttentionChooserOptions;

typedef struct AttentionChooser AttentionChooser;

AttentionChooser *attention_chooser_open(const AttentionChooserOptions *options, CudaError *error);
/* Chooses the kernel for an instruction. This function may allocate memory, launch kernels and wait
 * for the device. */
bool attention_chooser_prepare(AttentionChooser *w, OpKind op, const KernelArgs *args,
                               const CudaContext *cuda, CudaError *error);
/* The function `run` of a CudaAttentionLibrary. For a call that was not prepared, it uses the
 * library if that accepts the call, and mma.sync otherwise. */
bool attention_chooser_run(void *chooser, OpKind op, const KernelArgs *args,
                           const CudaContext *cuda, bool *taken, CudaError *error);
void attention_chooser_close(AttentionChooser *w);

/* All ranks must compute equal calls with the same kernel. So each rank lists its choices, in any
 * order, and the ranks exchange these lists. For each call, every rank then takes the choice of the
 * lowest rank that lists the call. If any rank found the results of a kernel wrong, all ranks take
 * mma.sync. Choices are stored only after this exchange. */
enum { ATTENTION_NAME_BYTES = 120 };
typedef struct AttentionChoice {
    char call[ATTENTION_NAME_BYTES]; /* name of the call; empty: this entry is unused */
    int32_t kernel;                  /* a CudaAttentionKernel */
    int32_t wrong;                   /* 1: the results of a candidate differed from those of
                                        mma.sync */
} AttentionChoice;
uint32_t attention_chooser_n(const AttentionChooser *w);
void attention_chooser_tell(const AttentionChooser *w, AttentionChoice *choice);
void attention_chooser_adopt(AttentionChooser *w, const AttentionChoice *all, uint32_t n);

/* Returns true if, after a failure, a kernel that exceeded its time limit is still running. Then
 * the process must not wait for the device, not even to free memory, and must end without its exit
 * handlers. */
bool attention_chooser_hang(const AttentionChooser *w);

/* Describes the wrong results that a candidate gave, for a warning. Returns NULL if all results
 * were right. */
const char *attention_chooser_wrong(const AttentionChooser *w);

#ifdef __cplusplus
}
#endif

#endif
