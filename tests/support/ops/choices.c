/* See choices.h. */
#include "tests/support/ops/choices.h"

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

/* Returns the expert that a token chooses in the case where experts drop no token, or -1 for a
 * choice without an expert. In some sequences, one expert gets no token. */
static int64_t chosen(const Attrs *attrs, int64_t b, int64_t token, int64_t choice)
{
    const int64_t e = (token * 5 + b + token / 3 + choice) % attrs->experts;
    if ((token + b) % 4 == 3 || choice >= attrs->experts) return -1;
    return attrs->experts > 1 && b % 2 == 1 && e == 0 ? -1 : e;
}

/* Walks over the choices of sequence b. Fills the slots [S,K] of the sequence, or counts its rows
 * in `counts` [e,b]. */
static void fill_uneven(const Attrs *attrs, int64_t b, int64_t samples, Value *slots, Value *counts)
{
    int64_t taken[MOST_EXPERTS] = {0};
    const int64_t n = (attrs->capacity - CHOICES_SPARE) * attrs->top_k;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = chosen(attrs, b, i / attrs->top_k, i % attrs->top_k);
        if (slots)
            value_set(slots, b * n + i, e < 0 ? -1 : (double)(e * attrs->capacity + taken[e]));
        if (e >= 0) taken[e]++;
    }
    for (int64_t e = 0; counts && e < attrs->experts; e++)
        value_set(counts, e * samples + b, (double)taken[e]);
}

static bool fill_counted(OpKind op, uint32_t arg, const Attrs *attrs, Value *v)
{
    if (!(op_index_args(op) >> arg & 1)) return false;
    const bool counts = v->n_dims == 2;
    const int64_t samples = v->dim[counts];
    assert(counts || (v->dim[1] == attrs->capacity - CHOICES_SPARE && v->dim[2] == attrs->top_k));
    for (int64_t b = 0; b < (counts ? samples : v->dim[0]); b++)
        fill_uneven(attrs, b, samples, counts ? NULL : v, counts ? v : NULL);
    return true;
}

/* Moves rows from memory with all rooms to memory that has only the taken rooms (`packs`), or back.
 * A room is the memory for one row. */
static Value move_rows(Arena *arena, const Value *from, const Value *counts, bool packs)
{
    Value to = value_new(arena, from->dtype, from->n_dims, from->dim);
    const int64_t n = counts->dim[0] * counts->dim[1], width = from->dim[3];
    for (int64_t i = 0; i < value_elements(&to); i++) value_set(&to, i, 0);
    for (int64_t i = 0, at = 0; i < n; i++)
        for (int64_t k = 0; k < (int64_t)value_get(counts, i); k++, at++)
            for (int64_t d = 0; d < width; d++) {
                const int64_t room = (i * from->dim[2] + k) * width + d, row = at * width + d;
                value_set(&to, packs ? row : room, value_get(from, packs ? room : row));
            }
    return to;
}

bool choices_are_rows(OpKind op, uint32_t arg)
{
    return op_info(op)->flags & OP_COUNTED && op_dim(op, arg, INDEX_rooms) >= 0;
}

Value choices_rooms(Arena *arena, const Value *rows, const Value *counts)
{
    return move_rows(arena, rows, counts, false);
}

Value choices_rows(Arena *arena, const Value *rooms, const Value *counts)
{
    return move_rows(arena, rooms, counts, true);
}

bool choices_fill(OpKind op, uint32_t arg, const Attrs *attrs, Value *v)
{
    enum { STRIDE = 19 }; /* This number has no common divisor with the number of slots. */
    if (op_info(op)->flags & OP_COUNTED || (op_counts_rows(op) && arg == 0))
        return fill_counted(op, arg, attrs, v);
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
