/* A test double of cublasLt: matrices multiplied by the layouts that were described. It refuses
 * what the library refuses, as far as its manual says it: 8-bit operands that do not lie along k,
 * types that do not go together, sizes and addresses that are not aligned, too little scratch; of
 * epilogues a vector or GELU's input that is missing or not wanted, not aligned, in rows that are
 * no multiple of 8, or that overlaps what others read. The calls of the runtime are
 * runtime_double.c's, or those of the backend's double. */
#ifndef TANDEM_TESTS_CUDA_CUBLAS_DOUBLE_H
#define TANDEM_TESTS_CUDA_CUBLAS_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ways that it suggests, in this order. Each sums in an order of its own, so that bits tell them
 * apart; the first is not repeatable, and carrying it out ends the test. */
enum { DOUBLE_WAY_atomic, DOUBLE_WAY_plain, DOUBLE_WAY_split, DOUBLE_WAY_backwards, DOUBLE_WAYS };

typedef struct CublasDouble {
    uint64_t version;
    double ms[DOUBLE_WAYS];       /* what a product takes; below 0: it fails */
    double epilogue_ms;           /* more than that, with an epilogue or another C */
    bool forgets;                 /* what goes along is left out of the numbers */
    bool any_order;               /* 8-bit operands may lie as they like (compute capability 10) */
    const char *fails;            /* this call fails */
    uint32_t suggested, products; /* calls so far */
    uint32_t with_epilogue;       /* products that had one */
    uint32_t eight_bit;           /* of 8-bit operands; those with a scale a row */
    uint32_t rowwise;
    uint32_t last_epilogue; /* cublasLtEpilogue_t */
    int last_way;
    uint32_t fast;   /* products that were allowed fast sums */
    int64_t objects; /* made and not released: descriptors */
} CublasDouble;
extern CublasDouble cublas_double;
void cublas_double_reset(void);

/* Of the runtime: runs `run` on a copy of its arguments where the stream gets to it; where the
 * double may touch an address of the device; lets time go by. */
void cublas_double_enqueue(void *stream, void (*run)(void *), const void *args, size_t bytes);
void *cublas_double_at(const void *device);
void cublas_double_spend(double ms);

#endif
