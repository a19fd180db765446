/* Maps each op to its CPU kernel. The map is made from the table of ops (ops.def): if the kernel of
 * an op is missing, the program does not link. This file also computes the initial values of
 * parameters. */
#include <assert.h>

#include "kernels/argument.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/number.h"
#include "planner/base/rng.h"
#include "planner/ir/graph.h"

/* Defines run_<op>, the kernel of an op for arguments of any precision. */
#define RUN(op, kernel)                                                                            \
    static void run_##op(const KernelArgs *a)                                                      \
    {                                                                                              \
        cpu_any_precision(OP_##op, kernel, a);                                                     \
    }
#define COMPUTE(name, signature, flops, reduce, backward, flags) RUN(name, cpu_##name)
#define RUN_3(name)                                                                                \
    RUN(name, cpu_contract) RUN(name##_d0, cpu_contract) RUN(name##_d1, cpu_contract)
#define CONTRACT(name, signature) CONTRACT_FORMS(RUN_3, name)
#define PRODUCT(name, signature)  RUN_3(name)
#define RESHAPE(name, flags)      RUN(name, cpu_##name)
#include "planner/ir/op/ops.def"

static const Kernel kernels[OP_COUNT] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags) [OP_##name] = run_##name,
#define KERNEL_3(name)                                                                             \
    [OP_##name] = run_##name, [OP_##name##_d0] = run_##name##_d0,                                  \
    [OP_##name##_d1] = run_##name##_d1,
#define CONTRACT(name, signature) CONTRACT_FORMS(KERNEL_3, name)
#define PRODUCT(name, signature)  KERNEL_3(name)
#define RESHAPE(name, flags)      [OP_##name] = run_##name,
#include "planner/ir/op/ops.def"
};

Kernel kernel_cpu(OpKind op)
{
    assert(op > OP_none && op < OP_COUNT);
    (void)cpu_blas(); /* loads OpenBLAS now, so that a run does not measure the time of loading */
    return kernels[op];
}

/* Returns true if the arguments include scratch memory exactly when the op needs it. */
static bool accepts_scratch(OpKind op, const DType *dtype, uint32_t n_own, uint32_t n_args)
{
    static const int64_t one[MAX_ARGS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    bool needed = cpu_scratch_bytes(op, dtype, one, n_own) > 0;
    return needed ? n_args == n_own + 1 && dtype[n_own] == DT_u8 : n_args == n_own;
}

bool kernel_cpu_accepts(OpKind op, const DType *dtype, uint32_t n_args)
{
    const OpInfo *info = op_info(op);
    if (info->class_ == OP_CLASS_comm) return false;
    if (info->class_ == OP_CLASS_reshape) return n_args < 2 || dtype[0] == dtype[1];
    if (op == OP_fill) return number_is_real(dtype[0]);
    if (op == OP_cast)
        return dtype[0] == dtype[1] || (number_is_real(dtype[0]) && number_is_real(dtype[1]));
    if (info->flags & OP_TURNS)
        return n_args == 2 && dtype[0] == dtype[1] && number_is_real(dtype[0]);
    if (op_takes_tokens(op))
        return n_args == 2 && dtype[0] == dtype[1] &&
               (dtype[0] == DT_i32 || number_is_real(dtype[0]));
    uint32_t n = (uint32_t)info->sig.n_in + info->sig.n_out;
    bool has_double = false, has_other = false, in_double = cpu_in_double(op, dtype, n);
    if (n_args < n) return false;
    for (uint32_t i = 0; i < n; i++) {
        ArgumentKind kind = kernel_argument(op, i);
        if (kind == ARGUMENT_index) {
            if (dtype[i] != DT_i32) return false;
        } else if (kind == ARGUMENT_scalars) {
            if (dtype[i] != DT_f64) return false;
        } else if (kind != ARGUMENT_loss || dtype[i] != DT_f64) {
            if (!number_is_real(dtype[i])) return false;
            const bool wide = dtype[i] == DT_f64 || dtype[i] == DT_f64x2;
            has_double = has_double || wide;
            bool eight = dtype_is_eight_bits(dtype[i]);
            has_other = has_other || (!wide && !(eight && in_double));
        }
    }
    return !(has_double && has_other) && accepts_scratch(op, dtype, n, n_args);
}

uint64_t kernel_cpu_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args)
{
    return cpu_scratch_bytes(op, dtype, elements, n_args);
}

double kernel_init_value(uint64_t seed, uint64_t stream, uint64_t global_element, int kind,
                         double a, double b)
{
    switch ((InitKind)kind) {
    case INIT_none:
    case INIT_zeros: return 0;
    case INIT_ones: return 1;
    case INIT_normal: return a + b * rng_normal(seed, stream, global_element);
    case INIT_uniform: return a + (b - a) * rng_uniform(seed, stream, global_element);
    }
    assert(false);
    return 0;
}
