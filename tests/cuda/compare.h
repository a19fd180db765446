/* Compares a device kernel on the target (target.h) with the CPU's kernel of the same op in fp64,
 * on the same numbers. Each output must agree within the rounding of its type and a few units of
 * fp32 rounding. Nothing may be written outside the arguments, and inputs must stay unchanged. The
 * bits must not depend on the order of threads. */
#ifndef TANDEM_TESTS_CUDA_COMPARE_H
#define TANDEM_TESTS_CUDA_COMPARE_H

#include "tests/cuda/target.h"
#include "tests/support/ops/eval.h"

/* Sizes of the index letters, and of the indices that `...` stands for. */
typedef struct Sizes {
    int64_t size['z' + 1];
    int64_t ellipsis[2];
} Sizes;

/* Each letter describes one argument:
 *   f p  the precision under test: any sign, positive     F P  the same in fp32
 *   q 8-bit d f64, positive i ids, some outside the vocabulary
 * kept */
typedef struct CudaCase {
    OpKind op;
    CudaKernel kernel;
    const char *types;
    Attrs attrs;
    uint32_t accumulates; /* outputs that may accumulate */
    const Part *part;     /* NULL: every index is complete */
    double tolerance;     /* in units of fp32's last place, relative to the largest output; 0: 16 */
} CudaCase;

/* Alignment of arguments in memory: to 256 bytes, or only to their element size. */
typedef enum Lie { LIE_aligned, LIE_odd, LIES } Lie;

/* Runs the case in a precision (an 8-bit one for q too). Adds to the outputs in `accumulate`. Fails
 * the running test if anything is wrong. */
void compare(const CudaCase *c, const Sizes *sizes, DType real, DType eight, uint32_t accumulate,
             Lie lie);
/* The same for a part of a split tensor, with every precision, with and without sums, and with both
 * alignments. c.part and part.global need not be set. */
void compare_part(CudaCase c, const Sizes *local, const Sizes *whole, Part part);
/* TANDEM_OPS: compares only ops whose names contain these words, for example the ops of a faulty
 * kernel. */
bool compare_asks_for(OpKind op);
/* Returns the op's indices in a whole tensor of these sizes, for Part.global. */
void compare_global(OpKind op, const Sizes *sizes, Binding *b);

/* Returns `bytes` of the target's memory between guards. `odd`: the address is this many bytes
 * above a multiple of 256. compare_check fails the test if a guard was overwritten. */
void *compare_alloc(uint64_t bytes, uint64_t odd);
void compare_check(void);
void compare_free(void);

#endif
