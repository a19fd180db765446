/* Texts in the form in which the store keeps them: their length, then the text compressed by
 * zlib. */
#ifndef TANDEM_STORE_PACK_H
#define TANDEM_STORE_PACK_H

#include "planner/base/str.h"

/* Returns the packed form of n bytes, in `arena`; *packed is its length. */
const void *pack_bytes(Arena *arena, const void *bytes, size_t n, size_t *packed);
/* Returns the original text; NULL if the bytes are damaged. */
const char *unpack_text(Arena *arena, const void *packed, size_t n, size_t *bytes);

#endif
