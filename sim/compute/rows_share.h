/* How the work of an instruction depends on a rank's rows of experts. Weights are read once, and a
 * kernel is launched once, whatever the number of rows. */
#ifndef TANDEM_SIM_COMPUTE_ROWS_SHARE_H
#define TANDEM_SIM_COMPUTE_ROWS_SHARE_H

#include "planner/ir/plan.h"

typedef struct RowsShare {
    const NodeId *of; /* [tensor]: not 0 if the tensor has rows of experts (experts_rows) */
    double share;     /* the rank's rows, relative to the mean */
} RowsShare;

/* In all functions `rows` may be NULL: all ranks then have equally many rows. */

/* Returns a bit for each argument that has rows; 0: the work does not depend on `rows`. */
uint32_t rows_args(const RowsShare *rows, const Program *p, const Instr *in);
/* Returns the factor of the instruction's arithmetic. */
double rows_factor(const RowsShare *rows, const Program *p, const Instr *in);
/* Returns the number of rows: the product of all dimensions of the first argument but the last. */
double rows_in(const RowsShare *rows, const Plan *plan, const Program *p, const Instr *in);
/* Returns the bytes that the instruction moves: plan_kernel_bytes with `part`, otherwise
 * plan_hbm_bytes, with its own number of rows. Without rows no other input is read. */
double rows_moved(const RowsShare *rows, const Plan *plan, const Program *p, const Instr *in,
                  bool part);
/* Multiplies the index of a product that counts rows: all arguments with rows have it, and no other
 * argument has it. */
void rows_sizes(const RowsShare *rows, const Program *p, const Instr *in, const Binding *b,
                int64_t size['z' + 1]);

#endif
