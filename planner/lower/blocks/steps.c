/* The state that lowering a block changes: arrays, lists and single numbers of Lower. repeat.c
 * compares this state in one block and in the next, as words of 32 bits. */
#include "planner/lower/blocks/steps.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define AT(type, field)    (offsetof(type, field) / sizeof(uint32_t))
#define MOVES(type, field) (UINT32_C(1) << AT(type, field))
#define INSTR_MOVES                                                                                \
    (MOVES(Instr, launch) | MOVES(Instr, match) | MOVES(Instr, args.first) |                       \
     MOVES(Instr, after.first) | MOVES(Instr, origin) | MOVES(Instr, unit))
#define BUFFER_MOVES (MOVES(Buffer, parent) | MOVES(Buffer, tensor) | MOVES(Buffer, unit))
#define VERSION_MOVES                                                                              \
    (MOVES(Version, buffer) | MOVES(Version, rows) | MOVES(Version, consumer) |                    \
     MOVES(Version, next))

StepWords steps_part(const Lower *l, ChangedPart part, uint32_t first_version)
{
    const uint32_t tensors = l->value.tensor_room;
    const uint32_t unit = MOVES(UnitState, rest) | MOVES(UnitState, m) | MOVES(UnitState, v) |
                          MOVES(UnitState, grad) | MOVES(UnitState, gathered) |
                          MOVES(UnitState, kept) | MOVES(UnitState, reduced) |
                          MOVES(UnitState, full_grad);
    switch (part) {
    case PART_versions_of: return (StepWords){l->value.versions_of, tensors, 1, 1};
    case PART_grads:
        return (StepWords){l->grad.of, tensors, sizeof(GradState) / 4, MOVES(GradState, sums)};
    case PART_arrived: return (StepWords){l->grad.arrived, tensors, 1, 0};
    case PART_weight_views: return (StepWords){l->unit.weight_view, tensors, 1, 1};
    case PART_grad_views: return (StepWords){l->unit.grad_view, tensors, 1, 1};
    case PART_of_step: return (StepWords){l->value.of_step, tensors, 1, 1};
    case PART_maxima: return (StepWords){l->unit.maximum, tensors, 1, 1};
    case PART_units: return (StepWords){l->unit.of, l->g->units.n, sizeof(UnitState) / 4, unit};
    case PART_versions: {
        Version *at = l->value.versions.at;
        return (StepWords){at ? at + first_version : NULL, l->value.versions.n - first_version,
                           sizeof(Version) / 4, VERSION_MOVES};
    }
    case PART_COUNT: break;
    }
    assert(0 && "a part");
    return (StepWords){0};
}

StepWords steps_made(const Lower *l, MadeList made)
{
    switch (made) {
#define X(name, list, memory, moves)                                                               \
    case MADE_##name: return (StepWords){l->list.at, l->list.n, sizeof *l->list.at / 4, moves};
        MADE_LISTS(X)
#undef X
    case MADE_COUNT: break;
    }
    assert(0 && "a list");
    return (StepWords){0};
}

Counters steps_counters(const Lower *l)
{
    Counters c = {0};
#define X(name, member, kind) c.name = l->member;
    COUNTERS(X)
#undef X
    for (uint32_t i = 0; i < l->unit.pending.n && i < MOST_PENDING; i++) {
        c.pending_unit[i] = l->unit.pending.at[i].unit;
        c.pending_part[i] = l->unit.pending.at[i].part;
    }
    return c;
}

void steps_set_counters(Lower *l, const Counters *c)
{
#define X(name, member, kind) l->member = c->name;
    COUNTERS(X)
#undef X
    for (uint32_t i = 0; i < l->unit.pending.n && i < MOST_PENDING; i++) {
        l->unit.pending.at[i].unit = c->pending_unit[i];
        l->unit.pending.at[i].part = c->pending_part[i];
    }
}

Fixed steps_fixed(const Lower *l)
{
    Fixed f = {.last = 0};
#define X(name, member) f.name = l->member;
    FIXED(X)
#undef X
    for (uint32_t i = 0; i < l->unit.pending.n; i++)
        f.last = 2 * f.last + l->unit.pending.at[i].last;
    return f;
}

/* Sets to 0 all members that the tables list, and those that follow from them. If blocks change a
 * member of Lower that no table lists, they are not copied. An array that blocks change must be a
 * ChangedPart; test_equal_blocks finds one that is not. */
static void clear_listed(Lower *l)
{
    const Counters none = {0};
#define X(name, member) l->member = 0;
    FIXED(X)
#undef X
    steps_set_counters(l, &none); /* set after the members in FIXED, so that no gradient is
                                   * pending */
    memset(l->emit.stream_end, 0, sizeof l->emit.stream_end);
    l->value.n_of_step = 0; /* only actions.h reads it */
    memset(l->emit.newest_attrs, 0, sizeof l->emit.newest_attrs);
#define X(name, list, memory, moves) memset(&l->list, 0, sizeof l->list);
    MADE_IN_LOWER(X)
#undef X
#define X(list) memset(&l->list, 0, sizeof l->list);
    OTHER_LISTS(X)
#undef X
}

bool steps_only_listed(const Lower *before, const Lower *now)
{
    Lower x, y;
    memcpy(&x, before, sizeof x);
    memcpy(&y, now, sizeof y);
    clear_listed(&x);
    clear_listed(&y);
    return memcmp(&x, &y, sizeof x) == 0;
}
