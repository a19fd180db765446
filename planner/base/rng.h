/* Counter-based random numbers: a pure function of (seed, stream, index). It has no state, so every
 * sharding, order of execution and recomputation draws the same values for an element. */
#ifndef TANDEM_BASE_RNG_H
#define TANDEM_BASE_RNG_H

#include <stdint.h>

/* Computes one block of Philox4x32-10, the generator that the functions below use. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Returns the first 64 bits of Philox with key = seed and counter = (index, stream), low words
 * first. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* returns a number in [0, 1)
                                                                       with 53 random bits */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);  /* returns a normally
                                                                       distributed number with mean
                                                                       0 and standard deviation 1 */
/* Returns a whole number from 0 to n - 1, each equally likely. n must be positive. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
