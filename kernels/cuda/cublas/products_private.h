/* Declarations that only the files of products share. A ProductCall is one call of the cublasLt
 * library: its description and the algorithm chosen for it. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCTS_PRIVATE_H
#define TANDEM_KERNELS_CUDA_PRODUCTS_PRIVATE_H

#include <cublasLt.h>

#include "kernels/cuda/product/product.h"
#include "kernels/cuda/product/products.h"

typedef struct ProductCall {
    Gemm gemm;
    bool for_library;    /* false: the library does not compute this call; a product then uses the
                            plain kernel, and each part of a chain is launched by itself */
    bool alone;          /* a single product, without fused ops */
    bool fast;           /* the library may use less exact sums; only for 8-bit products of the
                            forward pass */
    bool timed, kept;    /* timed: the algorithm was timed in this run; kept: it was found among the
                            choices of an earlier run */
    const char *refused; /* why the library cannot compute this single product; NULL: it can */
    int64_t median_ps;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} ProductCall;

struct CudaProducts {
    cublasLtHandle_t handle;
    GemmRules rules;
    CudaProductOptions options;
    char device[160]; /* names of the device and of the library's version */
    ProductCall *calls;
    uint32_t n_calls, room;
};

/* Returns true if `status` is success. Otherwise writes the call and its status to *error. */
bool product_fine(const char *call, cublasStatus_t status, CudaError *error);
uint64_t product_library_bytes(const Gemm *g); /* Returns how many bytes of scratch memory the
                                                  library may use. */
/* Launches the call: a single product (`at` is NULL), or a product with fused ops. */
bool product_run(const ProductCall *call, const CudaChainPart *part, const GemmAddresses *at,
                 const CudaContext *cuda, CudaError *error);
/* Launches the product, then the other parts without the library. */
bool product_run_each(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                      CudaError *error);

/* ---- products_choose.c: makes the descriptors of a call and chooses its algorithm. */
bool product_choose(CudaProducts *p, ProductCall *call, const CudaChainPart *part, uint32_t n,
                    const CudaContext *cuda, bool may_time, CudaError *error);
void product_forget(ProductCall *call); /* destroys the descriptors of the call */
/* Put the addresses of the scales, and of the arguments of fused ops, into the descriptors. These
 * addresses change from launch to launch. */
bool product_set_scales(const ProductCall *call, const void *a, const void *b, CudaError *error);
bool product_set_addresses(const ProductCall *call, const void *vector, const void *input,
                           CudaError *error);
/* Returns true if the library accepts the algorithm for the call, the scratch memory is enough for
 * it, and it gives equal bits in each run. */
bool product_takes(CudaProducts *p, const ProductCall *call, const cublasLtMatmulAlgo_t *algo);

/* Returns true if all bytes of the algorithm are 0, which means that no algorithm was found. Then a
 * product uses the plain kernel, and each part of a chain is launched by itself. */
bool product_is_none(const cublasLtMatmulAlgo_t *algo);

/* ---- products_time.c: sets *best to the index of the fastest of `n` algorithms, by median time
 * on separate memory. *best is n if no algorithm could be timed for lack of memory. It is n + 1 if
 * the call is a chain whose parts are faster one by one. Returns false if the device failed. */
typedef struct ProductAlgorithm {
    cublasLtMatmulAlgo_t algo;
    size_t scratch_bytes;
} ProductAlgorithm;
bool product_fastest(CudaProducts *p, ProductCall *call, const ProductAlgorithm *algorithm,
                     uint32_t n, const CudaChainPart *part, uint32_t n_parts,
                     const CudaContext *cuda, uint32_t *best, int64_t *median_ps, CudaError *error);

#endif
