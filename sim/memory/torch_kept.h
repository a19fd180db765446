/* Finds tensors that PyTorch keeps after their last use. Autograd keeps them until all gradients of
 * a node exist. Python keeps them until a variable gets another value. The schedule of a pipeline
 * keeps them until the next step. */
#ifndef TANDEM_SIM_MEMORY_TORCH_KEPT_H
#define TANDEM_SIM_MEMORY_TORCH_KEPT_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"

typedef struct TorchKept {
    Pc *needed;     /* [buffer]: the last instruction for which the buffer is kept */
    bool *narrow;   /* [buffer]: true if it is kept in 8 bits for the backward pass */
    bool *received; /* [buffer]: true if it is one of the stage's permanent tensors for received
                       values */
    bool *in_graph; /* [pc]: true if the instruction is recomputed and a module keeps the autograd
                       graph to which it belongs */
    const bool *offloaded; /* [module]: true if its saved tensors are in host memory */
} TorchKept;

TorchKept torch_kept(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena);

#endif
