/* The processor cores of this machine, and those that this process may use: taskset, a cpuset or
 * mpirun can bind it to a few. */
#ifndef TANDEM_BASE_CORES_H
#define TANDEM_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

enum { CORE_SET_WORDS = 16 };

/* A bit for each core that a process may use; empty if the system does not say. */
typedef struct CoreSet {
    uint64_t word[CORE_SET_WORDS];
} CoreSet;

uint32_t cores_online(void); /* all cores of this machine; at least 1 */
uint32_t cores_usable(void); /* those that this process may use; at least 1 */
CoreSet cores_set(void);     /* the set of them */
/* Returns true if n processes of this machine have fewer than n cores together. If a set is empty,
 * every core of the machine counts. */
bool cores_are_short(const CoreSet *all, uint32_t n);

#endif
