/* Ops that a library can compute in the same call as a product, because they need only the
 * product's output or operands. The forms are cublasLt's: a bias, then GELU (whose input may be
 * kept) or a sum with another tensor; GELU's gradient; and an operand's sum over rows, which is the
 * gradient of a bias. Bias and GELU work on the fp32 sums before rounding. The planner's fusion and
 * the launcher both call these functions. Independent of any library. */
#ifndef TANDEM_KERNELS_EPILOGUE_H
#define TANDEM_KERNELS_EPILOGUE_H

#include "kernels/product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EPILOGUE_PARTS = 3, EPILOGUE_MULTIPLE = 8 };

/* The properties of an instruction that decide whether it can join. */
typedef struct EpiloguePart {
    OpKind op;
    uint32_t n_in;
    bool accumulates;
    uint64_t at[MAX_ARGS]; /* identifies the memory: equal numbers mean the same memory */
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
} EpiloguePart;

typedef enum EpilogueGelu {
    EPILOGUE_GELU_none,
    EPILOGUE_GELU_forward,
    EPILOGUE_GELU_grad
} EpilogueGelu;

/* argument `arg` of part `part`; part 0, which is the product, means none */
typedef struct EpilogueArg {
    uint8_t part, arg;
} EpilogueArg;

typedef struct Epilogue {
    uint32_t n;        /* number of parts; 1: no op joins the product */
    EpilogueArg bias;  /* one for each column of the output */
    EpilogueArg other; /* added */
    EpilogueArg input; /* GELU's input, which its gradient reads */
    EpilogueArg sums;  /* the sum of an operand over k: the gradient of a bias */
    EpilogueGelu gelu;
    bool sums_left; /* sums the left operand, one sum for each row of the output; otherwise the
                     * right operand */
    bool adds_sums; /* the sums are added to the output's old value */
} Epilogue;

/* Returns how many leading parts can run in one call, and describes the call in *e. part[0] is
 * the contraction `p`. */
uint32_t epilogue_of(const EpiloguePart *part, uint32_t n, const Product *p, Epilogue *e);
/* True if only the next part reads the output of part i, so that it need not reach memory. (GELU's
 * input is written if another instruction reads it.) */
bool epilogue_passes_on(const Epilogue *e, uint32_t i);

#ifdef __cplusplus
}
#endif

#endif
