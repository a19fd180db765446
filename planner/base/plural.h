/* Endings of counted nouns, and forms of their verbs. */
#ifndef TANDEM_BASE_PLURAL_H
#define TANDEM_BASE_PLURAL_H

#include <stdint.h>

/* Returns the ending of a regular plural: "1 rank", "2 ranks". */
static inline const char *str_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Returns the form of a verb: "1 fits", "2 fit". */
static inline const char *str_verb(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#endif
