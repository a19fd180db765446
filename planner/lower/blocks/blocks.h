/* Runs of equal blocks in a graph. lower.c writes the instructions of the first blocks of a run;
 * the instructions of the others are copies (repeat.c). */
#ifndef TANDEM_LOWER_BLOCKS_H
#define TANDEM_LOWER_BLOCKS_H

#include "planner/lower/lower.h"

/* The comparison of the first blocks costs as much as lowering three of them, and some blocks at
 * both ends of a run have no copy. So a shorter run saves nothing. */
enum { BLOCKS_LEAST = 12 };

/* Fills l->blocks with the runs of this program, in the order of their nodes. All other decisions
 * before the program must have been made. */
void blocks_find(Lower *l);

/* ---- repeat.c */
/* Prepares copies for the runs in l->blocks. */
void repeat_prepare(Lower *l);
/* Begins an action. */
void repeat_start(Lower *l);
/* Must be called before each node of the action. It may copy the instructions of the blocks that
 * begin at `id`. Returns the next node to lower: `id`, or the first node behind these blocks. */
NodeId repeat_before(Lower *l, NodeId id);

#endif
