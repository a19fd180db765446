/* Bindings that are read without a copy. op_bind and graph_bind copy them. */
#ifndef TANDEM_IR_BOUND_H
#define TANDEM_IR_BOUND_H

#include "planner/ir/graph.h"

/* Do the work of op_bind and graph_bind, but return the stored binding. Return NULL if the shapes
 * do not match. The result stays valid until this thread binds twice more. A binding that cannot be
 * stored is written to *own, and `own` is returned. */
const Binding *op_bound(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out,
                        Binding *own, Loc loc, Diag *d);
const Binding *graph_bound(const Graph *g, const Node *n, Binding *own, Diag *d);

#endif
