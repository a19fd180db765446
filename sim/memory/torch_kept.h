/* Tensors that PyTorch keeps after their last use. Autograd keeps them until all gradients of a
 * node exist. Python keeps them until a variable is assigned again. A pipeline's schedule keeps
 * them until the next step. */
#ifndef TANDEM_SIM_MEMORY_TORCH_KEPT_H
#define TANDEM_SIM_MEMORY_TORCH_KEPT_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"

typedef struct TorchKept {
    Pc *needed;            /* [buffer]: the last instruction for which the buffer is kept */
    bool *narrow;          /* [buffer]: the backward pass keeps it in 8 bits */
    bool *received;        /* [buffer]: a stage's permanent tensor for received values */
    bool *in_graph;        /* [pc]: the instruction is recomputed, and a module keeps the graph that
                            * contains it */
    const bool *offloaded; /* [module]: its saved tensors are in host memory */
} TorchKept;

TorchKept torch_kept(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena);

#endif
