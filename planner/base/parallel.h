/* Divides work among threads. A process uses one thread until it calls parallel_allow. This is the
 * default because a sweep already runs one process on each core, and because a program that links
 * libtandem may not want threads. */
#ifndef TANDEM_BASE_PARALLEL_H
#define TANDEM_BASE_PARALLEL_H

#include <stdint.h>

/* From now on, each parallel_for uses up to `n` threads, including the thread that calls it. */
void parallel_allow(uint32_t n);
/* Calls work(self, i) for each i below `n`, in any order and perhaps at once, and returns when all
 * calls have returned. No call may write memory that another call reads or writes. */
void parallel_for(uint32_t n, void (*work)(void *self, uint32_t i), void *self);

#endif
