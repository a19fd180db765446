/* A ceil deal with padding: Deal.per_part is the number of elements in the buffer of each part. It
 * may exceed the number that the part needs; 0 means as few as possible. The last parts are short
 * or empty. Elements without an index hold zeros. A dimension that no axis splits may be padded,
 * too: it is then one part. */
#ifndef TANDEM_IR_PADDING_H
#define TANDEM_IR_PADDING_H

#include "planner/ir/layout/layout.h"

/* A ceil deal of parts of `each` elements. */
DealId deal_padded(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t each);
bool deal_is_padded(const Deals *deals, DealId id);
/* Returns the deal that a dimension with deal `id` has if no axis splits it: `id` if `id` is a
 * padded deal of one part, else 0. */
DealId deal_whole(const Deals *deals, DealId id);
/* The shape of a tensor of these dimensions under a layout. Dimensions that axes split keep their
 * deals; padding is kept everywhere.
 */
Shape shape_under(const Deals *deals, const Layout *layout, int n_dims, const int64_t *dim,
                  const DealId *deal);
/* True if the fields of a deal without a table of intervals fit together, so that the parts hold
 * all indices. */
bool deal_padding_fits(const Deal *d, int64_t most);

#endif
