/* Contractions on CUDA devices by the library cublasLt. For each distinct call, one of the
 * library's algorithms is chosen once, and the choice is stored. A CudaProducts, one for each
 * device, holds the library's handle, the descriptors of the calls and the choices. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_PRODUCTS_H
#define TANDEM_KERNELS_CUDA_PRODUCT_PRODUCTS_H

#include "kernels/choices.h"
#include "kernels/cuda/cuda.h"
#include "planner/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many bytes of a contraction's scratch argument the library may use. Tests of whole plans
 * give it fewer, because they fill the scratch memory of every step with NaNs. */
#ifndef CUDA_PRODUCT_LIBRARY_BYTES
#define CUDA_PRODUCT_LIBRARY_BYTES (UINT64_C(32) << 20)
#endif

typedef struct CudaProductOptions {
    bool tf32;                 /* true: the library may round fp32 operands to 19 bits, which is
                                  faster but less exact */
    bool tune;                 /* true: time the algorithms of each call that has no stored
                                  choice */
    const KernelChoices *kept; /* choices from earlier runs; NULL: there are none */
    const char *device;        /* name of the device, under which choices are stored; it is
                                  copied */
    uint32_t compute_capability;
    uint64_t unscaled_bytes; /* see GemmRules.unscaled_bytes */
    /* Returns the kernel of an op. It is used to time the parts of a chain one by one, and is
     * usually kernel_cuda. */
    CudaKernel (*kernel)(OpKind op);
} CudaProductOptions;

typedef struct CudaProducts CudaProducts;

CudaProducts *cuda_products_open(const CudaProductOptions *options, CudaError *error);
/* Chooses the algorithm of a call before the first step. This function may allocate memory, launch
 * kernels and wait for the device. If a call was not prepared, its first launch chooses an
 * algorithm without timing. Only algorithms that give equal bits for equal arguments are
 * candidates. The choice depends on sizes, layouts, dtypes and alignments alone. So an instruction
 * gives the same result with and without the capture of a CUDA graph. */
bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error);
/* Prepares a chain: a product and the instructions after it. It decides whether one call of the
 * library computes the first parts, or each part is launched by itself. The two ways differ in the
 * last bits of the results, because the library computes fused ops in fp32 before it rounds the
 * sum. The product itself must be prepared first, by cuda_products_prepare. */
bool cuda_products_prepare_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                 CudaError *error);
/* Sets *n to how many of the first parts one call of the library computes; 0: none. */
bool cuda_products_chain_length(const CudaChainPart *part, uint32_t *n, const CudaContext *cuda,
                                CudaError *error);
/* Launches n parts, where n was set by cuda_products_chain_length. */
bool cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                         CudaError *error);
void cuda_products_close(CudaProducts *products);

/* The algorithm chosen for a call. `call` is the hash of the call's name; the bytes of `choice`
 * have a meaning only for the library. */
typedef struct CudaProductChoice {
    Hash128 call;
    unsigned char choice[64];
} CudaProductChoice;
/* Writes the choices of all calls so far to `all`. There are cuda_products_counts().calls of
 * them. */
void cuda_products_choices(const CudaProducts *products, CudaProductChoice *all);
/* Makes all ranks use the same algorithms. `all` has the choices of all ranks, one rank after
 * another; the first n_before of them belong to ranks before this one. For each call, the first
 * choice in `all` is adopted. If this rank timed the call and its own choice is adopted, the choice
 * is stored. */
bool cuda_products_settle(CudaProducts *products, const CudaProductChoice *all, uint32_t n,
                          uint32_t n_before, CudaError *error);

/* Describes the i-th product (from 0) that the plain kernel computes because the library refuses
 * it: its sizes and dtypes, and the reason. Returns false if there are at most i such products. */
bool cuda_products_plain(const CudaProducts *products, uint32_t i, char *text, size_t bytes);

/* Numbers of calls so far: distinct calls; calls that the library computes; calls whose choice was
 * stored; calls that were timed. Reports and tests use these numbers. */
typedef struct CudaProductCounts {
    uint32_t calls, library, kept, timed;
} CudaProductCounts;
CudaProductCounts cuda_products_counts(const CudaProducts *products);

#ifdef __cplusplus
}
#endif

#endif
