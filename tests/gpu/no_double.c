/* For programs with the real libraries: nothing is scripted, counted or checked. */
#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/double/double.h"
#include "tests/cuda/runtime_double.h"
#include "tests/gpu/no_gpu.h"

/* Before main: the ranks are forked, and this process never calls CUDA. */
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
