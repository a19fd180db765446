/* The few calls of the CUDA runtime that products make, where memory is the host's and everything
 * is done at once: for tests of products without a backend. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/cublas_double.h"

static double now_ms;

void cublas_double_enqueue(void *stream, void (*run)(void *), const void *args, size_t bytes)
{
    (void)stream;
    void *copy = malloc(bytes);
    assert(copy != NULL);
    memcpy(copy, args, bytes);
    run(copy);
    free(copy);
}

void *cublas_double_at(const void *device)
{
    return (void *)(uintptr_t)device;
}

void cublas_double_spend(double ms)
{
    now_ms += ms;
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
