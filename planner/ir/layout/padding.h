/* A ceil deal with padding. Deal.per_part is the number of elements in each part's buffer; 0 means
 * the smallest possible number. The last parts may be short or empty. Padding contains zeros. A
 * dimension that no axis splits may also have padding; it then counts as one part. */
#ifndef TANDEM_IR_PADDING_H
#define TANDEM_IR_PADDING_H

#include "planner/ir/layout/layout.h"

/* Makes a ceil deal whose parts have buffers of `each` elements. */
DealId deal_padded(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t each);
bool deal_is_padded(const Deals *deals, DealId id);
/* Returns the deal that remains if no axis splits the dimension: `id` if it is a padded deal of one
 * part, otherwise 0. */
DealId deal_whole(const Deals *deals, DealId id);
/* Returns the shape of a tensor under a layout. Split dimensions get their deals, and all padding
 * is kept. */
Shape shape_under(const Deals *deals, const Layout *layout, int n_dims, const int64_t *dim,
                  const DealId *deal);
/* For a deal without a table of intervals. True if its parts together have room for all indices,
 * and no part has a buffer of more than `most` elements. */
bool deal_padding_fits(const Deal *d, int64_t most);

#endif
