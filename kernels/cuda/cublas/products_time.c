/* Times the algorithms for a call on separate memory. The data are random numbers, because products
 * of zeros take less power and so less time. Between runs the cache is filled with other data. A
 * chain is also timed as separate launches. An algorithm that the library cannot run is skipped. If
 * there is not enough free memory, nothing is timed. If the device fails, the error names the
 * algorithm that was being timed. */
#include <assert.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublas/products_private.h"

enum { MAX_TIMED = 8, RUNS = 5, CACHE_BYTES = 128 << 20 };
enum { BUFFERS = EPILOGUE_PARTS * MAX_ARGS };

/* Memory that takes the place of an argument during timing. */
typedef struct StandIn {
    const void *was;
    DType dtype;
    uint64_t bytes;
    char *memory, *is; /* `is` is the address in `memory` that has the same alignment as `was`, the
                          address of the argument */
} StandIn;

typedef struct ProductBench {
    CudaProducts *p;
    ProductCall *call;
    const CudaContext *cuda;
    CudaChainPart part[EPILOGUE_PARTS];
    KernelArgs args[EPILOGUE_PARTS];
    uint32_t n_parts, n_stand_ins;
    StandIn stand_in[BUFFERS];
    void *cache;
    cudaEvent_t begin, end;
    /* what: the algorithm being timed; broke: the library or CUDA function that failed, with its
     * error in `status` */
    const char *what, *broke;
    cudaError_t status;
} ProductBench;

/* Records an error other than lack of memory. Returns true if `status` is success. */
static bool fine(ProductBench *b, cudaError_t status, const char *call)
{
    if (status == cudaSuccess) return true;
    if (status != cudaErrorMemoryAllocation && b->broke == NULL) {
        b->broke = call;
        b->status = status;
    }
    return false;
}
#define FINE(b, name, arguments) fine((b), name arguments, #name)

static StandIn *stand_in_for(ProductBench *b, const void *was)
{
    for (uint32_t i = 0; i < b->n_stand_ins; i++)
        if (b->stand_in[i].was == was) return &b->stand_in[i];
    assert(b->n_stand_ins < BUFFERS);
    b->stand_in[b->n_stand_ins] = (StandIn){.was = was};
    return &b->stand_in[b->n_stand_ins++];
}

static bool make(ProductBench *b, StandIn *s)
{
    CudaError error;
    uint64_t shift = (uint64_t)(uintptr_t)s->was % GEMM_ALIGN;
    void *memory = NULL;
    if (!FINE(b, cudaMalloc, (&memory, s->bytes + shift))) return false;
    s->memory = memory;
    s->is = s->memory + shift;
    return s->dtype == DT_u8 ||
           product_fill(s->dtype, s->is, s->bytes, (uint32_t)(s - b->stand_in), b->cuda, &error);
}

static bool bench_open(ProductBench *b, const CudaChainPart *part, uint32_t n_parts)
{
    b->n_parts = n_parts;
    for (uint32_t i = 0; i < n_parts; i++) {
        b->args[i] = *part[i].args;
        b->part[i] = part[i];
        b->part[i].args = &b->args[i];
        for (uint32_t k = 0; k < b->args[i].n_args; k++) {
            StandIn *s = stand_in_for(b, b->args[i].ptr[k]);
            uint64_t bytes = (uint64_t)b->args[i].elements[k] * dtype_bytes(b->args[i].dtype[k]);
            if (bytes > s->bytes) s->bytes = bytes;
            s->dtype = b->args[i].dtype[k];
        }
    }
    for (uint32_t i = 0; i < b->n_stand_ins; i++)
        if (!make(b, &b->stand_in[i])) return false;
    for (uint32_t i = 0; i < n_parts; i++)
        for (uint32_t k = 0; k < b->args[i].n_args; k++)
            b->args[i].ptr[k] = stand_in_for(b, b->args[i].ptr[k])->is;
    return FINE(b, cudaMalloc, (&b->cache, CACHE_BYTES)) && FINE(b, cudaEventCreate, (&b->begin)) &&
           FINE(b, cudaEventCreate, (&b->end));
}

