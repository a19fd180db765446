#include "tests/support/choices.h"

#include <assert.h>

static bool holds_ids(OpKind op, uint32_t arg)
{
    return (op == OP_slots && arg == 0) || (op == OP_loads && arg == 0) ||
           (op == OP_route && arg == 1) || (op == OP_route_grad && arg == 2) ||
           (op == OP_route_sigmoid && arg == 1) || (op == OP_route_sigmoid_grad && arg == 2) ||
           (op == OP_balance && arg == 1) || (op == OP_balance_grad && arg == 2);
}

static bool holds_slots(OpKind op, uint32_t arg)
{
    const bool second = op == OP_dispatch || op == OP_dispatch_grad || op == OP_combine_grad ||
                        op == OP_combine_weights;
    return (second && arg == 1) || (op == OP_combine && arg == 0);
}

bool choices_fill(OpKind op, uint32_t arg, const Attrs *attrs, Value *v)
{
    enum { STRIDE = 19 }; /* coprime to the number of slots */
    if (!holds_ids(op, arg) && !holds_slots(op, arg)) return false;
    assert(v->n_dims == 3);
    const int64_t k = v->dim[2], in_sequence = v->dim[1] * k;
    const int64_t n_slots = attrs->experts * attrs->capacity;
    if (holds_slots(op, arg)) assert(n_slots % STRIDE != 0 && n_slots >= in_sequence);
    for (int64_t i = 0; i < value_elements(v); i++) {
        const int64_t token = i / k, choice = i % k, at = i % in_sequence;
        const int64_t id = (token * 5 + token / 3 + choice) % attrs->experts;
        const int64_t slot = (i + i / in_sequence) % 4 == 3 ? -1 : at * STRIDE % n_slots;
        value_set(v, i, (double)(holds_ids(op, arg) ? id : slot));
    }
    return true;
}
