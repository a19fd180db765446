/* Uneven rows: the tokens that each expert receives if no token is dropped. A tensor of uneven rows
 * has dimensions [experts, samples, rooms, ...]. A room is space for one token. In each sample
 * every expert has as many rooms as the sample has tokens. Only the rooms that are taken are
 * stored: expert after expert, and for each expert the samples in order. The numbers of rows
 * [experts, samples] are known only while the program runs. They are stored in a tensor of their
 * own.
 *
 * The rooms have a deal of kind DEAL_rows. Deal.per_part is the number of experts that each token
 * chooses. Deal.bound is the number of rows that fit into a rank's memory, in thousandths of the
 * mean. A rank that holds all experts has exactly the mean number of rows. */
#ifndef TANDEM_IR_ROWS_H
#define TANDEM_IR_ROWS_H

#include "planner/ir/layout/layout.h"

/* ROWS_DIMS: the leading dimensions that are stored as one. ROWS_MEAN: the Deal.bound of a rank
 * that has room for exactly the mean. */
enum { ROWS_DIMS = 3, ROWS_MEAN = 1000 };

DealId deal_rows(Deals *deals, Arena *arena, int64_t rooms, uint32_t top_k, uint32_t bound);
bool deal_is_rows(const Deals *deals, DealId id);
/* True if `s` is the shape of a tensor of uneven rows. */
bool rows_uneven(const Shape *s, const Deals *deals);
/* The number of rows that a rank's buffer has room for. */
int64_t rows_local(const Shape *s, const Mesh *mesh, const Deals *deals);
/* The number of rows that a rank holds if all experts are chosen equally often. */
double rows_mean(const Shape *s, const Mesh *mesh, const Deals *deals);
/* The most rows that a rank can get: each token chooses an expert at most once. */
int64_t rows_most(const Shape *s, const Mesh *mesh, const Deals *deals);

#endif
