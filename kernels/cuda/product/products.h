/* Contractions on CUDA devices by cublasLt's algorithms, each chosen once and stored. CudaProducts,
 * one for each device, holds the library's handle, its descriptors and the choices. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_PRODUCTS_H
#define TANDEM_KERNELS_CUDA_PRODUCT_PRODUCTS_H

#include "kernels/choices.h"
#include "kernels/cuda/cuda.h"
#include "planner/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a contraction's trailing scratch argument that the library may use. */
#define CUDA_PRODUCT_LIBRARY_BYTES (UINT64_C(32) << 20)

typedef struct CudaProductOptions {
    bool tf32;                 /* round fp32 operands to 19 bits: faster, but less exact than
                                * fp32 */
    bool tune;                 /* time the algorithms for a call that has no stored choice */
    const KernelChoices *kept; /* NULL: nothing is stored */
    const char *device;        /* its name, for stored choices; copied */
    uint32_t compute_capability;
    uint64_t unscaled_bytes; /* see GemmRules */
    /* the kernels of the parts behind a product, for timing them one by one; usually kernel_cuda */
    CudaKernel (*kernel)(OpKind op);
} CudaProductOptions;

typedef struct CudaProducts CudaProducts;

CudaProducts *cuda_products_open(const CudaProductOptions *options, CudaError *error);
/* Chooses the algorithm of a call, before the first step. It may allocate, launch and wait. For a
 * call that was not prepared, an algorithm is chosen at its first launch, but never timed. Only
 * algorithms that give equal bits for equal arguments are chosen. The choice depends on sizes,
 * layouts, types and alignment alone, so an instruction runs in the same way with or without graph
 * capture. */
bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error);
/* Prepares a product and the parts behind it. Decides whether one call of the library computes the
 * leading parts, or each part runs by itself. The results differ in the last bits, because fused
 * ops work in fp32 before the sum is rounded. Prepare the product alone first. */
bool cuda_products_prepare_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                 CudaError *error);
/* Sets *n to the number of leading parts that are one call; 0: none. */
bool cuda_products_chain_length(const CudaChainPart *part, uint32_t *n, const CudaContext *cuda,
                                CudaError *error);
/* Launches n parts; n comes from cuda_products_chain_length. */
bool cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                         CudaError *error);
void cuda_products_close(CudaProducts *products);

/* The choice made for a call: a hash of the call's name, and bytes that the library understands. */
typedef struct CudaProductChoice {
    Hash128 call;
    unsigned char choice[64];
} CudaProductChoice;
/* Writes the choices of all calls so far, cuda_products_counts().calls of them. */
void cuda_products_choices(const CudaProducts *products, CudaProductChoice *all);
/* `all`: the choices of all ranks, one rank after another; n_before of them are those of earlier
 * ranks. For each call, the first choice is adopted. A choice that was timed here and adopted is
 * stored. */
bool cuda_products_settle(CudaProducts *products, const CudaProductChoice *all, uint32_t n,
                          uint32_t n_before, CudaError *error);

/* Describes the i-th product (from 0) that the plain kernel computes because the library refuses
 * it: sizes, types and the reason. Returns false if there are not that many. */
bool cuda_products_plain(const CudaProducts *products, uint32_t i, char *text, size_t bytes);

/* Numbers of calls so far: distinct calls, calls that the library computes, calls with a stored
 * choice, calls that were timed. They are for reports and tests. */
typedef struct CudaProductCounts {
    uint32_t calls, library, kept, timed;
} CudaProductCounts;
CudaProductCounts cuda_products_counts(const CudaProducts *products);

#ifdef __cplusplus
}
#endif

#endif
