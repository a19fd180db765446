/* See engine_alike.h. If the previous instruction matched an earlier one, the search first tries
 * the instruction after that earlier one. */
#include "sim/engine_alike.h"

#include <string.h>

void alike_begin(AlikeSearch *s, const Program *p, const CostModel *cost, Arena *arena)
{
    memset(s, 0, sizeof *s);
    s->p = p;
    s->any_origin = cost->issue == NULL && cost->leaves_out == NULL;
    uint32_t room = 0;
    s->computed = list_grow(arena, NULL, 0, &room, p->code.n + 1, sizeof *s->computed);
}

static uint32_t hash_of(const AlikeSearch *s, const Instr *in)
{
    const Program *p = s->p;
    const uint32_t shape = in->args.n > 0 ? p->buffers.at[program_arg(p, in, 0)].shape : 0;
    uint32_t h = s->any_origin ? shape : in->origin;
    h = (h * UINT32_C(0x9e3779b1)) ^ ((uint32_t)in->op << 16) ^ (in->attrs << 4) ^ in->phase;
    return (h * UINT32_C(0x85ebca6b)) >> 20;
}

static bool same_args(const Program *p, const Instr *x, const Instr *y)
{
    for (uint32_t i = 0; i < x->args.n; i++) {
        const Buffer *a = &p->buffers.at[program_arg(p, x, i)],
                     *b = &p->buffers.at[program_arg(p, y, i)];
        if (a->shape != b->shape || a->dtype != b->dtype || a->bytes != b->bytes ||
            a->space != b->space || a->category != b->category || !a->unit != !b->unit)
            return false;
    }
    return true;
}

/* Returns true if the cost of an instruction depends on no other instruction. The cost of a part of
 * a fused kernel depends on the other parts. The cost of a pack or an unpack depends on the
 * communication beside it, because some profiles leave it out there. */
static bool stands_alone(const Instr *in)
{
    return in->fuse == 0 && in->op != OP_pack && in->op != OP_unpack;
}

/* A pass is the forward or the backward work of one micro-batch. A profile may add time to the
 * first instruction of a pass. So this function returns true only if both instructions begin a
 * pass, or both continue one. */
static bool same_pass(const AlikeSearch *s, Pc a, Pc b)
{
    const Instr *code = s->p->code.at, *x = &code[a], *y = &code[b];
    const Instr *before_x = &code[s->computed[a]], *before_y = &code[s->computed[b]];
    return before_x->phase == before_y->phase &&
           (before_x->microbatch == x->microbatch) == (before_y->microbatch == y->microbatch);
}

static bool is_alike(const AlikeSearch *s, Pc of, Pc pc)
{
    const Instr *x = &s->p->code.at[of], *y = &s->p->code.at[pc];
    return x->op == y->op && x->attrs == y->attrs && x->phase == y->phase && x->axes == y->axes &&
           x->stream == y->stream && x->hop == y->hop && x->n_in == y->n_in &&
           x->args.n == y->args.n && !x->unit == !y->unit && !x->microbatch == !y->microbatch &&
           (s->any_origin ? !x->origin == !y->origin : x->origin == y->origin) && !x->fuse &&
           same_args(s->p, x, y) && (s->any_origin || same_pass(s, of, pc));
}

Pc alike_find(AlikeSearch *s, Pc pc)
{
    const Instr *in = &s->p->code.at[pc];
    s->computed[pc] = s->before;
    if (in->stream == STREAM_compute) s->before = pc;
    Pc of = s->run != 0 ? s->run + 1 : 0;
    s->run = 0;
    if (!stands_alone(in)) {
        s->run = of;
        return 0;
    }
    if (of == 0 || !is_alike(s, of, pc)) {
        Pc *newest = &s->newest[hash_of(s, in)];
        of = *newest;
        if (of != 0 && !is_alike(s, of, pc)) of = 0;
        *newest = pc;
    }
    s->run = of;
    return of;
}
