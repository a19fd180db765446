/* Declarations that the C functions of tandem.core (child_trace.c, child_data.c) share while they
 * trace a model, that is, record the ops of its forward function as a graph. */
#ifndef TANDEM_FRONT_CHILD_TRACER_H
#define TANDEM_FRONT_CHILD_TRACER_H

#include "planner/front/child/child.h"

typedef struct Tracer {
    Graph graph;
    bool has_batch;
    /* number of the model's blocks (repeated layers) that the trace has entered so far */
    uint32_t n_blocks;
} Tracer;

Loc tracer_loc(const Child *c, ScriptLoc loc);
/* Returns the graph under construction; raises "trace-order" if no model is being traced. */
Tracer *tracer(Child *c);
/* Sends a node of the graph to the parent as RECORD_op. `out` is the id of its first output;
 * further outputs have the ids out + 1, out + 2, ... */
void tracer_put_op(Child *c, OpKind op, TensorId out, ModuleId module, ScriptLoc loc,
                   const TensorId *in, uint32_t n_in, const Attrs *attrs);
/* Adds the functions that create a micro-batch's input tensors (child_data.c) to the table on top
 * of the stack. */
void tracer_add_data(lua_State *L);

#endif
