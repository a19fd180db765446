/* Checks instructions that run as one kernel. They must come directly one after the other on the
 * compute stream, and process the same rows. Only the first of them may wait for instructions
 * outside the kernel. Instructions outside the kernel may wait only for the last of them.
 *
 * A kernel processes rows in any order. So a buffer may use the bytes of another buffer of the
 * kernel only if both have the same layout. A sum over rows is complete only at the end, so no
 * instruction of the kernel may read it. product.c checks kernels that begin with a product. */
#include "planner/verify/value/value.h"

#define RULE "verify-structure"

static ShapeId rows_shape(const Verifier *v, const Instr *in)
{
    return v->p->buffers.at[program_arg(v->p, in, plan_rows_arg(in))].shape;
}

static uint64_t rows(const Verifier *v, const Instr *in)
{
    const Shape *s = plan_shape_at(v->plan, rows_shape(v, in));
    if (s->n_dims < 2) return 0;
    uint64_t n = 1;
    for (int d = 0; d < 2; d++) n *= (uint64_t)shape_local_dim(s, &v->plan->mesh, &v->g->deals, d);
    return n;
}

static bool same_elements(const Verifier *v, const Instr *a, const Instr *b)
{
    return v->local_elements[rows_shape(v, a)] == v->local_elements[rows_shape(v, b)];
}

static void check_member(Verifier *v, Pc pc, const Instr *before)
{
    const Instr *in = &v->p->code.at[pc];
    if (!op_joins_kernel(in->op) || in->stream != STREAM_compute || in->args.n == in->n_in) {
        verify_report(v, RULE, pc,
                      "%s is in kernel %u, but does not process rows on the compute stream",
                      op_info(in->op)->name, in->fuse);
        return;
    }
    if (!before) return;
    if (in->after.n)
        verify_report(v, RULE, pc, "is in the middle of kernel %u, but waits for another stream",
                      in->fuse);
    else if (!rows(v, in) || rows(v, in) != rows(v, before) || !same_elements(v, in, before))
        verify_report(v, RULE, pc, "the instructions of kernel %u have different sizes", in->fuse);
}

static bool turns(const Instr *in)
{
    return (op_info(in->op)->flags & OP_TURNS) != 0;
}

/* Checks a transposed copy in a kernel that quantises. It may only copy the output of the op that
 * quantises. */
static void check_turn(Verifier *v, Pc pc, const Instr *before, bool is_second)
{
    const Program *p = v->p;
    const Instr *in = &p->code.at[pc];
    if (in->after.n)
        verify_report(v, RULE, pc, "is in the middle of kernel %u, but waits for another stream",
                      in->fuse);
    else if (!before || !is_second || !(op_info(before->op)->flags & OP_QUANTISES))
        verify_report(v, RULE, pc,
                      "%s is in kernel %u, but no earlier instruction of the kernel quantises",
                      op_info(in->op)->name, in->fuse);
    else if (program_arg(p, in, 0) != program_arg(p, before, before->n_in))
        verify_report(v, RULE, pc, "must transpose the tensor that kernel %u quantises", in->fuse);
}

/* Checks that no instruction of the kernel reads a sum over rows that the kernel computes. */
static void check_sums(Verifier *v, Pc first, Pc pc)
{
    const Program *p = v->p;
    const Instr *in = &p->code.at[pc];
    for (Pc at = first; at < pc; at++) {
        const Instr *part = &p->code.at[at];
        if (part->stream != STREAM_compute) continue;
        for (uint32_t j = 0; j < op_info(part->op)->sig.n_out; j++)
            for (uint32_t i = 0; op_sums_rows(part->op, j) && i < in->args.n; i++)
                if (verify_overlap(p, program_arg(p, part, part->n_in + j), program_arg(p, in, i)))
                    verify_report(v, RULE, pc,
                                  "uses a sum over rows that %s (%u) makes, but it is complete "
                                  "only at the end of kernel %u",
                                  op_info(part->op)->name, at, in->fuse);
    }
}

/* Checks waits on kernels: an instruction outside a kernel may wait only for the last instruction
 * of the kernel, because a kernel finishes as a whole. */
static void check_waits(Verifier *v, const Pc *next)
{
    const Program *p = v->p;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t k = 0; k < in->after.n; k++) {
            Pc on = p->after.at[in->after.first + k];
            if (on < p->code.n && next[on])
                verify_report(v, RULE, pc,
                              "waits for instruction %u in the middle of kernel %u, but must wait "
                              "for the end of the kernel",
                              on, p->code.at[on].fuse);
        }
    }
}

void verify_kernels(Verifier *v)
{
    const Program *p = v->p;
    uint32_t n = p->code.n, before = v->n_reported;
    bool *ended = arena_array(v->arena, n + 1, sizeof *ended);
    /* [pc]: the next instruction of the same kernel */
    Pc *next = arena_array(v->arena, n + 1, sizeof *next);
    const Instr *product = NULL; /* the product that began the kernel */
    Pc last = 0, first = 0;
    for (Pc pc = 1; pc < n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_compute && !in->fuse) continue;
        const Instr *prev = last ? &p->code.at[last] : NULL;
        bool goes_on = prev && prev->fuse && in->fuse == prev->fuse;
        if (prev && prev->fuse && !goes_on) ended[prev->fuse] = true;
        if (in->fuse && (in->fuse > n || (!goes_on && ended[in->fuse]))) {
            verify_report(
                v, RULE, pc,
                "the instructions of kernel %u must follow each other on the compute stream",
                in->fuse);
            return;
        }
        if (!goes_on) first = pc;
        if (!goes_on) product = in->fuse && verify_is_product(in) ? in : NULL;
        if (goes_on) next[last] = pc;
        if (goes_on && product) {
            verify_product_part(v, pc, product, prev);
        } else if (in->fuse && !product && turns(in)) {
            check_turn(v, pc, goes_on ? prev : NULL, goes_on && last == first);
        } else if (in->fuse && !product && goes_on && turns(prev)) {
            verify_report(
                v, RULE, pc,
                "%s follows a transposed copy, which must be the last instruction of kernel %u",
                op_info(in->op)->name, in->fuse);
        } else if (in->fuse && !product) {
            check_member(v, pc, goes_on ? prev : NULL);
            if (goes_on) check_sums(v, first, pc);
        }
        last = pc;
    }
    if (v->n_reported == before) check_waits(v, next);
}

bool verify_alike(const Program *p, BufferId a, BufferId b)
{
    const Buffer *x = &p->buffers.at[a], *y = &p->buffers.at[b];
    return verify_address(p, a) == verify_address(p, b) && x->bytes == y->bytes &&
           x->dtype == y->dtype;
}
