/* Counter-based random numbers. Each is a pure function of (seed, stream, index), without state.
 * For example, `stream` is the parameter wq and `index` an element of it. The element then gets the
 * same value on any number of ranks, in any order, and when it is drawn again. */
#ifndef TANDEM_BASE_RNG_H
#define TANDEM_BASE_RNG_H

#include <stdint.h>

/* The generator Philox4x32-10: turns a counter of 128 bits and a key of 64 bits into 128 random
 * bits. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Returns 64 random bits: the first half of Philox with key = seed and counter = (index, stream),
 * low words first. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* a number in [0, 1) with 53 random bits */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* a normally distributed number with mean 0 and standard deviation 1 */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* Returns an integer from 0 to n - 1, each equally likely. n must be positive. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
