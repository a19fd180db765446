/* Finds the line of a key in a table constructor, plan { mesh = { tp = 2 } }, by scanning the
 * script's text: Lua itself knows only the line of the call. The scan knows tokens and brackets,
 * but not the grammar. */
#include <ctype.h>
#include <string.h>

#include "planner/front/child/child.h"

typedef enum TokenKind { TOKEN_end, TOKEN_name, TOKEN_text, TOKEN_mark } TokenKind;
typedef struct ScanToken {
    TokenKind kind;
    char mark;
    /* the token's characters: at text[at], n of them; without the quotes of a string */
    size_t at, n;
    uint32_t line;
} ScanToken;
typedef struct TextScan {
    const char *text;
    size_t n, at;
    uint32_t line;
} TextScan;

static char peek(const TextScan *s, size_t ahead)
{
    return s->at + ahead < s->n ? s->text[s->at + ahead] : 0;
}

static void advance(TextScan *s, size_t n)
{
    for (; n > 0 && s->at < s->n; n--) s->line += s->text[s->at++] == '\n';
}

/* If a long string or comment `[==[ ... ]==]` begins here, skips it and returns true. */
static bool skip_long(TextScan *s)
{
    size_t equals = 0;
    if (peek(s, 0) != '[') return false;
    while (peek(s, 1 + equals) == '=') equals++;
    if (peek(s, 1 + equals) != '[') return false;
    advance(s, 2 + equals);
    while (s->at < s->n) {
        size_t k = 0;
        if (peek(s, 0) == ']')
            while (k < equals && peek(s, 1 + k) == '=') k++;
        if (peek(s, 0) == ']' && k == equals && peek(s, 1 + k) == ']') {
            advance(s, 2 + equals);
            return true;
        }
        advance(s, 1);
    }
    return true;
}

static void skip_space(TextScan *s)
{
    while (s->at < s->n) {
        if (isspace((unsigned char)peek(s, 0))) {
            advance(s, 1);
        } else if (peek(s, 0) == '-' && peek(s, 1) == '-') {
            advance(s, 2);
            if (skip_long(s)) continue;
            while (s->at < s->n && peek(s, 0) != '\n') advance(s, 1);
        } else {
            return;
        }
    }
}

static ScanToken next_token(TextScan *s)
{
    skip_space(s);
    ScanToken t = {TOKEN_end, 0, s->at, 0, s->line};
    if (s->at >= s->n) return t;
    char c = peek(s, 0);
    if (isalpha((unsigned char)c) || c == '_') {
        while (isalnum((unsigned char)peek(s, t.n)) || peek(s, t.n) == '_') t.n++;
        t.kind = TOKEN_name;
        advance(s, t.n);
    } else if (c == '"' || c == '\'') {
        advance(s, 1);
        t.at = s->at;
        while (s->at < s->n && peek(s, 0) != c && peek(s, 0) != '\n')
            advance(s, peek(s, 0) == '\\' ? 2 : 1);
        t.n = s->at - t.at;
        t.kind = TOKEN_text;
        advance(s, 1);
    } else if (skip_long(s)) {
        t.kind = TOKEN_text;
    } else {
        t.kind = TOKEN_mark;
        t.mark = c;
        bool two = peek(s, 1) == '=' && (c == '=' || c == '~' || c == '<' || c == '>');
        /* a comparison such as `==`: its first character must not be taken for the `=` of a key */
        if (two) t.mark = '?';
        advance(s, two ? 2 : 1);
    }
    return t;
}

static bool is_word(const TextScan *s, const ScanToken *t, const char *word)
{
    return t->n == strlen(word) && memcmp(s->text + t->at, word, t->n) == 0;
}

static TextScan scan_source(const Child *c, uint32_t source)
{
    const Source *from = &c->source[source];
    return (TextScan){from->text, from->text == NULL ? 0 : from->n, 0, 1};
}

Spot scan_call(const Child *c, ScriptLoc loc, const char *callee)
{
    Spot spot = {loc.source, loc.line, 0};
    if (loc.source == 0 || loc.source > c->n_sources) return spot;
    TextScan s = scan_source(c, loc.source);
    for (ScanToken t = next_token(&s); t.kind != TOKEN_end; t = next_token(&s)) {
        if (t.line < loc.line || t.kind != TOKEN_name || !is_word(&s, &t, callee)) continue;
        if (t.line > loc.line) break;
        ScanToken open = next_token(&s);
        if (open.kind == TOKEN_mark && open.mark == '(') open = next_token(&s);
        if (open.kind == TOKEN_mark && open.mark == '{') {
            spot.open = s.at;
            return spot;
        }
    }
    return spot;
}

