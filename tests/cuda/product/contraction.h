/* Contractions of random numbers, and the results that their signature defines. */
#ifndef TANDEM_TESTS_CUDA_CONTRACTION_H
#define TANDEM_TESTS_CUDA_CONTRACTION_H

#include "kernels/kernel.h"
#include "kernels/number.h"
#include "tests/cuda/target.h"

enum { CONTRACTION_GUARD = 16 }; /* elements after the end of each argument */

typedef struct Contraction {
    Arena *arena;
    void *block[MAX_ARGS]; /* memory of the target, which also contains the guards */
    OpKind op;
    Binding *binding;
    KernelArgs args;
} Contraction;

/* Makes arguments in the target's memory: two inputs of type `in`, scales in fp32 (some are 0), and
 * the output of type `out`. `draw` determines sizes and numbers; if it is odd, the output
 * accumulates. The sizes of scaled ops let 8-bit operands be transposed; with an odd draw they are
 * multiples of 16. */
Contraction contraction_of(OpKind op, uint64_t draw, DType in, DType out);
void contraction_free(Contraction *c);
/* Appends a scratch argument with the number of bytes that the workspace table states. Its first
 * bytes are NaNs. All contractions share its memory. */
void contraction_add_scratch(Contraction *c, WorkspaceBytes workspace);
/* Returns the output that the signature defines for the current arguments. */
double *contraction_expected(const Contraction *c);

#endif
