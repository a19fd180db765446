/* Splits JSON into tokens. It looks one byte ahead, and remembers which brackets are open. It
 * stores only the newest key and the newest text. */
#include "cli/import/json_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/arena.h"

typedef struct JsonStream {
    const JsonReader *reader;
    Diag *d;
    char block[65536];
    size_t at, n;
    uint64_t before; /* bytes of the file before the block that is in memory */
    uint32_t line;
    char open[MOST_JSON_DEPTH]; /* the open brackets, outermost first: '{' or '[' */
    uint32_t depth;
    char key[MOST_JSON_TEXT + 1], text[MOST_JSON_TEXT + 1];
    /* whether the document may end in the middle; whether it has done so */
    bool may_break_off, broke_off;
} JsonStream;

static int peek(JsonStream *s)
{
    if (s->at == s->n) {
        s->before += s->n;
        s->at = 0;
        s->n = fread(s->block, 1, sizeof s->block, s->reader->file);
        if (s->n == 0) return EOF;
    }
    return (unsigned char)s->block[s->at];
}

static int take(JsonStream *s)
{
    int c = peek(s);
    if (c == EOF) return EOF;
    s->at++;
    if (c == '\n') s->line++;
    return c;
}

static uint64_t offset_of(const JsonStream *s)
{
    return s->before + s->at;
}

static bool fault(JsonStream *s, const char *what)
{
    bool ended = peek(s) == EOF, unread = ferror(s->reader->file) != 0;
    s->broke_off = ended && !unread && s->may_break_off && s->depth > 0;
    if (s->broke_off) return false;
    if (unread) what = "the file cannot be read to its end";
    return diag_error(s->d, FAULT_input, "json-syntax", (Loc){s->reader->path, s->line},
                      "byte %llu: %s%s", (unsigned long long)offset_of(s), what,
                      ended ? "; the file ends here" : "");
}

static int skip_space(JsonStream *s)
{
    int c = peek(s);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        take(s);
        c = peek(s);
    }
    return c;
}

static void add(char *text, size_t *n, unsigned c)
{
    if (*n < MOST_JSON_TEXT) text[(*n)++] = (char)c;
}

/* Reads \uXXXX and writes it as UTF-8. A half of a surrogate pair is written as it is, because no
 * reader needs such characters. */
static bool escaped_code(JsonStream *s, char *text, size_t *n)
{
    unsigned code = 0;
    for (uint32_t i = 0; i < 4; i++) {
        int c = take(s);
        if (c >= '0' && c <= '9')
            code = code * 16 + (unsigned)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            code = code * 16 + (unsigned)((c | 32) - 'a') + 10;
        else
            return fault(s, "four hexadecimal digits must follow \\u");
    }
    if (code < 0x80) {
        add(text, n, code == 0 ? ' ' : code);
    } else if (code < 0x800) {
        add(text, n, 0xc0 | code >> 6);
        add(text, n, 0x80 | (code & 63));
    } else {
        add(text, n, 0xe0 | code >> 12);
        add(text, n, 0x80 | (code >> 6 & 63));
        add(text, n, 0x80 | (code & 63));
    }
    return true;
}

/* Reads a text. Its opening quote was already read. */
static bool read_text(JsonStream *s, char *text)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t n = 0;
    for (;;) {
        int c = take(s);
        if (c == EOF) return fault(s, "a text has no closing quote");
        if (c == '"') break;
        if (c < 0x20) return fault(s, "a text contains a control character");
        if (c != '\\') {
            add(text, &n, (unsigned)c);
            continue;
        }
        c = take(s);
        const char *which = c > 0 ? strchr(escapes, c) : NULL;
        if (c == 'u') {
            if (!escaped_code(s, text, &n)) return false;
        } else if (which != NULL) {
            add(text, &n, (unsigned char)meanings[which - escapes]);
        } else {
            return fault(s, "a text contains an unknown escape");
        }
    }
    text[n] = 0;
    return true;
}

static void tell(JsonStream *s, JsonKind kind, double number)
{
    JsonValue v = {kind, s->depth, s->key, s->text, number, offset_of(s)};
    s->reader->value(s->reader->self, &v);
}

