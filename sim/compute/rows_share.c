/* See rows_share.h. */
#include "sim/compute/rows_share.h"

#include <math.h>

uint32_t rows_args(const RowsShare *rows, const Program *p, const Instr *in)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; rows != NULL && rows->share != 1 && i < in->args.n; i++) {
        const TensorId t = p->buffers.at[program_arg(p, in, i)].tensor;
        if (t != 0 && rows->of[t] != 0) bits |= UINT32_C(1) << i;
    }
    return bits;
}

double rows_factor(const RowsShare *rows, const Program *p, const Instr *in)
{
    return rows_args(rows, p, in) != 0 ? rows->share : 1;
}

double rows_in(const RowsShare *rows, const Plan *plan, const Program *p, const Instr *in)
{
    const Shape *shape = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 0)].shape);
    double n = rows_factor(rows, p, in);
    for (uint8_t i = 0; i + 1 < shape->n_dims; i++)
        n *= (double)shape_local_dim(shape, &plan->mesh, &plan->graph.deals, i);
    return n;
}

double rows_moved(const RowsShare *rows, const Plan *plan, const Program *p, const Instr *in,
                  bool part)
{
    const uint32_t on_rows = rows_args(rows, p, in);
    uint64_t moved[MAX_ARGS];
    double sum = 0;
    plan_moved(plan, p, in, part, moved);
    for (uint32_t i = 0; i < in->args.n; i++) {
        double factor = 1;
        if (on_rows >> i & 1)
            factor = rows->share;
        else if (on_rows != 0 && rows->share == 0 && i < in->n_in)
            factor = 0;
        sum += (double)moved[i] * factor;
    }
    return sum;
}

static bool has_letter(const Binding *b, uint32_t arg, char letter)
{
    for (uint8_t d = 0; d < b->n_dims[arg]; d++)
        if (b->letter[arg][d] == letter) return true;
    return false;
}

void rows_sizes(const RowsShare *rows, const Program *p, const Instr *in, const Binding *b,
                int64_t size['z' + 1])
{
    const uint32_t on_rows = rows_args(rows, p, in);
    int64_t *largest = NULL;
    for (uint8_t l = 0; l < b->n_letters && on_rows != 0; l++) {
        const char letter = b->letters[l];
        bool counts_rows = true;
        for (uint32_t i = 0; i < in->args.n; i++) {
            const uint32_t arg = i < in->n_in ? i : b->n_in + i - in->n_in;
            counts_rows = counts_rows && has_letter(b, arg, letter) == (on_rows >> i & 1);
        }
        int64_t *at = &size[(int)letter];
        if (counts_rows && (largest == NULL || *at > *largest)) largest = at;
    }
    if (largest != NULL) *largest = llround((double)*largest * rows->share);
}
