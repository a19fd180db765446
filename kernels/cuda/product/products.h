/* Contractions on CUDA devices: cublasLt's algorithms, each chosen once and kept. The library's
 * handle, its descriptors and the choices live in CudaProducts, one a device. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_PRODUCTS_H
#define TANDEM_KERNELS_CUDA_PRODUCT_PRODUCTS_H

#include "kernels/cuda/cuda.h"
#include "planner/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a contraction's trailing scratch argument that the library may use. */
#define CUDA_PRODUCT_LIBRARY_BYTES (UINT64_C(32) << 20)

/* Where choices that were measured once are kept from run to run. `device` names the device and the
 * library's version, `call` the sizes, layouts and types; a choice is a few opaque bytes. */
typedef struct CudaChoices {
    void *self;
    bool (*get)(void *self, const char *device, const char *call, void *choice, size_t bytes);
    void (*put)(void *self, const char *device, const char *call, const void *choice, size_t bytes,
                int64_t median_ps);
} CudaChoices;

typedef struct CudaProductOptions {
    bool tf32;               /* round fp32 operands to 19 bits: faster, and not fp32 */
    bool tune;               /* time what could carry out a call that nothing is kept of */
    const CudaChoices *kept; /* NULL: nothing is kept */
    const char *device;      /* its name, of choices that are kept; copied */
    uint32_t compute_capability;
} CudaProductOptions;

typedef struct CudaProducts CudaProducts;

CudaProducts *cuda_products_open(const CudaProductOptions *options, CudaError *error);
/* Chooses how a call is carried out, before the first step. May allocate, launch and wait. A call
 * that was not prepared is chosen for when it comes, but never timed. Chosen is only what gives
 * equal bits for equal arguments; the choice depends on sizes, layouts, types and alignment alone,
 * so an instruction is carried out alike whether or not a graph is captured. */
bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error);
/* The same of a product and of parts behind it: whether one call of the library carries out the
 * leading ones, as far as that goes, or each is carried out by itself. Numbers differ in the last
 * bits: what goes along is done in fp32, before the sum is rounded. Prepare the product alone
 * first.
 */
bool cuda_products_prepare_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                 CudaError *error);
/* *n becomes how many of the leading parts are one call; 0: none. */
bool cuda_products_chain_length(const CudaChainPart *part, uint32_t *n, const CudaContext *cuda,
                                CudaError *error);
/* Launches n parts, as cuda_products_chain_length gave n. */
bool cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                         CudaError *error);
void cuda_products_close(CudaProducts *products);

/* The choice made for a call: a hash of the call's name, and bytes that the library understands. */
typedef struct CudaProductChoice {
    Hash128 call;
    unsigned char choice[64];
} CudaProductChoice;
/* Of all calls so far: cuda_products_counts().calls of them. */
void cuda_products_choices(const CudaProducts *products, CudaProductChoice *all);
/* `all`: the choices of all ranks, one after the other, n_before of them by ranks before this one.
 * For each call the first is taken. Then what was timed here, and is followed, is kept. */
bool cuda_products_settle(CudaProducts *products, const CudaProductChoice *all, uint32_t n,
                          uint32_t n_before, CudaError *error);

/* Of the calls so far: distinct ones, those the library carries out, those chosen from what was
 * kept, those timed. For reports and tests. */
typedef struct CudaProductCounts {
    uint32_t calls, library, kept, timed;
} CudaProductCounts;
CudaProductCounts cuda_products_counts(const CudaProducts *products);

#ifdef __cplusplus
}
#endif

#endif
