/* Compares the initial distributions of two parameters. */
#ifndef TANDEM_IR_INIT_H
#define TANDEM_IR_INIT_H

#include <assert.h>
#include <string.h>

#include "planner/ir/graph.h"

static_assert(sizeof(Init) == 3 * sizeof(double), "init_equal compares all fields");

/* True if both parameters are initialised from the same distribution. Compares field by field,
 * because padding between fields may have any value. */
static inline bool init_equal(const Init *x, const Init *y)
{
    return x->kind == y->kind && memcmp(&x->a, &y->a, sizeof x->a) == 0 &&
           memcmp(&x->b, &y->b, sizeof x->b) == 0;
}

#endif
