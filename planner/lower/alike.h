/* Compares two buffers, or two instructions, of different micro-batches field by field. program.def
 * lists the fields; its column `next` says how a field may differ (SAME, ZERO, LIST or OWN). */
#ifndef TANDEM_LOWER_ALIKE_H
#define TANDEM_LOWER_ALIKE_H

#include "planner/ir/plan.h"

#define SAME_SAME(field) &&x->field == y->field
#define SAME_ZERO(field)
#define SAME_LIST(field)
#define SAME_OWN(field)
#define SAME(key, field, form, trust, next) SAME_##next(field)
#define ALIKE_SAME(field)                   &&x->field == y->field
#define ALIKE_ZERO(field)                   &&!x->field == !y->field
#define ALIKE_LIST(field)                   &&x->field.n == y->field.n
#define ALIKE_OWN(field)
#define ALIKE(key, field, form, trust, next) ALIKE_##next(field)

/* True if buffer y can play the role of x in a later micro-batch. */
static inline bool buffers_alike(const Buffer *x, const Buffer *y)
{
#define BUFFER      ALIKE
#define BUFFER_WORD ALIKE
    return (!x->parent || x->offset == y->offset)
#include "planner/ir/program.def"
        ;
}

/* True if instruction y can do the work of x in a later micro-batch. */
static inline bool instrs_same(const Instr *x, const Instr *y)
{
#define INSTR      SAME
#define INSTR_WORD SAME
    return x->n_in == y->n_in
#include "planner/ir/program.def"
        ;
}

/* True if y can also replace x in a later period of the program (expand.c). In addition to the
 * conditions of instrs_same, y must have the same communication, waits and fusion as x. The caller
 * compares the lists `args` and `after`. */
static inline bool instrs_alike(const Instr *x, const Instr *y)
{
#define INSTR      ALIKE
#define INSTR_WORD ALIKE
    return x->n_in == y->n_in
#include "planner/ir/program.def"
        ;
}

#undef SAME
#undef SAME_SAME
#undef SAME_ZERO
#undef SAME_LIST
#undef SAME_OWN
#undef ALIKE
#undef ALIKE_SAME
#undef ALIKE_ZERO
#undef ALIKE_LIST
#undef ALIKE_OWN

#endif
