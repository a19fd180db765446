/* Uneven rows: the tokens that an expert gets if none is dropped (a dropless mixture of experts).
 * The count of an expert's tokens is known only at run time.
 *
 * The tensor has dimensions [experts, samples, rooms, ...]. A room is space for one token of a
 * sample. Since every token of a sample may choose the same expert, there are as many rooms as
 * tokens. Only rooms with a token are stored: the rows of expert 0 first, then those of expert 1
 * and so on. A second tensor [experts, samples], the counts, says how many rows each expert has
 * from each sample.
 *
 * The rooms have a deal of kind DEAL_rows. Deal.per_part is the number of experts that each token
 * chooses (top_k). Deal.bound limits the memory: a rank has room for bound / 1000 times the rows
 * that it would get if all experts were chosen equally often. A rank that holds all experts always
 * gets exactly this mean. */
#ifndef TANDEM_IR_ROWS_H
#define TANDEM_IR_ROWS_H

#include "planner/ir/layout/layout.h"

/* ROWS_DIMS: the leading dimensions (experts, samples, rooms) that are stored as one dimension of
 * rows. ROWS_MEAN: the value of Deal.bound that gives memory for exactly the mean count of rows. */
enum { ROWS_DIMS = 3, ROWS_MEAN = 1000 };

DealId deal_rows(Deals *deals, Arena *arena, int64_t rooms, uint32_t top_k, uint32_t bound);
static inline bool deal_is_rows(const Deals *deals, DealId id)
{
    return id && deals->deals.at[id].kind == DEAL_rows;
}
/* True if `s` is the shape of such a tensor: dimension 2, the rooms, has a deal of kind
 * DEAL_rows. */
bool rows_uneven(const Shape *s, const Deals *deals);
/* Returns how many rows a rank's buffer has room for. */
int64_t rows_local(const Shape *s, const Mesh *mesh, const Deals *deals);
/* Returns how many rows a rank gets if all experts are chosen equally often. */
double rows_mean(const Shape *s, const Mesh *mesh, const Deals *deals);
/* Returns how many rows a rank gets at most: every token chooses as many of the rank's experts as
 * it can, each at most once. */
int64_t rows_most(const Shape *s, const Mesh *mesh, const Deals *deals);

#endif
