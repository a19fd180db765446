/* Shared by the files of products: one call of the library, its description and its algorithm. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCTS_PRIVATE_H
#define TANDEM_KERNELS_CUDA_PRODUCTS_PRIVATE_H

#include <cublasLt.h>

#include "kernels/cuda/product/product.h"
#include "kernels/cuda/product/products.h"

typedef struct ProductCall {
    Gemm gemm;
    bool for_library;    /* false: the plain kernel runs, or each of several parts runs by itself */
    bool alone;          /* a product without fused ops */
    bool fast;           /* 8-bit products of the forward pass may use less exact sums */
    bool timed, kept;    /* the choice was timed in this run; it was kept from an earlier run */
    const char *refused; /* why the library cannot compute a product alone; NULL: it can */
    int64_t median_ps;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} ProductCall;

struct CudaProducts {
    cublasLtHandle_t handle;
    GemmRules rules;
    CudaProductOptions options;
    char device[160]; /* and the library's version */
    ProductCall *calls;
    uint32_t n_calls, room;
};

bool product_fine(const char *call, cublasStatus_t status, CudaError *error);
uint64_t product_library_bytes(const Gemm *g); /* bytes of scratch that the library may use */
/* Runs parts as one call: a product alone, or a product with fused ops. at NULL: it is alone. */
bool product_run(const ProductCall *call, const CudaChainPart *part, const GemmAddresses *at,
                 const CudaContext *cuda, CudaError *error);
bool product_run_each(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                      CudaError *error);

/* ---- products_choose.c: descriptors and the algorithm of a call. */
bool product_choose(CudaProducts *p, ProductCall *call, const CudaChainPart *part, uint32_t n,
                    const CudaContext *cuda, bool may_time, CudaError *error);
void product_forget(ProductCall *call);
/* Sets the addresses of a launch's scales, and of its fused ops' arguments. */
bool product_set_scales(const ProductCall *call, const void *a, const void *b, CudaError *error);
bool product_set_addresses(const ProductCall *call, const void *vector, const void *input,
                           CudaError *error);
bool product_takes(CudaProducts *p, const ProductCall *call, const cublasLtMatmulAlgo_t *algo);

/* True if all bytes are 0: no algorithm was found. Then the plain kernel runs, or each of several
 * parts runs by itself. */
bool product_is_none(const cublasLtMatmulAlgo_t *algo);

/* ---- products_time.c: *best is the fastest of `n` algorithms, by median time on separate memory;
 * n if none could be timed (not enough memory). For several parts, *best is n + 1 if running them
 * one by one is fastest. Returns false if the device failed. */
typedef struct ProductAlgorithm {
    cublasLtMatmulAlgo_t algo;
    size_t scratch_bytes;
} ProductAlgorithm;
bool product_fastest(CudaProducts *p, ProductCall *call, const ProductAlgorithm *algorithm,
                     uint32_t n, const CudaChainPart *part, uint32_t n_parts,
                     const CudaContext *cuda, uint32_t *best, int64_t *median_ps, CudaError *error);

#endif
