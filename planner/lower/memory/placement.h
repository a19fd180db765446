/* Offsets for the transient buffers of one space. */
#ifndef TANDEM_LOWER_PLACEMENT_H
#define TANDEM_LOWER_PLACEMENT_H

#include "planner/lower/memory/lives.h"

uint32_t placement_microbatches(const Program *p);
/* Does one micro-batch end before the next begins, and are there interior ones? */
bool placement_periodic(const Program *p);
/* Do interior micro-batches, all but the first and the last, use the same offsets? Those count that
 * do as much as the last of them. */
bool placement_repeats(const Program *p, Arena *scratch);

/* Places, from `bottom` on, what l lists: several ways are tried, and of those in which interior
 * micro-batches repeat (of all, if none does, or if they overlap) the one that needs the fewest
 * bytes is kept. Returns where the highest buffer of the space ends. */
uint64_t placement_choose(Lives *l, uint64_t bottom);

#endif
