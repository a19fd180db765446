/* Lower bounds of a plan, from its configuration and its graph, before anything is lowered. A plan
 * never needs less memory and never takes a shorter step than they say, so a search may reject by
 * them. They are loose where the truth needs the program. */
#ifndef TANDEM_SESSION_BOUND_H
#define TANDEM_SESSION_BOUND_H

#include "planner/front/config.h"
#include "planner/ir/trace.h"

typedef struct Bounds {
    uint64_t state_bytes; /* weights, gradients and moments between steps, of the fullest rank */
    uint64_t kept_bytes;  /* inputs of its blocks, kept from forward to backward */
    Ps step_ps;           /* all matrix products at the device's peak, spread evenly */
} Bounds;
Bounds bounds_of(const Config *config, const Graph *graph);

#endif
