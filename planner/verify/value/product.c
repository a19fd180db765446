/* Checks kernels that begin with a product. Each later op may use only the element of the result
 * that the product has just computed, or sum an operand of the product. The product reads its
 * operands in any order, so no op of the kernel may overwrite them. */
#include "planner/verify/value/value.h"

#define RULE "verify-structure"

bool verify_is_product(const Instr *in)
{
    return op_info(in->op)->class_ == OP_CLASS_contract;
}

static BufferId made_by(const Verifier *v, const Instr *in)
{
    return program_arg(v->p, in, in->n_in);
}

static bool reads(const Verifier *v, const Instr *in, BufferId b)
{
    for (uint32_t i = 0; i < in->n_in; i++)
        if (program_arg(v->p, in, i) == b) return true;
    return false;
}

/* True if `in` overwrites an operand of the product with an output or with its scratch. */
static bool overwrites_operand(const Verifier *v, const Instr *product, const Instr *in)
{
    for (uint32_t j = in->n_in; j < in->args.n; j++)
        for (uint32_t i = 0; i < product->n_in; i++)
            if (verify_overlap(v->p, program_arg(v->p, product, i), program_arg(v->p, in, j)))
                return true;
    return false;
}

void verify_product_part(Verifier *v, Pc pc, const Instr *product, const Instr *before)
{
    const Program *p = v->p;
    const Instr *in = &p->code.at[pc];
    const char *name = op_info(in->op)->name;
    const uint64_t *elements = v->local_elements;
    const Buffer *all = p->buffers.at;
    const bool sums = op_sums_bias(in->op);
    if (in->after.n) {
        verify_report(v, RULE, pc, "is in the middle of kernel %u, but waits for another stream",
                      in->fuse);
    } else if (op_sums_bias(before->op)) {
        verify_report(v, RULE, pc,
                      "%s comes after a sum, which must be the last instruction of kernel %u", name,
                      in->fuse);
    } else if (sums && (before != product || !reads(v, product, program_arg(p, in, 0)))) {
        verify_report(v, RULE, pc, "sums a buffer that the product of kernel %u does not read",
                      in->fuse);
    } else if (!sums && !op_is_rowwise(in->op)) {
        verify_report(v, RULE, pc,
                      "%s cannot be in kernel %u, because the kernel begins with a product", name,
                      in->fuse);
    } else if (!sums && !reads(v, in, made_by(v, before))) {
        verify_report(v, RULE, pc, "is in kernel %u, but does not use its result", in->fuse);
    } else if (!sums &&
               elements[all[made_by(v, in)].shape] != elements[all[made_by(v, product)].shape]) {
        verify_report(v, RULE, pc, "the instructions of kernel %u have different sizes", in->fuse);
    } else if (overwrites_operand(v, product, in)) {
        verify_report(v, RULE, pc, "overwrites an input of the product that begins kernel %u",
                      in->fuse);
    }
}

bool verify_overlap(const Program *p, BufferId a, BufferId b)
{
    uint64_t x = verify_address(p, a), y = verify_address(p, b);
    return x < y + p->buffers.at[b].bytes && y < x + p->buffers.at[a].bytes;
}
