/* Free pieces of an arena while its use is being planned. Offsets and sizes are bytes. */
#ifndef TANDEM_PASSES_PIECES_H
#define TANDEM_PASSES_PIECES_H

#include "planner/passes/clock.h"

/* Bytes [offset, offset + size) that nobody may write before `busy` has passed. */
typedef struct Piece {
    uint64_t offset, size;
    uint32_t busy; /* in Pieces.busy; 0: nothing to wait for */
} Piece;

typedef struct Pieces {
    Arena *arena;
    LIST(Piece) list; /* by offset */
    LIST(Clock) busy; /* [0] passed */
    uint32_t many;    /* pieces from which on it pays to join some */
    uint64_t top;     /* end of what was ever taken */
} Pieces;

/* Everything from `bottom` on is free; what the pieces held before is forgotten. */
void pieces_init(Pieces *m, uint64_t bottom, Arena *arena);
/* The lowest offset where `size` bytes may be written at `now`; grows the arena if need be. */
uint64_t pieces_take(Pieces *m, uint64_t size, const Clock *now);
/* The same at a given place; false if it is not free. */
bool pieces_take_at(Pieces *m, uint64_t offset, uint64_t size, const Clock *now);
/* Gives bytes back; who touched them last is `busy`. */
void pieces_give(Pieces *m, uint64_t offset, uint64_t size, const Clock *busy, const Clock *now);

#endif
