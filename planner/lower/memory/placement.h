/* Chooses offsets for the transient buffers of one space. */
#ifndef TANDEM_LOWER_PLACEMENT_H
#define TANDEM_LOWER_PLACEMENT_H

#include "planner/lower/memory/lives.h"

/* The micro-batch from which on offsets no longer change. A step must have at least one micro-batch
 * after it, because the last micro-batch has other offsets. */
enum { PLACEMENT_SETTLED = 3 };

uint32_t placement_microbatches(const Program *p); /* returns the number of micro-batches */
/* True if each micro-batch ends before the next begins, and there are at least two interior
 * micro-batches (all but the first and the last). */
bool placement_periodic(const Program *p);
/* True if interior micro-batches (all but the first and the last) use the same offsets. Only
 * micro-batches whose instructions have as many arguments as those of the last interior one are
 * compared. */
bool placement_repeats(const Program *p, Arena *scratch);

/* Places the buffers that `l` lists, from address `bottom` on. It tries several methods and keeps
 * the result that needs the fewest bytes. Results in which interior micro-batches use equal offsets
 * are preferred. If there is no such result, or if micro-batches overlap, all results are compared.
 * in_slots: overlapping micro-batches shall use equal offsets, too (slots.h). Sets *repeats to true
 * if additional micro-batches would get the same offsets. Returns the end of the highest buffer of
 * the space. */
uint64_t placement_choose(Lives *l, uint64_t bottom, bool in_slots, bool *repeats);
/* Gives the buffers that `l` lists the offsets in given[buffer], and sets *bytes to the end of the
 * highest one. Returns false if two buffers would use the same bytes at the same time. */
bool placement_follow(Lives *l, uint64_t bottom, const uint64_t *given, uint64_t *bytes);

#endif
