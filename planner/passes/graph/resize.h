/* Makes the graph of the same model on fields of another size. */
#ifndef TANDEM_PASSES_GRAPH_RESIZE_H
#define TANDEM_PASSES_GRAPH_RESIZE_H

#include "planner/ir/graph.h"

/* Makes in `out` the forward graph of g for fields with `size` rows (INDEX_height) or columns
 * (INDEX_width). Returns false if an op of the model does not accept such fields. An op that
 * resizes to the field's own size gets the new size. An op that resizes by a whole factor keeps the
 * factor. */
bool graph_resize(const Graph *g, IndexRole role, int64_t size, Arena *arena, Graph *out);
/* Returns the number of rows or columns of the fields that g reads; 0 if it reads none. */
int64_t graph_field_size(const Graph *g, IndexRole role);
#endif
