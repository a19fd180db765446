/* OpenBLAS: one thread, and kernels for the vectors that the processor has. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/cpu/cpu.h"

void cpu_blas_begin(void)
{
    /* a rank has one core, and a single thread always adds in the same order */
    openblas_set_num_threads(1);
}

const char *kernel_cpu_blas(void)
{
    return openblas_get_corename();
}

bool kernel_cpu_blas_is_old(void)
{
    static const char *const old[] = {"Prescott", "Core2", "Nehalem", "Unknown", "Generic"};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strcasecmp(kernel_cpu_blas(), old[i]) == 0) return true;
    return false;
}

#if defined __x86_64__
/* OpenBLAS calls these two at its own start and end, if it has kernels for several processors. */
extern void gotoblas_dynamic_init(void) __attribute__((weak));
extern void gotoblas_dynamic_quit(void) __attribute__((weak));

/* An old OpenBLAS does not know a newer processor, and chooses kernels without AVX for it. Products
 * are then several times slower. So this function chooses newer kernels, unless the user has chosen
 * some by OPENBLAS_CORETYPE. It runs before main, because it sets that variable for a moment. */
__attribute__((constructor)) static void choose_kernels(void)
{
    static const char name[] = "OPENBLAS_CORETYPE";
    if (!gotoblas_dynamic_init || !gotoblas_dynamic_quit || getenv(name)) return;
    __builtin_cpu_init();
    if (!kernel_cpu_blas_is_old() || !__builtin_cpu_supports("avx2") ||
        !__builtin_cpu_supports("fma"))
        return;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (setenv(name, wide ? "SkylakeX" : "Haswell", 1) != 0) return;
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    (void)unsetenv(name);
}
#endif
