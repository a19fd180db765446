/* What each argument of an op holds, whatever computes it: numbers of the op's own precision, ids,
 * or scalars in fp64. One table for the CPU's kernels and the devices'. */
#ifndef TANDEM_KERNELS_ARGUMENT_H
#define TANDEM_KERNELS_ARGUMENT_H

#include "planner/ir/op.h"

typedef enum ArgumentKind {
    ARGUMENT_real,
    ARGUMENT_index,   /* i32: ids, labels */
    ARGUMENT_scalars, /* f64: tables of scalars of the update */
    ARGUMENT_loss,    /* a real, or f64 though the inputs are not */
    ARGUMENT_any      /* real or i32: what is moved as it is */
} ArgumentKind;

ArgumentKind kernel_argument(OpKind op, uint32_t arg);

#endif
