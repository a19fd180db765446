/* A hash of numbers for use inside one process. For hashes that are stored, see hash_bytes(). */
#ifndef TANDEM_BASE_HASH_H
#define TANDEM_BASE_HASH_H

#include <stdint.h>

/* Adds a value to a hash. The order of the values matters. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

#endif
