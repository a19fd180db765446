/* Which of several ways carries attention or its gradient out, where there are several: kernels of
 * mma.sync, those of Hopper's own instructions, a library. Each distinct call is timed once, before
 * the first step, on memory of its own; what does not compute what mma.sync's kernel does is not
 * used. Elsewhere the library has what it takes, mma.sync the rest. */
#ifndef TANDEM_KERNELS_CUDA_WAYS_ATTENTION_WAYS_H
#define TANDEM_KERNELS_CUDA_WAYS_ATTENTION_WAYS_H

#include "kernels/cuda/product/products.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The store keeps these numbers, so they must not change. */
typedef enum AttentionWay {
    ATTENTION_WAY_mma,
    ATTENTION_WAY_hopper,
    ATTENTION_WAY_library,
    ATTENTION_WAYS
} AttentionWay;

typedef struct AttentionWaysOptions {
    bool tune;                           /* time what nothing is kept of; else it is mma.sync's */
    const CudaChoices *kept;             /* NULL: nothing is kept */
    const char *device;                  /* its name, of choices that are kept; copied */
    const CudaAttentionLibrary *library; /* NULL: none */
    double patience_s;                   /* how long a kernel may run that is timed */
} AttentionWaysOptions;

typedef struct AttentionWays AttentionWays;

AttentionWays *attention_ways_open(const AttentionWaysOptions *options, CudaError *error);
/* Chooses for an instruction. May allocate, launch and wait. */
bool attention_ways_prepare(AttentionWays *w, OpKind op, const KernelArgs *args,
                            const CudaContext *cuda, CudaError *error);
/* A CudaAttentionLibrary's `run`. A call that was not prepared is the library's or mma.sync's. */
bool attention_ways_run(void *ways, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                        bool *taken, CudaError *error);
void attention_ways_close(AttentionWays *w);

/* Ranks that carry out one call do it alike: each tells its choices, in no order, and then adopts,
 * of each call, that of the lowest rank that has it; mma.sync's if any rank found another wrong.
 * Only then choices are kept. */
enum { ATTENTION_NAME_BYTES = 120 };
typedef struct AttentionChoice {
    char call[ATTENTION_NAME_BYTES]; /* empty: none */
    int32_t way;                     /* an AttentionWay */
    int32_t wrong;                   /* did a way differ from mma.sync's? */
} AttentionChoice;
uint32_t attention_ways_n(const AttentionWays *w);
void attention_ways_tell(const AttentionWays *w, AttentionChoice *choice);
void attention_ways_adopt(AttentionWays *w, const AttentionChoice *all, uint32_t n);

/* After a failure: is a kernel still running that has not ended in time? Then nothing may wait for
 * the device, not even to free memory, and the process must end without its exit handlers. */
bool attention_ways_hang(const AttentionWays *w);

/* The fault found in a way, for a warning; NULL: none. */
const char *attention_ways_wrong(const AttentionWays *w);

#ifdef __cplusplus
}
#endif

#endif
