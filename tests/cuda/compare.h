/* A device kernel, on the target (target.h), against the CPU's kernel of the same op in fp64, on
 * the same numbers: each output within its own rounding and a few of fp32; nothing written beyond
 * the arguments; inputs as they were; the same bits whatever the order of threads. */
#ifndef TANDEM_TESTS_CUDA_COMPARE_H
#define TANDEM_TESTS_CUDA_COMPARE_H

#include "tests/cuda/target.h"
#include "tests/support/eval.h"

/* Sizes of index letters and of what `...` stands for. */
typedef struct Sizes {
    int64_t size['z' + 1];
    int64_t ellipsis[2];
} Sizes;

/* Arguments by a letter each:
 *   f p  the precision under test: any sign, positive     F P  the same in fp32
 *   q    8-bit      d  f64, positive                      i    ids below the vocabulary, some not
 * kept */
typedef struct CudaCase {
    OpKind op;
    CudaKernel kernel;
    const char *types;
    Attrs attrs;
    uint32_t accumulates; /* outputs that may */
    const Part *part;     /* NULL: all of every index is here */
    double tolerance;     /* in units of fp32's last place, of the largest output; 0: 16 */
} CudaCase;

/* How arguments lie in memory: aligned to 256 bytes, or to an element alone. */
typedef enum Lie { LIE_aligned, LIE_odd, LIES } Lie;

/* Runs the case in a precision (an 8-bit one for q as well), with the outputs in `accumulate` added
 * to. Fails the running test if anything is wrong. */
void compare(const CudaCase *c, const Sizes *sizes, DType real, DType eight, uint32_t accumulate,
             Lie lie);
/* TANDEM_OPS: only ops with these words in their names are compared; where one kernel has a fault.
 */
bool compare_asks_for(OpKind op);
/* The op's indices in a whole of these sizes: Part.global. */
void compare_global(OpKind op, const Sizes *sizes, Binding *b);

/* The target's memory of `bytes` between guards; `odd`: bytes from a multiple of 256. compare_check
 * fails the test where a guard was written. */
void *compare_alloc(uint64_t bytes, uint64_t odd);
void compare_check(void);
void compare_free(void);

#endif
