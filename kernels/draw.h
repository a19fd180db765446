/* Random numbers that kernels can draw again at any time: functions of seed, step, part of the
 * step, site in the model and global element. Sharding, execution order and recomputation do not
 * change them. Four adjacent elements share one Philox call. */
#ifndef TANDEM_KERNELS_DRAW_H
#define TANDEM_KERNELS_DRAW_H

#include <assert.h>

#include "planner/base/rng.h"

/* The uses of random numbers; each has its own key. */
#define DRAW_DROPOUT  UINT64_C(0x64726f706f7574)
#define DRAW_ROUNDING UINT64_C(0x726f756e64696e67)

/* Returns the stream of random numbers of a site in one part of a step. `part` is the number of a
 * micro-batch; for the update it is 0. */
static inline uint64_t draw_stream(uint64_t what, int64_t step, uint32_t part, int64_t site)
{
    assert(site >= 0 && site <= UINT32_MAX);
    return rng_u64(what, (uint64_t)step, (uint64_t)part << 32 | (uint64_t)site);
}

/* Returns 32 random bits of an element. */
static inline uint32_t draw_word(uint64_t seed, uint64_t stream, uint64_t element)
{
    const uint32_t counter[4] = {(uint32_t)(element >> 2), (uint32_t)(element >> 34),
                                 (uint32_t)stream, (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];
    rng_philox(counter, key, word);
    return word[element & 3];
}

/* An element is dropped if its word is below this number. */
static inline uint32_t draw_threshold(double drop)
{
    assert(drop >= 0 && drop < 1);
    return (uint32_t)(drop * 4294967296.0);
}

/* Rounds x [fp32 bits] stochastically to bf16, kept in fp32. It rounds up with a probability equal
 * to x's relative distance from its lower neighbour; the low half of `word` decides. Infinities and
 * NaNs stay. */
static inline uint32_t draw_round_bf16_bits(uint32_t bits, uint32_t word)
{
    if ((bits & 0x7f800000) == 0x7f800000) return bits;
    return (bits + (word & 0xffff)) & 0xffff0000;
}

#endif
