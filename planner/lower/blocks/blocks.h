/* Runs of equal blocks in a graph. lower.c writes the instructions of the first blocks of a run;
 * the instructions of the others are copies (repeat.c). */
#ifndef TANDEM_LOWER_BLOCKS_H
#define TANDEM_LOWER_BLOCKS_H

#include "planner/lower/lower.h"

/* The fewest blocks of a run. Comparing the first blocks costs as much time as lowering three of
 * them, and some blocks at both ends of a run are not copied. So copying would save no time in a
 * shorter run. */
enum { BLOCKS_LEAST = 12 };

/* Fills l->blocks with the runs of this program, in the order of their nodes. It must be called
 * after all other decisions that precede the writing of the program. */
void blocks_find(Lower *l);

/* True if units a and b are gathered by the same instructions, except for the ids of buffers. */
bool blocks_same_gather(const Lower *l, UnitId a, UnitId b);

/* ---- state.c */
typedef struct RunTensors RunTensors;
/* Lists the tensors of a run. Returns NULL if their ids do not differ by equal steps. */
RunTensors *blocks_tensors(const Lower *l, const BlockRun *run);
/* Compares the state of the lowering at the beginning of a run. Sets same[k] to true if the state
 * of blocks k - 1, k and k + 1 differs by equal steps. Sets it for all blocks except the first and
 * the last. */
void blocks_compare(const Lower *l, const BlockRun *run, const RunTensors *tensors, bool *same);

/* ---- repeat.c */
/* Prepares the copying of the runs in l->blocks. */
void repeat_prepare(Lower *l);
/* Call this at the start of an action, which is the forward or backward work of one stage for one
 * micro-batch. */
void repeat_start(Lower *l);
/* Call this before each node of an action. It may copy the instructions of the blocks that begin at
 * `id`. Returns the next node to lower: `id`, or the first node after the copied blocks. */
NodeId repeat_before(Lower *l, NodeId id);

#endif
