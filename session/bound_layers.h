/* Lower bounds that include communication, from two simulated plans with few layers. They are much
 * tighter than those of bound.h, and still much cheaper than compiling the whole plan. */
#ifndef TANDEM_SESSION_BOUND_LAYERS_H
#define TANDEM_SESSION_BOUND_LAYERS_H

#include "session/session.h"

typedef struct LayerBounds {
    Ps step_ps;     /* lower bound of the step's time; 0: unknown */
    uint64_t bytes; /* bytes that the fullest rank needs; 0: unknown */
    /* bytes of a device that a plan may use, without NCCL's communicators */
    uint64_t usable_bytes;
} LayerBounds;

/* Computes bounds for the plan of `config` and `graph`, which session_read returned for `path` and
 * `load`. Returns false if there are none: layers do not repeat or are few, the model has no
 * setting `layers`, a pass names layers by their index, or a unit contains several layers. */
bool bound_layers(const char *path, const PlanOptions *load, const Config *config,
                  const Graph *graph, Arena *arena, LayerBounds *out);

#endif
