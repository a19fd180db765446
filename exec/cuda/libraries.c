/* The libraries that kernels call: opened before the first step, and told of each instruction that
 * they may carry out, so that choosing, timing and allocating are over when steps begin. */
#include <string.h>

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

/* A product and what may go along with it. */
static bool prepare_kernel(Cuda *c, uint32_t at)
{
    CudaChainPart part[CUDA_CHAIN_MAX];
    CudaError error = {""};
    Pc pc = c->order.pc[at];
    if (op_info(program_instr(c->state.info->p, pc)->op)->class_ != OP_CLASS_contract) return true;
    uint32_t n = issue_kernel(c, at, part);
    return n < 2 || cuda_products_prepare_chain(part, n, &c->context, &error) ||
           failed(c, pc, &error);
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
    for (uint32_t i = 0; i < c->order.n; i++)
        if (!prepare_kernel(c, i)) return false;
    return true;
}

typedef struct Summary {
    Hash128 choices;
    uint64_t n;
} Summary;

bool libraries_settle(Cuda *c)
{
    struct CudaProducts *p = c->context.products;
    CudaError error = {""};
    const uint32_t n = cuda_products_counts(p).calls;
    CudaProductChoice *mine = arena_array(c->arena, n + 1u, sizeof *mine);
    cuda_products_choices(p, mine);
    Summary own = {hash_bytes(mine, n * sizeof *mine), n};
    Summary *each = arena_array(c->arena, c->n_ranks, sizeof *each);
    if (!c->meet->exchange(c->meet, &own, sizeof own, each, c->options.timeout_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    uint64_t most = 0;
    bool same = true;
    for (Rank r = 0; r < c->n_ranks; r++) {
        if (each[r].n > most) most = each[r].n;
        same = same && memcmp(&each[r], &each[0], sizeof own) == 0;
    }
    if (same) /* the first keeps them */
        return cuda_products_settle(p, mine, n, c->rank > 0 ? n : 0, &error);
    CudaProductChoice *padded = arena_array(c->arena, most, sizeof *padded);
    CudaProductChoice *all = arena_array(c->arena, most * c->n_ranks, sizeof *all);
    memcpy(padded, mine, n * sizeof *mine);
    if (!c->meet->exchange(c->meet, padded, most * sizeof *padded, all, c->options.timeout_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    uint32_t n_all = (uint32_t)most * c->n_ranks, n_before = (uint32_t)most * c->rank;
    return cuda_products_settle(p, all, n_all, n_before, &error) ||
           cuda_fail(c, "cuda", "rank %u: %s", c->rank, error.text);
}

void libraries_close(Cuda *c)
{
    cuda_products_close(c->context.products);
    cudnn_attention_close(c->cudnn);
    c->context.products = NULL;
    c->context.attention = NULL;
    c->cudnn = NULL;
}
