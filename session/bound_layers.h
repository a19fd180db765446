/* Lower bounds that include communication, computed from plans of a few layers. They take a small
 * part of the time that the whole plan takes, and are much tighter than the bounds of bound.h. */
#ifndef TANDEM_SESSION_BOUND_LAYERS_H
#define TANDEM_SESSION_BOUND_LAYERS_H

#include "session/session.h"

typedef struct LayerBounds {
    Ps step_ps;            /* 0: unknown */
    uint64_t bytes;        /* bytes of the fullest rank; 0: unknown */
    uint64_t usable_bytes; /* bytes of a device that the plan's communicators leave */
} LayerBounds;

/* Bounds the plan of `config` and `graph`, which session_read has made from this script and these
 * options. Returns false if there are no such bounds. Possible reasons: layers differ, there are
 * few layers, the model has no setting `layers`, a pass treats layers by their number, or a unit
 * spans layers. */
bool bound_layers(const char *path, const PlanOptions *load, const Config *config,
                  const Graph *graph, Arena *arena, LayerBounds *out);

#endif
