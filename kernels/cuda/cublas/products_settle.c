/* Makes all ranks run equal calls with the same algorithm, even if their timings differ. For each
 * call, the lowest rank that has a choice decides, and that rank stores the choice. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cublas/products_private.h"

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof((CudaProductChoice *)NULL)->choice,
               "a choice holds an algorithm");

bool product_is_none(const cublasLtMatmulAlgo_t *algo)
{
    static const cublasLtMatmulAlgo_t none;
    return memcmp(algo, &none, sizeof none) == 0;
}

static Hash128 call_id(const ProductCall *call)
{
    char name[GEMM_NAME_BYTES + 8];
    gemm_name(&call->gemm, name);
    if (call->fast) (void)snprintf(name + strlen(name), 8, " fast");
    return hash_bytes(name, strlen(name));
}

static CudaProductChoice choice_of(const ProductCall *call)
{
    CudaProductChoice c;
    memset(&c, 0, sizeof c);
    c.call = call_id(call);
    if (call->for_library) memcpy(c.choice, &call->algo, sizeof call->algo);
    return c;
}

void cuda_products_choices(const CudaProducts *p, CudaProductChoice *all)
{
    for (uint32_t i = 0; i < p->n_calls; i++) all[i] = choice_of(&p->calls[i]);
}

static bool follow(CudaProducts *p, ProductCall *call, const CudaProductChoice *first,
                   CudaError *error)
{
    char name[GEMM_NAME_BYTES];
    CudaProductChoice mine = choice_of(call);
    if (memcmp(mine.choice, first->choice, sizeof mine.choice) == 0) return true;
    memcpy(&call->algo, first->choice, sizeof call->algo);
    call->timed = call->kept = false;
    call->for_library = !product_is_none(&call->algo);
    if (!call->for_library) return true;
    if (call->desc != NULL && product_takes(p, call, &call->algo)) return true;
    gemm_name(&call->gemm, name);
    (void)snprintf(error->text, sizeof error->text,
                   "the algorithm that another rank has chosen cannot carry out %.150s here", name);
    return false;
}

static void keep(const CudaProducts *p, const ProductCall *call)
{
    char name[GEMM_NAME_BYTES];
    const KernelChoices *kept = p->options.kept;
    CudaProductChoice c = choice_of(call);
    if (!call->timed || kept == NULL) return;
    gemm_name(&call->gemm, name);
    kept->put(kept->self, p->device, name, c.choice, sizeof c.choice, call->median_ps);
}

bool cuda_products_settle(CudaProducts *p, const CudaProductChoice *all, uint32_t n,
                          uint32_t n_before, CudaError *error)
{
    for (uint32_t i = 0; i < p->n_calls; i++) {
        ProductCall *call = &p->calls[i];
        Hash128 id = call_id(call);
        uint32_t first = 0;
        while (first < n && memcmp(&all[first].call, &id, sizeof id) != 0) first++;
        if (first < n && !follow(p, call, &all[first], error)) return false;
        if (first >= n_before) keep(p, call); /* only the rank whose choice is adopted stores it */
    }
    return true;
}
