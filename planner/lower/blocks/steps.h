/* The state that lowering a block changes, as words of 32 bits. */
#ifndef TANDEM_LOWER_STEPS_H
#define TANDEM_LOWER_STEPS_H

#include "planner/lower/lower.h"

/* The arrays in which lowering changes elements. */
typedef enum ChangedPart {
    PART_versions_of,
    PART_grads,
    PART_arrived,
    PART_weight_views,
    PART_grad_views,
    PART_of_step,
    PART_maxima,
    PART_units,
    PART_versions,
    PART_COUNT
} ChangedPart;

/* THE tables of the lists to which lowering appends elements. A row has the name of a list, the
 * member of Lower that leads to it, and the arena in which it grows. Its last column says which
 * words of an element may grow from block to block by a constant (as `moves` of StepWords). An
 * appended element never changes later, except in `versions`. */
#define MADE_IN_PROGRAM(X)                                                                         \
    X(code, p->code, arena, INSTR_MOVES)                                                           \
    X(args, p->args, arena, 1)                                                                     \
    X(after, p->after, arena, 1)                                                                   \
    X(buffers, p->buffers, arena, BUFFER_MOVES)
#define MADE_IN_LOWER(X)                                                                           \
    X(clocks, emit.clocks, scratch, UINT32_MAX)                                                    \
    X(named, emit.named, scratch, UINT32_MAX)                                                      \
    X(shared, grad.shared, scratch, UINT32_MAX)                                                    \
    X(versions, value.versions, scratch, VERSION_MOVES)
#define MADE_LISTS(X) MADE_IN_PROGRAM(X) MADE_IN_LOWER(X)
typedef enum MadeList {
#define X(name, list, memory, moves) MADE_##name,
    MADE_LISTS(X)
#undef X
        MADE_COUNT
} MadeList;

/* The other lists of Lower that blocks change. `access` and `shared_of` follow from the
 * instructions and buffers, `elements` from the shapes. The length of each other list must be equal
 * in all blocks (FIXED). */
#define OTHER_LISTS(X)                                                                             \
    X(emit.access)                                                                                 \
    X(emit.elements)                                                                               \
    X(value.started) X(unit.pending) X(grad.shared_of) X(grad.returning)

/* An array of n elements with `each` words. Bit i of `moves` is 1 if word i of an element may grow
 * from block to block by a constant. The other words are the same in equal blocks. */
typedef struct StepWords {
    void *at;
    uint32_t n, each, moves;
} StepWords;

/* Returns the array. For PART_versions it begins at version `first_version`. */
StepWords steps_part(const Lower *l, ChangedPart part, uint32_t first_version);
StepWords steps_made(const Lower *l, MadeList made);

/* The largest number of reduced gradients that may still wait for their accumulation at the end of
 * a block. */
enum { MOST_PENDING = 4 };

/* The single numbers that grow from block to block by a constant. A row has a name, the member of
 * Lower, and its kind. pc: an instruction for which later instructions may wait. send: an
 * instruction for which only the next computation waits. number: any other number. */
#define COUNTERS(X)                                                                                \
    X(floor, emit.floor, pc)                                                                       \
    X(compute_waits, emit.compute_waits, pc)                                                       \
    X(forward_waits, emit.send_waits[0], send)                                                     \
    X(backward_waits, emit.send_waits[1], send)                                                    \
    X(match, emit.match, number)                                                                   \
    X(launch, emit.launch, number)                                                                 \
    X(next_use, unit.next_use, number)                                                             \
    X(seen_uses, unit.seen_uses, number)                                                           \
    X(last_release, unit.last_release, pc)                                                         \
    X(last_reduce, unit.last_reduce, pc)                                                           \
    X(previous_reduce, unit.previous_reduce, pc)                                                   \
    X(last_copy_out, unit.last_copy_out, pc)                                                       \
    X(last_offload, unit.last_offload, pc)                                                         \
    X(previous_offload, unit.previous_offload, pc)                                                 \
    X(last_host_sum, unit.last_host_sum, pc)                                                       \
    X(previous_host_sum, unit.previous_host_sum, pc)                                               \
    X(grad_after, grad.after, pc)

typedef struct Counters {
#define X(name, member, kind) uint32_t name;
    COUNTERS(X)
#undef X
    uint32_t pending_unit[MOST_PENDING], pending_part[MOST_PENDING];
} Counters;

/* The single numbers that must be equal in all blocks. */
#define FIXED(X)                                                                                   \
    X(n_losses, scalar.n_losses)                                                                   \
    X(n_started, value.started.n)                                                                  \
    X(n_returning, grad.returning.n)                                                               \
    X(n_pending, unit.pending.n)                                                                   \
    X(phase, phase)

typedef struct Fixed {
#define X(name, member) uint32_t name;
    FIXED(X)
#undef X
    uint32_t last; /* one bit for each pending gradient: Pending.last */
} Fixed;

Counters steps_counters(const Lower *l);
void steps_set_counters(Lower *l, const Counters *c);
Fixed steps_fixed(const Lower *l);
/* True if `now` differs from `before` only in members that steps.c lists. Does not compare the
 * elements of arrays and lists. */
bool steps_only_listed(const Lower *before, const Lower *now);

static inline uint32_t word_at(const void *at, size_t i)
{
    uint32_t w;
    __builtin_memcpy(&w, (const char *)at + i * sizeof w, sizeof w);
    return w;
}

static inline void word_set(void *at, size_t i, uint32_t w)
{
    __builtin_memcpy((char *)at + i * sizeof w, &w, sizeof w);
}

#endif
