/* What follows from a bound signature: output sizes, layouts, FLOPs. */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "planner/ir/op.h"

static const SigTerm *term_of(const OpInfo *info, uint32_t arg)
{
    return arg < info->sig.n_in ? &info->sig.in[arg] : &info->sig.out[arg - info->sig.n_in];
}

int op_output_dims(OpKind op, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS])
{
    const SigTerm *t = &op_info(op)->sig.out[j];
    int at = 0;
    for (int d = 0; d <= t->n_dims; d++) {
        for (int e = 0; d == t->ellipsis && b->ellipsis[e]; e++)
            dim[at++] = b->size[(int)b->ellipsis[e]];
        if (d == t->n_dims) break;
        int64_t h = b->size[(int)t->dim[d].letter];
        if (t->dim[d].inner && !t->dim[d].stride) h *= b->size[(int)t->dim[d].inner];
        if (t->dim[d].stride)
            h = h * b->size[(int)t->dim[d].stride] + b->size[(int)t->dim[d].inner] - 1;
        if (h <= 0) return -1;
        dim[at++] = h;
    }
    return at;
}

bool op_may_split(OpKind op, char letter)
{
    const OpInfo *info = op_info(op);
    if (!islower((unsigned char)letter)) return false;
    for (uint32_t a = 0; a < (uint32_t)info->sig.n_in + info->sig.n_out; a++)
        for (int d = 0; d < term_of(info, a)->n_dims; d++)
            if (term_of(info, a)->dim[d].inner == letter)
                return false; /* the inner part never leads */
    return true;
}

int8_t op_axis_layout(OpKind op, const Binding *b, uint32_t arg, char letter)
{
    if (!letter) return WHOLE;
    for (int d = 0; d < b->n_dims[arg]; d++)
        if (b->letter[arg][d] == letter) return SPLIT(d);
    if (arg < b->n_in) return WHOLE;
    return op_info(op)->reduce == REDUCE_max ? PARTIAL_MAX : PARTIAL_SUM;
}

double op_flops(OpKind op, const Binding *b, const int64_t size['z' + 1], bool causal)
{
    double points = 1;
    for (int i = 0; i < b->n_letters; i++) points *= (double)size[(int)b->letters[i]];
    return points * op_info(op)->flops_per_point * (causal ? 0.5 : 1.0);
}
