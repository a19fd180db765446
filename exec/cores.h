/* Measures how much other processes use the cores during steps. If they use much, measured times
 * mean little. */
#ifndef TANDEM_EXEC_CORES_H
#define TANDEM_EXEC_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Counters of this process and of its machine, in nanoseconds. */
typedef struct CoreTime {
    int64_t at, ran, waited; /* waited: the time in which this process had work but no core */
    int64_t busy;            /* the busy time of all cores, for all processes */
} CoreTime;

/* The core use of one process in a period. All fields are 0 if the system does not report it. */
typedef struct CoreShare {
    CoreTime time;
    uint64_t host; /* equal for all processes of a machine */
    uint64_t cores;
} CoreShare;

/* The average number of cores in a period. */
typedef struct CoreUse {
    uint32_t cores; /* the cores of all machines; 0: unknown */
    double running; /* used by the run */
    double ready;   /* that the run could have used */
    double others;  /* used by other processes */
} CoreUse;

bool cores_now(CoreTime *now);
/* Returns the core use of this process between two readings. */
CoreShare cores_share(const CoreTime *before, const CoreTime *after);
CoreUse cores_use(const CoreShare *all, uint32_t n);

#endif
