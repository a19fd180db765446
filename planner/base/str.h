/* A string that grows in an arena, and a few text helpers that all layers need. */
#ifndef TANDEM_BASE_STR_H
#define TANDEM_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>

#include "planner/base/arena.h"

typedef struct Str {
    Arena *arena;
    char *at; /* always ends in 0; NULL while empty */
    size_t n, room;
} Str;

static inline Str str_in(Arena *arena)
{
    return (Str){arena, NULL, 0, 0};
}
void str_add(Str *s, const char *text);
void str_add_bytes(Str *s, const void *bytes, size_t n);
void str_print(Str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void str_vprint(Str *s, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
const char *str_text(const Str *s); /* returns "" if nothing was added */
/* Appends the shortest of %.15g, %.16g and %.17g that reads back to the same bits. The locale does
 * not matter. */
void str_add_double(Str *s, double value);
enum { DOUBLE_ROOM = 40 };
/* Writes the text of str_add_double into `out` and returns its length. */
size_t double_text(char out[DOUBLE_ROOM], double value);
/* Appends a JSON string with quotes. It escapes control characters; invalid UTF-8 becomes
 * U+FFFD. */
void str_add_json(Str *s, const char *text);

/* Returns the index of the first unreadable byte of `text`: a control character, or a byte that is
 * not part of well-formed UTF-8. Returns n if there is none. `text` has n bytes and then a 0
 * byte. */
size_t str_unreadable(const char *text, size_t n);
/* Returns `text` with each unreadable byte (see str_unreadable) written as \xNN. A text longer than
 * `most` bytes is cut and ends in "...". Line ends and tabs stay. Returns `text` itself if nothing
 * has to change. */
const char *str_readable(Arena *arena, const char *text, size_t most);
/* Returns a path with its unreadable bytes, line ends and tabs written as \xNN. */
const char *str_path(Arena *arena, const char *path);

/* Returns the candidate nearest to `word` by Damerau-Levenshtein distance. The distance may be at
 * most 2 edits and a third of the word's length (for two letters: a swap of the two). Returns NULL
 * if no candidate is that near, and the first one if several are equally near. */
const char *str_nearest(const char *word, const char *const *candidates, size_t n);

/* str_bytes returns 134217728 as "128 MiB". str_count returns 8030261248 as "8,030,261,248". The
 * texts are in the arena. */
const char *str_bytes(Arena *arena, uint64_t bytes);
const char *str_count(Arena *arena, uint64_t n);
/* Returns the shortest decimal text that reads back as exactly this number, such as "0.1". */
const char *str_exact(Arena *arena, double number);

/* Returns the divisors of `size` up to 1024 as a text for hints: "1, 2, 3, 6". */
const char *str_divisors(Arena *arena, int64_t size);
/* Returns the multiples of `of` just below and above n as a text for hints: "60 or 64". 0 is left
 * out. */
const char *str_multiples(Arena *arena, int64_t n, int64_t of);

/* A hash by XXH3-128. hash_hex writes it as 32 hexadecimal digits. */
typedef struct Hash128 {
    uint64_t hi, lo;
} Hash128;
Hash128 hash_bytes(const void *bytes, size_t n);
/* Computes the same hash as hash_bytes for bytes that arrive in several calls. */
typedef struct Hasher Hasher;
Hasher *hasher_new(Arena *arena);
void hasher_add(Hasher *h, const void *bytes, size_t n);
Hash128 hasher_end(const Hasher *h);
const char *hash_hex(Arena *arena, Hash128 h);
const char *hash_short(Arena *arena, Hash128 h); /* returns the first 12 digits */

#endif
