/* Makes a plan with fewer blocks from a plan with many equal blocks, so that the proofs need not
 * visit each block. Nothing is taken from the passes: equal blocks are found in the plan itself,
 * and are compared field by field.
 *
 * The argument. Say that blocks 1 to n follow each other, and block k + 1 is block k with each
 * number moved by one block: nodes, tensors, units, instructions and buffers. `reach` is the
 * largest distance, in blocks, of any of these references. In the shorter plan, one block with all
 * its neighbours within reach is as in the whole plan. A block that was left out has the same
 * neighbours, with other numbers. No proof depends on the numbers, so a proof that accepts this
 * block also accepts the block that was left out.
 *
 * Some properties depend on the numbers, or on all blocks together: the order of instructions, the
 * places of buffers, names, and sums over all tensors. verify.c proves them on the whole plan. In
 * the shorter plan, instructions therefore wait for nothing and start alone, and no two buffers
 * share bytes. */
#ifndef TANDEM_VERIFY_COPIES_H
#define TANDEM_VERIFY_COPIES_H

#include "planner/ir/plan.h"

typedef enum ItemKind { OF_nodes, OF_tensors, OF_units, OF_code, OF_buffers, ITEM_KINDS } ItemKind;

/* The items of one kind. [item] is an index of the plan. */
typedef struct Items {
    uint32_t n;
    uint32_t *block;     /* [item]: the number of its block, from 1; 0: it belongs to no block */
    uint32_t *up, *down; /* [item]: its counterpart in the next block, and in the block before; 0:
                            there is none */
    bool *fixed;         /* [item]: two blocks use this same item, so it belongs to none */
} Items;

typedef struct BlockCopies {
    const Plan *plan;
    const Graph *g;
    const Program *p;
    Arena *arena;
    uint32_t n; /* blocks have the numbers 1 to n */
    Items of[ITEM_KINDS];
    bool *differs;   /* [block]: the next block is not its copy */
    uint32_t *reach; /* [block]: the largest distance of a block to which it refers */
} BlockCopies;

/* ---- range.c ---- */
/* True if no index of the plan is out of range, so that the functions below may follow them. */
bool copies_in_range(const Plan *plan);

/* ---- runs.c ---- */
/* Finds the blocks of the forward nodes: the sequence of nodes that repeats most often. Returns
 * false if there are too few. Then finds the blocks of the backward nodes and the instructions. */
bool copies_find(BlockCopies *b);

/* ---- same.c ---- */
/* Finds the counterparts of tensors, units and buffers, and compares each block with the next. */
void copies_compare(BlockCopies *b);

/* ---- shorten.c ---- */
/* Returns a plan without most of the equal blocks of `plan`; NULL if there are too few. */
const Plan *copies_shorten(const Plan *plan, Arena *arena);

#endif
