/* The processor cores of this machine, and the cores that this process may use. taskset, a cpuset
 * or mpirun can bind the process to a few cores. */
#ifndef TANDEM_BASE_CORES_H
#define TANDEM_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

enum { CORE_SET_WORDS = 16 };

/* One bit for each core of the machine: 1 if the process may use the core. All bits are 0 if the
 * system does not tell. */
typedef struct CoreSet {
    uint64_t word[CORE_SET_WORDS];
} CoreSet;

uint32_t cores_online(void); /* returns the number of all cores of this machine; at least 1 */
uint32_t cores_usable(void); /* returns the number of cores that this process may use; at least 1 */
CoreSet cores_set(void);     /* returns the set of the cores that this process may use */
/* Given the core sets of n processes on this machine, returns true if the sets together contain
 * fewer than n cores. If a set is empty (not known), all cores of the machine count. */
bool cores_are_short(const CoreSet *all, uint32_t n);

#endif
