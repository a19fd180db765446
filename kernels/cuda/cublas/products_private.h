/* Shared by the files of products: one call of the library, described and chosen. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCTS_PRIVATE_H
#define TANDEM_KERNELS_CUDA_PRODUCTS_PRIVATE_H

#include <cublasLt.h>

#include "kernels/cuda/product.h"
#include "kernels/cuda/products.h"

typedef struct ProductCall {
    Gemm gemm;
    bool for_library; /* else: the plain kernel */
    bool fast;        /* 8-bit products of the forward pass may be summed less exactly */
    bool timed, kept; /* how it was chosen */
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

/* ---- products_choose.c: descriptors and the algorithm of a call. */
bool product_choose(CudaProducts *p, ProductCall *call, const CudaContext *cuda, bool may_time,
                    CudaError *error);
void product_forget(ProductCall *call);
/* Where a launch of a scaled call reads its scales. */
bool product_set_scales(const ProductCall *call, const void *a, const void *b, CudaError *error);

/* ---- products_time.c: the fastest of `n` ways, by median time on memory of its own; n if none
 * could be timed (no memory to spare). */
typedef struct ProductWay {
    cublasLtMatmulAlgo_t algo;
    size_t scratch_bytes;
} ProductWay;
uint32_t product_fastest(CudaProducts *p, const ProductCall *call, const ProductWay *way,
                         uint32_t n, const CudaContext *cuda, int64_t *median_ps);

#endif
