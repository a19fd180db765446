/* Builds the graph of the same model for fields of another size, to find sizes for hints. */
#ifndef TANDEM_PASSES_GRAPH_RESIZE_H
#define TANDEM_PASSES_GRAPH_RESIZE_H

#include "planner/ir/graph.h"

/* Builds in `out` the forward graph of g for fields with `size` rows (role INDEX_height) or columns
 * (INDEX_width). A resize op to the field's own size gets the new size; one by an integer factor
 * keeps its factor. Returns false if an op does not accept the new size. */
bool graph_resize(const Graph *g, IndexRole role, int64_t size, Arena *arena, Graph *out);
/* Returns the rows or columns of the fields that the model reads; 0 if it reads none. */
int64_t graph_field_size(const Graph *g, IndexRole role);
#endif
