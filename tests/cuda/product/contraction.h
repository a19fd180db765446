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

/* Makes arguments in the target's memory: two inputs of type `in`, scales in fp32 (some are 0), the
 * output of type `out`. `draw` decides sizes and numbers; an odd draw accumulates. Scaled ops have
 * sizes with which 8-bit operands can be transposed; with an odd draw they are multiples of 16. */
Contraction contraction_of(OpKind op, uint64_t draw, DType in, DType out);
void contraction_free(Contraction *c);
/* Appends an argument with the number of bytes that the workspace table gives; its first bytes are
 * NaNs. All contractions share its memory. */
void contraction_add_scratch(Contraction *c, WorkspaceBytes workspace);
/* Returns the output that the signature defines for the current arguments. */
double *contraction_expected(const Contraction *c);

#endif
