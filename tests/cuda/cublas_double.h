/* A test double of cublasLt and of the few calls of the CUDA runtime that products make: matrices
 * in the host's memory, multiplied at once, by the layouts that were described. It refuses what the
 * library refuses, as far as its manual says it: 8-bit operands that do not lie along k, types that
 * do not go together, sizes and addresses that are not aligned, too little scratch. */
#ifndef TANDEM_TESTS_CUDA_CUBLAS_DOUBLE_H
#define TANDEM_TESTS_CUDA_CUBLAS_DOUBLE_H

#include <stdbool.h>
#include <stdint.h>

/* Ways that it suggests, in this order. Each sums in an order of its own, so that bits tell them
 * apart; the first is not repeatable, and carrying it out ends the test. */
enum { DOUBLE_WAY_atomic, DOUBLE_WAY_plain, DOUBLE_WAY_split, DOUBLE_WAY_backwards, DOUBLE_WAYS };

typedef struct CublasDouble {
    uint64_t version;
    double ms[DOUBLE_WAYS];       /* what a product takes; below 0: it fails */
    bool no_memory;               /* cudaMalloc fails */
    bool any_order;               /* 8-bit operands may lie as they like (compute capability 10) */
    const char *fails;            /* this call fails */
    uint32_t suggested, products; /* calls so far */
    int last_way;
    uint32_t fast;   /* products that were allowed fast sums */
    int64_t objects; /* made and not released: descriptors, memory, events */
} CublasDouble;
extern CublasDouble cublas_double;
void cublas_double_reset(void);

#endif
