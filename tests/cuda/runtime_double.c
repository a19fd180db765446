/* See runtime_double.h. */
#include "tests/cuda/runtime_double.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

RuntimeDouble runtime_double;

struct CUevent_st {
    double ms;
};

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    if (runtime_double.no_memory) return cudaErrorMemoryAllocation;
    *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    assert(*at != NULL);
    runtime_double.objects++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    free(at);
    runtime_double.objects--;
    return cudaSuccess;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    memset(at, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(at, value, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "an illegal address" : "an error";
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    runtime_double.objects++;
    *event = calloc(1, sizeof **event);
    assert(*event != NULL);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    runtime_double.objects--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    event->ms = runtime_double.now_ms;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    runtime_double.waits++;
    bool lost = runtime_double.lost_at > 0 && runtime_double.waits >= runtime_double.lost_at;
    return lost ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (runtime_double.hangs_at > 0 && runtime_double.waits + 1 >= runtime_double.hangs_at)
        return cudaErrorNotReady;
    return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = (float)(end->ms - begin->ms);
    return cudaSuccess;
}
