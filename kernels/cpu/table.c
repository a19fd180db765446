/* Which function carries out which op, from the op table itself: a row that has no kernel does not
 * link. Also the initial values of parameters. */
#include <assert.h>
#include <cblas.h>

#include "kernels/cpu/cpu.h"
#include "planner/base/rng.h"
#include "planner/ir/graph.h"

static const Kernel kernels[OP_COUNT] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags) [OP_##name] = cpu_##name,
#define CONTRACT(name, signature)                                                                  \
    [OP_##name] = cpu_contract, [OP_##name##_d0] = cpu_contract, [OP_##name##_d1] = cpu_contract,
#define RESHAPE(name, flags) [OP_##name] = cpu_##name,
#include "planner/ir/ops.def"
};

Kernel kernel_cpu(OpKind op)
{
    assert(op > OP_none && op < OP_COUNT);
    openblas_set_num_threads(1); /* a rank is one core, and one thread always adds in one order */
    return kernels[op];
}

/* Arguments that are not of the kernel's own floating-point type. */
static bool is_index(OpKind op, uint32_t arg)
{
    bool ids = (op == OP_embed && arg == 0) || (op == OP_embed_grad && arg == 1);
    bool labels =
        ((op == OP_xent_pick || op == OP_xent_loss_grad || op == OP_xent_pick_grad) && arg == 1) ||
        (op == OP_xent_loss && arg == 3);
    return op == OP_batch || ids || labels;
}

static bool is_scalar_table(OpKind op, uint32_t arg)
{
    return op == OP_clip_coef || (op == OP_sumsq && arg == 1) || (op == OP_adamw && arg == 4) ||
           (op == OP_sgd && arg == 2);
}

static bool is_real(DType t)
{
    return t == DT_f32 || t == DT_f64;
}

bool kernel_cpu_accepts(OpKind op, const DType *dtype, uint32_t n_args)
{
    if (op_info(op)->class_ == OP_CLASS_comm) return false;
    if (op_info(op)->class_ == OP_CLASS_reshape || op == OP_fill)
        return n_args < 2 || dtype[0] == dtype[1];
    if (op == OP_cast) return dtype[0] == dtype[1] || (is_real(dtype[0]) && is_real(dtype[1]));
    DType real = DT_none;
    for (uint32_t i = 0; i < n_args; i++) {
        bool free_loss = op == OP_xent_loss && i == 4 && dtype[i] == DT_f64;
        if (is_index(op, i)) {
            if (dtype[i] != DT_i32) return false;
        } else if (is_scalar_table(op, i)) {
            if (dtype[i] != DT_f64) return false;
        } else if (!free_loss) {
            if (!is_real(dtype[i]) || (real != DT_none && dtype[i] != real)) return false;
            real = dtype[i];
        }
    }
    return true;
}

uint64_t kernel_cpu_workspace(OpKind op, const Binding *b, const int64_t size['z' + 1], DType real)
{
    (void)op, (void)b, (void)size, (void)real;
    return 0; /* tiles are on the stack */
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
