/* Products with fused ops in a test's memory, and their expected results in fp64. */
#ifndef TANDEM_TESTS_CUDA_PRODUCT_CHAIN_H
#define TANDEM_TESTS_CUDA_PRODUCT_CHAIN_H

#include "kernels/cuda/product/gemm.h"
#include "kernels/cuda/product/products.h"
#include "tests/cuda/product/contraction.h"

enum { PARTS = 3 };

typedef struct Form {
    const char *name;
    OpKind op[PARTS]; /* OP_none: no further op */
    uint32_t epilogue;
    bool reads_input; /* other instructions read GELU's input */
    bool adds;        /* the gradient of the bias is added to existing values */
} Form;

/* A product and the fused parts after it, in the test's memory. */
typedef struct Chain {
    Contraction c;
    Product p;
    KernelArgs args[PARTS];
    CudaChainPart part[PARTS];
    uint32_t n;
    void *block[8]; /* memory of the target */
    uint32_t n_blocks;
    double *must;      /* expected first output of the last part */
    double *must_kept; /* expected input of GELU */
    double *must_sums;
} Chain;

extern const Form product_forms[];
extern const uint32_t product_n_forms;
/* Makes a chain; `draw` determines the sizes of its letters. When the chain is at its final
 * address, call chain_point, so that its parts find their arguments. */
Chain chain_of(const Form *f, uint64_t draw, DType in, DType out);
void chain_point(Chain *ch);
void chain_free(Chain *ch);
/* Returns a chain of the form with this name, in bf16, whose rows are multiples of 8. */
Chain chain_of_eights(const char *name);
/* Returns a description of the first difference from the expected results, or NULL. */
const char *chain_wrong(const Chain *ch, const Form *f);

/* ---- products on the target, or on the double with the properties of a Hopper */
extern const CudaProductOptions chain_hopper;
CudaContext chain_open_products(const CudaProductOptions *options);
uint32_t chain_length(const Chain *ch, uint32_t n, const CudaContext *cuda);

#endif
