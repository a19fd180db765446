/* One source, two precisions: compiles the including file's own body twice, with REAL = float and
 * REAL = double. A family of kernels is written like this:
 *
 *     #ifndef REAL
 *     #define KERNEL_FILE "kernels/cpu/norm.c"
 *     #include "kernels/cpu/real.h"
 *     BOTH(rmsnorm)                             // cpu_rmsnorm: calls one of the two
 *     #else
 *     static void F(rmsnorm)(const KernelArgs *a) { REAL ... }
 *     #endif
 *
 * Long sums run in eight fixed lanes. The compiler can vectorise them without changing the order of
 * additions, so the order depends only on the length of the sum. */
#include <assert.h>
#include <limits.h>
#include <string.h>
#include <tgmath.h>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exponential.h"

/* The compiler may assume that inputs and outputs are the same memory element for element
 * (OP_IN_PLACE) or do not overlap at all. */
#ifdef __clang__
#define SAME_OR_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define SAME_OR_APART _Pragma("GCC ivdep")
#endif
#define LANES 8

#define BOTH(name)                                                                                 \
    void cpu_##name(const KernelArgs *args)                                                        \
    {                                                                                              \
        if (cpu_real(args) == DT_f64)                                                              \
            name##_f64(args);                                                                      \
        else                                                                                       \
            name##_f32(args);                                                                      \
    }

#define REAL       float
#define F(name)    name##_f32
#define CBLAS_GEMM cpu_blas()->sgemm
#include "kernels/cpu/real_tools.h"
#include KERNEL_FILE
#undef REAL
#undef F
#undef CBLAS_GEMM

#define REAL       double
#define F(name)    name##_f64
#define CBLAS_GEMM cpu_blas()->dgemm
#include "kernels/cpu/real_tools.h"
#include KERNEL_FILE
#undef REAL
#undef F
#undef CBLAS_GEMM
