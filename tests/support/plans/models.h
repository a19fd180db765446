/* Tiny models as graphs, made node by node: a Llama and a GPT-2 with the shapes and parameter names
 * of the golden tensors. Blocks are modules. Weights state how tensor parallelism may split
 * them. */
#ifndef TANDEM_TESTS_SUPPORT_MODELS_H
#define TANDEM_TESTS_SUPPORT_MODELS_H

#include "planner/ir/graph.h"

/* Makes a Llama with grouped heads, RoPE with the scaling of Llama 3.1, RMSNorm, SwiGLU and an
 * untied head. `batch` is the number of sequences in a micro-step. The loss is scaled by 1 /
 * global_tokens. No weight begins with zeros or ones. */
void model_llama(Graph *g, Arena *arena, int64_t batch, double global_tokens);
/* Makes a GPT-2 with LayerNorm, biases, learned positions, tanh GELU and a tied head. */
void model_gpt2(Graph *g, Arena *arena, int64_t batch, double global_tokens);

#endif
