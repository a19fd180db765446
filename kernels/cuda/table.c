/* Maps each op to its function on a CUDA device. The table is made from the table of ops: if the
 * function of an op is missing, the program does not link (missing.h lists the exceptions). */
#include <assert.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/missing.h"
#include "kernels/cuda/workspace.h"

/* All contractions are computed by one function, which takes the op as an argument. */
#define CONTRACT_1(name)                                                                           \
    static bool run_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)      \
    {                                                                                              \
        return cuda_contract(OP_##name, args, cuda, error);                                        \
    }
#define CONTRACT_3(name)          CONTRACT_1(name) CONTRACT_1(name##_d0) CONTRACT_1(name##_d1)
#define CONTRACT(name, signature) CONTRACT_FORMS(CONTRACT_3, name)
#define PRODUCT(name, signature)  CONTRACT_3(name)
#include "planner/ir/op/ops.def"
#undef CONTRACT_3

static const CudaKernel kernels[OP_COUNT] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags) [OP_##name] = cuda_##name,
#define RESHAPE(name, flags)                                     [OP_##name] = cuda_##name,
#define CONTRACT_3(name)                                                                           \
    [OP_##name] = run_##name, [OP_##name##_d0] = run_##name##_d0,                                  \
    [OP_##name##_d1] = run_##name##_d1,
#define CONTRACT(name, signature) CONTRACT_FORMS(CONTRACT_3, name)
#define PRODUCT(name, signature)  CONTRACT_3(name)
#include "planner/ir/op/ops.def"
};

CudaKernel kernel_cuda(OpKind op)
{
    assert(op > OP_none && op < OP_COUNT);
    return kernels[op];
}

static bool is_attention(OpKind op)
{
    return op == OP_attention || op == OP_attention_grad;
}

uint64_t kernel_cuda_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                               uint32_t n_args)
{
    if (op_info(op)->class_ == OP_CLASS_contract)
        return cuda_contract_workspace(op, dtype, elements, n_args);
    if (op == OP_attention_part || op == OP_attention_part_grad)
        return cuda_attention_part_workspace(op, dtype, elements, n_args);
    if (is_attention(op)) return cuda_attention_workspace(op, dtype, elements, n_args);
    return cuda_compute_workspace(op, dtype, elements, n_args);
}

bool kernel_cuda_accepts(OpKind op, const DType *dtype, uint32_t n_args)
{
    const OpInfo *info = op_info(op);
    if (info->class_ == OP_CLASS_comm) return false;
    if (info->class_ == OP_CLASS_contract) return cuda_contract_accepts(op, dtype, n_args);
    return cuda_compute_accepts(op, dtype, n_args);
}
