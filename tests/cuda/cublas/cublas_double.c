/* See cublas_double.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/cublas/cublas_private.h"

/* Alignment of the workspace in bytes, which the manual of cublasLtMatmul demands. */
enum { WORKSPACE_ALIGN = 256 };

CublasDouble cublas_double;

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

/* ---- the library's objects ---- */

typedef struct Limits {
    uint64_t scratch;
    uint32_t schemes, align_a, align_b, align_c, align_d;
} Limits;

/* In cublasLtMatmulAlgo_t. */
typedef struct Algorithm {
    uint64_t magic;
    int32_t way, scheme;
    uint32_t align; /* least alignment of all addresses */
    uint32_t epilogue;
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
    o->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
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
    PUT(EPILOGUE, epilogue)
    PUT(BIAS_POINTER, vector)
    PUT(EPILOGUE_AUX_POINTER, aux)
    PUT(EPILOGUE_AUX_LD, aux_leading)
#undef PUT
    assert(0 && "an attribute that the double does not know");
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
    assert(0 && "a preference that the double does not know");
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- its restrictions ---- */

static bool is_aligned(const void *at)
{
    return at != NULL && (uintptr_t)at % 16 == 0;
}

/* Refuses a missing or unneeded pointer, rows of GELU's input that are not a multiple of eight, and
 * any epilogue with 8-bit operands or batches. */
static bool has_epilogue(const Operation *o, const Described *a, const Described *d)
{
    uint32_t e = o->epilogue;
    if (e == CUBLASLT_EPILOGUE_DEFAULT) return !o->vector && !o->aux && !o->aux_leading;
    if (e != CUBLASLT_EPILOGUE_GELU && !cublas_has_vector(e) && !cublas_has_aux(e)) return false;
    if (cublas_is_eight(cublas_type(a->type)) || d->batch != 1) return false;
    if (cublas_has_vector(e) ? !is_aligned(o->vector) : o->vector != NULL) return false;
    if (!cublas_has_aux(e)) return o->aux == NULL && o->aux_leading == 0;
    return is_aligned(o->aux) && o->aux_leading % 8 == 0 && o->aux_leading >= (int64_t)d->rows;
}

/* Applies the library's tables. 8-bit operands that are not contiguous along k need compute
 * capability 10 or 11, and a scale for each row needs 9.0. Without a pointer, the scale is 1. */
static bool fits_device(const Operation *o)
{
    const uint32_t on = cublas_double.capability ? cublas_double.capability : 90;
    const bool rows = o->mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const bool along_k = o->a == CUBLAS_OP_T && o->b == CUBLAS_OP_N;
    if (o->mode_a != o->mode_b || (o->scale_a == NULL) != (o->scale_b == NULL)) return false;
    if (rows && (on != 90 || o->scale_a == NULL)) return false;
    return along_k || (on >= 100 && on < 120);
}

/* Returns true if the matrix has the rows that the library's fast kernels need. The library stores
 * matrices by columns, we store them by rows. */
static bool has_rows(const Described *m)
{
    const uint64_t bytes = dtype_bytes(cublas_type(m->type));
    return m->rows * bytes % 16 == 0 && (uint64_t)m->leading * bytes % 16 == 0;
}

static bool fits(const Operation *o, const Described *a, const Described *b, const Described *d)
{
    if (cublas_double.refuses || !has_epilogue(o, a, d)) return false;
    DType ta = cublas_type(a->type), tb = cublas_type(b->type), td = cublas_type(d->type);
    uint64_t k = o->a == CUBLAS_OP_T ? a->rows : a->columns;
    assert((o->a == CUBLAS_OP_T ? a->columns : a->rows) == d->rows);
    assert((o->b == CUBLAS_OP_T ? b->rows : b->columns) == d->columns);
    assert((o->b == CUBLAS_OP_T ? b->columns : b->rows) == k);
    assert(a->batch == d->batch && b->batch == d->batch);
    if (cublas_is_eight(ta) != cublas_is_eight(tb)) return false;
    if (!cublas_is_eight(ta)) return ta == tb && (td == ta || td == DT_f32);
    return fits_device(o) && !(ta == DT_e5m2 && tb == DT_e5m2) && !cublas_is_eight(td) &&
           a->rows % 16 == 0 && a->leading % 16 == 0 && b->rows % 16 == 0 && b->leading % 16 == 0 &&
           d->rows % 16 == 0;
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
    uint32_t align = l->align_a | l->align_b | l->align_c | l->align_d;
    for (int way = 0; way < DOUBLE_WAYS; way++) {
        Algorithm algorithm = {magic, way, schemes[way], align & (~align + 1),
                               ((Operation *)(void *)desc)->epilogue};
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
    return is.magic == magic && is.epilogue == ((Operation *)(void *)desc)->epilogue &&
                   fits((Operation *)(void *)desc, (Described *)(void *)a, (Described *)(void *)b,
                        (Described *)(void *)d)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- products ---- */

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *scratch, size_t scratch_bytes,
                              cudaStream_t stream)
{
    CALL(cublasLtMatmul);
    assert(handle != NULL && c == d);
    const Operation *o = (const Operation *)(void *)desc;
    Launch x = {*o,
                *(Described *)(void *)a,
                *(Described *)(void *)b,
                *(Described *)(void *)d,
                A,
                B,
                C,
                D,
                0,
                0,
                0};
    Algorithm is = algorithm_of(algo);
    memcpy(&x.factor, alpha, sizeof x.factor);
    memcpy(&x.old, beta, sizeof x.old);
    if (is.magic != magic || is.epilogue != o->epilogue) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(o, &x.a, &x.b, &x.d)) return CUBLAS_STATUS_INVALID_VALUE;
    assert(C == D || x.old != 0);
    if ((uintptr_t)scratch % WORKSPACE_ALIGN != 0) return CUBLAS_STATUS_INVALID_VALUE;
    assert(is.way != DOUBLE_WAY_atomic && scratch != NULL && scratch_bytes >= 1000);
    assert((uintptr_t)A % is.align == 0 && (uintptr_t)B % is.align == 0);
    assert((uintptr_t)C % is.align == 0 && (uintptr_t)D % is.align == 0);
    if (cublas_double.ms[is.way] < 0) return CUBLAS_STATUS_EXECUTION_FAILED;
    x.way = is.way;
    cublas_double.products++;
    cublas_double.fast += o->fast != 0;
    cublas_double.eight_bit += cublas_is_eight(cublas_type(x.a.type));
    cublas_double.unaligned += !has_rows(&x.a) || !has_rows(&x.b) || !has_rows(&x.d);
    cublas_double.rowwise += o->mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    cublas_double.with_epilogue += o->epilogue != CUBLASLT_EPILOGUE_DEFAULT || C != D;
    cublas_double.last_epilogue = o->epilogue;
    cublas_double.last_way = is.way;
    cublas_double_enqueue(stream, cublas_multiply, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}
