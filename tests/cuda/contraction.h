/* Contractions with random numbers, and what their signatures say of them. */
#ifndef TANDEM_TESTS_CUDA_CONTRACTION_H
#define TANDEM_TESTS_CUDA_CONTRACTION_H

#include "kernels/kernel.h"
#include "kernels/number.h"
#include "tests/cuda/target.h"

enum { CONTRACTION_GUARD = 16 }; /* elements beyond each argument */

typedef struct Contraction {
    Arena *arena;
    void *block[MAX_ARGS]; /* the target's */
    OpKind op;
    Binding *binding;
    KernelArgs args;
} Contraction;

/* Arguments in the target's memory, two inputs of type `in`, scales fp32 (some are 0), the output
 * `out`; sizes and numbers by `draw`, an odd draw accumulates. Sizes of scaled ops are such that
 * 8-bit operands can be turned, with an odd draw multiples of 16. */
Contraction contraction_of(OpKind op, uint64_t draw, DType in, DType out);
void contraction_free(Contraction *c);
/* A last argument of as many bytes as the workspace table asks for, its first ones full of NaNs.
 * All contractions share its memory. */
void contraction_add_scratch(Contraction *c, WorkspaceBytes workspace);
/* The output as the signature defines it, from the arguments as they are. */
double *contraction_expected(const Contraction *c);

#endif
