/* The double's kernels are the device's own, run thread by thread (device_on_cpu.h). Contractions,
 * which a library computes on a device, run on the CPU's kernels. On compute capability 9.0,
 * attention uses Hopper's instructions wherever it can, as if its kernels had been timed and found
 * the fastest. */
#include "tests/cuda/emulator/kernels_emulated.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/missing.h"
#include "kernels/cuda/workspace.h"
#include "tests/cuda/double/private.h"

static const CudaKernel kernels[OP_COUNT] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags) [OP_##name] = cuda_##name,
#define RESHAPE(name, flags)                                     [OP_##name] = cuda_##name,
#include "planner/ir/op/ops.def"
};

static uint64_t scratch(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args)
{
    if (op_info(op)->class_ == OP_CLASS_contract)
        return kernel_cpu_workspace(op, dtype, elements, n_args);
    if (op == OP_attention || op == OP_attention_grad)
        return cuda_attention_workspace(op, dtype, elements, n_args);
    return cuda_compute_workspace(op, dtype, elements, n_args);
}

EmulatedAttention emulated_attention;

static bool by_hopper(OpKind op, const KernelArgs *args, const CudaContext *cuda)
{
    if (op != OP_attention && op != OP_attention_grad) return false;
    const bool takes = cuda_attention_hopper_takes(op, args, cuda);
    if (takes)
        emulated_attention.hopper++;
    else
        emulated_attention.others++;
    return takes;
}

static void run(OpKind op, const KernelArgs *args, const CudaContext *cuda)
{
    CudaError error = {""};
    if (kernels[op] == NULL) {
        kernel_cpu(op)(args);
    } else if (!(by_hopper(op, args, cuda) ? cuda_attention_hopper(op, args, cuda, &error)
                                           : kernels[op](args, cuda, &error))) {
        fprintf(stderr, "%s: %s\n", op_info(op)->name, error.text);
        abort();
    }
}

const DoubleKernels double_kernels = {scratch, run, cuda_compute_accepts};
