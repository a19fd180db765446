/* The form in which the store keeps long texts: the text's length, then the text compressed by
 * zlib. */
#ifndef TANDEM_STORE_PACK_H
#define TANDEM_STORE_PACK_H

#include "planner/base/str.h"

/* Returns the packed form of n bytes. It is in `arena`, and *packed is its length. */
const void *pack_bytes(Arena *arena, const void *bytes, size_t n, size_t *packed);
/* Returns the text, or NULL if the packed bytes are damaged. */
const char *unpack_text(Arena *arena, const void *packed, size_t n, size_t *bytes);

#endif
