/* Compares a device kernel on the target (target.h) with the CPU's kernel of the same op in fp64,
 * on the same numbers. Each output must agree, except for the rounding of its type and a few units
 * of fp32 rounding. Nothing may be written outside the arguments, and inputs must stay unchanged.
 * The bits must not depend on the order of threads. */
#ifndef TANDEM_TESTS_CUDA_COMPARE_H
#define TANDEM_TESTS_CUDA_COMPARE_H

#include "tests/cuda/target.h"
#include "tests/support/ops/eval.h"

/* Sizes of the index letters, and of the indices that `...` stands for in a signature. */
typedef struct Sizes {
    int64_t size['z' + 1];
    int64_t ellipsis[2];
} Sizes;

/* Each letter of `types` describes one argument:
 *   f, p   the precision under test: numbers of any sign; positive numbers
 *   F, P   the same in fp32
 *   q      an 8-bit dtype
 *   d      f64, positive numbers
 *   i      i32: ids of tokens or experts, labels, slots */
typedef struct CudaCase {
    OpKind op;
    CudaKernel kernel;
    const char *types;
    Attrs attrs;
    uint32_t accumulates; /* bit j: output j may accumulate */
    const Part *part;     /* NULL: no index is split */
    double tolerance;     /* in units of fp32's last place, relative to the largest output; 0: 16 */
} CudaCase;

/* Alignment of arguments in memory: to 256 bytes, or only to the size of their elements. */
typedef enum Lie { LIE_aligned, LIE_odd, LIES } Lie;

/* Runs the case with dtype `real` for f and p, and `eight` for q. Bit j of `accumulate`: the kernel
 * adds to output j. Fails the running test if anything is wrong. */
void compare(const CudaCase *c, const Sizes *sizes, DType real, DType eight, uint32_t accumulate,
             Lie lie);
/* Runs the case for a part of a split tensor: with every precision, with and without accumulation,
 * and with both alignments. The caller need not set c.part and part.global. */
void compare_part(CudaCase c, const Sizes *local, const Sizes *whole, Part part);
/* Returns false for ops that the variable TANDEM_OPS excludes. It lists words; only ops whose names
 * contain one of them are compared. */
bool compare_asks_for(OpKind op);
/* Returns the op's indices in a whole tensor of these sizes, to be used as Part.global. */
void compare_global(OpKind op, const Sizes *sizes, Binding *b);

/* Returns `bytes` of the target's memory between guards. `odd`: the address is this many bytes
 * above a multiple of 256. compare_check fails the test if a guard was overwritten. */
void *compare_alloc(uint64_t bytes, uint64_t odd);
void compare_check(void);
void compare_free(void);

#endif
