/* Declarations that the functions of tandem.core share while they trace a model. */
#ifndef TANDEM_FRONT_CHILD_TRACER_H
#define TANDEM_FRONT_CHILD_TRACER_H

#include "planner/front/child/child.h"

typedef struct Tracer {
    Graph graph;
    bool has_batch;
    uint32_t n_blocks; /* number of blocks that the trace has begun */
} Tracer;

Loc tracer_loc(const Child *c, ScriptLoc loc);
/* Returns the tracer; raises "trace-order" if no model is being traced. */
Tracer *tracer(Child *c);
/* Sends a node to the parent. `out` is its first output; the other outputs have the next ids. */
void tracer_put_op(Child *c, OpKind op, TensorId out, ModuleId module, ScriptLoc loc,
                   const TensorId *in, uint32_t n_in, const Attrs *attrs);
/* Adds the functions that make a micro-batch's data to the table on the stack (child_data.c). */
void tracer_add_data(lua_State *L);

#endif
