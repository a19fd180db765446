/* Measures how much other processes use the cores during steps. If they use much, measured times
 * are unreliable. */
#ifndef TANDEM_EXEC_CORES_H
#define TANDEM_EXEC_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Counters of this process and of its machine, in nanoseconds. */
typedef struct CoreTime {
    int64_t at, ran, waited; /* at: time of the reading; ran: how long this process ran; waited: how
                                long it had work but no core */
    int64_t busy;            /* busy time of all cores, added up, for all processes */
} CoreTime;

/* How one process used the cores in a period. All fields are 0 if the system does not report
 * this. */
typedef struct CoreShare {
    CoreTime time;
    uint64_t host; /* hash of the machine's name: equal for all processes of a machine */
    uint64_t cores;
} CoreShare;

/* Average numbers of cores during a period. */
typedef struct CoreUse {
    uint32_t cores; /* cores of all machines together; 0: not known */
    double running; /* cores that the run used */
    double ready;   /* cores that the run used, plus cores for which it was ready but which it did
                       not get */
    double others;  /* cores that other processes used */
} CoreUse;

/* Reads the counters. Returns false if the system does not have them. */
bool cores_now(CoreTime *now);
/* Returns how this process used the cores between two readings. */
CoreShare cores_share(const CoreTime *before, const CoreTime *after);
/* Combines the shares of n processes. All fields of the result are 0 if one share is not known. */
CoreUse cores_use(const CoreShare *all, uint32_t n);

#endif
