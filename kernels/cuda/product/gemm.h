/* A contraction as one call of cublasLtMatmul: what the call is described by, without the library.
 * The library's matrices are column-major, so a row-major z = x y is its D^T = y^T x^T: its A is
 * our right operand, its B our left one, its D our output, and nothing is moved. Pure: no device,
 * no CUDA header. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_GEMM_H
#define TANDEM_KERNELS_CUDA_PRODUCT_GEMM_H

#include "kernels/cuda/cuda.h"
#include "kernels/epilogue.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GEMM_SUMS_BYTES = 1 << 20 }; /* of the library's scratch, for sums that are to be added */
enum { GEMM_ALIGN = 256 }; /* bytes; parts of the workspace, and the best a pointer can have */

/* As stored: column-major [rows, columns]; op says whether the product reads its transpose. */
typedef struct GemmMatrix {
    int64_t rows, columns, leading, stride; /* elements; stride: between batches */
    uint32_t arg;                           /* of KernelArgs */
    DType dtype;
    bool transposed;
    bool turned;    /* stored as its transpose in the workspace first, where the product reads it */
    uint32_t align; /* bytes that divide its address (and every batch's), up to GEMM_ALIGN */
    uint64_t turned_bytes; /* of that copy */
} GemmMatrix;

/* Work that the call does besides, and the alignment in bytes of its vectors and matrices. */
typedef struct GemmAlong {
    bool bias;      /* [m], added */
    bool other;     /* C [m,n], added, is not D */
    bool input;     /* what GELU is taken of is kept, or read by its gradient */
    bool adds_sums; /* to what is there: by a kernel of our own */
    EpilogueGelu gelu;
    char sums; /* 'A' [m], 'B' [n]: of that operand over k; 0: none */
    uint32_t bias_align, other_align, input_align, sums_align;
} GemmAlong;

/* D [m,n] = (accumulate ? D : 0) + factor scale_a scale_b op(A) [m,k] op(B) [k,n], `batch` times.
 * scale_a: of all of A, or one for each of m; likewise scale_b and n. */
typedef struct Gemm {
    int64_t m, n, k, batch;
    GemmMatrix a, b, d;
    Scaling scaling;
    bool accumulate;
    bool tf32;       /* fp32 operands may be rounded to 19 bits */
    GemmAlong along; /* zeroed: nothing */
} Gemm;

typedef struct GemmRules {
    bool tf32;
    bool eight_bit;         /* the device multiplies 8-bit numbers at all, */
    bool eight_bit_k_major; /* but only ones that lie along k (before compute capability 10.0) */
} GemmRules;

/* Every byte of *g is determined by the arguments, so that equal calls compare equal. */
void gemm_of(OpKind op, const KernelArgs *args, const GemmRules *rules, Gemm *g);
/* Could the library carry it out: a combination of types that it knows, and 8-bit operands with
 * sizes that it takes. If not, the plain kernel does. */
bool gemm_is_for_library(const Gemm *g, const GemmRules *rules);

/* Contents of the trailing scratch argument of an 8-bit product: scales in fp32, turned operands,
 * and then the library's own scratch. Of any other: only that. Offsets in bytes. */
typedef struct GemmScratch {
    uint64_t scale_a, scale_b, turned_a, turned_b, library;
} GemmScratch;
GemmScratch gemm_scratch(const Gemm *g, const KernelArgs *args);
/* Enough for any layout of these arguments: a copy of each operand that does not lie along what the
 * op sums. */
uint64_t gemm_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args,
                            uint64_t library_bytes);

/* Names the call for the store: sizes, layouts, types, alignments, scaling; not addresses. */
enum { GEMM_NAME_BYTES = 512 };
void gemm_name(const Gemm *g, char name[GEMM_NAME_BYTES]);

/* ---- gemm_along.c: a product and what goes along with it. */

/* Where a launch of it reads and writes besides the operands; NULL: nothing. */
typedef struct GemmPlaces {
    const void *bias, *other;
    void *input, *sums, *out;
} GemmPlaces;
/* How many of the leading parts one call of the library could carry out; below 2: none. *g
 * describes it, as gemm_of does. Unread outputs (CudaChainPart) are not written. */
uint32_t gemm_along(const CudaChainPart *part, uint32_t n, const GemmRules *rules, Gemm *g,
                    GemmPlaces *at);
uint32_t gemm_alignment(const void *at, int64_t stride_bytes);

#ifdef __cplusplus
}
#endif

#endif
