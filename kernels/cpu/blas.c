/* OpenBLAS, with one thread and with code for the vector instructions of the processor. The library
 * is loaded only when the program asks for the first kernel, because loading takes longer than a
 * whole command that runs no kernel. */
#include "kernels/cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/kernel.h"

static CpuBlas blas;
static char missing[512]; /* reason why the library cannot be used; empty: it can be used */
static const char *(*core_name)(void);

/* Returns a function of the library, or NULL. C does not allow a conversion from `void *` to a
 * function, so the caller copies the bytes of the pointer. */
static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) (void)snprintf(missing, sizeof missing, "it has no %s", name);
    return found;
}

static bool is_old(void)
{
    static const char *const old[] = {"Prescott", "Core2", "Nehalem", "Unknown", "Generic"};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strcasecmp(core_name(), old[i]) == 0) return true;
    return false;
}

#if defined __x86_64__
/* Chooses newer code if OpenBLAS would choose code without AVX. An old OpenBLAS does this for a
 * newer processor that it does not know, and products are then several times slower. If the user
 * has set OPENBLAS_CORETYPE, nothing is changed. The two functions looked up here exist if OpenBLAS
 * has code for several processors; it calls them itself at its start and end. */
static void choose_kernels(void *library)
{
    static const char name[] = "OPENBLAS_CORETYPE";
    void *found[2] = {dlsym(library, "gotoblas_dynamic_init"),
                      dlsym(library, "gotoblas_dynamic_quit")};
    void (*start)(void), (*end)(void);
    if (found[0] == NULL || found[1] == NULL || getenv(name)) return;
    __builtin_cpu_init();
    if (!is_old() || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    memcpy(&start, &found[0], sizeof start);
    memcpy(&end, &found[1], sizeof end);
    if (setenv(name, wide ? "SkylakeX" : "Haswell", 1) != 0) return;
    end();
    start();
    (void)unsetenv(name);
}
#else
static void choose_kernels(void *library)
{
    (void)library;
}
#endif

/* Loads the library with which Tandem was built or, if that is missing, the one that the system's
 * loader finds. */
static void load(void)
{
    static const char *const names[] = {TANDEM_OPENBLAS, "libopenblas.so.0", "libopenblas.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        (void)snprintf(missing, sizeof missing, "%s", why != NULL ? why : "it is not found");
        return;
    }
    void *found[] = {function(library, "cblas_dgemm"), function(library, "cblas_sgemm"),
                     function(library, "openblas_get_corename"),
                     function(library, "openblas_set_num_threads")};
    void (*set_threads)(int);
    if (missing[0] != '\0') return;
    memcpy(&blas.dgemm, &found[0], sizeof blas.dgemm);
    memcpy(&blas.sgemm, &found[1], sizeof blas.sgemm);
    memcpy(&core_name, &found[2], sizeof core_name);
    memcpy(&set_threads, &found[3], sizeof set_threads);
    choose_kernels(library);
    /* one thread, because a rank has one core, and because a single thread always adds in the same
     * order */
    set_threads(1);
}

const char *kernel_cpu_blas_missing(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    return missing[0] != '\0' ? missing : NULL;
}

const CpuBlas *cpu_blas(void)
{
    if (kernel_cpu_blas_missing() == NULL) return &blas;
    (void)fprintf(stderr, "tandem: cannot load OpenBLAS: %s\n", missing);
    abort();
}

const char *kernel_cpu_blas(void)
{
    return kernel_cpu_blas_missing() == NULL ? core_name() : "no processor";
}

bool kernel_cpu_blas_is_old(void)
{
    return kernel_cpu_blas_missing() == NULL && is_old();
}
