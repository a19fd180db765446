/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11),
 * checked against the published known-answer vectors. */
#include "planner/base/rng.h"

#include <assert.h>

#include "planner/base/normal.h"

__extension__ typedef unsigned __int128 Wide;

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9); /* the golden ratio */
        k1 += UINT32_C(0xBB67AE85); /* sqrt(3) - 1 */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Writes the 128 random bits of (seed, stream, index) to `out`. */
static void draw(uint64_t seed, uint64_t stream, uint64_t index, uint64_t out[2])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];
    rng_philox(counter, key, word);
    out[0] = word[0] | (uint64_t)word[1] << 32;
    out[1] = word[2] | (uint64_t)word[3] << 32;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t bits[2];
    draw(seed, stream, index, bits);
    return bits[0];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return normal_fraction(rng_u64(seed, stream, index));
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t bits[2];
    draw(seed, stream, index, bits);
    return normal_from(bits[0], bits[1]);
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    assert(n > 0);
    /* The high half of the 128-bit product r n, with r uniform in [0, 2^64), is a number from 0 to
     * n - 1. The probability of each has a relative error of at most n / 2^64. */
    return (uint64_t)((Wide)rng_u64(seed, stream, index) * n >> 64);
}
