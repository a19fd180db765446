/* Uneven rows: the tokens that experts receive where none is dropped. Such a tensor has dimensions
 * [experts, samples, rooms, ...]. Each sample has as many rooms of each expert as it has tokens,
 * but only the rooms that are taken are stored: expert after expert, of each the samples in order.
 * The numbers of rows [experts, samples] are known only while the program runs. They are a tensor
 * of their own.
 *
 * The rooms have a deal of kind DEAL_rows: Deal.per_part experts are chosen by each token, and
 * Deal.bound thousandths of the mean number of rows fit into a rank's memory. A rank that holds all
 * experts has exactly the mean. */
#ifndef TANDEM_IR_ROWS_H
#define TANDEM_IR_ROWS_H

#include "planner/ir/layout/layout.h"

/* dimensions that are stored together; the bound of a rank that holds exactly the mean */
enum { ROWS_DIMS = 3, ROWS_MEAN = 1000 };

DealId deal_rows(Deals *deals, Arena *arena, int64_t rooms, uint32_t top_k, uint32_t bound);
bool deal_is_rows(const Deals *deals, DealId id);
/* True if the shape is of uneven rows. */
bool rows_uneven(const Shape *s, const Deals *deals);
/* The number of rows that a rank's buffer has room for. */
int64_t rows_local(const Shape *s, const Mesh *mesh, const Deals *deals);
/* The number of rows that a rank holds if all experts are chosen equally often. */
double rows_mean(const Shape *s, const Mesh *mesh, const Deals *deals);
/* The most rows that a rank can get: each token chooses an expert at most once. */
int64_t rows_most(const Shape *s, const Mesh *mesh, const Deals *deals);

#endif
