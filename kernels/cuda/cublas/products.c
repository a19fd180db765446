/* Contractions by cublasLt. Each distinct call is described once, and its algorithm is chosen
 * once. */
#include "kernels/cuda/product/products.h"

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
    assert(options->kernel != NULL);
    p->options = *options;
    p->options.device = p->device;
    p->rules = gemm_rules(options->compute_capability, options->tf32);
    p->rules.unscaled_bytes = options->unscaled_bytes;
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

bool cuda_products_plain(const CudaProducts *p, uint32_t i, char *text, size_t bytes)
{
    char name[GEMM_NAME_BYTES];
    for (uint32_t k = 0; k < p->n_calls; k++) {
        const ProductCall *call = &p->calls[k];
        bool is_empty = call->gemm.m == 0 || call->gemm.n == 0 || call->gemm.k == 0;
        if (call->for_library || !call->alone || call->refused == NULL || is_empty) continue;
        if (i-- > 0) continue;
        gemm_name(&call->gemm, name);
        (void)snprintf(text, bytes, "%s: %s", name, call->refused);
        return true;
    }
    return false;
}

static bool is_forward(OpKind op)
{
    return op_info(op_info(op)->scaled[SCALING_none])->n_backward > 0;
}

/* Returns the call with this description. A linear search is fast enough, because a program has
 * only a few dozen distinct calls. */
static ProductCall *find(CudaProducts *p, const Gemm *gemm, bool fast)
{
    for (uint32_t i = 0; i < p->n_calls; i++)
        if (p->calls[i].fast == fast && memcmp(&p->calls[i].gemm, gemm, sizeof *gemm) == 0)
            return &p->calls[i];
    return NULL;
}

static ProductCall *call_of(const CudaChainPart *part, uint32_t n, ProductCall call,
                            const CudaContext *cuda, bool may_time, CudaError *error)
{
    CudaProducts *p = cuda->products;
    call.fast = call.gemm.scaling != SCALING_none && is_forward(part[0].op);
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
    if (!product_choose(p, &call, part, n, cuda, may_time, error)) {
        product_forget(&call);
        return NULL;
    }
    p->calls[p->n_calls] = call;
    return &p->calls[p->n_calls++];
}

static ProductCall *call_alone(const CudaChainPart *part, const CudaContext *cuda, bool may_time,
                               CudaError *error)
{
    ProductCall call = {.alone = true};
    gemm_of(part->op, part->args, &cuda->products->rules, &call.gemm);
    return call_of(part, 1, call, cuda, may_time, error);
}

bool cuda_products_prepare(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error)
{
    const CudaChainPart part = {.op = op, .args = args};
    return call_alone(&part, cuda, true, error) != NULL;
}

uint64_t product_library_bytes(const Gemm *g)
{
    return CUDA_PRODUCT_LIBRARY_BYTES - (g->along.adds_sums ? GEMM_SUMS_BYTES : 0);
}

/* Adds the n sums that the library's call computed to the values that `to` already has. */
static bool add_sums(const Gemm *g, void *sums, void *to, const CudaContext *cuda, CudaError *error)
{
    KernelArgs a = {.ptr = {sums, to}, .dtype = {g->d.dtype, g->d.dtype}, .n_in = 1, .n_args = 2};
    a.rows = a.elements[0] = a.elements[1] = g->along.sums == 'A' ? g->m : g->n;
    a.attrs.accumulate = 1;
    return cuda_pass(&a, cuda, error);
}

/* Computes an 8-bit product in chunks of columns. Each chunk is first multiplied into the scratch
 * memory; then its scales are applied. */
static bool run_chunks(const ProductCall *call, const KernelArgs *args, const GemmScratch *s,
                       const void *a, const char *b, const CudaContext *cuda, CudaError *error)
{
    const Gemm *g = &call->gemm;
    char *scratch = args->ptr[args->n_args - 1], *d = scratch + s->unscaled;
    const int64_t step =
        g->b.transposed ? g->chunk
                        : g->chunk * g->b.leading; /* in bytes, since the numbers have 8 bits */
    const float alpha = 1, beta = 0;
    if (!product_prepare_eight_bit(g, args, cuda, error)) return false;
    for (int64_t first = 0; first < g->n; first += g->chunk, b += step)
        if (!product_fine("cublasLtMatmul",
                          cublasLtMatmul(cuda->products->handle, call->desc, &alpha, a, call->a, b,
                                         call->b, &beta, d, call->d, d, call->d, &call->algo,
                                         scratch + s->library, product_library_bytes(g),
                                         (cudaStream_t)cuda->stream),
                          error) ||
            !product_scale_rows(g, args, first, cuda, error))
            return false;
    return true;
}

