/* Texts as the store keeps them: compressed by zlib behind their length. */
#ifndef TANDEM_STORE_PACK_H
#define TANDEM_STORE_PACK_H

#include "planner/base/str.h"

/* The packed form of n bytes, in `arena`; *packed is its length. */
const void *pack_bytes(Arena *arena, const void *bytes, size_t n, size_t *packed);
/* The text again; NULL where the bytes are damaged. */
const char *unpack_text(Arena *arena, const void *packed, size_t n, size_t *bytes);

#endif
