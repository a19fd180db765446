/* A fast hash of integers, for hash tables inside one process. Hashes that are written to files
 * come from hash_bytes (str.h). */
#ifndef TANDEM_BASE_HASH_H
#define TANDEM_BASE_HASH_H

#include <stdint.h>

/* Returns `hash` extended by `value`. To hash several values, pass each result on to the next call;
 * their order matters. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

#endif
