/* Growing strings; text for people (sizes, counts, the nearest word); text for programs (JSON,
 * doubles that read back exactly, hashes). */
#include "planner/base/str.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Includes the source of the xxHash functions, so there is no library to link. */
#define XXH_INLINE_ALL
#include <xxhash.h>

static void make_room(Str *s, size_t more)
{
    assert(s->arena != NULL);
    assert(more < SIZE_MAX / 4 && s->n < SIZE_MAX / 4);
    if (s->at != NULL && s->room - s->n > more) return;
    size_t room = s->room < 64 ? 64 : s->room * 2;
    if (room < s->n + more + 1) room = s->n + more + 1;
    char *at = arena_alloc(s->arena, room);
    if (s->n != 0) memcpy(at, s->at, s->n);
    s->at = at;
    s->room = room;
}

void str_add_bytes(Str *s, const void *bytes, size_t n)
{
    make_room(s, n);
    if (n != 0) memcpy(s->at + s->n, bytes, n);
    s->n += n;
    s->at[s->n] = 0;
}

void str_add(Str *s, const char *text)
{
    str_add_bytes(s, text, strlen(text));
}

void str_vprint(Str *s, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    make_room(s, 63);
    int n = vsnprintf(s->at + s->n, s->room - s->n, format, args);
    if (n < 0) arena_full(); /* the C library had no memory for formatting */
    if ((size_t)n >= s->room - s->n) {
        make_room(s, (size_t)n);
        if (vsnprintf(s->at + s->n, s->room - s->n, format, again) != n) arena_full();
    }
    va_end(again);
    s->n += (size_t)n;
}

void str_print(Str *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    str_vprint(s, format, args);
    va_end(args);
}

const char *str_text(const Str *s)
{
    return s->at != NULL ? s->at : "";
}

/* Writes an integer exactly as %.15g would, but faster. Returns the length of the text. Returns 0
 * if `value` is 0, is not an integer, or has more than 15 digits. */
static size_t whole_text(char text[DOUBLE_ROOM], double value)
{
    if (!(value > -1e15 && value < 1e15) || value == 0 || value != (double)(int64_t)value) return 0;
    uint64_t rest = (uint64_t)(value < 0 ? -value : value);
    char digits[16];
    size_t n = 0, length = 0;
    for (; rest != 0; rest /= 10) digits[n++] = (char)('0' + rest % 10);
    if (value < 0) text[length++] = '-';
    while (n > 0) text[length++] = digits[--n];
    text[length] = 0;
    return length;
}

size_t double_text(char text[DOUBLE_ROOM], double value)
{
    const size_t length = whole_text(text, value);
    if (length > 0) return length;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, DOUBLE_ROOM, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (memcmp(&back, &value, sizeof value) == 0) break;
    }
    for (char *c = text; *c != 0; c++)
        if (*c == ',') *c = '.'; /* some locales write a decimal comma */
    return strlen(text);
}

void str_add_double(Str *s, double value)
{
    char text[DOUBLE_ROOM];
    str_add_bytes(s, text, double_text(text, value));
}

/* Returns the length in bytes (1 to 4) of the UTF-8 character at `text`. Returns 0 if the bytes
 * there are not well-formed UTF-8 (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *text)
{
    unsigned lead = text[0], low = 0x80, high = 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    size_t n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if (text[i] < 0x80 || text[i] > 0xBF)
            return 0; /* the 0 byte at the end of the text fails this test, too */
    return n;
}

/* True if the UTF-8 character of n bytes at `text` is a control character (C0, DEL or C1). A
 * terminal may execute such characters, for example to move the cursor. */
static bool is_control(const unsigned char *text, size_t n)
{
    return text[0] < 0x20 || text[0] == 0x7F || (n == 2 && text[0] == 0xC2 && text[1] < 0xA0);
}

/* `text` ends in a 0 byte, so utf8_length never reads beyond its end. */
size_t str_unreadable(const char *text, size_t n)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t i = 0;
    while (i < n) {
        size_t length = utf8_length(at + i);
        if (length == 0 || is_control(at + i, length)) return i;
        i += length;
    }
    return n;
}

const char *str_readable(Arena *arena, const char *text, size_t most)
{
    size_t n = strlen(text), from = 0;
    Str out = str_in(arena);
    while (from < n && out.n < most) {
        size_t good = str_unreadable(text + from, n - from);
        if (good > most - out.n) break;
        str_add_bytes(&out, text + from, good);
        from += good;
        if (from == n) break;
        unsigned char bad = (unsigned char)text[from++];
        if (bad == '\n' || bad == '\t')
            str_add_bytes(&out, &bad, 1);
        else
            str_print(&out, "\\x%02x", (unsigned)bad);
    }
    if (from == n) return out.n == n ? text : str_text(&out);
    size_t rest = from;
    while (rest < n && out.n < most) { /* never cuts a UTF-8 character */
        size_t length = utf8_length((const unsigned char *)text + rest);
        if (length == 0 || length > most - out.n) break;
        str_add_bytes(&out, text + rest, length);
        rest += length;
    }
    str_add(&out, "...");
    return str_text(&out);
}

enum { MOST_PATH = 1024 };

const char *str_path(Arena *arena, const char *path)
{
    const char *text = str_readable(arena, path, MOST_PATH);
    if (text[strcspn(text, "\n\t")] == 0) return text;
    Str line = str_in(arena);
    for (; *text != 0; text++)
        str_print(&line, *text == '\n' || *text == '\t' ? "\\x%02x" : "%c", (unsigned)*text & 0xFF);
    return str_text(&line);
}

