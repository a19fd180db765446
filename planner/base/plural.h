/* Endings of counted nouns. */
#ifndef TANDEM_BASE_PLURAL_H
#define TANDEM_BASE_PLURAL_H

#include <stdint.h>

/* Returns the ending of a regular plural: "1 rank", "2 ranks". */
static inline const char *str_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

#endif
