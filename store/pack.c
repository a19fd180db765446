/* Compresses texts with zlib. Decompression needs the text's length, so it is stored in front, as 8
 * bytes little-endian. */
#include "store/pack.h"

#include <assert.h>
#include <string.h>
#include <zlib.h>

enum { LENGTH_BYTES = 8 };
/* Upper limit of a text's length; a larger stored length means that the bytes are damaged. */
static const uint64_t most_bytes = UINT64_C(1) << 32;

const void *pack_bytes(Arena *arena, const void *bytes, size_t n, size_t *packed)
{
    assert(bytes != NULL || n == 0);
    uLongf room = compressBound((uLong)n);
    unsigned char *to = arena_alloc(arena, LENGTH_BYTES + room);
    for (int i = 0; i < LENGTH_BYTES; i++) to[i] = (unsigned char)((uint64_t)n >> (8 * i));
    int code = compress2(to + LENGTH_BYTES, &room, bytes, (uLong)n, Z_BEST_SPEED);
    if (code == Z_MEM_ERROR) arena_full();
    assert(code == Z_OK); /* cannot fail: compressBound gives the size of the worst case */
    *packed = LENGTH_BYTES + room;
    return to;
}

const char *unpack_text(Arena *arena, const void *packed, size_t n, size_t *bytes)
{
    const unsigned char *from = packed;
    uint64_t length = 0;
    if (from == NULL || n < LENGTH_BYTES) return NULL;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)from[i] << (8 * i);
    if (length > most_bytes || length / 1100 > n)
        /* zlib compresses at most 1,032 to 1, so this length is damaged */
        return NULL;
    char *text = arena_alloc(arena, (size_t)length + 1);
    uLongf got = (uLongf)length;
    if (uncompress((Bytef *)text, &got, from + LENGTH_BYTES, (uLong)(n - LENGTH_BYTES)) != Z_OK ||
        got != length)
        return NULL;
    if (bytes != NULL) *bytes = (size_t)length;
    return text;
}
