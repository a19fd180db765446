/* Finds out how the layers of a model repeat. */
#ifndef TANDEM_SESSION_EQUAL_LAYERS_H
#define TANDEM_SESSION_EQUAL_LAYERS_H

#include "planner/ir/trace.h"

/* The layers of a model: `n` in all. The first `lead` layers do not repeat; the others repeat every
 * `period` layers. Example: the layers A B C B C B have the lead 1 (A) and the period 2 (B C). */
typedef struct EqualLayers {
    uint32_t n; /* 0: the layers do not repeat */
    uint32_t lead, period;
    uint64_t first, each; /* hashes of the lead and of one period */
    uint64_t outside;     /* hash of all nodes outside layers */
} EqualLayers;

EqualLayers equal_layers(const Graph *g, Arena *scratch);

/* True if `a` and `b` have the same lead, the same period, and the same nodes outside layers. So
 * the longer one is the shorter one with more layers. */
bool equal_layers_continue(const EqualLayers *a, const EqualLayers *b);

#endif
