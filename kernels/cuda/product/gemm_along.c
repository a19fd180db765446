/* Describes a product and the ops after it as one call of cublasLtMatmul, if the library's manual
 * allows it. Operands, output and the input of GELU must have one dtype. Sums and biases must have
 * the output's dtype. Addresses of vectors and of GELU's input must be multiples of 16 bytes; rows
 * of GELU's input must be multiples of 8 elements. An 8-bit product can only add another matrix. */
#include <string.h>

#include "kernels/cuda/product/gemm.h"

enum { VECTOR_ALIGN = 16 };

static EpiloguePart part_of(const CudaChainPart *part)
{
    const KernelArgs *args = part->args;
    EpiloguePart p;
    memset(&p, 0, sizeof p);
    p.op = part->op;
    p.n_in = args->n_in;
    p.accumulates = (args->attrs.accumulate & 1) != 0;
    for (uint32_t i = 0; i < args->n_args; i++) {
        p.at[i] = (uint64_t)(uintptr_t)args->ptr[i];
        p.dtype[i] = args->dtype[i];
        p.elements[i] = args->elements[i];
    }
    return p;
}

static void *place(const CudaChainPart *part, EpilogueArg arg)
{
    return arg.part ? part[arg.part].args->ptr[arg.arg] : NULL;
}

/* Returns true if no other instruction reads the outputs that are only passed to the next part.
 * They then need not be written. */
static bool passes_unread(const CudaChainPart *part, const Epilogue *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        if (epilogue_passes_on(e, i) && !(part[i].unread & 1)) return false;
    return true;
}

static void describe(const CudaChainPart *part, const Epilogue *e, Gemm *g, GemmAddresses *at)
{
    const uint32_t last = e->sums.part ? 0 : e->n - 1;
    const uint32_t made = e->gelu == EPILOGUE_GELU_forward ? e->input.part - 1u : 0;
    GemmAlong *a = &g->along;
    at->out = part[last].args->ptr[part[last].args->n_in];
    at->bias = place(part, e->bias);
    at->other = place(part, e->other);
    at->input = place(part, e->input);
    at->sums = place(part, e->sums);
    if (e->gelu == EPILOGUE_GELU_forward && (part[made].unread & 1)) at->input = NULL;
    a->bias = at->bias != NULL;
    a->other = at->other != NULL;
    a->input = at->input != NULL;
    a->gelu = e->gelu;
    /* the library calls our right operand A */
    if (at->sums != NULL) a->sums = e->sums_left ? 'B' : 'A';
    a->adds_sums = e->adds_sums;
    if (a->bias) a->bias_align = gemm_alignment(at->bias, 0);
    if (a->other) a->other_align = gemm_alignment(at->other, 0);
    if (a->input) a->input_align = gemm_alignment(at->input, 0);
    if (a->sums) a->sums_align = e->adds_sums ? GEMM_ALIGN : gemm_alignment(at->sums, 0);
    g->d.align = gemm_alignment(at->out, 0);
}

static bool is_aligned(bool is, uint32_t align)
{
    return !is || align >= VECTOR_ALIGN;
}

static bool is_for_library(const Gemm *g, const GemmRules *rules)
{
    const GemmAlong *a = &g->along;
    bool only_other = !a->bias && !a->sums && a->gelu == EPILOGUE_GELU_none;
    int64_t n_sums = a->sums == 'A' ? g->m : g->n;
    if (!gemm_is_for_library(g, rules) || (g->scaling != SCALING_none && !only_other)) return false;
    if (g->scaled_after) return false; /* the library's output is not the instruction's output */
    if (a->adds_sums && (uint64_t)n_sums * dtype_bytes(g->d.dtype) > GEMM_SUMS_BYTES) return false;
    return is_aligned(a->bias, a->bias_align) && is_aligned(a->input, a->input_align) &&
           is_aligned(a->sums != 0, a->sums_align) &&
           (!a->input || g->d.leading % EPILOGUE_MULTIPLE == 0);
}

uint32_t gemm_along(const CudaChainPart *part, uint32_t n, const GemmRules *rules, Gemm *g,
                    GemmAddresses *at)
{
    EpiloguePart parts[EPILOGUE_PARTS];
    Epilogue e;
    if (n < 2 || op_info(part[0].op)->class_ != OP_CLASS_contract) return 0;
    const Product p = product_of(part[0].args->binding, part[0].args->size);
    if (n > EPILOGUE_PARTS) n = EPILOGUE_PARTS;
    for (uint32_t i = 0; i < n; i++) parts[i] = part_of(&part[i]);
    for (n = epilogue_of(parts, n, &p, &e); n > 1; n = epilogue_of(parts, n - 1, &p, &e)) {
        gemm_of(part[0].op, part[0].args, rules, g);
        memset(at, 0, sizeof *at);
        describe(part, &e, g, at);
        if (passes_unread(part, &e) && is_for_library(g, rules)) return n;
    }
    return 0;
}
