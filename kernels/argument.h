/* The kind of number in each argument of an op: the op's own precision, ids, or fp64 scalars.
 * CPU and device kernels share this table. */
#ifndef TANDEM_KERNELS_ARGUMENT_H
#define TANDEM_KERNELS_ARGUMENT_H

#include "planner/ir/op.h"

typedef enum ArgumentKind {
    ARGUMENT_real,
    ARGUMENT_index,   /* i32: ids, labels */
    ARGUMENT_scalars, /* f64: tables of scalars of the update */
    ARGUMENT_loss,    /* a real number, or f64 even if the inputs are not f64 */
    ARGUMENT_any      /* real or i32: moved without being interpreted */
} ArgumentKind;

ArgumentKind kernel_argument(OpKind op, uint32_t arg);

#endif
