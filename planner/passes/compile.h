/* Shared by the files of compile. */
#ifndef TANDEM_PASSES_COMPILE_H
#define TANDEM_PASSES_COMPILE_H

#include "planner/passes/pass.h"

/* Does `next` belong to the code that is compiled together with `first`, and may it follow in one
 * kernel without waiting? */
bool compile_together(const Plan *plan, CompilePer per, const Instr *first, const Instr *next);

/* The first node behind n that reads what n makes; 0: none. */
NodeId compile_first_reader(const Graph *g, NodeId n);
/* Node n goes down to place `to`; those between go up by one. */
void compile_move(Graph *g, NodeId n, NodeId to);

/* ---- compile_product.c */
typedef struct ProductFuser {
    const Plan *plan;
    Program *p;
    CompilePer per;
    const bool *is_awaited; /* [pc] by somebody on another stream */
    uint32_t *n_touches;    /* [buffer] of it or of a view of it */
} ProductFuser;
ProductFuser product_fuser(const Plan *plan, Program *p, CompilePer per, const bool *is_awaited,
                           Arena *scratch);
/* Marks the product at pc, and what the library takes along with it, as kernel `kernel`; false:
 * nothing goes along. */
bool product_fuse(const ProductFuser *f, Pc pc, uint32_t kernel);

#endif
