/* Finds out how the layers of a model repeat, by comparing hashes of the nodes of each layer. A
 * bound can then be computed from a model with fewer layers (bound_layers.c). */
#ifndef TANDEM_SESSION_EQUAL_LAYERS_H
#define TANDEM_SESSION_EQUAL_LAYERS_H

#include "planner/ir/trace.h"

/* How the n layers of a model repeat: after the first `lead` layers, the sequence repeats every
 * `period` layers. Example: A B C B C B has lead 1 (A) and period 2 (B C). */
typedef struct EqualLayers {
    uint32_t n; /* 0: the layers do not repeat */
    uint32_t lead, period;
    uint64_t first, each; /* hash of the nodes of the lead; of one period */
    uint64_t outside;     /* hash of the nodes outside layers, such as the head */
} EqualLayers;

EqualLayers equal_layers(const Graph *g, Arena *scratch);

/* True if `a` and `b` have the same lead, the same period, and equal nodes outside layers, so that
 * they differ only in the number of layers. */
bool equal_layers_continue(const EqualLayers *a, const EqualLayers *b);

#endif
