/* Functions that compile.c and compile_product.c share. */
#ifndef TANDEM_PASSES_COMPILE_H
#define TANDEM_PASSES_COMPILE_H

#include "planner/passes/pass.h"

/* True if instruction `next` may run in one kernel with `first`: both compute nodes of the same
 * micro-batch, phase and unit of compilation, and `next` waits for no other stream. */
bool compile_together(const Plan *plan, CompilePer per, const Instr *first, const Instr *next);

/* Returns the first node behind n that reads an output of n; 0: none. */
NodeId compile_first_reader(const Graph *g, NodeId n);
/* Moves node n to the later index `to`. The nodes between move down by one. */
void compile_move(Graph *g, NodeId n, NodeId to);

/* ---- compile_product.c */
typedef struct ProductFuser {
    const Plan *plan;
    Program *p;
    CompilePer per;
    /* is_awaited[pc]: an instruction on another stream waits for this one */
    const bool *is_awaited;
    /* n_touches[b]: how many instructions read or write buffer b or a view of it */
    uint32_t *n_touches;
} ProductFuser;
ProductFuser product_fuser(const Plan *plan, Program *p, CompilePer per, const bool *is_awaited,
                           Arena *scratch);
/* If the library call of the product at pc can also compute some of the following ops, gives the
 * product and these ops Instr.fuse = kernel. Otherwise changes nothing and returns false. */
bool product_fuse(const ProductFuser *f, Pc pc, uint32_t kernel);

#endif
