/* Lower bounds that count communication, from plans of a few layers. They cost a small part of the
 * whole plan, and are much closer to it than the bounds of bound.h. */
#ifndef TANDEM_SESSION_BOUND_LAYERS_H
#define TANDEM_SESSION_BOUND_LAYERS_H

#include "session/session.h"

typedef struct LayerBounds {
    Ps step_ps;            /* 0: unknown */
    uint64_t bytes;        /* of the fullest rank; 0: unknown */
    uint64_t usable_bytes; /* of a device that holds the plan's communicators */
} LayerBounds;

/* Bounds the plan of `config`, which session_read made of this script and these options with this
 * graph. Returns false if the plan has no such bounds: its layers differ, it has few of them, its
 * model has no setting `layers`, a pass treats layers by their number, or a unit spans layers. */
bool bound_layers(const char *path, const PlanOptions *load, const Config *config,
                  const Graph *graph, Arena *arena, LayerBounds *out);

#endif
