/* Tiny models as graphs, made node by node: a Llama and a GPT-2 with the shapes and parameter names
 * of the golden tensors. Blocks are modules, and weights state how tensor parallelism may cut
 * them. */
#ifndef TANDEM_TESTS_SUPPORT_MODELS_H
#define TANDEM_TESTS_SUPPORT_MODELS_H

#include "planner/ir/graph.h"

/* Grouped heads, RoPE with Llama 3.1's scaling, RMSNorm, SwiGLU, untied head: `batch` sequences a
 * micro-step; the loss is scaled by 1 / global_tokens. Initialisers are varied (no zeros, ones). */
void model_llama(Graph *g, Arena *arena, int64_t batch, double global_tokens);
/* LayerNorm, biases, learned positions, tanh GELU, tied head. */
void model_gpt2(Graph *g, Arena *arena, int64_t batch, double global_tokens);

#endif
