/* What a graph says of its experts: which tensors hold rows on their way through them, and how many
 * parameters one token meets. */
#ifndef TANDEM_IR_EXPERTS_H
#define TANDEM_IR_EXPERTS_H

#include "planner/ir/graph.h"

/* [tensor] the dispatch whose rows it holds, gradients' too; 0: none. NULL: the graph has no
 * experts. */
const NodeId *experts_rows(const Graph *g, Arena *arena);

/* ModelInfo.n_params_no_embedding, of the experts' parameters only as many as a token goes through:
 * top_k of `experts`. */
uint64_t experts_active_params(const Graph *g);

#endif
