/* Times the ways of an attention call on memory of its own, with random numbers, and compares what
 * they compute with what mma.sync's kernel does. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/product.h"
#include "kernels/cuda/ways/attention_private.h"
#include "kernels/number.h"

enum { RUNS = 5, ARGS = 5, OUT = 3, LSE = 4 };

typedef struct Bench {
    const CudaAttentionLibrary *library;
    const CudaContext *cuda;
    KernelArgs args;
    void *host[2][ARGS]; /* outputs: mma.sync's, another's */
    uint64_t bytes[ARGS];
    cudaEvent_t begin, end;
} Bench;

static bool bench_open(Bench *b, const KernelArgs *args)
{
    CudaError error;
    b->args = *args;
    for (int i = 0; i < ARGS; i++) b->args.ptr[i] = NULL;
    for (int i = 0; i < ARGS; i++) {
        b->bytes[i] = (uint64_t)args->elements[i] * dtype_bytes(args->dtype[i]);
        if (cudaMalloc(&b->args.ptr[i], b->bytes[i]) != cudaSuccess) {
            b->args.ptr[i] = NULL;
            return false;
        }
        if (i < OUT && !product_fill(args->dtype[i], b->args.ptr[i], b->bytes[i], b->cuda, &error))
            return false;
        for (int k = 0; k < 2 && i >= OUT; k++)
            if ((b->host[k][i] = malloc(b->bytes[i] + 1)) == NULL) return false;
    }
    return cudaEventCreate(&b->begin) == cudaSuccess && cudaEventCreate(&b->end) == cudaSuccess;
}

static void bench_close(Bench *b)
{
    (void)cudaStreamSynchronize((cudaStream_t)b->cuda->stream);
    if (b->begin) (void)cudaEventDestroy(b->begin);
    if (b->end) (void)cudaEventDestroy(b->end);
    for (int i = 0; i < ARGS; i++) {
        if (b->args.ptr[i]) (void)cudaFree(b->args.ptr[i]);
        free(b->host[0][i]);
        free(b->host[1][i]);
    }
    (void)cudaGetLastError(); /* no memory to spare is no error: the call is not timed */
}

static bool fine(const char *call, cudaError_t status, CudaError *error)
{
    if (status == cudaSuccess) return true;
    (void)snprintf(error->text, sizeof error->text, "%s: %s", call, cudaGetErrorString(status));
    return false;
}

static bool time_once(const Bench *b, AttentionWay way, float *ms, bool *taken, CudaError *error)
{
    cudaStream_t stream = (cudaStream_t)b->cuda->stream;
    return fine("cudaEventRecord", cudaEventRecord(b->begin, stream), error) &&
           attention_launch(way, b->library, &b->args, b->cuda, taken, error) &&
           fine("cudaEventRecord", cudaEventRecord(b->end, stream), error) &&
           fine(attention_way_name(way), cudaEventSynchronize(b->end), error) &&
           fine("cudaEventElapsedTime", cudaEventElapsedTime(ms, b->begin, b->end), error);
}

static int by_size(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

/* The first run loads the kernel. */
static bool median_ms(const Bench *b, AttentionWay way, float *median, bool *taken,
                      CudaError *error)
{
    float ms[RUNS];
    if (!time_once(b, way, &ms[0], taken, error)) return false;
    for (int i = 0; i < RUNS && *taken; i++)
        if (!time_once(b, way, &ms[i], taken, error)) return false;
    qsort(ms, RUNS, sizeof ms[0], by_size);
    *median = ms[RUNS / 2];
    return true;
}

/* The last run's results; memory that it is to have written is wiped before. */
static bool results(const Bench *b, AttentionWay way, void *const *host, CudaError *error)
{
    float ms;
    bool taken;
    for (int i = OUT; i < ARGS; i++)
        if (!fine("cudaMemset", cudaMemset(b->args.ptr[i], 0xff, b->bytes[i]), error)) return false;
    if (!fine("cudaDeviceSynchronize", cudaDeviceSynchronize(), error) ||
        !time_once(b, way, &ms, &taken, error))
        return false;
    for (int i = OUT; i < ARGS; i++)
        if (!fine("cudaMemcpy",
                  cudaMemcpy(host[i], b->args.ptr[i], b->bytes[i], cudaMemcpyDeviceToHost), error))
            return false;
    return true;
}

/* The norm of the difference, of that of mma.sync's result; NaN where one of them has a NaN. */
static double difference(const Bench *b, int i)
{
    double sum = 0, size = 0;
    for (int64_t k = 0; k < b->args.elements[i]; k++) {
        double x = number_read(b->args.dtype[i], b->host[0][i], (uint64_t)k);
        double y = number_read(b->args.dtype[i], b->host[1][i], (uint64_t)k);
        if (isinf(x) && x == y) continue;
        sum += (x - y) * (x - y);
        size += x * x;
    }
    return sum == 0 ? 0 : sqrt(sum / size);
}

/* Both ways round probabilities, and their results, to 16 bits. */
static bool compare(const Bench *b, AttentionWay way, AttentionTimes *times)
{
    const double limit = b->args.dtype[OUT] == DT_bf16 ? 2e-2 : 3e-3;
    double out = difference(b, OUT), lse = difference(b, LSE);
    if (out <= limit && lse <= 1e-3) return true;
    times->wrong = true;
    (void)snprintf(times->about, sizeof times->about,
                   "attention by %s differs from mma.sync's by %.3g of its norm (%.3g in the "
                   "log of sums): it is not used",
                   attention_way_name(way), out, lse);
    return false;
}

/* A way that is wrong is not timed. */
static bool time_way(const Bench *b, AttentionWay way, AttentionTimes *times, CudaError *error)
{
    float ms = 0;
    bool taken = true;
    if (way == ATTENTION_WAY_library && b->library == NULL) return true;
    if (!median_ms(b, way, &ms, &taken, error)) return false;
    if (!taken) return true;
    if (!results(b, way, way == ATTENTION_WAY_mma ? b->host[0] : b->host[1], error)) return false;
    if (way != ATTENTION_WAY_mma && !compare(b, way, times)) return true;
    int64_t ps = (int64_t)((double)ms * 1e9);
    if (way != ATTENTION_WAY_mma && ps >= times->median_ps) return true;
    times->best = way;
    times->median_ps = ps;
    return true;
}

bool attention_time(const CudaAttentionLibrary *library, const KernelArgs *args,
                    const CudaContext *cuda, AttentionTimes *times, CudaError *error)
{
    Bench b = {.library = library, .cuda = cuda};
    *times = (AttentionTimes){.best = ATTENTION_WAY_mma};
    bool done = true;
    if (bench_open(&b, args)) {
        for (int way = 0; way < ATTENTION_WAYS && done; way++)
            done = time_way(&b, (AttentionWay)way, times, error);
        times->timed = done;
    }
    bench_close(&b);
    return done;
}