/* Finds the first `name {`, `name ({` or `require "name" {` on the line `loc`. */
Spot scan_any_call(const Child *c, ScriptLoc loc)
{
    Spot spot = {loc.source, loc.line, 0};
    if (loc.source == 0 || loc.source > c->n_sources) return spot;
    TextScan s = scan_source(c, loc.source);
    /* is_callee: the previous token may be a function's name. opened: the previous tokens are such
     * a name and a `(` */
    bool is_callee = false, opened = false;
    for (ScanToken t = next_token(&s); t.kind != TOKEN_end; t = next_token(&s)) {
        if (t.line < loc.line) continue;
        if (t.kind == TOKEN_mark && t.mark == '{' && (is_callee || opened)) {
            spot.open = s.at;
            return spot;
        }
        opened = is_callee && t.kind == TOKEN_mark && t.mark == '(';
        is_callee = t.kind == TOKEN_name || t.kind == TOKEN_text;
        if (t.line > loc.line && !opened) break;
    }
    return spot;
}

static int block_change(const TextScan *s, const ScanToken *t)
{
    static const char *const opening[] = {"function", "if", "do", "repeat"};
    static const char *const closing[] = {"end", "until"};
    for (size_t i = 0; i < 4; i++)
        if (is_word(s, t, opening[i])) return 1;
    for (size_t i = 0; i < 2; i++)
        if (is_word(s, t, closing[i])) return -1;
    return 0;
}

static uint32_t line_of(const TextScan *s, size_t offset)
{
    uint32_t line = 1;
    for (size_t i = 0; i < offset && i < s->n; i++) line += s->text[i] == '\n';
    return line;
}

/* Returns the offset just after the brace of the value that begins here, if it is `{ ... }` or
 * `word { ... }`; otherwise 0. */
static size_t value_open(TextScan s)
{
    ScanToken t = next_token(&s);
    if (t.kind == TOKEN_name) t = next_token(&s);
    return t.kind == TOKEN_mark && t.mark == '{' ? s.at : 0;
}

/* Finds the item `key = value` in the braces `table`. If key is NULL, finds the index-th item
 * without a key. If there is none, returns the location of `table`. */
static Spot find_item(const Child *c, Spot table, const char *key, lua_Integer index)
{
    Spot found = {table.source, table.line, 0};
    if (table.open == 0 || table.source == 0) return found;
    TextScan s = scan_source(c, table.source);
    s.line = line_of(&s, table.open);
    s.at = table.open;
    lua_Integer seen = 0;
    int depth = 0;
    bool item_begins = true;
    while (depth >= 0) {
        TextScan before = s;
        ScanToken t = next_token(&s);
        if (t.kind == TOKEN_end) return found;
        bool begins = item_begins && depth == 0;
        item_begins = false;
        if (begins && !(t.kind == TOKEN_mark && t.mark == '}')) {
            TextScan after = s;
            ScanToken name = t, follows;
            bool bracket = t.kind == TOKEN_mark && t.mark == '[';
            if (bracket) {
                name = next_token(&after);
                next_token(&after); /* the `]` */
            }
            follows = next_token(&after);
            bool keyed = follows.kind == TOKEN_mark && follows.mark == '=';
            seen += !keyed;
            if (key != NULL && keyed && (name.kind == TOKEN_name || name.kind == TOKEN_text) &&
                is_word(&s, &name, key))
                return (Spot){table.source, name.line, value_open(after)};
            if (key == NULL && !keyed && seen == index)
                return (Spot){table.source, t.line, value_open(before)};
        }
        if (t.kind == TOKEN_name) depth += block_change(&s, &t);
        if (t.kind != TOKEN_mark) continue;
        if (strchr("{([", t.mark) != NULL) depth++;
        if (strchr("})]", t.mark) != NULL) depth--;
        if (depth == 0 && (t.mark == ',' || t.mark == ';')) item_begins = true;
    }
    return found;
}

Spot scan_key(const Child *c, Spot table, const char *key)
{
    return find_item(c, table, key, 0);
}

Spot scan_item(const Child *c, Spot table, lua_Integer index)
{
    return find_item(c, table, NULL, index);
}
