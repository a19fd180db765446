/* Work that several threads share. A process is single-threaded unless it allows more: sweeps have
 * one process for each core already, and a caller of libtandem decides by itself. */
#ifndef TANDEM_BASE_PARALLEL_H
#define TANDEM_BASE_PARALLEL_H

#include <stdint.h>

/* Allows `n` threads for each parallel_for from now on. */
void parallel_allow(uint32_t n);
/* Calls work(self, i) for each i below `n`, in any order and perhaps at once, and returns when all
 * calls have returned. The calls must not write anything that another one touches. */
void parallel_for(uint32_t n, void (*work)(void *self, uint32_t i), void *self);

#endif
