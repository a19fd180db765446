/* Ops that a library can compute in the same call as a product, because they need only the
 * product's output or operands. cublasLt offers these forms:
 *   - a bias, then GELU or a sum with another tensor; the input of GELU may be written, too
 *   - the gradient of GELU
 *   - the sum of an operand over its rows, which is the gradient of a bias
 * Bias and GELU use the fp32 sums before rounding. The planner's pass for fusion and the code that
 * launches kernels both call these functions. They depend on no library. */
#ifndef TANDEM_KERNELS_EPILOGUE_H
#define TANDEM_KERNELS_EPILOGUE_H

#include "kernels/product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EPILOGUE_PARTS = 3, EPILOGUE_MULTIPLE = 8 };

/* The properties of an instruction that decide whether it can be fused with a product. */
typedef struct EpiloguePart {
    OpKind op;
    uint32_t n_in;
    bool accumulates;
    uint64_t at[MAX_ARGS]; /* identifies the memory of each argument: equal numbers mean the same
                              memory */
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
} EpiloguePart;

typedef enum EpilogueGelu {
    EPILOGUE_GELU_none,
    EPILOGUE_GELU_forward,
    EPILOGUE_GELU_grad
} EpilogueGelu;

/* Argument `arg` of part `part`. If `part` is 0 (the product itself), there is no such argument. */
typedef struct EpilogueArg {
    uint8_t part, arg;
} EpilogueArg;

typedef struct Epilogue {
    uint32_t n;        /* number of parts in the call; 1: no op is fused with the product */
    EpilogueArg bias;  /* bias with one number for each column of the output */
    EpilogueArg other; /* tensor that an `add` op adds to the result of the product */
    EpilogueArg input; /* input of GELU, which the gradient of GELU reads */
    EpilogueArg sums;  /* output for the sums of an operand over k: the gradient of a bias */
    EpilogueGelu gelu;
    bool sums_left; /* true: the left operand is summed, with one sum for each row of the output;
                       false: the right one */
    bool adds_sums; /* the sums are added to the values that are already there */
} Epilogue;

/* Returns how many of the first parts one call can compute, and describes the call in *e. part[0]
 * is the contraction that computes the product `p`. */
uint32_t epilogue_of(const EpiloguePart *part, uint32_t n, const Product *p, Epilogue *e);
/* Returns true if part i is only needed to hand its output to the next part, so that this output
 * need not be written. (The input of GELU is written if another instruction reads it.) */
bool epilogue_passes_on(const Epilogue *e, uint32_t i);

#ifdef __cplusplus
}
#endif

#endif
