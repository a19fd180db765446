/* Who had the cores while ranks stepped. A measured time means little where other work had them. */
#ifndef TANDEM_EXEC_CORES_H
#define TANDEM_EXEC_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Counters of this process and of its machine, in nanoseconds. */
typedef struct CoreTime {
    int64_t at, ran, waited; /* waited: ready to run, while something else ran there */
    int64_t busy;            /* of all cores of the machine, whoever ran there */
} CoreTime;

/* One process over some time; zeroed: its system does not say. */
typedef struct CoreShare {
    CoreTime time;
    uint64_t host; /* equal on one machine */
    uint64_t cores;
} CoreShare;

/* Means over that time, in cores. */
typedef struct CoreUse {
    uint32_t cores; /* of all machines; 0: not known */
    double running; /* by our processes */
    double ready;   /* what they would have used, each on a core of its own */
    double others;  /* by what else runs there */
} CoreUse;

bool cores_now(CoreTime *now);
/* What this process had between the two. */
CoreShare cores_share(const CoreTime *before, const CoreTime *after);
CoreUse cores_use(const CoreShare *all, uint32_t n);

#endif
