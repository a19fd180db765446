/* The few driver functions whose addresses the backend requests from the runtime by name. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/double/private.h"

typedef struct OfWord {
    Task task;
    const uint32_t *word;
    uint32_t value;
} OfWord;

static Progress run_wait(Task *task, void *state)
{
    const OfWord *w = (OfWord *)task;
    (void)state;
    bool there = __atomic_load_n(w->word, __ATOMIC_ACQUIRE) == w->value;
    return there ? PROGRESS_done : PROGRESS_none;
}

/* The second version of this function: the first is off unless the kernel module enables it. */
static CUresult wait_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
    Scripted s = double_script("cuStreamWaitValue32");
    if (s.kind == SCRIPT_fail) return (CUresult)s.code;
    if (at % 4 != 0 || flags != CU_STREAM_WAIT_VALUE_EQ) return CUDA_ERROR_INVALID_VALUE;
    OfWord *w = double_task(sizeof *w, run_wait);
    w->word = double_translate((const void *)(uintptr_t)at);
    w->value = value;
    double_enqueue(stream, &w->task);
    return CUDA_SUCCESS;
}

/* Kernels of the double need no tensor maps. The function exists only so that its address can be
 * requested. */
static CUresult tensor_encode(void)
{
    double_misuse("cuTensorMapEncodeTiled: no kernel here needs it");
    return CUDA_ERROR_INVALID_VALUE;
}

static bool find(const char *symbol, void **function, unsigned *since)
{
    CUresult (*const wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = wait_value;
    CUresult (*const encode)(void) = tensor_encode;
    if (strcmp(symbol, "cuStreamWaitValue32") == 0)
        memcpy(function, &wait, sizeof wait), *since = 11070;
    else if (strcmp(symbol, "cuTensorMapEncodeTiled") == 0)
        memcpy(function, &encode, sizeof encode), *since = 12000;
    return *function != NULL;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    CUDA_CALL(cudaGetDriverEntryPointByVersion);
    unsigned since = 0;
    if (flags != cudaEnableDefault) return world()->last = cudaErrorInvalidValue;
    *function = NULL;
    *result = cudaDriverEntryPointSymbolNotFound;
    if (!find(symbol, function, &since)) return cudaSuccess;
    if (version < since) double_misuse("an older API of the driver");
    if ((int)version > world()->driver) {
        *function = NULL;
        *result = cudaDriverEntryPointVersionNotSufficent;
        return cudaSuccess;
    }
    *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