static bool read_number(JsonStream *s)
{
    char digits[64];
    size_t n = 0;
    for (int c = peek(s); c != EOF && strchr("+-.0123456789eE", c) != NULL; c = peek(s)) {
        if (c == 0 || n + 1 == sizeof digits) return fault(s, "a number does not end");
        digits[n++] = (char)take(s);
    }
    digits[n] = 0;
    char *end = NULL;
    double value = strtod(digits, &end);
    if (n == 0 || *end != 0 || !isfinite(value)) return fault(s, "this is not a JSON value");
    s->text[0] = 0;
    tell(s, JSON_KIND_number, value);
    return true;
}

/* Reads true, false or null. PyTorch also writes NaN and Infinity, which count as null. */
static bool read_word(JsonStream *s)
{
    static const struct {
        const char *word;
        JsonKind kind;
    } words[] = {{"true", JSON_KIND_true},
                 {"false", JSON_KIND_false},
                 {"null", JSON_KIND_null},
                 {"NaN", JSON_KIND_null},
                 {"Infinity", JSON_KIND_null}};
    char word[12];
    size_t n = 0;
    for (int c = peek(s); c != EOF && (c | 32) >= 'a' && (c | 32) <= 'z'; c = peek(s)) {
        if (n + 1 == sizeof word) return fault(s, "this is not a JSON value");
        word[n++] = (char)take(s);
    }
    word[n] = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i].word) != 0) continue;
        s->text[0] = 0;
        tell(s, words[i].kind, 0);
        return true;
    }
    return fault(s, "this is not a JSON value");
}

static bool open_bracket(JsonStream *s, int c)
{
    take(s);
    s->text[0] = 0;
    tell(s, c == '{' ? JSON_KIND_object : JSON_KIND_array, 0);
    if (s->depth == MOST_JSON_DEPTH) return fault(s, "brackets are nested too deeply");
    s->open[s->depth++] = (char)c;
    s->key[0] = 0;
    return true;
}

/* Reads a value. If the value is an object or an array, reads only its opening bracket. */
static bool read_value(JsonStream *s)
{
    int c = skip_space(s);
    if (c == '{' || c == '[') return open_bracket(s, c);
    if (c == '"') {
        take(s);
        if (!read_text(s, s->text)) return false;
        tell(s, JSON_KIND_text, 0);
        return true;
    }
    if (c == EOF) return fault(s, "a value is missing");
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(s);
    return read_word(s);
}

static bool read_key(JsonStream *s)
{
    if (skip_space(s) != '"') return fault(s, "a key in quotes is expected");
    take(s);
    if (!read_text(s, s->key)) return false;
    if (skip_space(s) != ':') return fault(s, "':' is missing after a key");
    take(s);
    return true;
}

static void close_bracket(JsonStream *s)
{
    take(s);
    s->depth--;
    s->key[0] = s->text[0] = 0;
    tell(s, JSON_KIND_end, 0);
}

/* Reads the characters between two values: closing brackets, or a comma. `first`: nothing was read
 * in the innermost bracket yet. */
static bool next_value(JsonStream *s, bool *first)
{
    while (s->depth > 0) {
        int c = skip_space(s), closing = s->open[s->depth - 1] == '{' ? '}' : ']';
        if (c == closing) {
            close_bracket(s);
            *first = false;
            continue;
        }
        if (!*first) {
            if (c != ',') return fault(s, "',' or a closing bracket is missing");
            take(s);
        }
        s->key[0] = 0;
        return closing == ']' || read_key(s);
    }
    return true;
}

static bool read_all(JsonStream *s)
{
    bool first = true;
    do {
        uint32_t depth = s->depth;
        if (!read_value(s)) return false;
        first = s->depth > depth;
        if (!next_value(s, &first)) return false;
    } while (s->depth > 0);
    if (skip_space(s) != EOF) return fault(s, "there is text after the end of the document");
    return true;
}

bool json_stream(const JsonReader *reader, bool may_break_off, Diag *d)
{
    JsonStream *s = arena_alloc(d->arena, sizeof *s);
    s->reader = reader;
    s->d = d;
    s->line = 1;
    s->may_break_off = may_break_off;
    bool whole = read_all(s);
    if (s->broke_off) {
        diag_warning(d, "import-cut-off", (Loc){reader->path, s->line},
                     "the file breaks off at byte %llu; the part before it is imported",
                     (unsigned long long)offset_of(s));
        diag_hint(d, "the profiler may have been killed, or a copy may have stopped early");
    }
    return whole || s->broke_off;
}