static void bench_close(ProductBench *b)
{
    (void)FINE(b, cudaStreamSynchronize, ((cudaStream_t)b->cuda->stream));
    if (b->begin) (void)cudaEventDestroy(b->begin);
    if (b->end) (void)cudaEventDestroy(b->end);
    for (uint32_t i = 0; i < b->n_stand_ins; i++)
        if (b->stand_in[i].memory) (void)cudaFree(b->stand_in[i].memory);
    if (b->cache) (void)cudaFree(b->cache);
    (void)cudaGetLastError(); /* clear the library's error: lack of memory is no failure here */
}

/* Launches the call once. `algorithm` NULL: each part of the chain is launched by itself. */
static bool launch(const ProductBench *b, const ProductAlgorithm *algorithm)
{
    CudaError error;
    Gemm described;
    GemmAddresses at;
    if (algorithm == NULL) return product_run_each(b->part, b->n_parts, b->cuda, &error);
    b->call->algo = algorithm->algo;
    if (b->n_parts == 1) return product_run(b->call, b->part, NULL, b->cuda, &error);
    return gemm_along(b->part, b->n_parts, &b->p->rules, &described, &at) == b->n_parts &&
           product_run(b->call, b->part, &at, b->cuda, &error);
}

/* Returns the time in milliseconds; a negative number: this algorithm failed. */
static float time_once(ProductBench *b, const ProductAlgorithm *algorithm)
{
    cudaStream_t stream = (cudaStream_t)b->cuda->stream;
    float ms = -1;
    bool timed = FINE(b, cudaMemsetAsync, (b->cache, 0, CACHE_BYTES, stream)) &&
                 FINE(b, cudaEventRecord, (b->begin, stream)) && launch(b, algorithm) &&
                 FINE(b, cudaEventRecord, (b->end, stream)) &&
                 FINE(b, cudaEventSynchronize, (b->end)) &&
                 FINE(b, cudaEventElapsedTime, (&ms, b->begin, b->end));
    return timed ? ms : -1;
}

static int by_size(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

static float median_ms(ProductBench *b, const ProductAlgorithm *algorithm, const char *what)
{
    float ms[RUNS];
    b->what = what;
    if (time_once(b, algorithm) < 0)
        return -1; /* the first run also loads the kernel, so it is not
                      counted */
    for (int i = 0; i < RUNS; i++)
        if ((ms[i] = time_once(b, algorithm)) < 0) return -1;
    qsort(ms, RUNS, sizeof ms[0], by_size);
    return ms[RUNS / 2];
}

static bool tell(const ProductBench *b, CudaError *error)
{
    char name[GEMM_NAME_BYTES];
    if (b->broke == NULL) return true;
    gemm_name(&b->call->gemm, name);
    (void)snprintf(error->text, sizeof error->text, "timing %s %.120s: %s: %s", b->what, name,
                   b->broke, cudaGetErrorString(b->status));
    return false;
}

bool product_fastest(CudaProducts *p, ProductCall *call, const ProductAlgorithm *algorithm,
                     uint32_t n, const CudaChainPart *part, uint32_t n_parts,
                     const CudaContext *cuda, uint32_t *best, int64_t *median_ps, CudaError *error)
{
    ProductBench b = {.p = p, .call = call, .cuda = cuda, .what = "(its operands)"};
    char what[32];
    float best_ms = -1, ms;
    *best = n;
    if (bench_open(&b, part, n_parts)) {
        for (uint32_t i = 0; i < n && i < MAX_TIMED && !b.broke; i++) {
            (void)snprintf(what, sizeof what, "algorithm %u of %u of", i + 1, n);
            ms = median_ms(&b, &algorithm[i], what);
            if (ms < 0 || (best_ms >= 0 && ms >= best_ms)) continue;
            *best = i;
            best_ms = ms;
        }
        ms = n_parts > 1 && !b.broke ? median_ms(&b, NULL, "one by one") : -1;
        if (ms >= 0 && (best_ms < 0 || ms < best_ms)) {
            *best = n + 1;
            best_ms = ms;
        }
    }
    bench_close(&b);
    *median_ps = (int64_t)((double)(best_ms < 0 ? 0 : best_ms) * 1e9);
    return tell(&b, error);
}
