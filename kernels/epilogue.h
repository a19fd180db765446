/* What a product can take along: ops behind it that need only what it has just computed, or has
 * just read, so that one call of a library carries out all of them. The forms are cublasLt's: a
 * bias, then GELU (whose input may be kept) or a sum with another tensor; GELU's gradient; and the
 * sum over rows of an operand, the gradient of a bias. A bias is added and GELU is taken of fp32
 * sums, before they are rounded. Both who fuses and who launches ask here. Knows no library. */
#ifndef TANDEM_KERNELS_EPILOGUE_H
#define TANDEM_KERNELS_EPILOGUE_H

#include "kernels/product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EPILOGUE_PARTS = 3, EPILOGUE_MULTIPLE = 8 };

/* An instruction as far as it matters here. */
typedef struct EpiloguePart {
    OpKind op;
    uint32_t n_in;
    bool accumulates;
    uint64_t at[MAX_ARGS]; /* which memory: equal where it is the same */
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
} EpiloguePart;

typedef enum EpilogueGelu {
    EPILOGUE_GELU_none,
    EPILOGUE_GELU_forward,
    EPILOGUE_GELU_grad
} EpilogueGelu;

/* An argument of a part; part 0, the product: there is none. */
typedef struct EpilogueArg {
    uint8_t part, arg;
} EpilogueArg;

typedef struct Epilogue {
    uint32_t n;        /* parts; 1: nothing goes along */
    EpilogueArg bias;  /* one for each column of the output */
    EpilogueArg other; /* added */
    EpilogueArg input; /* of GELU: what its gradient reads */
    EpilogueArg sums;  /* of an operand over k: the gradient of a bias */
    EpilogueGelu gelu;
    bool sums_left; /* of the left operand, one for each row of the output; else the right */
    bool adds_sums; /* to what is there */
} Epilogue;

/* As many of the leading parts, part[0] the contraction `p`, as go together; *e says how. */
uint32_t epilogue_of(const EpiloguePart *part, uint32_t n, const Product *p, Epilogue *e);
/* What part i makes is only passed on: nobody else may read it. (GELU's input is kept where
 * somebody reads it.) */
bool epilogue_passes_on(const Epilogue *e, uint32_t i);

#ifdef __cplusplus
}
#endif

#endif
