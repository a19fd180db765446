/* Finds, for each instruction of a program, an earlier one that costs the same. Most instructions
 * do the work of an earlier micro-batch or of an earlier layer. */
#ifndef TANDEM_SIM_ENGINE_ALIKE_H
#define TANDEM_SIM_ENGINE_ALIKE_H

#include "sim/sim.h"

enum { ALIKE_ROOM = 4096 };

typedef struct AlikeSearch {
    const Program *p;
    bool any_origin; /* equal instructions of different graph nodes cost the same */
    Pc run;          /* the instruction that matches the previous one; 0: none is known */
    Pc before;       /* the newest instruction on the compute stream */
    Pc *computed;    /* [pc]: the newest instruction on the compute stream before pc */
    /* [hash]: the newest instruction with this hash that `run` did not lead to */
    Pc newest[ALIKE_ROOM];
} AlikeSearch;

/* Begins a search. Callers must then ask for all instructions, in the order of the program. */
void alike_begin(AlikeSearch *s, const Program *p, const CostModel *cost, Arena *arena);
/* Returns an earlier instruction for which all functions of a model with `by_shape` return the same
 * as for pc; 0: none was found. */
Pc alike_find(AlikeSearch *s, Pc pc);

#endif
