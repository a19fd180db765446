/* The CPU kernels: one function for each row of ops.def that is not a collective. If a function is
 * missing, the program does not link. All contractions have one function, which reads the
 * signature. */
#ifndef TANDEM_KERNELS_CPU_CPU_H
#define TANDEM_KERNELS_CPU_CPU_H

#include <math.h>

#include "kernels/kernel.h"

#define COMPUTE(name, signature, flops, reduce, backward, flags) Kernel_function cpu_##name;
#define RESHAPE(name, flags)                                     Kernel_function cpu_##name;
typedef void Kernel_function(const KernelArgs *args);
#include "planner/ir/op/ops.def"
Kernel_function cpu_contract;

/* Returns the dtype in which a kernel computes: the dtype of its first fp32 or fp64 argument.
 * Returns DT_none if it has no such argument. */
static inline DType cpu_real(const KernelArgs *a)
{
    for (uint32_t i = 0; i < a->n_args; i++)
        if (a->dtype[i] == DT_f32 || a->dtype[i] == DT_f64) return a->dtype[i];
    return DT_none;
}

/* Returns the global index of local element i, for a dimension that may be split into two chunks.
 */
static inline int64_t cpu_whole_index(const KernelArgs *a, char letter, int64_t i)
{
    const unsigned char l = (unsigned char)letter;
    const int64_t half = a->size[l] / 2;
    return i < half ? a->start[l] + i : a->second[l] + (i - half);
}

/* Returns amax, but at least 1e-12, so that the scale of a tensor of zeros is finite. NaN stays
 * NaN. */
static inline double cpu_amax_bound(double amax)
{
    return amax < 1e-12 ? 1e-12 : amax;
}

/* Returns the scale of a block whose largest magnitude is `most`. It is the smallest power of two
 * for which `most` is at most `largest` times the scale, within the range of e8m0. NaN stays
 * NaN. */
static inline double cpu_block_scale(double most, double largest)
{
    int exponent;
    if (isnan(most)) return most;
    if (!(most <= ldexp(largest, 127))) return ldexp(1, 127);
    (void)frexp(most / largest, &exponent); /* a rounded quotient may give an exponent that is too
                                               large by one */
    exponent = most == 0 || exponent < 2 - 127 ? -127 : exponent - 2;
    while (most > ldexp(largest, exponent)) exponent++;
    return ldexp(1, exponent);
}

/* ---- low/blocks.c ---- */
/* Computes a product of operands with one scale for each block (dimension B). */
void cpu_contract_blocks(const KernelArgs *a);

/* ---- low/pairs.c ---- */
/* Computes a product of operands of 4-bit numbers. */
void cpu_contract_pairs(const KernelArgs *a);

/* ---- low/low.c ---- */
/* Runs an fp32 or fp64 kernel on arguments that may have low precision. */
void cpu_any_precision(OpKind op, Kernel kernel, const KernelArgs *a);
/* Returns true if an op that makes or multiplies 8-bit numbers has an fp64 argument. The op then
 * computes in fp64. */
bool cpu_in_double(OpKind op, const DType *dtype, uint32_t n_args);
/* Returns the bytes of scratch memory for fp32 or fp64 copies of the low-precision arguments; 0:
 * none is needed. */
uint64_t cpu_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args);

/* Returns true if the kernel adds to output j, and false if it overwrites output j. */
static inline bool cpu_accumulates(const KernelArgs *a, uint32_t j)
{
    return (a->attrs.accumulate >> j & 1) != 0;
}

#endif
