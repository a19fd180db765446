/* The compressed form of long texts in the store (column `packed`): 8 bytes with the text's length,
 * then the text compressed by zlib. */
#ifndef TANDEM_STORE_PACK_H
#define TANDEM_STORE_PACK_H

#include "planner/base/str.h"

/* Returns the packed form of bytes [n] in `arena`, and sets *packed to its length. */
const void *pack_bytes(Arena *arena, const void *bytes, size_t n, size_t *packed);
/* Returns the text whose packed form is `packed` [n], and sets *bytes to its length. Returns NULL
 * if the packed form is damaged. */
const char *unpack_text(Arena *arena, const void *packed, size_t n, size_t *bytes);

#endif
