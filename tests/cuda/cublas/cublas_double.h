/* A test double of cublasLt, which multiplies matrices by the described layouts. It refuses the
 * calls that the manual of cuBLASLt forbids:
 *   - products with 8-bit operands that are not contiguous along k, with dtypes that cannot be
 *     combined, with scales for which the device has no mode, with unaligned sizes or addresses, or
 *     with too little scratch memory
 *   - epilogues whose vector or input of GELU is missing, surplus or unaligned, has rows that are
 *     not a multiple of 8, or overlaps memory that others read
 *   - an algorithm that belongs to another epilogue or is none
 *   - a workspace that does not begin at a multiple of 256 bytes
 * The heuristic refuses with NOT_SUPPORTED, a check or a product with INVALID_VALUE. The library
 * does not check whether addresses are less aligned than the algorithm was asked for, so such
 * addresses end the test. runtime_double.c, or the backend's double, has the calls of the runtime.
 *
 * Delayed: a product runs when its stream reaches it. Until then, scales, vectors and the workspace
 * must keep their contents.
 *
 * Not imitated:
 *   - sizes and leading dimensions beyond 32 bits
 *   - two products on different streams that share a workspace
 *   - the library's own memory
 *   - an empty list with status SUCCESS
 *   - limits of single algorithms
 *   - the order of bias and rounding within an epilogue
 *   - scales of blocks, which no plan uses here */
#ifndef TANDEM_TESTS_CUDA_CUBLAS_DOUBLE_H
#define TANDEM_TESTS_CUDA_CUBLAS_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The algorithms that the double suggests, in this order. Each one adds in a different order, so
 * that the bits show which one ran. The first is not repeatable, and running it ends the test. */
enum { DOUBLE_WAY_atomic, DOUBLE_WAY_plain, DOUBLE_WAY_split, DOUBLE_WAY_backwards, DOUBLE_WAYS };

typedef struct CublasDouble {
    uint64_t version;
    double ms[DOUBLE_WAYS]; /* time of a product; below 0: it fails */
    /* additional time if there is an epilogue, or if C differs from D */
    double epilogue_ms;
    bool forgets;                 /* the results lack the work of the epilogue */
    uint32_t capability;          /* the device's compute capability; 0: 90 */
    bool refuses;                 /* no call is supported */
    const char *fails;            /* this call fails */
    uint32_t suggested, products; /* number of calls so far */
    uint32_t with_epilogue;       /* number of products with an epilogue */
    /* products with 8-bit operands, and how many of them have a scale for each row */
    uint32_t eight_bit;
    uint32_t rowwise;
    uint32_t unaligned;     /* products with a matrix whose rows are no multiple of 16 bytes */
    uint32_t last_epilogue; /* cublasLtEpilogue_t */
    int last_way;
    uint32_t fast;   /* products that allow fast accumulation */
    int64_t objects; /* descriptors that were made and not released */
} CublasDouble;
extern CublasDouble cublas_double;
void cublas_double_reset(void);

/* Functions that the double of the runtime provides. cublas_double_enqueue runs `run` on a copy of
 * its arguments when the stream reaches it. cublas_double_at translates an address of the device to
 * one that the double may touch. cublas_double_spend advances the time. */
void cublas_double_enqueue(void *stream, void (*run)(void *), const void *args, size_t bytes);
void *cublas_double_at(const void *device);
void cublas_double_spend(double ms);

#endif
