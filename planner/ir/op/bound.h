/* Bindings (op.h) that are read without a copy. op_bind and graph_bind copy them. */
#ifndef TANDEM_IR_BOUND_H
#define TANDEM_IR_BOUND_H

#include "planner/ir/graph.h"

/* Like op_bind and graph_bind, but return a pointer into this thread's table of bindings. It is
 * valid until the thread binds twice more. A binding that the table cannot store is written to
 * *own, and `own` is returned. Return NULL if the shapes do not match. */
const Binding *op_bound(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out,
                        Binding *own, Loc loc, Diag *d);
const Binding *graph_bound(const Graph *g, const Node *n, Binding *own, Diag *d);

#endif
