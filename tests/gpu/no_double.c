/* Replaces the doubles of CUDA and its libraries in programs that run on a GPU. These functions
 * script, count and check nothing. */
#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/double/double.h"
#include "tests/cuda/runtime_double.h"
#include "tests/gpu/no_gpu.h"

/* Runs before main. Tests fork their ranks, so this process itself must never call CUDA. */
__attribute__((constructor)) static void look_for_gpu(void)
{
    no_gpu_ends();
}

void double_begin(const char *script)
{
    (void)script;
}

uint32_t double_calls(const char *call)
{
    (void)call;
    return 0;
}

CublasDouble cublas_double;
RuntimeDouble runtime_double;
void cublas_double_reset(void) {}

bool double_is_clean(Str *out)
{
    (void)out;
    return true;
}
