/* Describes a contraction as one call of the library function cublasLtMatmul, without calling the
 * library. The library's matrices are column-major, so a row-major z = x y is computed as D^T = y^T
 * x^T. The library's A is our right operand, its B our left operand, and its D our output. No data
 * are moved for this. This file needs no device and no CUDA header. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_GEMM_H
#define TANDEM_KERNELS_CUDA_PRODUCT_GEMM_H

#include "kernels/cuda/cuda.h"
#include "kernels/epilogue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bytes of scratch memory in which the library keeps partial sums */
enum { GEMM_SUMS_BYTES = 1 << 20 };
/* alignment in bytes of the areas of the workspace; a pointer with a larger alignment counts as one
 * with this alignment */
enum { GEMM_ALIGN = 256 };
/* largest size in bytes of an fp32 product that waits in the workspace until its scales are
 * applied */
enum { GEMM_UNSCALED_BYTES = 64 << 20 };

/* size in bytes of the words that the kernel which transposes an operand reads */
enum { GEMM_TURN_WORD = 4 };

/* An operand as it is stored: column-major [rows, columns]. `transposed` says whether the product
 * reads its transpose. */
typedef struct GemmMatrix {
    int64_t rows, columns, leading, stride; /* in elements; leading: from column to column; stride:
                                               from batch to batch */
    uint32_t arg;                           /* index of the operand among the arguments
                                               (KernelArgs) */
    DType dtype;
    bool transposed;
    /* true: a kernel first stores the transpose of the operand in the workspace, and the product
     * reads this copy */
    bool turned;
    uint32_t align; /* bytes: a power of two, at most GEMM_ALIGN, that divides the operand's address
                       in every batch */
    /* the same for the address of every row of the operand before it is transposed */
    uint32_t source_align;
    uint64_t turned_bytes; /* bytes of the transposed copy */
} GemmMatrix;

/* The epilogue: ops that the library computes in the same call as the product. Also the alignment
 * in bytes of the vectors and matrices that these ops use. */
typedef struct GemmAlong {
    bool bias;      /* the bias [m] is added */
    bool other;     /* the matrix C [m,n] that is added is not D */
    bool input;     /* the call writes the input of GELU, or the gradient of GELU reads it */
    bool adds_sums; /* the sums must be added to existing values, which a kernel of our own does
                       afterwards */
    EpilogueGelu gelu;
    char sums; /* 'A': the call also sums A over k, [m]; 'B': it sums B over k, [n]; 0: no sums */
    uint32_t bias_align, other_align, input_align, sums_align;
} GemmAlong;

/* Describes D [m,n] = (accumulate ? D : 0) + factor scale_a scale_b op(A) [m,k] op(B) [k,n],
 * computed for each of `batch` batches. scale_a is one number for all of A, or one for each of the
 * m rows. scale_b is one number for all of B, or one for each of the n columns. */
typedef struct Gemm {
    int64_t m, n, k, batch;
    GemmMatrix a, b, d;
    Scaling scaling;
    bool accumulate;
    bool tf32; /* fp32 operands may be rounded to 19 bits */
    /* true: the library multiplies without scales and writes an fp32 matrix in the workspace (d
     * describes it). A kernel of our own then applies the scales, and adds the result to D if the
     * instruction accumulates. */
    bool scaled_after;
    int64_t chunk;   /* number of columns of D that one call computes; it divides n. 0: not even one
                        column fits into the workspace */
    GemmAlong along; /* all zero if no other op is fused with the product */
} Gemm;

typedef struct GemmRules {
    bool tf32;
    bool eight_bit; /* true: the device can multiply 8-bit numbers */
    /* true: 8-bit operands must be contiguous along k (on all devices but those of compute
     * capability 10 and 11) */
    bool eight_bit_k_major;
    bool outer_scales;       /* true: the library can apply a scale for each row (on compute
                                capability 9.0) */
    uint64_t unscaled_bytes; /* limit in bytes of one chunk of columns; 0: GEMM_UNSCALED_BYTES.
                                Tests lower this limit. */
} GemmRules;

/* Returns the library's rules on a device of this compute capability (90 means 9.0). */
GemmRules gemm_rules(uint32_t compute_capability, bool tf32);

/* Describes the contraction of an instruction in *g. Every byte of *g follows from the arguments,
 * so that equal calls have equal bytes. */
void gemm_of(OpKind op, const KernelArgs *args, const GemmRules *rules, Gemm *g);
/* Returns true if the library can compute the call: it must know the combination of dtypes and
 * accept the sizes of 8-bit operands. If not, the plain kernel computes the call. */
bool gemm_is_for_library(const Gemm *g, const GemmRules *rules);

/* Offsets in bytes of the areas in the scratch argument. For an 8-bit product these are: scales in
 * fp32, transposed operands, the product that waits for its scales, the library's own scratch. For
 * any other product there is only the library's scratch. */
typedef struct GemmScratch {
    uint64_t scale_a, scale_b, turned_a, turned_b, unscaled, library;
} GemmScratch;
GemmScratch gemm_scratch(const Gemm *g, const KernelArgs *args);
/* Returns how many bytes of scratch memory suffice for these arguments in any layout and on any
 * device. This includes a copy of each operand that is not contiguous along the summed index, and
 * the product that waits for its scales. */
uint64_t gemm_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args,
                            uint64_t library_bytes);

/* Writes the name under which the store keeps the algorithm of a call. The name is made of sizes,
 * layouts, dtypes, alignments and scaling, but not of addresses. */
enum { GEMM_NAME_BYTES = 512 };
void gemm_name(const Gemm *g, char name[GEMM_NAME_BYTES]);

/* ---- gemm_along.c: a product together with the ops that are fused with it. */

/* Addresses that fused ops read or write; NULL: the call does not use this address. */
typedef struct GemmAddresses {
    const void *bias, *other;
    void *input, *sums, *out;
} GemmAddresses;
/* Returns how many of the first parts of a chain one call of the library can compute; less than 2
 * if none. Describes that call in *g, as gemm_of does. Outputs that no other instruction reads
 * (CudaChainPart.unread) are not written. */
uint32_t gemm_along(const CudaChainPart *part, uint32_t n, const GemmRules *rules, Gemm *g,
                    GemmAddresses *at);
/* Returns the largest power of two, at most GEMM_ALIGN, that divides the address and the stride. */
uint32_t gemm_alignment(const void *at, int64_t stride_bytes);

#ifdef __cplusplus
}
#endif

#endif
