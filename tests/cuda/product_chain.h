/* Products with what goes along with them, in memory of a test, and what they must give in fp64. */
#ifndef TANDEM_TESTS_CUDA_PRODUCT_CHAIN_H
#define TANDEM_TESTS_CUDA_PRODUCT_CHAIN_H

#include "kernels/cuda/product/gemm.h"
#include "kernels/cuda/product/products.h"
#include "tests/cuda/contraction.h"

enum { PARTS = 3 };

typedef struct Form {
    const char *name;
    OpKind op[PARTS]; /* OP_none: no more */
    uint32_t epilogue;
    bool reads_input; /* GELU's input is read by others */
    bool adds;        /* the bias's gradient is added to what is there */
} Form;

/* A product and the parts behind it, in memory of the test. */
typedef struct Chain {
    Contraction c;
    Product p;
    KernelArgs args[PARTS];
    CudaChainPart part[PARTS];
    uint32_t n;
    void *block[8]; /* the target's */
    uint32_t n_blocks;
    double *must;      /* of the last part's first output */
    double *must_kept; /* of GELU's input */
    double *must_sums;
} Chain;

extern const Form product_forms[];
extern const uint32_t product_n_forms;
/* Letters' sizes are drawn. chain_point: once it lies where it stays, parts find their arguments.
 */
Chain chain_of(const Form *f, uint64_t draw, DType in, DType out);
void chain_point(Chain *ch);
void chain_free(Chain *ch);
/* The form of that name in bf16, with rows of a multiple of 8. */
Chain chain_of_eights(const char *name);
/* NULL: all is as it must be; else what is not. */
const char *chain_wrong(const Chain *ch, const Form *f);

/* ---- products on the target, or on the double as on a Hopper */
extern const CudaProductOptions chain_hopper;
CudaContext chain_open_products(const CudaProductOptions *options);
uint32_t chain_length(const Chain *ch, uint32_t n, const CudaContext *cuda);

#endif
