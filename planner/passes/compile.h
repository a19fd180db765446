/* Declarations that the files of compile share. */
#ifndef TANDEM_PASSES_COMPILE_H
#define TANDEM_PASSES_COMPILE_H

#include "planner/passes/pass.h"

/* True if compile may put `first` and `next` into one kernel: their origins are compiled together,
 * and `next` can follow `first` without waiting for another stream. */
bool compile_together(const Plan *plan, CompilePer per, const Instr *first, const Instr *next);

/* Returns the first node after n that reads n's output; 0: none. */
NodeId compile_first_reader(const Graph *g, NodeId n);
/* Moves node n to the later index `to`; the nodes between move to the next lower index. */
void compile_move(Graph *g, NodeId n, NodeId to);

/* ---- compile_product.c */
typedef struct ProductFuser {
    const Plan *plan;
    Program *p;
    CompilePer per;
    const bool *is_awaited; /* [pc]: true if an instruction on another stream waits for it */
    uint32_t *n_touches;    /* [buffer]: the number of instructions that read or write it or a view
                               of it */
} ProductFuser;
ProductFuser product_fuser(const Plan *plan, Program *p, CompilePer per, const bool *is_awaited,
                           Arena *scratch);
/* Marks the product at pc, and the ops that its library call can also compute, as kernel `kernel`.
 * Returns false, and marks nothing, if the call can compute no other op. */
bool product_fuse(const ProductFuser *f, Pc pc, uint32_t kernel);

#endif
