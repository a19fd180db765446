/* In a pipeline, several micro-batches need a buffer for the same purpose at the same time. Slots
 * are the offsets of these buffers. */
#ifndef TANDEM_LOWER_SLOTS_H
#define TANDEM_LOWER_SLOTS_H

#include "planner/lower/memory/lives.h"

/* For a given purpose, micro-batch k uses slot k modulo M. M is the number of buffers for this
 * purpose that are in use at the same time. */
typedef struct Slots {
    uint64_t *slot; /* [buffer]: 1 + its offset; 0: it has no slot */
    uint64_t end;   /* the end of the last slot */
    uint32_t most;  /* the largest M */
} Slots;

/* Finds the slots of a program, from address `bottom` on. */
void slots_find(Slots *s, const Lives *l, uint32_t n_microbatches, uint64_t bottom);

/* True if two buffers have the same purpose in their micro-batches. */
bool slots_same_part(const Program *p, BufferId a, BufferId b);

#endif
