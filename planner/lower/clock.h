/* Vector clocks over the streams of one program. They tell which instructions have finished when
 * another one starts. */
#ifndef TANDEM_LOWER_CLOCK_H
#define TANDEM_LOWER_CLOCK_H

#include "planner/ir/plan.h"

/* The newest finished instruction of each stream. The size is rounded up to a multiple of 4, and
 * the extra entries are 0, so that loops over the vector need no branches. */
enum { CLOCK_ROOM = (STREAM_COUNT + 3) / 4 * 4 };
typedef struct Clock {
    Pc at[CLOCK_ROOM];
} Clock;

/* Raises each entry of `into` to the entry of `from`, if that is larger. */
static inline void clock_join(Clock *into, const Clock *from)
{
    for (int s = 0; s < CLOCK_ROOM; s++) {
        const int32_t a = (int32_t)into->at[s], b = (int32_t)from->at[s];
        into->at[s] = (Pc)(a > b ? a : b);
    }
}

/* True if all instructions of `busy` have finished at time `now`. The difference of two pcs fits
 * into 32 bits, because a program has fewer than 2^31 instructions. */
static inline bool clock_passed(const Clock *busy, const Clock *now)
{
    int32_t late = 0;
    for (int s = 0; s < CLOCK_ROOM; s++) late |= (int32_t)(now->at[s] - busy->at[s]);
    return late >= 0;
}

/* The instructions that are known to have finished when an instruction starts. A "steady"
 * instruction is a computation that belongs to no launch group (plan.h). Steady ones run in order.
 * So each instruction that has finished when a steady instruction starts has also finished when any
 * later steady instruction starts. */
typedef struct Knowledge {
    const Clock *clock;
    /* for a steady instruction, its own pc; otherwise the newest computation that has finished */
    Pc computed;
    bool steady;
} Knowledge;

/* The moment at which the last use of some bytes ends. */
typedef struct End {
    /* the newest instruction of each stream that uses the bytes; may be NULL if `known` is 0 */
    const Clock *busy;
    /* The first steady instruction that starts after all users have finished. If there is none, it
     * is the program's last pc plus 1. If the bytes have no users, it is 0. */
    Pc known;
} End;

/* True if all users of the bytes of `end` have finished at `now`. The first test needs no clocks:
 * users that had finished when the newest finished computation started have finished at `now`,
 * too. */
static inline bool knows_passed(const Knowledge *now, const End *end)
{
    return now->computed >= end->known || (!now->steady && clock_passed(end->busy, now->clock));
}

#endif
