/* The libraries that kernels call: opened before the first step, and told of each instruction that
 * they may carry out, so that choosing, timing and allocating are over when steps begin. */
#include "exec/cuda/private.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/products.h"

static bool failed(Cuda *c, Pc pc, const CudaError *error)
{
    return cuda_fail(c, "cuda", "rank %u, %s: %s", c->rank,
                     instr_text(c->plan, c->state.info->p, pc, c->arena), error->text);
}

static bool prepare(Cuda *c, Pc pc)
{
    const Instr *in = program_instr(c->state.info->p, pc);
    const KernelArgs *args = c->state.at[pc].args;
    CudaError error = {""};
    bool taken;
    if (op_info(in->op)->class_ == OP_CLASS_contract)
        return cuda_products_prepare(in->op, args, &c->context, &error) || failed(c, pc, &error);
    if (c->cudnn && (in->op == OP_attention || in->op == OP_attention_grad))
        return cudnn_attention_prepare(c->cudnn, in->op, args, &taken, &error) ||
               failed(c, pc, &error);
    return true;
}

bool libraries_open(Cuda *c)
{
    const CudaOptions *o = &c->options.cuda;
    const CudaProductOptions products = {.tf32 = o->tf32,
                                         .tune = o->choices != NULL,
                                         .kept = o->choices,
                                         .device = c->mine.name,
                                         .compute_capability = c->context.compute_capability};
    CudaError error = {""};
    c->context.stream = c->stream[STREAM_compute];
    c->context.products = cuda_products_open(&products, &error);
    if (c->context.products == NULL) return cuda_fail(c, "cuda", "%s", error.text);
    if (o->cudnn) {
        c->cudnn = cudnn_attention_open(NULL, &error);
        if (c->cudnn == NULL) return cuda_fail(c, "cuda", "--cudnn: %s", error.text);
        c->attention = (CudaAttentionLibrary){c->cudnn, cudnn_attention_run};
        c->context.attention = &c->attention;
    }
    for (Pc pc = 1; pc <= c->state.info->n_instr; pc++)
        if (program_instr(c->state.info->p, pc)->stream == STREAM_compute && !prepare(c, pc))
            return false;
    return true;
}

void libraries_close(Cuda *c)
{
    cuda_products_close(c->context.products);
    cudnn_attention_close(c->cudnn);
    c->context.products = NULL;
    c->context.attention = NULL;
    c->cudnn = NULL;
}
