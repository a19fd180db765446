/* Random numbers that kernels can compute again at any time. They are functions of the seed, the
 * step, the micro-batch, the site in the model and the element's index in the whole tensor. So they
 * do not depend on how tensors are split, on the order of execution or on recomputation. Four
 * neighbouring elements use one call of the generator (Philox). */
#ifndef TANDEM_KERNELS_DRAW_H
#define TANDEM_KERNELS_DRAW_H

#include <assert.h>

#include "planner/base/rng.h"

/* The uses of random numbers. Each use has its own key. */
#define DRAW_DROPOUT  UINT64_C(0x64726f706f7574)
#define DRAW_ROUNDING UINT64_C(0x726f756e64696e67)

/* Returns the id of the stream of random numbers for one use (`what`), step, part and site. `part`
 * is the index of a micro-batch; for the update it is 0. */
static inline uint64_t draw_stream(uint64_t what, int64_t step, uint32_t part, int64_t site)
{
    assert(site >= 0 && site <= UINT32_MAX);
    return rng_u64(what, (uint64_t)step, (uint64_t)part << 32 | (uint64_t)site);
}

/* Returns the 32 random bits of an element. */
static inline uint32_t draw_word(uint64_t seed, uint64_t stream, uint64_t element)
{
    const uint32_t counter[4] = {(uint32_t)(element >> 2), (uint32_t)(element >> 34),
                                 (uint32_t)stream, (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];
    rng_philox(counter, key, word);
    return word[element & 3];
}

/* Returns the threshold of dropout: an element is dropped if its 32 random bits are below it. */
static inline uint32_t draw_threshold(double drop)
{
    assert(drop >= 0 && drop < 1);
    return (uint32_t)(drop * 4294967296.0);
}

/* Rounds x, given as the bits of a float, stochastically to bf16. It rounds up with a probability
 * equal to the distance of x from the lower neighbour, in units of the gap between both neighbours.
 * The low half of `word` decides. Infinities and NaNs stay. */
static inline uint32_t draw_round_bf16_bits(uint32_t bits, uint32_t word)
{
    if ((bits & 0x7f800000) == 0x7f800000) return bits;
    return (bits + (word & 0xffff)) & 0xffff0000;
}

#endif
