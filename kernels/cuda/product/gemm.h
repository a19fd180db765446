/* Describes a contraction as one call of cublasLtMatmul, without using the library. The library's
 * matrices are column-major, so a row-major z = x y is computed as D^T = y^T x^T. Its A is our
 * right operand, its B our left one, its D our output. No data is moved. This file needs no device
 * and no CUDA header. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_GEMM_H
#define TANDEM_KERNELS_CUDA_PRODUCT_GEMM_H

#include "kernels/cuda/cuda.h"
#include "kernels/epilogue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bytes of the library's scratch memory for partial sums */
enum { GEMM_SUMS_BYTES = 1 << 20 };
/* bytes: alignment of parts of the workspace; for pointers, a larger alignment counts as this
 * one */
enum { GEMM_ALIGN = 256 };
/* bytes: the largest fp32 product that waits in the workspace for its scales */
enum { GEMM_UNSCALED_BYTES = 64 << 20 };

/* bytes: the kernel that stores an operand's transpose reads words of this size */
enum { GEMM_TURN_WORD = 4 };

/* As stored: column-major [rows, columns]; op says whether the product reads its transpose. */
typedef struct GemmMatrix {
    int64_t rows, columns, leading, stride; /* elements; stride: between batches */
    uint32_t arg;                           /* number of the argument in KernelArgs */
    DType dtype;
    bool transposed;
    /* the operand is first stored as its transpose in the workspace, from which the product reads
     * it */
    bool turned;
    uint32_t align; /* bytes that divide its address (and every batch's), up to GEMM_ALIGN */
    /* bytes that divide the address of every row of the operand before it is transposed */
    uint32_t source_align;
    uint64_t turned_bytes; /* bytes of that copy */
} GemmMatrix;

/* The additional work of the call, and the alignment in bytes of its vectors and matrices. */
typedef struct GemmAlong {
    bool bias;      /* [m], added */
    bool other;     /* C [m,n], which is added, is not D */
    bool input;     /* GELU's input is written, or its gradient reads it */
    bool adds_sums; /* a kernel of our own adds the sums to existing values */
    EpilogueGelu gelu;
    char sums; /* 'A' [m], 'B' [n]: sums that operand over k; 0: none */
    uint32_t bias_align, other_align, input_align, sums_align;
} GemmAlong;

/* D [m,n] = (accumulate ? D : 0) + factor scale_a scale_b op(A) [m,k] op(B) [k,n], `batch` times.
 * scale_a is one number for all of A, or one for each of m; likewise scale_b and n. */
typedef struct Gemm {
    int64_t m, n, k, batch;
    GemmMatrix a, b, d;
    Scaling scaling;
    bool accumulate;
    bool tf32; /* fp32 operands may be rounded to 19 bits */
    /* The library multiplies without scales and writes d, a dense fp32 matrix in the workspace. A
     * kernel of our own then applies the scales, and adds the result if the instruction
     * accumulates. */
    bool scaled_after;
    int64_t chunk;   /* columns of D that one call computes; it divides n. 0: no chunk fits */
    GemmAlong along; /* zeroed: no capability */
} Gemm;

typedef struct GemmRules {
    bool tf32;
    bool eight_bit; /* the device can multiply 8-bit numbers */
    /* true if 8-bit operands must be contiguous along k (all but compute capabilities 10 and 11) */
    bool eight_bit_k_major;
    bool outer_scales;       /* the library takes a scale for each row (compute capability 9.0) */
    uint64_t unscaled_bytes; /* limit of a chunk; 0: GEMM_UNSCALED_BYTES. Tests lower it. */
} GemmRules;

/* Returns the library's rules on a device of this compute capability (90: 9.0). */
GemmRules gemm_rules(uint32_t compute_capability, bool tf32);

/* Every byte of *g follows from the arguments, so equal calls have equal bytes. */
void gemm_of(OpKind op, const KernelArgs *args, const GemmRules *rules, Gemm *g);
/* True if the library can compute it: it knows the combination of types, and it accepts the sizes
 * of 8-bit operands. Otherwise the plain kernel runs. */
bool gemm_is_for_library(const Gemm *g, const GemmRules *rules);

/* Contents of the trailing scratch argument. For an 8-bit product: scales in fp32, transposed
 * operands, the product that waits for its scales, then the library's own scratch. For any other
 * product: only the library's scratch. Offsets in bytes. */
typedef struct GemmScratch {
    uint64_t scale_a, scale_b, turned_a, turned_b, unscaled, library;
} GemmScratch;
GemmScratch gemm_scratch(const Gemm *g, const KernelArgs *args);
/* Enough for any layout of these arguments on any device: a copy of each operand that is not
 * contiguous along the summed index, and a product that waits for its scales. */
uint64_t gemm_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args,
                            uint64_t library_bytes);

/* Names the call for the store by sizes, layouts, types, alignments and scaling, but not by
 * addresses. */
enum { GEMM_NAME_BYTES = 512 };
void gemm_name(const Gemm *g, char name[GEMM_NAME_BYTES]);

/* ---- gemm_along.c: a product and its fused ops. */

/* Addresses that a launch reads and writes in addition to the operands; NULL: none. */
typedef struct GemmAddresses {
    const void *bias, *other;
    void *input, *sums, *out;
} GemmAddresses;
/* Returns how many of the leading parts one call of the library can compute; below 2: none.
 * Describes the call in *g, as gemm_of does. Unread outputs (CudaChainPart) are not written. */
uint32_t gemm_along(const CudaChainPart *part, uint32_t n, const GemmRules *rules, Gemm *g,
                    GemmAddresses *at);
uint32_t gemm_alignment(const void *at, int64_t stride_bytes);

#ifdef __cplusplus
}
#endif

#endif