/* Launches a call. The scratch argument holds transposed copies of operands, scales, and sums that
 * still must be added to existing values. */
bool product_run(const ProductCall *call, const CudaChainPart *part, const GemmAddresses *at,
                 const CudaContext *cuda, CudaError *error)
{
    const Gemm *g = &call->gemm;
    const KernelArgs *args = part->args;
    const GemmScratch s = gemm_scratch(g, args);
    uint32_t last = args->n_args - 1;
    char *scratch = args->ptr[last];
    uint64_t room = product_library_bytes(g);
    assert(args->n_args == args->n_in + 2 && args->dtype[last] == DT_u8);
    assert((uint64_t)args->elements[last] >= s.library + CUDA_PRODUCT_LIBRARY_BYTES);
    const void *a = g->a.turned ? scratch + s.turned_a : args->ptr[g->a.arg];
    const void *b = g->b.turned ? scratch + s.turned_b : args->ptr[g->b.arg];
    if (g->scaled_after) return run_chunks(call, args, &s, a, b, cuda, error);
    void *d = at != NULL ? at->out : args->ptr[g->d.arg];
    const void *other = g->along.other ? at->other : d;
    void *sums = g->along.adds_sums ? scratch + s.library + room : at != NULL ? at->sums : NULL;
    float alpha = 1, beta = g->accumulate || g->along.other ? 1 : 0;
    if (g->scaling != SCALING_none) {
        const void *scale_a = scratch + s.scale_a, *scale_b = scratch + s.scale_b;
        alpha = (float)args->attrs.scale;
        if (!product_prepare_eight_bit(g, args, cuda, error)) return false;
        if (!product_set_scales(call, scale_a, scale_b, error)) return false;
    }
    if (at != NULL && !product_set_addresses(call, at->bias ? at->bias : sums, at->input, error))
        return false;
    if (!product_fine("cublasLtMatmul",
                      cublasLtMatmul(cuda->products->handle, call->desc, &alpha, a, call->a, b,
                                     call->b, &beta, other, call->d, d, call->d, &call->algo,
                                     scratch + s.library, room, (cudaStream_t)cuda->stream),
                      error))
        return false;
    return !g->along.adds_sums || add_sums(g, sums, at->sums, cuda, error);
}

bool cuda_contract(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const CudaChainPart part = {.op = op, .args = args};
    const ProductCall *call = call_alone(&part, cuda, false, error);
    if (call == NULL) return false;
    if (call->for_library) return product_run(call, &part, NULL, cuda, error);
    return product_plain(op, args, cuda, error);
}

/* ---- fused ops ---- */

static ProductCall *call_along(const CudaChainPart *part, uint32_t *n, const CudaContext *cuda,
                               bool may_time, GemmAddresses *at, CudaError *error)
{
    ProductCall call = {0};
    *n = gemm_along(part, *n, &cuda->products->rules, &call.gemm, at);
    return *n > 1 ? call_of(part, *n, call, cuda, may_time, error) : NULL;
}

bool cuda_products_prepare_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                 CudaError *error)
{
    GemmAddresses at;
    const ProductCall *call = call_along(part, &n, cuda, true, &at, error);
    return call != NULL || n < 2;
}

bool cuda_products_chain_length(const CudaChainPart *part, uint32_t *n, const CudaContext *cuda,
                                CudaError *error)
{
    GemmAddresses at;
    const ProductCall *call = call_along(part, n, cuda, false, &at, error);
    if (call == NULL && *n > 1) return false;
    if (call == NULL || !call->for_library) *n = 0;
    return true;
}

bool cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                         CudaError *error)
{
    GemmAddresses at;
    uint32_t length = n;
    const ProductCall *call = call_along(part, &length, cuda, false, &at, error);
    if (call == NULL && length > 1) return false;
    if (call != NULL && length == n && call->for_library)
        return product_run(call, part, &at, cuda, error);
    (void)snprintf(error->text, sizeof error->text, "%u parts are not a call of the library", n);
    return false; /* cannot happen unless cuda_products_chain_length returned something else */
}

bool product_run_each(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                      CudaError *error)
{
    if (!cuda_contract(part[0].op, part[0].args, cuda, error)) return false;
    if (n > 2 && kernel_cuda_chain_length(part + 1, n - 1) == n - 1)
        return kernel_cuda_chain(part + 1, n - 1, cuda, error);
    for (uint32_t i = 1; i < n; i++)
        if (!cuda->products->options.kernel(part[i].op)(part[i].args, cuda, error)) return false;
    return true;
}
