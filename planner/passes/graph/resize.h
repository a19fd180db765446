/* The same model on fields of another size. */
#ifndef TANDEM_PASSES_GRAPH_RESIZE_H
#define TANDEM_PASSES_GRAPH_RESIZE_H

#include "planner/ir/graph.h"

/* Builds in `out` the forward graph of g on fields with `size` rows (INDEX_height) or columns
 * (INDEX_width). Returns false if some op of the model does not take such a field. An op that
 * resizes to the field's own size gets the new size. An op that resizes by a whole factor keeps its
 * factor. */
bool graph_resize(const Graph *g, IndexRole role, int64_t size, Arena *arena, Graph *out);
/* Returns the number of rows or columns of the fields that g reads; 0: it reads none. */
int64_t graph_field_size(const Graph *g, IndexRole role);
#endif
