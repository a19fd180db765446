/* Ceil deals with padding. All ranks have buffers of the same size (Deal.per_part). The last parts
 * may have fewer elements, or none; the rest of their buffers is padding, which contains zeros. For
 * example, a vocabulary of 50257 over 8 ranks in buffers of 6400 gives part 7 only 5457 elements. A
 * dimension that is not split can also have padding; it then counts as one part. */
#ifndef TANDEM_IR_PADDING_H
#define TANDEM_IR_PADDING_H

#include "planner/ir/layout/layout.h"

/* Returns the ceil deal of n_parts parts with buffers of `each` elements. */
DealId deal_padded(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t each);
bool deal_is_padded(const Deals *deals, DealId id);
/* Returns the deal of a dimension that no axis splits. This is `id` if it only adds padding (one
 * part), otherwise 0. */
DealId deal_whole(const Deals *deals, DealId id);
/* Returns the shape of a tensor with dimensions `dim` and deals `deal` under `layout`. Deals of
 * dimensions that are not split are left out, except those that add padding. */
Shape shape_under(const Deals *deals, const Layout *layout, int n_dims, const int64_t *dim,
                  const DealId *deal);
/* For a deal read from a text. True if the kind has no table of intervals, all parts together have
 * room for all indices, and no part's buffer has more than `most` elements. */
bool deal_padding_fits(const Deal *d, int64_t most);

#endif
