/* The double of cublasLt on the double of the runtime (runtime_double.c), whose device memory is
 * host memory and which does everything at once. For tests of products without a backend. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/runtime_double.h"

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
    runtime_double.now_ms += ms;
}
