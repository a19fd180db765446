/* Counter-based random numbers: a pure function of (seed, stream, index). It has no state, so every
 * sharding, order of execution and recomputation draws the same values for an element. */
#ifndef TANDEM_BASE_RNG_H
#define TANDEM_BASE_RNG_H

#include <stdint.h>

/* The generator itself: Philox4x32-10. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Returns the first 64 bits of Philox with key = seed and counter = (index, stream), low words
 * first. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);  /* mean 0, deviation 1 */
/* Uniform in [0, n), n > 0. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