void str_add_json(Str *s, const char *text)
{
    str_add(s, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        size_t n = utf8_length(c);
        if (n == 0)
            str_add(s, "\xEF\xBF\xBD");
        else if (*c == '"' || *c == '\\')
            str_print(s, "\\%c", *c);
        else if (*c == '\n')
            str_add(s, "\\n");
        else if (*c == '\t')
            str_add(s, "\\t");
        else if (*c < 0x20 || *c == 0x7F)
            str_print(s, "\\u%04x", (unsigned)*c);
        else
            str_add_bytes(s, c, n);
        c += n == 0 ? 1 : n;
    }
    str_add(s, "\"");
}

enum { WORD_MAX = 64 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the edit distance of `a` and `b`: how many letters must be inserted, deleted, replaced,
 * or swapped with a neighbour. Ignores case. Both texts have at most WORD_MAX letters. The method
 * is optimal string alignment: no substring is edited twice. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    /* rows i - 2, i - 1 and i of the table of distances; row i is stored at row[i % 3] */
    size_t row[3][WORD_MAX + 1];
    for (size_t j = 0; j <= n_b; j++) row[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            size_t best = last[j - 1] + !same;
            best = smaller(best, smaller(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = smaller(best, before[j - 2] + 1);
            now[j] = best;
        }
    }
    return row[n_a % 3][n_b];
}

const char *str_nearest(const char *word, const char *const *candidates, size_t n)
{
    size_t length = strlen(word), limit = smaller(2, length / 3) + 1;
    const char *nearest = NULL;
    if (length > WORD_MAX) return NULL;
    /* A two-letter word allows no edit (a third of 2 is below 1), except that its letters are
     * swapped. */
    for (size_t i = 0; i < n && length == 2; i++)
        if (candidates[i][0] == word[1] && candidates[i][1] == word[0] && candidates[i][2] == 0)
            return candidates[i];
    for (size_t i = 0; i < n; i++) {
        size_t n_candidate = strlen(candidates[i]);
        if (n_candidate > WORD_MAX) continue;
        size_t edits = distance(word, length, candidates[i], n_candidate);
        if (edits >= limit) continue;
        limit = edits;
        nearest = candidates[i];
    }
    return nearest;
}

const char *str_bytes(Arena *arena, uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned power = 0;
    while (power < 6 && bytes >> (10 * power) >= 1024) power++;
    double value = (double)bytes / (double)(UINT64_C(1) << (10 * power));
    /* such a value would print as 1024.0; the next unit gives 1.0 */
    if (value >= 1023.95 && power < 6) {
        power++;
        value = 1;
    }
    if (power == 0 || (bytes & ((UINT64_C(1) << (10 * power)) - 1)) == 0)
        return arena_print(arena, "%.0f %s", value, unit[power]);
    return arena_print(arena, "%.1f %s", value, unit[power]);
}

const char *str_count(Arena *arena, uint64_t n)
{
    char text[32];
    char *at = text + sizeof text - 1;
    *at = 0;
    for (unsigned digits = 0; digits == 0 || n != 0; n /= 10, digits++) {
        if (digits != 0 && digits % 3 == 0) *--at = ',';
        *--at = (char)('0' + n % 10);
    }
    return arena_dup(arena, at);
}

Hash128 hash_bytes(const void *bytes, size_t n)
{
    assert(bytes != NULL || n == 0);
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (Hash128){.hi = h.high64, .lo = h.low64};
}

const char *str_divisors(Arena *arena, int64_t size)
{
    Str s = str_in(arena);
    for (int64_t k = 1; k <= size && k <= 1024; k++)
        if (size % k == 0) str_print(&s, "%s%lld", s.n ? ", " : "", (long long)k);
    return str_text(&s);
}

const char *str_multiples(Arena *arena, int64_t n, int64_t of)
{
    const int64_t below = n / of * of;
    if (below == 0) return arena_print(arena, "%lld", (long long)of);
    return arena_print(arena, "%lld or %lld", (long long)below, (long long)(below + of));
}

struct Hasher {
    XXH3_state_t state;
};

Hasher *hasher_new(Arena *arena)
{
    /* XXH3's state needs 64-byte alignment, which an arena does not give. */
    char *at = arena_alloc(arena, sizeof(Hasher) + _Alignof(Hasher) - 1);
    size_t over = (uintptr_t)at % _Alignof(Hasher);
    Hasher *h = (Hasher *)(void *)(at + (over == 0 ? 0 : _Alignof(Hasher) - over));
    XXH3_128bits_reset(&h->state);
    return h;
}

void hasher_add(Hasher *h, const void *bytes, size_t n)
{
    XXH3_128bits_update(&h->state, bytes, n);
}

Hash128 hasher_end(const Hasher *h)
{
    XXH128_hash_t hash = XXH3_128bits_digest(&h->state);
    return (Hash128){.hi = hash.high64, .lo = hash.low64};
}

const char *hash_hex(Arena *arena, Hash128 h)
{
    return arena_print(arena, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

const char *hash_short(Arena *arena, Hash128 id)
{
    return arena_copy(arena, hash_hex(arena, id), 12);
}

const char *str_exact(Arena *arena, double number)
{
    const char *text = NULL;
    for (int digits = 1; digits <= 17; digits++) {
        text = arena_print(arena, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    return text;
}
