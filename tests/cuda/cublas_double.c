/* See cublas_double.h. */
#include "tests/cuda/cublas_double.h"

#include <assert.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"

CublasDouble cublas_double;
static double now_ms;

void cublas_double_reset(void)
{
    cublas_double = (CublasDouble){.version = 130100, .ms = {0.5, 2, 2, 2}, .last_way = -1};
}

static bool fails(const char *call)
{
    return cublas_double.fails != NULL && strcmp(cublas_double.fails, call) == 0;
}

static void *object(size_t bytes)
{
    void *p = calloc(1, bytes);
    assert(p != NULL);
    cublas_double.objects++;
    return p;
}

static void drop(void *p)
{
    cublas_double.objects--;
    free(p);
}

#define CALL(name)                                                                                 \
    if (fails(#name)) return CUBLAS_STATUS_INTERNAL_ERROR

/* ---- the library's objects; its own types are opaque arrays of words, or pointers ---- */

typedef struct Operation {
    cublasComputeType_t compute;
    cublasOperation_t a, b;
    cublasLtMatmulMatrixScale_t mode_a, mode_b;
    const float *scale_a, *scale_b;
    int8_t fast;
} Operation;

typedef struct Described {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batch;
} Described;

typedef struct Limits {
    uint64_t scratch;
    uint32_t schemes, align_a, align_b, align_c, align_d;
} Limits;

/* In cublasLtMatmulAlgo_t. */
typedef struct Algorithm {
    uint64_t magic;
    int32_t way, scheme;
    uint32_t align; /* of all addresses */
} Algorithm;
static const uint64_t magic = UINT64_C(0x6c746d6174);

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    CALL(cublasLtCreate);
    *handle = object(8);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    drop(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return cublas_double.version;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "the double fails";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    CALL(cublasLtMatmulDescCreate);
    assert(scale == CUDA_R_32F);
    Operation *o = object(sizeof *o);
    o->compute = compute;
    *desc = (cublasLtMatmulDesc_t)(void *)o;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    drop(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static void put(void *to, size_t size, const void *value, size_t bytes)
{
    assert(size == bytes);
    memcpy(to, value, bytes);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    CALL(cublasLtMatmulDescSetAttribute);
    Operation *o = (Operation *)(void *)desc;
#define PUT(name, field)                                                                           \
    if (what == CUBLASLT_MATMUL_DESC_##name) {                                                     \
        put(&o->field, sizeof o->field, value, bytes);                                             \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
    PUT(TRANSA, a)
    PUT(TRANSB, b)
    PUT(A_SCALE_MODE, mode_a)
    PUT(B_SCALE_MODE, mode_b)
    PUT(A_SCALE_POINTER, scale_a)
    PUT(B_SCALE_POINTER, scale_b)
    PUT(FAST_ACCUM, fast)
#undef PUT
    assert(!"an attribute that the double does not know");
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading)
{
    CALL(cublasLtMatrixLayoutCreate);
    assert(leading >= (int64_t)rows);
    Described *l = object(sizeof *l);
    *l = (Described){type, rows, columns, leading, 0, 1};
    *layout = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    drop(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes)
{
    Described *l = (Described *)(void *)layout;
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
        put(&l->batch, sizeof l->batch, value, bytes);
    } else {
        assert(what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
        put(&l->stride, sizeof l->stride, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    CALL(cublasLtMatmulPreferenceCreate);
    Limits *l = object(sizeof *l);
    l->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    *preference = (cublasLtMatmulPreference_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    drop(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    CALL(cublasLtMatmulPreferenceSetAttribute);
    Limits *l = (Limits *)(void *)preference;
#define PUT(name, field)                                                                           \
    if (what == CUBLASLT_MATMUL_PREF_##name) {                                                     \
        put(&l->field, sizeof l->field, value, bytes);                                             \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
    PUT(MAX_WORKSPACE_BYTES, scratch)
    PUT(REDUCTION_SCHEME_MASK, schemes)
    PUT(MIN_ALIGNMENT_A_BYTES, align_a)
    PUT(MIN_ALIGNMENT_B_BYTES, align_b)
    PUT(MIN_ALIGNMENT_C_BYTES, align_c)
    PUT(MIN_ALIGNMENT_D_BYTES, align_d)
#undef PUT
    assert(!"a preference that the double does not know");
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- what it can do ---- */

static DType type_of(cudaDataType type)
{
    if (type == CUDA_R_32F) return DT_f32;
    if (type == CUDA_R_16BF) return DT_bf16;
    if (type == CUDA_R_16F) return DT_f16;
    if (type == CUDA_R_8F_E4M3) return DT_e4m3;
    assert(type == CUDA_R_8F_E5M2);
    return DT_e5m2;
}

static bool is_eight(DType t)
{
    return t == DT_e4m3 || t == DT_e5m2;
}

static bool fits(const Operation *o, const Described *a, const Described *b, const Described *d)
{
    DType ta = type_of(a->type), tb = type_of(b->type), td = type_of(d->type);
    uint64_t k = o->a == CUBLAS_OP_T ? a->rows : a->columns;
    assert((o->a == CUBLAS_OP_T ? a->columns : a->rows) == d->rows);
    assert((o->b == CUBLAS_OP_T ? b->rows : b->columns) == d->columns);
    assert((o->b == CUBLAS_OP_T ? b->columns : b->rows) == k);
    assert(a->batch == d->batch && b->batch == d->batch);
    if (is_eight(ta) != is_eight(tb)) return false;
    if (!is_eight(ta)) return ta == tb && (td == ta || td == DT_f32);
    bool along_k = o->a == CUBLAS_OP_T && o->b == CUBLAS_OP_N;
    return (along_k || cublas_double.any_order) && !(ta == DT_e5m2 && tb == DT_e5m2) &&
           !is_eight(td) && a->rows % 16 == 0 && a->leading % 16 == 0 && b->rows % 16 == 0 &&
           b->leading % 16 == 0 && d->rows % 16 == 0 && o->scale_a != NULL && o->scale_b != NULL;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int n,
                                              cublasLtMatmulHeuristicResult_t *found, int *n_found)
{
    CALL(cublasLtMatmulAlgoGetHeuristic);
    const Limits *l = (const Limits *)(void *)preference;
    static const int32_t schemes[DOUBLE_WAYS] = {
        CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_NONE,
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_NONE};
    assert(handle != NULL && c == d && n >= DOUBLE_WAYS);
    assert(l->align_a && l->align_b && l->align_c && l->align_d);
    cublas_double.suggested++;
    *n_found = 0;
    if (!fits((Operation *)(void *)desc, (Described *)(void *)a, (Described *)(void *)b,
              (Described *)(void *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint32_t align = l->align_a | l->align_b | l->align_d;
    for (int way = 0; way < DOUBLE_WAYS; way++) {
        Algorithm algorithm = {magic, way, schemes[way], align & (~align + 1)};
        cublasLtMatmulHeuristicResult_t *r = &found[(*n_found)++];
        memset(r, 0, sizeof *r);
        memcpy(&r->algo, &algorithm, sizeof algorithm);
        r->workspaceSize = way == DOUBLE_WAY_split ? 1000 : 0;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static Algorithm algorithm_of(const cublasLtMatmulAlgo_t *algo)
{
    Algorithm a;
    memcpy(&a, algo, sizeof a);
    return a;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t bytes, size_t *written)
{
    Algorithm a = algorithm_of(algo);
    assert(what == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME && bytes == sizeof a.scheme);
    memcpy(value, &a.scheme, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle, (void)c;
    Algorithm is = algorithm_of(algo);
    result->workspaceSize = is.way == DOUBLE_WAY_split ? 1000 : 0;
    return is.magic == magic && fits((Operation *)(void *)desc, (Described *)(void *)a,
                                     (Described *)(void *)b, (Described *)(void *)d)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- products ---- */

static double element(const Described *l, const void *at, bool transposed, int64_t batch,
                      uint64_t row, uint64_t column)
{
    uint64_t r = transposed ? column : row, c = transposed ? row : column;
    assert(r < l->rows && c < l->columns);
    return number_read(type_of(l->type), at,
                       (uint64_t)(batch * l->stride) + c * (uint64_t)l->leading + r);
}

typedef struct Operands {
    const Operation *o;
    const Described *a, *b, *d;
    const void *at_a, *at_b;
    uint64_t k;
} Operands;

static float one_sum(const Operands *x, int way, int64_t batch, uint64_t i, uint64_t j)
{
    float part[2] = {0, 0};
    for (uint64_t step = 0; step < x->k; step++) {
        uint64_t k = way == DOUBLE_WAY_backwards ? x->k - 1 - step : step;
        double term = element(x->a, x->at_a, x->o->a == CUBLAS_OP_T, batch, i, k) *
                      element(x->b, x->at_b, x->o->b == CUBLAS_OP_T, batch, k, j);
        part[way == DOUBLE_WAY_split && step >= x->k / 2] += (float)term;
    }
    return part[0] + part[1];
}

static float scale_of(const Operation *o, DType t, uint64_t i, uint64_t j)
{
    if (!is_eight(t)) return 1;
    bool rows = o->mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    assert(o->mode_a == o->mode_b);
    return o->scale_a[rows ? i : 0] * o->scale_b[rows ? j : 0];
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *scratch, size_t scratch_bytes,
                              cudaStream_t stream)
{
    CALL(cublasLtMatmul);
    (void)handle, (void)stream;
    const Operation *o = (const Operation *)(void *)desc;
    const Described *la = (Described *)(void *)a, *lb = (Described *)(void *)b,
                    *ld = (Described *)(void *)d;
    Operands x = {o, la, lb, ld, A, B, o->a == CUBLAS_OP_T ? la->rows : la->columns};
    Algorithm is = algorithm_of(algo);
    float factor = *(const float *)alpha, old = *(const float *)beta;
    assert(C == D && c == d && fits(o, la, lb, ld) && is.magic == magic);
    assert(is.way != DOUBLE_WAY_atomic && scratch != NULL && scratch_bytes >= 1000);
    assert((uintptr_t)A % is.align == 0 && (uintptr_t)B % is.align == 0);
    assert((uintptr_t)D % is.align == 0);
    if (cublas_double.ms[is.way] < 0) return CUBLAS_STATUS_EXECUTION_FAILED;
    now_ms += cublas_double.ms[is.way];
    cublas_double.products++;
    cublas_double.fast += o->fast != 0;
    cublas_double.last_way = is.way;
    for (int64_t batch = 0; batch < ld->batch; batch++)
        for (uint64_t j = 0; j < ld->columns; j++)
            for (uint64_t i = 0; i < ld->rows; i++) {
                DType t = type_of(ld->type);
                uint64_t at = (uint64_t)(batch * ld->stride) + j * (uint64_t)ld->leading + i;
                double sum = (double)(factor * scale_of(o, type_of(la->type), i, j)) *
                             (double)one_sum(&x, is.way, batch, i, j);
                number_write(t, D, at, old != 0 ? sum + number_read(t, D, at) : sum);
            }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the runtime ---- */

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    if (cublas_double.no_memory) return cudaErrorMemoryAllocation;
    *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    assert(*at != NULL);
    cublas_double.objects++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    drop(at);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(at, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

struct CUevent_st {
    double ms;
};

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = object(sizeof **event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    drop(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    event->ms = now_ms;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = (float)(end->ms - begin->ms);
    return cudaSuccess;
}
