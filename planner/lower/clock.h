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

/* True if all instructions of `busy` have finished at `now`. A difference of two pcs keeps its sign
 * in 32 bits, because a program has fewer than 2^31 instructions. */
static inline bool clock_passed(const Clock *busy, const Clock *now)
{
    int32_t late = 0;
    for (int s = 0; s < CLOCK_ROOM; s++) late |= (int32_t)(now->at[s] - busy->at[s]);
    return late >= 0;
}

/* The instructions that are known to have finished when an instruction starts. A computation
 * without a launch number is called steady. All steady instructions run in order, so each one knows
 * all that an earlier one knows. */
typedef struct Knowledge {
    const Clock *clock;
    Pc computed; /* for a steady instruction: its own pc; else the newest computation that has
                    finished */
    bool steady;
} Knowledge;

/* Tells when the use of some bytes ends. */
typedef struct End {
    const Clock *busy; /* the newest instruction of each stream that uses the bytes; may be NULL if
                        * `known` is 0 */
    /* the first steady instruction that knows that all users have finished; a pc behind the program
     * if none does; 0: there are no users */
    Pc known;
} End;

/* An instruction knows all that the newest finished computation knew, and may know more. */
static inline bool knows_passed(const Knowledge *now, const End *end)
{
    return now->computed >= end->known || (!now->steady && clock_passed(end->busy, now->clock));
}

#endif
