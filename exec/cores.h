/* Measures how much of the machine's cores other processes use during steps. If they use much,
 * measured times mean little. */
#ifndef TANDEM_EXEC_CORES_H
#define TANDEM_EXEC_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Counters of this process and of its machine, in nanoseconds. */
typedef struct CoreTime {
    int64_t at, ran, waited; /* waited: time in which this process was ready to run, but had no core
                              */
    int64_t busy;            /* busy time of all cores of the machine, for any process */
} CoreTime;

/* Core use of one process over a period; all zero if the system does not report it. */
typedef struct CoreShare {
    CoreTime time;
    uint64_t host; /* equal for processes on one machine */
    uint64_t cores;
} CoreShare;

/* Means over the period, in cores. */
typedef struct CoreUse {
    uint32_t cores; /* cores of all machines; 0: unknown */
    double running; /* by our processes */
    double ready;   /* cores that our processes could have used */
    double others;  /* by other processes */
} CoreUse;

bool cores_now(CoreTime *now);
/* The core use of this process between two readings. */
CoreShare cores_share(const CoreTime *before, const CoreTime *after);
CoreUse cores_use(const CoreShare *all, uint32_t n);

#endif
