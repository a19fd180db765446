/* Describes a call of cublasLtMatmul and chooses its algorithm. It takes the stored choice if there
 * is one. Otherwise it takes the fastest in a timing, or the library's first suggestion. Only
 * algorithms that add in a fixed order are used. Either one block of threads computes each output
 * element, or partial sums go to the workspace and a separate step adds them. */
#include <assert.h>
#include <string.h>

#include "kernels/cuda/cublas/products_private.h"

enum { MAX_ALGORITHMS = 16 };

/* Returns the library's name of a dtype. gemm_is_for_library has accepted the dtype before. */
static cudaDataType_t type_of(DType t)
{
    if (t == DT_f32) return CUDA_R_32F;
    if (t == DT_bf16) return CUDA_R_16BF;
    if (t == DT_f16) return CUDA_R_16F;
    if (t == DT_e4m3) return CUDA_R_8F_E4M3;
    assert(t == DT_e5m2);
    return CUDA_R_8F_E5M2;
}

static bool set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const void *value,
                size_t bytes, CudaError *error)
{
    return product_fine("cublasLtMatmulDescSetAttribute",
                        cublasLtMatmulDescSetAttribute(desc, what, value, bytes), error);
}

bool product_set_scales(const ProductCall *call, const void *a, const void *b, CudaError *error)
{
    return set(call->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &a, sizeof a, error) &&
           set(call->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &b, sizeof b, error);
}

/* Returns the library's number of an epilogue (the ops fused with a product). Each op is one bit of
 * it. */
