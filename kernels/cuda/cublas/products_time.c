/* Times the ways of carrying out a call, on memory of its own: random numbers, since zeros cost
 * less power, and so time; and never the same bytes twice in the cache. */
#include <cuda_runtime.h>
#include <stdlib.h>

#include "kernels/cuda/cublas/products_private.h"

enum { MAX_TIMED = 8, RUNS = 5, CACHE_BYTES = 128 << 20 };

enum { BUFFER_a, BUFFER_b, BUFFER_d, BUFFER_scales, BUFFER_scratch, BUFFER_cache, BUFFERS };
typedef struct Bench {
    CudaProducts *p;
    const ProductCall *call;
    const CudaContext *cuda;
    void *buffer[BUFFERS];
    cudaEvent_t begin, end;
} Bench;

static uint64_t matrix_bytes(const GemmMatrix *x, int64_t batch)
{
    int64_t last = (batch - 1) * x->stride + (x->columns - 1) * x->leading + x->rows;
    return (uint64_t)last * dtype_bytes(x->dtype);
}

static bool bench_open(Bench *b)
{
    const Gemm *g = &b->call->gemm;
    CudaError error;
    uint64_t n_scales = (uint64_t)(g->m > g->n ? g->m : g->n);
    const uint64_t bytes[BUFFERS] = {matrix_bytes(&g->a, g->batch), matrix_bytes(&g->b, g->batch),
                                     matrix_bytes(&g->d, g->batch), n_scales * sizeof(float),
                                     CUDA_PRODUCT_LIBRARY_BYTES,    CACHE_BYTES};
    for (int i = 0; i < BUFFERS; i++)
        if (cudaMalloc(&b->buffer[i], bytes[i]) != cudaSuccess) return false;
    return cudaEventCreate(&b->begin) == cudaSuccess && cudaEventCreate(&b->end) == cudaSuccess &&
           product_fill(g->a.dtype, b->buffer[BUFFER_a], bytes[BUFFER_a], b->cuda, &error) &&
           product_fill(g->b.dtype, b->buffer[BUFFER_b], bytes[BUFFER_b], b->cuda, &error) &&
           product_fill(g->d.dtype, b->buffer[BUFFER_d], bytes[BUFFER_d], b->cuda, &error) &&
           product_fill(DT_f32, b->buffer[BUFFER_scales], bytes[BUFFER_scales], b->cuda, &error) &&
           (g->scaling == SCALING_none || product_set_scales(b->call, b->buffer[BUFFER_scales],
                                                             b->buffer[BUFFER_scales], &error));
}

static void bench_close(Bench *b)
{
    (void)cudaStreamSynchronize((cudaStream_t)b->cuda->stream);
    if (b->begin) (void)cudaEventDestroy(b->begin);
    if (b->end) (void)cudaEventDestroy(b->end);
    for (int i = 0; i < BUFFERS; i++)
        if (b->buffer[i]) (void)cudaFree(b->buffer[i]);
    (void)cudaGetLastError(); /* no memory to spare is no error: the call is not timed */
}

/* In ms; below 0: this way failed. */
static float time_once(const Bench *b, const ProductWay *way)
{
    const Gemm *g = &b->call->gemm;
    cudaStream_t stream = (cudaStream_t)b->cuda->stream;
    float alpha = 1, beta = g->accumulate ? 1 : 0, ms = -1;
    if (cudaMemsetAsync(b->buffer[BUFFER_cache], 0, CACHE_BYTES, stream) != cudaSuccess ||
        cudaEventRecord(b->begin, stream) != cudaSuccess ||
        cublasLtMatmul(b->p->handle, b->call->desc, &alpha, b->buffer[BUFFER_a], b->call->a,
                       b->buffer[BUFFER_b], b->call->b, &beta, b->buffer[BUFFER_d], b->call->d,
                       b->buffer[BUFFER_d], b->call->d, &way->algo, b->buffer[BUFFER_scratch],
                       CUDA_PRODUCT_LIBRARY_BYTES, stream) != CUBLAS_STATUS_SUCCESS ||
        cudaEventRecord(b->end, stream) != cudaSuccess ||
        cudaEventSynchronize(b->end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, b->begin, b->end) != cudaSuccess)
        return -1;
    return ms;
}

static int by_size(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

static float median_ms(const Bench *b, const ProductWay *way)
{
    float ms[RUNS];
    if (time_once(b, way) < 0) return -1; /* the first run loads the kernel */
    for (int i = 0; i < RUNS; i++)
        if ((ms[i] = time_once(b, way)) < 0) return -1;
    qsort(ms, RUNS, sizeof ms[0], by_size);
    return ms[RUNS / 2];
}

uint32_t product_fastest(CudaProducts *p, const ProductCall *call, const ProductWay *way,
                         uint32_t n, const CudaContext *cuda, int64_t *median_ps)
{
    Bench b = {.p = p, .call = call, .cuda = cuda};
    uint32_t best = n;
    float best_ms = 0;
    if (bench_open(&b))
        for (uint32_t i = 0; i < n && i < MAX_TIMED; i++) {
            float ms = median_ms(&b, &way[i]);
            if (ms < 0 || (best < n && ms >= best_ms)) continue;
            best = i;
            best_ms = ms;
        }
    bench_close(&b);
    *median_ps = (int64_t)((double)best_ms * 1e9);
    return best;
}
