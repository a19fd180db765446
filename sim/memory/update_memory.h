/* The temporary tensors of an optimizer's step. */
#ifndef TANDEM_SIM_MEMORY_UPDATE_MEMORY_H
#define TANDEM_SIM_MEMORY_UPDATE_MEMORY_H

#include "sim/runtime/runtime.h"

typedef struct UpdateMemory {
    Pc first, last;         /* first and last instruction of the optimizer; 0: no such tensors */
    LIST(uint64_t) tensors; /* bytes of each; all are allocated from `first` to `last` */
} UpdateMemory;

/* Returns the tensors that the optimizer makes, one for each parameter. */
UpdateMemory update_memory(const Plan *plan, const Program *p, const Runtime *runtime,
                           Arena *arena);

#endif
