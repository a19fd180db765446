/* The processor cores of this machine, and the cores that this process may use. taskset, a cpuset
 * or mpirun can bind the process to a few cores. */
#ifndef TANDEM_BASE_CORES_H
#define TANDEM_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

enum { CORE_SET_WORDS = 16 };

/* A set of cores: bit i is 1 if the process may run on core i. All bits are 0 if the system does
 * not tell. */
typedef struct CoreSet {
    uint64_t word[CORE_SET_WORDS];
} CoreSet;

uint32_t cores_online(void); /* the number of all cores of this machine; at least 1 */
uint32_t cores_usable(void); /* the number of cores that this process may use; at least 1 */
CoreSet cores_set(void);     /* the set of cores that this process may use */
/* True if n processes on this machine must share cores: the union of their core sets `all` has
 * fewer than n cores. An empty set (not known) counts as all cores of the machine. */
bool cores_are_short(const CoreSet *all, uint32_t n);

#endif
