/* Vector clocks over the streams of one program. */
#ifndef TANDEM_LOWER_CLOCK_H
#define TANDEM_LOWER_CLOCK_H

#include "planner/ir/plan.h"

/* For each stream, the newest pc that is known to have finished. */
typedef struct Clock {
    Pc at[STREAM_COUNT];
} Clock;

static inline void clock_join(Clock *into, const Clock *from)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        if (from->at[s] > into->at[s]) into->at[s] = from->at[s];
}

static inline bool clock_passed(const Clock *busy, const Clock *now)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        if (busy->at[s] > now->at[s]) return false;
    return true;
}

#endif
