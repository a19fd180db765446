/* Runs a loop on several threads. A process uses one thread until it calls parallel_allow: a sweep
 * already runs one process on each core, and a program that links libtandem may not want
 * threads. */
#ifndef TANDEM_BASE_PARALLEL_H
#define TANDEM_BASE_PARALLEL_H

#include <stdint.h>

/* Allows each later parallel_for to use up to `n` threads. The calling thread is one of them. */
void parallel_allow(uint32_t n);
/* Calls work(self, 0) to work(self, n - 1), in any order and perhaps at the same time. Returns when
 * all calls have returned. No call may write memory that another call reads or writes. */
void parallel_for(uint32_t n, void (*work)(void *self, uint32_t i), void *self);

#endif
