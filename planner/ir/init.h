/* Compares the distributions from which two parameters get their initial values. */
#ifndef TANDEM_IR_INIT_H
#define TANDEM_IR_INIT_H

#include <assert.h>
#include <string.h>

#include "planner/ir/graph.h"

static_assert(sizeof(Init) == 3 * sizeof(double), "init_equal compares all fields");

/* Compares the fields, because the bytes between them may have any value. */
static inline bool init_equal(const Init *x, const Init *y)
{
    return x->kind == y->kind && memcmp(&x->a, &y->a, sizeof x->a) == 0 &&
           memcmp(&x->b, &y->b, sizeof x->b) == 0;
}

#endif
