/* Uneven rows: the tokens of each expert when no token is dropped. Such a tensor has dimensions
 * [experts, samples, rooms, ...]. A room is space for one token, and an expert has as many rooms as
 * a sample has tokens.
 *
 * Only rooms with a token are stored, expert by expert. The number of stored rows is known only at
 * run time. A second tensor [experts, samples] holds these numbers.
 *
 * The rooms have a deal of kind DEAL_rows. Deal.per_part is the number of experts that each token
 * chooses. Deal.bound is the memory of a rank for rows, in thousandths of the mean number. A rank
 * that holds all experts needs exactly the mean. */
#ifndef TANDEM_IR_ROWS_H
#define TANDEM_IR_ROWS_H

#include "planner/ir/layout/layout.h"

/* ROWS_DIMS: the number of leading dimensions that are stored as one dimension of rows. ROWS_MEAN:
 * the value of Deal.bound that gives a rank memory for exactly the mean number of rows. */
enum { ROWS_DIMS = 3, ROWS_MEAN = 1000 };

DealId deal_rows(Deals *deals, Arena *arena, int64_t rooms, uint32_t top_k, uint32_t bound);
bool deal_is_rows(const Deals *deals, DealId id);
/* True if `s` is the shape of a tensor of uneven rows. */
bool rows_uneven(const Shape *s, const Deals *deals);
/* Returns the number of rows that fit into a rank's buffer. */
int64_t rows_local(const Shape *s, const Mesh *mesh, const Deals *deals);
/* Returns the number of rows of a rank if all experts are chosen equally often. */
double rows_mean(const Shape *s, const Mesh *mesh, const Deals *deals);
/* Returns the most rows that a rank can get. A token chooses an expert at most once. */
int64_t rows_most(const Shape *s, const Mesh *mesh, const Deals *deals);

#endif
