/* Lower bounds that include communication, computed from plans with few layers. Computing them
 * takes much less time than compiling the whole plan. They are much tighter than the bounds of
 * bound.h. */
#ifndef TANDEM_SESSION_BOUND_LAYERS_H
#define TANDEM_SESSION_BOUND_LAYERS_H

#include "session/session.h"

typedef struct LayerBounds {
    Ps step_ps;     /* lower bound of the step's time; 0: unknown */
    uint64_t bytes; /* bytes that the fullest rank needs; 0: unknown */
    /* bytes of a device that remain for the plan besides its communicators */
    uint64_t usable_bytes;
} LayerBounds;

/* Bounds the plan of `config` and `graph`, which session_read has made from this script and these
 * options. Returns false if it has no bounds. There are no bounds if layers do not repeat or are
 * few, or if the model has no setting `layers`. There are none either if a pass treats layers by
 * their number, or if a unit contains several layers. */
bool bound_layers(const char *path, const PlanOptions *load, const Config *config,
                  const Graph *graph, Arena *arena, LayerBounds *out);

#endif
