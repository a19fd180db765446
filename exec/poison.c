/* Poison fills memory that holds no value. It consists of numbers that spoil every computation that
 * reads them, and a scan can tell them from results. */
#include <string.h>

#include "exec/ready.h"

/* The pattern is one signalling NaN in fp64, two NaNs in fp32, and four NaNs in f16 and in bf16.
 * The highest byte of each of these numbers is 0x7f. No finite number below 1e38 has this highest
 * byte, and in f16 no finite number has it. In an 8-bit format, every second byte (0x7f) is a
 * NaN. */
static const unsigned char pattern[8] = {0xa5, 0x7f, 0xa5, 0x7f, 0xa5, 0x7f, 0xf4, 0x7f};

void poison_fill(void *at, uint64_t bytes)
{
    enum { PIECE = 4096 }; /* is read from the nearest cache */
    unsigned char *to = at;
    uint64_t n = bytes < sizeof pattern ? bytes : sizeof pattern;
    memcpy(to, pattern, n);
    while (n < bytes) {
        uint64_t more = n < PIECE ? n : PIECE;
        if (more > bytes - n) more = bytes - n;
        memcpy(to + n, to, more);
        n += more;
    }
}

uint64_t poison_end(const void *at, uint64_t lo, uint64_t hi)
{
    const unsigned char *bytes = at;
    while (hi > lo && hi % 8 != 0) {
        if (bytes[hi - 1] != pattern[(hi - 1) % 8]) return hi;
        hi--;
    }
    while (hi >= lo + 8 && memcmp(bytes + hi - 8, pattern, 8) == 0) hi -= 8;
    while (hi > lo && bytes[hi - 1] == pattern[(hi - 1) % 8]) hi--;
    return hi;
}
