/* How the work of an instruction depends on the number of rows that its rank's experts process. A
 * row is the vector of one token, sent to one expert. Weights are read once and a kernel is
 * launched once, whatever the number of rows. */
#ifndef TANDEM_SIM_COMPUTE_ROWS_SHARE_H
#define TANDEM_SIM_COMPUTE_ROWS_SHARE_H

#include "planner/ir/plan.h"

typedef struct RowsShare {
    const NodeId *of; /* [tensor]: not 0 if the tensor consists of such rows (see experts_rows) */
    double share;     /* rows of the rank, relative to the mean */
} RowsShare;

/* In all these functions, `rows` may be NULL: all ranks then have equally many rows. */

/* Returns a bit for each argument that consists of such rows. 0: the work does not depend on
 * `rows`. */
uint32_t rows_args(const RowsShare *rows, const Program *p, const Instr *in);
/* Returns the factor by which the arithmetic of the instruction grows. */
double rows_factor(const RowsShare *rows, const Program *p, const Instr *in);
/* Returns the number of rows of the first argument: the product of all its dimensions but the last
 * one. */
double rows_in(const RowsShare *rows, const Plan *plan, const Program *p, const Instr *in);
/* Returns the bytes that the instruction moves with the rank's number of rows. They are counted
 * like plan_kernel_bytes if `part` is true, otherwise like plan_hbm_bytes. If the rank has no rows,
 * no other input is read either. */
double rows_moved(const RowsShare *rows, const Plan *plan, const Program *p, const Instr *in,
                  bool part);
/* For a product: multiplies size[letter] by the share, where `letter` is the index that counts
 * rows. All arguments with rows have this index, and no other argument has it. */
void rows_sizes(const RowsShare *rows, const Program *p, const Instr *in, const Binding *b,
                int64_t size['z' + 1]);

#endif
