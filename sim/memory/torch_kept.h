/* Tensors that PyTorch keeps after their last use: autograd until a node's gradients are all there,
 * Python until a name means something else, a pipeline's schedule until the next step. */
#ifndef TANDEM_SIM_MEMORY_TORCH_KEPT_H
#define TANDEM_SIM_MEMORY_TORCH_KEPT_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"

typedef struct TorchKept {
    Pc *needed;     /* [buffer] the last instruction that it is kept for */
    bool *received; /* [buffer] a stage's own tensor for what it receives: it stays */
    bool *in_graph; /* [pc] made again, and a module keeps the graph that it is part of */
} TorchKept;

TorchKept torch_kept(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena);

#endif
