/* Singular and plural, for messages that contain a count. */
#ifndef TANDEM_BASE_PLURAL_H
#define TANDEM_BASE_PLURAL_H

#include <stdint.h>

/* Returns the ending of a noun after the count n: "" for "1 rank", "s" for "2 ranks". */
static inline const char *str_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Returns `one` if the count n is 1, otherwise `many`: "1 fits", "2 fit". */
static inline const char *str_verb(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#endif