static cublasLtEpilogue_t epilogue_of_call(const GemmAlong *a)
{
    if (a->sums) return a->sums == 'A' ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    if (a->gelu == EPILOGUE_GELU_grad) return CUBLASLT_EPILOGUE_DGELU;
    if (a->gelu == EPILOGUE_GELU_none)
        return a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (a->input) return a->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return a->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

bool product_set_addresses(const ProductCall *call, const void *vector, const void *input,
                           CudaError *error)
{
    const GemmAlong *a = &call->gemm.along;
    bool has_vector = a->bias || a->sums;
    return (!has_vector ||
            set(call->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector, error)) &&
           (!a->input || set(call->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &input,
                             sizeof input, error));
}

/* Describes the fused ops. A vector and the input of GELU have the output's dtype, which is the
 * library's default. */
static bool describe_along(ProductCall *call, CudaError *error)
{
    const GemmAlong *a = &call->gemm.along;
    cublasLtEpilogue_t epilogue = epilogue_of_call(a);
    int64_t leading = call->gemm.d.leading;
    /* The library's suggestions depend on the alignment of addresses, but not on the addresses, so
     * the alignment itself is passed as the address. */
    uintptr_t vector = a->bias ? a->bias_align : a->sums_align;
    if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
    return set(call->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, error) &&
           product_set_addresses(call, (const void *)vector,
                                 (const void *)(uintptr_t)a->input_align, error) &&
           (!a->input ||
            set(call->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading, sizeof leading, error));
}

static bool describe_operation(ProductCall *call, CudaError *error)
{
    const Gemm *g = &call->gemm;
    cublasComputeType_t compute = g->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = g->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = g->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (!product_fine("cublasLtMatmulDescCreate",
                      cublasLtMatmulDescCreate(&call->desc, compute, CUDA_R_32F), error) ||
        !set(call->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, error) ||
        !set(call->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, error))
        return false;
    if (g->scaling == SCALING_none) return true;
    cublasLtMatmulMatrixScale_t scale = g->scaling == SCALING_rowwise
                                            ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                            : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    int8_t fast = call->fast;
    if (g->scaled_after) /* without pointers to scales, the library uses a scale of 1 */
        return set(call->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast, error);
    /* The library's suggestions depend on whether there are scales, but not on their addresses,
     * which each launch sets. So any aligned address will do here. */
    const void *anywhere = (const void *)(uintptr_t)GEMM_ALIGN;
    return product_set_scales(call, anywhere, anywhere, error) &&
           set(call->desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &scale, sizeof scale, error) &&
           set(call->desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &scale, sizeof scale, error) &&
           set(call->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast, error);
}

static bool describe_matrix(cublasLtMatrixLayout_t *layout, const GemmMatrix *x, int64_t batch,
                            CudaError *error)
{
    int32_t count = (int32_t)batch;
    if (!product_fine("cublasLtMatrixLayoutCreate",
                      cublasLtMatrixLayoutCreate(layout, type_of(x->dtype), (uint64_t)x->rows,
                                                 (uint64_t)x->columns, x->leading),
                      error))
        return false;
    if (batch == 1) return true;
    return product_fine("cublasLtMatrixLayoutSetAttribute",
                        cublasLtMatrixLayoutSetAttribute(
                            *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                        error) &&
           product_fine("cublasLtMatrixLayoutSetAttribute",
                        cublasLtMatrixLayoutSetAttribute(
                            *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x->stride,
                            sizeof x->stride),
                        error);
}

static bool is_repeatable(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
    size_t written = 0;
    cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
        algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &written);
    return status == CUBLAS_STATUS_SUCCESS && (scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
                                               scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

static bool describe_limits(const Gemm *g, cublasLtMatmulPreference_t limits, CudaError *error)
{
    uint64_t scratch = product_library_bytes(g);
    uint32_t align_c = g->along.other ? g->along.other_align : g->d.align;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } all[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch, sizeof scratch},
               {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
               {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &g->a.align, sizeof g->a.align},
               {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &g->b.align, sizeof g->b.align},
               {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c, sizeof align_c},
               {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &g->d.align, sizeof g->d.align}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!product_fine("cublasLtMatmulPreferenceSetAttribute",
                          cublasLtMatmulPreferenceSetAttribute(limits, all[i].what, all[i].value,
                                                               all[i].bytes),
                          error))
            return false;
    return true;
}

/* Lists the library's suggestions that give repeatable results, the best first. *n is 0 if the
 * library has no algorithm for this call. */
static bool suggest(CudaProducts *p, ProductCall *call, ProductAlgorithm algorithm[MAX_ALGORITHMS],
                    uint32_t *n, CudaError *error)
{
    cublasLtMatmulPreference_t limits = NULL;
    cublasLtMatmulHeuristicResult_t found[MAX_ALGORITHMS];
    int n_found = 0;
    *n = 0;
    if (!product_fine("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&limits),
                      error))
        return false;
    bool fine = describe_limits(&call->gemm, limits, error);
    cublasStatus_t status =
        !fine ? CUBLAS_STATUS_SUCCESS
              : cublasLtMatmulAlgoGetHeuristic(p->handle, call->desc, call->a, call->b, call->d,
                                               call->d, limits, MAX_ALGORITHMS, found, &n_found);
    (void)cublasLtMatmulPreferenceDestroy(limits);
    if (!fine) return false;
    call->refused = status == CUBLAS_STATUS_NOT_SUPPORTED   ? "cublasLt does not support it"
                    : status == CUBLAS_STATUS_INVALID_VALUE ? "cublasLt calls a value invalid"
                                                            : NULL;
    if (call->refused) return true;
    if (!product_fine("cublasLtMatmulAlgoGetHeuristic", status, error)) return false;
    for (int i = 0; i < n_found; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && is_repeatable(&found[i].algo) &&
            found[i].workspaceSize <= product_library_bytes(&call->gemm))
            algorithm[(*n)++] = (ProductAlgorithm){found[i].algo, found[i].workspaceSize};
    if (n_found == 0) call->refused = "cublasLt has no algorithm";
    if (n_found > 0 && *n == 0) call->refused = "cublasLt has no repeatable algorithm";
    return true;
}

bool product_takes(CudaProducts *p, const ProductCall *call, const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoCheck(p->handle, call->desc, call->a, call->b, call->d, call->d, algo,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= product_library_bytes(&call->gemm) && is_repeatable(algo);
}

/* Takes the stored choice if there is one and the library still accepts it. Returns false if
 * not. */
static bool use_kept(CudaProducts *p, ProductCall *call, const char *name, bool is_alone)
{
    cublasLtMatmulAlgo_t algo;
    const KernelChoices *kept = p->options.kept;
    if (kept == NULL || !kept->get(kept->self, p->device, name, &algo, sizeof algo)) return false;
    bool is_none = product_is_none(&algo);
    if (is_none ? is_alone : !product_takes(p, call, &algo)) return false;
    call->for_library = !is_none;
    call->algo = algo;
    call->kept = true;
    return true;
}

static bool describe(ProductCall *call, CudaError *error)
{
    const Gemm *g = &call->gemm;
    GemmMatrix b = g->b; /* B with the columns of one chunk only */
    *(b.transposed ? &b.rows : &b.columns) = g->chunk;
    return describe_operation(call, error) && describe_along(call, error) &&
           describe_matrix(&call->a, &g->a, g->batch, error) &&
           describe_matrix(&call->b, &b, g->batch, error) &&
           describe_matrix(&call->d, &g->d, g->batch, error);
}

bool product_choose(CudaProducts *p, ProductCall *call, const CudaChainPart *part, uint32_t n_parts,
                    const CudaContext *cuda, bool may_time, CudaError *error)
{
    const Gemm *g = &call->gemm;
    char name[GEMM_NAME_BYTES];
    ProductAlgorithm algorithm[MAX_ALGORITHMS];
    uint32_t n = 0, best = 0;
    call->for_library = gemm_is_for_library(g, &p->rules) && g->m > 0 && g->n > 0 && g->k > 0;
    if (!call->for_library) {
        call->refused = "its types, sizes or alignment are not those that cublasLt takes";
        return true;
    }
    if (!describe(call, error)) return false;
    gemm_name(g, name);
    if (use_kept(p, call, name, n_parts == 1)) return true;
    if (!suggest(p, call, algorithm, &n, error)) return false;
    call->for_library = n > 0;
    if (n == 0) return true;
    if (may_time && p->options.tune) {
        if (!product_fastest(p, call, algorithm, n, part, n_parts, cuda, &best, &call->median_ps,
                             error))
            return false;
        call->timed = best != n;
        call->for_library = best <= n;
        if (best == n) best = 0;
    }
    if (call->for_library) call->algo = algorithm[best].algo;
    return true;
}

void product_forget(ProductCall *call)
{
    if (call->a) (void)cublasLtMatrixLayoutDestroy(call->a);
    if (call->b) (void)cublasLtMatrixLayoutDestroy(call->b);
    if (call->d) (void)cublasLtMatrixLayoutDestroy(call->d);
    if (call->desc) (void)cublasLtMatmulDescDestroy(call->desc);
}
