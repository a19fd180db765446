/* Str: a string that grows in an arena. Also helpers for text: numbers, paths, hints and hashes. */
#ifndef TANDEM_BASE_STR_H
#define TANDEM_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>

#include "planner/base/arena.h"

typedef struct Str {
    Arena *arena;
    char *at; /* the text, which always ends in a 0 byte; NULL while it is empty */
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
const char *str_text(const Str *s); /* returns the text; "" if nothing was added */
/* Appends the shortest of %.15g, %.16g and %.17g from which strtod reads back the same bits. Always
 * with a decimal point, whatever the locale. */
void str_add_double(Str *s, double value);
enum { DOUBLE_ROOM = 40 };
/* Writes the text that str_add_double would append into `out`, and returns its length. */
size_t double_text(char out[DOUBLE_ROOM], double value);
/* Appends `text` as a JSON string in quotes. Control characters are escaped; invalid UTF-8 becomes
 * U+FFFD. */
void str_add_json(Str *s, const char *text);

/* Returns the index of the first unreadable byte of `text`; n if there is none. Unreadable is a
 * control character, or a byte that is not part of well-formed UTF-8. `text` has n bytes and then a
 * 0 byte. */
size_t str_unreadable(const char *text, size_t n);
/* Returns a copy of `text` in which each unreadable byte (see str_unreadable), except line ends and
 * tabs, is written as \xNN. A text longer than `most` bytes is cut and ends in "...". Returns
 * `text` itself if nothing has to change. */
const char *str_readable(Arena *arena, const char *text, size_t most);
/* Returns a copy of a file's path in which every unreadable byte, line end and tab is written as
 * \xNN. */
const char *str_path(Arena *arena, const char *path);

/* Returns the candidate that is nearest to `word`, for hints such as: did you mean "tp"? Near means
 * a Damerau-Levenshtein distance of at most 2 edits, and of at most a third of the word's length.
 * For a word of two letters, only a swap of the letters is near. Returns NULL if no candidate is
 * near, and the first one if several are equally near. */
const char *str_nearest(const char *word, const char *const *candidates, size_t n);

/* str_bytes(134217728) returns "128 MiB"; str_count(8030261248) returns "8,030,261,248". */
const char *str_bytes(Arena *arena, uint64_t bytes);
const char *str_count(Arena *arena, uint64_t n);
/* Returns the shortest decimal text from which strtod reads back the same bits, such as "0.1". */
const char *str_exact(Arena *arena, double number);

/* Returns the divisors of `size` up to 1024 as text for a hint: "1, 2, 3, 6" for 6. */
const char *str_divisors(Arena *arena, int64_t size);
/* Returns the multiples of `of` just below and just above n as text for a hint: "60 or 64" for n =
 * 62 and of = 4. Leaves out 0. */
const char *str_multiples(Arena *arena, int64_t n, int64_t of);

/* A hash of 128 bits (XXH3-128). hash_hex writes it as 32 hexadecimal digits. */
typedef struct Hash128 {
    uint64_t hi, lo;
} Hash128;
Hash128 hash_bytes(const void *bytes, size_t n);
/* Computes the same hash as hash_bytes, from bytes that arrive in several calls. */
typedef struct Hasher Hasher;
Hasher *hasher_new(Arena *arena);
void hasher_add(Hasher *h, const void *bytes, size_t n);
Hash128 hasher_end(const Hasher *h);
const char *hash_hex(Arena *arena, Hash128 h);
const char *hash_short(Arena *arena, Hash128 h); /* the first 12 digits of hash_hex */

#endif
