/* The kind of numbers that each argument of an op has. The CPU kernels and the device kernels both
 * use this table. */
#ifndef TANDEM_KERNELS_ARGUMENT_H
#define TANDEM_KERNELS_ARGUMENT_H

#include "planner/ir/op/op.h"

typedef enum ArgumentKind {
    ARGUMENT_real,
    ARGUMENT_index,   /* i32: token ids, labels */
    ARGUMENT_scalars, /* f64: tables of scalars that the update uses */
    ARGUMENT_loss,    /* a real number; it may be f64 even if the inputs are not */
    ARGUMENT_any      /* a real number or i32; the op only moves it */
} ArgumentKind;

/* Returns the kind of argument `arg` of the op; inputs come before outputs. */
ArgumentKind kernel_argument(OpKind op, uint32_t arg);

#endif
