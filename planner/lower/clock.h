/* Vector clocks over the streams of one program. */
#ifndef TANDEM_LOWER_CLOCK_H
#define TANDEM_LOWER_CLOCK_H

#include "planner/ir/plan.h"

/* For each stream, the newest pc that is known to have finished. Entries behind the last stream
 * stay 0, so that whole vectors are joined and compared without branches. */
enum { CLOCK_ROOM = (STREAM_COUNT + 3) / 4 * 4 };
typedef struct Clock {
    Pc at[CLOCK_ROOM];
} Clock;

static inline void clock_join(Clock *into, const Clock *from)
{
    for (int s = 0; s < CLOCK_ROOM; s++) {
        const int32_t a = (int32_t)into->at[s], b = (int32_t)from->at[s];
        into->at[s] = (Pc)(a > b ? a : b);
    }
}

/* The difference is negative if `busy` is newer: a program has fewer than 2^31 instructions. */
static inline bool clock_passed(const Clock *busy, const Clock *now)
{
    int32_t late = 0;
    for (int s = 0; s < CLOCK_ROOM; s++) late |= (int32_t)(now->at[s] - busy->at[s]);
    return late >= 0;
}

/* The instructions that are known to have finished when an instruction starts. A computation
 * without a launch is steady: later steady ones know all that it knows. */
typedef struct Knowledge {
    const Clock *clock;
    Pc computed; /* a steady one: itself. Others: the newest computation that has finished */
    bool steady;
} Knowledge;

/* True if everything of `busy` has finished. `ended`: the first steady instruction that knows so; a
 * pc behind the program if none does; 0 if `busy` is empty, which may be NULL then. An instruction
 * knows all that the newest finished computation knew, and may know more. */
static inline bool knows_passed(const Knowledge *now, Pc ended, const Clock *busy)
{
    return now->computed >= ended || (!now->steady && clock_passed(busy, now->clock));
}

#endif
