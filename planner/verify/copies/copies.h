/* Makes a plan with fewer blocks from a plan with many equal blocks, so that the proofs need not
 * visit each block. It uses nothing that the passes know. It finds equal blocks in the plan itself,
 * and compares them field by field.
 *
 * The argument. Say that blocks 1 to n follow each other, and that each block is a copy of the
 * block before it. All references to nodes, tensors, units, instructions and buffers move on by one
 * block. `reach` is the largest distance, in blocks, of any of these references. The shorter plan
 * has 2 * reach + 1 of these blocks, so the middle one has all its neighbours within reach. Of the
 * items outside the equal blocks, only those of neighbouring blocks refer to equal blocks, and only
 * within reach. So nothing outside refers to the middle block or to a block that was left out. A
 * block that was left out therefore has the same surroundings as the middle one, with other
 * numbers. No proof depends on numbers, so a proof that accepts the middle block also accepts the
 * block that was left out.
 *
 * Values could still travel farther than references. An instruction that computes a graph node
 * cannot carry a wrong value on, because its inputs must be those of the node. Copies and
 * communications could carry it, in a buffer that all blocks use, or through a row of buffers, one
 * in each block. travel.c therefore follows each value through the shorter plan, from the tensor
 * whose value it is to each instruction of the equal blocks that reads it. If one of these paths is
 * longer than `reach`, there is no shorter plan. Otherwise a block that was left out gets its
 * values in the same way as the middle one.
 *
 * Some properties depend on the numbers, or on all blocks together: the order of instructions, the
 * places of buffers, names, and sums over all tensors. verify.c proves them on the whole plan. In
 * the shorter plan, an instruction therefore waits for no other, no communications start together,
 * and no two buffers share bytes. */
#ifndef TANDEM_VERIFY_COPIES_H
#define TANDEM_VERIFY_COPIES_H

#include "planner/ir/plan.h"

typedef enum ItemKind { OF_nodes, OF_tensors, OF_units, OF_code, OF_buffers, ITEM_KINDS } ItemKind;

/* The items of one kind. [item] is an index of the plan. */
typedef struct Items {
    uint32_t n;
    uint32_t *block;     /* [item]: the number of its block, from 1; 0: it belongs to no block */
    uint32_t *up, *down; /* [item]: the same item one block later and one block earlier, such as wq
                            of layer 5 and of layer 3 for wq of layer 4; 0: there is none */
    bool *fixed;         /* [item]: several blocks use this same item, so it belongs to none */
} Items;

typedef struct BlockCopies {
    const Plan *plan;
    const Graph *g;
    const Program *p;
    Arena *arena;
    uint32_t n; /* blocks have the numbers 1 to n */
    Items of[ITEM_KINDS];
    bool *differs;   /* [block]: true if the next block is not its copy */
    uint32_t *reach; /* [block]: the distance to the farthest block to which it refers */
} BlockCopies;

/* ---- range.c ---- */
/* True if no index of the plan is out of range, so that the functions below may follow them. */
bool copies_in_range(const Plan *plan);

/* ---- runs.c ---- */
/* Finds the blocks of the forward nodes: the sequence of nodes that repeats most often. Returns
 * false if there are too few. Then finds the blocks of the backward nodes and the instructions. */
bool copies_find(BlockCopies *b);

/* ---- same.c ---- */
/* Finds the counterparts (`up` and `down`) of tensors, units and buffers, and compares each block
 * with the next. */
void copies_compare(BlockCopies *b);

/* ---- outside.c ---- */
/* An item outside all blocks may refer to an item of a block, as the head does to the last layer.
 * This marks such a block as different from its neighbours, so that it is not left out. */
void copies_touch(BlockCopies *b);

/* ---- travel.c ---- */
/* The blocks of a shorter plan. */
typedef struct FewBlocks {
    const Plan *plan;
    uint32_t *block[ITEM_KINDS]; /* [item]: the number of its block; 0: it belongs to none */
    Pc *middle; /* [pc]: the same instruction in the middle one of the equal blocks; for an
                   instruction outside of them, itself */
    uint32_t first, last; /* the equal blocks */
    uint32_t reach;
} FewBlocks;
/* True if an instruction of an equal block reads a value that has come farther than `reach` blocks
 * since the proofs compared it with a tensor of the graph. */
bool copies_travel(const FewBlocks *few, Arena *arena);

/* ---- shorten.c ---- */
/* Finds the blocks of a plan, and compares each with the next. Returns false if there are too few
 * blocks, if the plan has several programs, or if it sends messages between two ranks. */
bool copies_of(BlockCopies *b, const Plan *plan, Arena *arena);
/* Returns a plan without most of the equal blocks of `plan`; NULL if there are too few equal
 * blocks, or if the argument above does not hold. */
const Plan *copies_shorten(const Plan *plan, Arena *arena);

#endif
