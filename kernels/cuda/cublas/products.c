/* Contractions by cublasLt: each distinct call is described and chosen for once. */
#include "kernels/cuda/products.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublas/products_private.h"

bool product_fine(const char *call, cublasStatus_t status, CudaError *error)
{
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    (void)snprintf(error->text, sizeof error->text, "%s: %s", call,
                   cublasLtGetStatusString(status));
    return false;
}

CudaProducts *cuda_products_open(const CudaProductOptions *options, CudaError *error)
{
    CudaProducts *p = calloc(1, sizeof *p);
    if (p == NULL) {
        (void)snprintf(error->text, sizeof error->text, "no memory for products");
        return NULL;
    }
    p->options = *options;
    p->options.device = p->device;
    p->rules = (GemmRules){.tf32 = options->tf32,
                           .eight_bit = options->compute_capability >= 89,
                           .eight_bit_k_major = options->compute_capability < 100};
    (void)snprintf(p->device, sizeof p->device, "%s, cublasLt %zu",
                   options->device != NULL ? options->device : "", cublasLtGetVersion());
    if (!product_fine("cublasLtCreate", cublasLtCreate(&p->handle), error)) {
        free(p);
        return NULL;
    }
    return p;
}

void cuda_products_close(CudaProducts *p)
{
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->n_calls; i++) product_forget(&p->calls[i]);
    (void)cublasLtDestroy(p->handle);
    free(p->calls);
    free(p);
}

CudaProductCounts cuda_products_counts(const CudaProducts *p)
{
    CudaProductCounts n = {.calls = p->n_calls};
    for (uint32_t i = 0; i < p->n_calls; i++) {
        n.library += p->calls[i].for_library;
        n.kept += p->calls[i].kept;
        n.timed += p->calls[i].timed;
    }
    return n;
}

static bool is_forward(OpKind op)
{
    return op_info(op_info(op)->scaled[SCALING_none])->n_backward > 0;
}

/* A program has some dozens of distinct calls. */
static ProductCall *find(CudaProducts *p, const Gemm *gemm, bool fast)
{
    for (uint32_t i = 0; i < p->n_calls; i++)
        if (p->calls[i].fast == fast && memcmp(&p->calls[i].gemm, gemm, sizeof *gemm) == 0)
            return &p->calls[i];
    return NULL;
}

static ProductCall *call_of(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                            bool may_time, CudaError *error)
{
    CudaProducts *p = cuda->products;
    ProductCall call = {0};
    gemm_of(op, args, &p->rules, &call.gemm);
    call.fast = call.gemm.scaling != SCALING_none && is_forward(op);
    ProductCall *known = find(p, &call.gemm, call.fast);
    if (known != NULL) return known;
    if (p->n_calls == p->room) {
        uint32_t room = p->room > 0 ? 2 * p->room : 64;
        ProductCall *calls = realloc(p->calls, room * sizeof *calls);
        if (calls == NULL) {
            (void)snprintf(error->text, sizeof error->text, "no memory for products");
            return NULL;
        }
        p->calls = calls;
        p->room = room;
    }
    if (!product_choose(p, &call, cuda, may_time, error)) {
        product_forget(&call);
        return NULL;
    }
    p->calls[p->n_calls] = call;
    return &p->calls[p->n_calls++];
}

bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error)
{
    return call_of(op, args, cuda, true, error) != NULL;
}

/* Where the call's scales and operands are: what a turned one is read from lies in the scratch. */
static bool run(const ProductCall *call, const KernelArgs *args, const CudaContext *cuda,
                CudaError *error)
{
    const Gemm *g = &call->gemm;
    const GemmScratch s = gemm_scratch(g, args);
    uint32_t last = args->n_args - 1;
    char *scratch = args->ptr[last];
    assert(args->n_args == args->n_in + 2 && args->dtype[last] == DT_u8);
    assert((uint64_t)args->elements[last] >= s.library + CUDA_PRODUCT_LIBRARY_BYTES);
    const void *a = g->a.turned ? scratch + s.turned_a : args->ptr[g->a.arg];
    const void *b = g->b.turned ? scratch + s.turned_b : args->ptr[g->b.arg];
    void *d = args->ptr[g->d.arg];
    float alpha = 1, beta = g->accumulate ? 1 : 0;
    if (g->scaling != SCALING_none) {
        const void *scale_a = scratch + s.scale_a, *scale_b = scratch + s.scale_b;
        alpha = (float)args->attrs.scale;
        if (!product_prepare_eight_bit(g, args, cuda, error)) return false;
        if (!product_set_scales(call, scale_a, scale_b, error)) return false;
    }
    return product_fine("cublasLtMatmul",
                        cublasLtMatmul(cuda->products->handle, call->desc, &alpha, a, call->a, b,
                                       call->b, &beta, d, call->d, d, call->d, &call->algo,
                                       scratch + s.library, CUDA_PRODUCT_LIBRARY_BYTES,
                                       (cudaStream_t)cuda->stream),
                        error);
}

bool cuda_contract(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const ProductCall *call = call_of(op, args, cuda, false, error);
    if (call == NULL) return false;
    if (call->for_library) return run(call, args, cuda, error);
    return product_plain(op, args, cuda, error);
}
