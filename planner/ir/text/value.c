/* Parses the values in a plan's text, which anybody may have written. A number must fit its C type,
 * a list its array, and every name must be known. */
#include <stdlib.h>
#include <string.h>

#include "planner/ir/text/value.h"

static bool wrong(ValueReader *r, const char *problem)
{
    r->problem = problem;
    return false;
}

bool text_is(Token t, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(t.end - t.at) == n && memcmp(t.at, word, n) == 0;
}

bool text_read_u64(Token *t, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    const char *first = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        uint64_t digit = (uint64_t)(*t->at - '0');
        if (value > (most - digit) / 10 || digit > most) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return t->at > first;
}

static bool read_i64(Token *t, int64_t *out)
{
    bool negative = t->at < t->end && *t->at == '-';
    uint64_t value;
    if (negative) t->at++;
    if (!text_read_u64(t, (uint64_t)INT64_MAX + negative, &value)) return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

static bool take(Token *t, char c)
{
    if (t->at == t->end || *t->at != c) return false;
    t->at++;
    return true;
}

static bool read_double(ValueReader *r, Token t, double *out)
{
    char text[40], *end;
    size_t n = (size_t)(t.end - t.at);
    if (n == 0 || n >= sizeof text) return wrong(r, "expected a number");
    memcpy(text, t.at, n);
    text[n] = 0;
    *out = strtod(text, &end);
    return *end == 0 ? true : wrong(r, "expected a number");
}

/* Returns the error message for a value that is no number, or too large for a field of this
 * type. */
static const char *number_expected(FieldType type)
{
    return type == FIELD_i64   ? "expected a whole number from -2^63 to 2^63 - 1"
           : type == FIELD_i32 ? "expected a whole number from -2^31 to 2^31 - 1"
           : type == FIELD_u64 ? "expected a whole number from 0 to 2^64 - 1"
           : type == FIELD_u32 ? "expected a whole number from 0 to 2^32 - 1"
           : type == FIELD_u8  ? "expected a whole number from 0 to 255"
                               : "expected 0 or 1";
}

static bool read_number(ValueReader *r, FieldType type, Token t, void *at)
{
    uint64_t value = 0;
    int64_t number = 0;
    bool fine = false;
    if (type == FIELD_f64) return read_double(r, t, at);
    if (type == FIELD_i64 || type == FIELD_i32)
        fine = read_i64(&t, &number) &&
               (type == FIELD_i64 || (number >= INT32_MIN && number <= INT32_MAX));
    else
        fine = text_read_u64(&t,
                             type == FIELD_u64   ? UINT64_MAX
                             : type == FIELD_u32 ? UINT32_MAX
                             : type == FIELD_u8  ? UINT8_MAX
                                                 : 1,
                             &value);
    if (!fine || t.at != t.end) return wrong(r, number_expected(type));
    if (type == FIELD_i64)
        *(int64_t *)at = number;
    else if (type == FIELD_i32)
        *(int32_t *)at = (int32_t)number;
    else if (type == FIELD_u64)
        *(uint64_t *)at = value;
    else if (type == FIELD_u32)
        *(uint32_t *)at = (uint32_t)value;
    else if (type == FIELD_u8)
        *(uint8_t *)at = (uint8_t)value;
    else
        *(bool *)at = value != 0;
    return true;
}

static bool read_word(ValueReader *r, const TextField *f, Token t, void *at)
{
    for (uint32_t i = 0; i < f->room; i++) {
        if (f->names[i] == NULL || !text_is(t, f->names[i])) continue;
        memcpy(at, &i, sizeof i);
        return true;
    }
    return wrong(r, "unknown word");
}

static bool read_op(ValueReader *r, Token t, void *at)
{
    char name[64];
    size_t n = (size_t)(t.end - t.at);
    if (n >= sizeof name) return wrong(r, "unknown op");
    memcpy(name, t.at, n);
    name[n] = 0;
    OpKind op = op_find(name);
    if (op == OP_none && strcmp(name, "none") != 0) return wrong(r, "unknown op");
    memcpy(at, &op, sizeof op);
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses a text in quotes into *out, and moves t->at behind the closing quote. */
static bool read_quoted(ValueReader *r, Token *t, const char **out)
{
    if (!take(t, '"')) return wrong(r, "expected a quoted text");
    char *text = arena_alloc(r->arena, (size_t)(t->end - t->at) + 1);
    size_t n = 0;
    while (t->at < t->end && *t->at != '"') {
        char c = *t->at++;
        if (c == '\\' && t->at < t->end && (*t->at == '"' || *t->at == '\\')) {
            c = *t->at++;
        } else if (c == '\\') {
            if (t->end - t->at < 3 || *t->at != 'x') return wrong(r, "unknown escape");
            int high = hex_digit(t->at[1]), low = hex_digit(t->at[2]);
            if (high < 0 || low < 0 || high + low == 0) return wrong(r, "unknown escape");
            c = (char)(unsigned char)(high << 4 | low);
            t->at += 3;
        }
        text[n++] = c;
    }
    if (!take(t, '"')) return wrong(r, "a quote is not closed");
    *out = text;
    return true;
}

static bool read_loc(ValueReader *r, Token t, Loc *loc)
{
    const char *file;
    uint64_t line;
    if (!read_quoted(r, &t, &file)) return false;
    if (!take(&t, ':') || !text_read_u64(&t, UINT32_MAX, &line) || t.at != t.end)
        return wrong(r, "expected \"file\":line");
    if (r->last_loc.file && strcmp(r->last_loc.file, file) == 0) file = r->last_loc.file;
    *loc = r->last_loc = (Loc){file, (uint32_t)line};
    return true;
}

static bool read_hash(ValueReader *r, Token t, Hash128 *out)
{
    if (t.end - t.at != 32) return wrong(r, "expected 32 hex digits");
    for (int i = 0; i < 32; i++) {
        int digit = hex_digit(t.at[i]);
        if (digit < 0) return wrong(r, "expected 32 hex digits");
        uint64_t *half = i < 16 ? &out->hi : &out->lo;
        *half = *half << 4 | (uint64_t)digit;
    }
    return true;
}

/* Parses the axis name at the start of the token, such as "tp" of "tp:1", into its index in the
 * mesh, and moves t->at behind it. */
static bool read_axis(ValueReader *r, Token *t, uint32_t *axis)
{
    const char *end = t->at;
    while (end < t->end && *end != ',' && *end != ':') end++;
    Token name = {t->at, end};
    for (uint32_t a = 0; a < r->plan->mesh.n_axes; a++) {
        if (!text_is(name, r->plan->mesh.axis[a].text)) continue;
        *axis = a;
        t->at = end;
        return true;
    }
    return wrong(r, "unknown axis");
}

static bool read_axes(ValueReader *r, Token t, AxisSet *axes)
{
    do {
        uint32_t a;
        if (!read_axis(r, &t, &a)) return false;
        *axes = (AxisSet)(*axes | 1u << a);
    } while (take(&t, ','));
    return t.at == t.end ? true : wrong(r, "expected axes");
}

static bool read_on(Token *t, int8_t *on)
{
    uint64_t d;
    if (t->end - t->at >= 3 && memcmp(t->at, "sum", 3) == 0) {
        *on = PARTIAL_SUM;
        t->at += 3;
    } else if (t->end - t->at >= 3 && memcmp(t->at, "max", 3) == 0) {
        *on = PARTIAL_MAX;
        t->at += 3;
    } else {
        if (!text_read_u64(t, MAX_DIMS - 1, &d)) return false;
        *on = SPLIT(d);
    }
    return true;
}

static bool read_layout(ValueReader *r, Token t, Layout *layout)
{
    do {
        uint32_t a;
        if (!read_axis(r, &t, &a)) return false;
        if (!take(&t, ':') || !read_on(&t, &layout->on[a])) return wrong(r, "expected axis:layout");
    } while (take(&t, ','));
    return t.at == t.end ? true : wrong(r, "expected a layout");
}

static bool read_split(ValueReader *r, Token t, char *split)
{
    do {
        uint32_t a;
        if (!read_axis(r, &t, &a)) return false;
        if (!take(&t, ':') || t.at == t.end || *t.at < 'a' || *t.at > 'z')
            return wrong(r, "expected axis:index");
        split[a] = *t.at++;
    } while (take(&t, ','));
    return t.at == t.end ? true : wrong(r, "expected axis:index");
}

static bool read_u32(Token *t, uint32_t *out)
{
    uint64_t value;
    if (!text_read_u64(t, UINT32_MAX, &value)) return false;
    *out = (uint32_t)value;
    return true;
}

static bool read_dims(ValueReader *r, Token t, int64_t *dim, uint8_t *n)
{
    *n = 0;
    if (!take(&t, '[')) return wrong(r, "expected [");
    do {
        if (*n == MAX_DIMS) return wrong(r, "too many dimensions");
        if (!read_i64(&t, &dim[*n])) return wrong(r, "expected a size");
        (*n)++;
    } while (take(&t, ','));
    return take(&t, ']') && t.at == t.end ? true : wrong(r, "expected ]");
}

static bool read_u32s(ValueReader *r, Token *t, uint32_t *at, uint32_t room, uint32_t *n)
{
    for (*n = 0;; (*n)++) {
        if (*n == room) return wrong(r, "too many numbers");
        if (!read_u32(t, &at[*n])) return wrong(r, "expected a number");
        if (!take(t, ',')) break;
    }
    (*n)++;
    return true;
}

static bool read_ids(ValueReader *r, const TextField *f, Token t, char *record)
{
    uint32_t n;
    uint8_t *count = (uint8_t *)record + f->count;
    /* one deal for each dimension; the dimensions come before the deals */
    const uint32_t room = f->type == FIELD_deals ? *count : f->room;
    if (!read_u32s(r, &t, (uint32_t *)(void *)(record + f->offset), room, &n)) return false;
    if (f->type == FIELD_deals && n != *count)
        return wrong(r, "expected a deal for each dimension");
    *count = (uint8_t)n;
    return t.at == t.end ? true : wrong(r, "expected numbers");
}

static bool read_list(ValueReader *r, Token t, IdList *list)
{
    do {
        uint32_t id;
        if (!read_u32(&t, &id)) return wrong(r, "expected a number");
        list_push(r->arena, list, id);
    } while (take(&t, ','));
    return t.at == t.end ? true : wrong(r, "expected numbers");
}

static bool read_numbers(ValueReader *r, const TextField *f, Token t, double *at)
{
    for (uint32_t n = 0; n < f->room; n++) {
        Token one = t;
        while (t.at < t.end && *t.at != ',') t.at++;
        one.end = t.at;
        if (!read_number(r, FIELD_f64, one, (char *)(at + n))) return false;
        if (t.at == t.end) return at[n] != 0 || wrong(r, "expected a last number that is not 0");
        t.at++;
    }
    return wrong(r, "too many numbers");
}

static bool read_intervals(ValueReader *r, Token t, Deal *deal)
{
    Deals *deals = &r->plan->graph.deals;
    deal->first = deals->intervals.n;
    do {
        Interval part;
        if (!read_i64(&t, &part.lo) || !take(&t, '-') || !read_i64(&t, &part.hi))
            return wrong(r, "expected low-high");
        list_push(r->arena, &deals->intervals, part);
        deal->n++;
    } while (take(&t, ','));
    return t.at == t.end ? true : wrong(r, "expected low-high");
}

/* the op's own arguments, and up to 4 buffers of workspace */
enum { MAX_INSTR_ARGS = MAX_ARGS + 4 };

static bool read_args(ValueReader *r, Token t, Instr *in)
{
    uint32_t ids[MAX_INSTR_ARGS], n_in = 0, n_out = 0;
    if (t.at < t.end && *t.at != '>' && !read_u32s(r, &t, ids, MAX_IN, &n_in)) return false;
    if (!take(&t, '>')) return wrong(r, "expected inputs>outputs");
    if (t.at < t.end && !read_u32s(r, &t, ids + n_in, MAX_INSTR_ARGS - n_in, &n_out)) return false;
    if (t.at != t.end) return wrong(r, "expected inputs>outputs");
    in->n_in = (uint8_t)n_in;
    in->args.n = n_in + n_out;
    for (uint32_t i = 0; i < in->args.n; i++) list_push(r->arena, &r->program->args, ids[i]);
    return true;
}

static bool read_after(ValueReader *r, Token t, Span *after)
{
    do {
        Pc pc;
        if (!read_u32(&t, &pc)) return wrong(r, "expected a number");
        list_push(r->arena, &r->program->after, pc);
        after->n++;
    } while (take(&t, ','));
    return t.at == t.end ? true : wrong(r, "expected numbers");
}

bool text_read(ValueReader *r, const TextField *f, Token t, char *record)
{
    void *at = record + f->offset;
    const char **text = at;
    switch (f->type) {
    case FIELD_u8:
    case FIELD_u32:
    case FIELD_u64:
    case FIELD_i32:
    case FIELD_i64:
    case FIELD_f64:
    case FIELD_bool: return read_number(r, f->type, t, at);
    case FIELD_word: return read_word(r, f, t, at);
    case FIELD_op: return read_op(r, t, at);
    case FIELD_text:
        return read_quoted(r, &t, text) && (t.at == t.end ? true : wrong(r, "expected a space"));
    case FIELD_loc: return read_loc(r, t, at);
    case FIELD_hash: return read_hash(r, t, at);
    case FIELD_axes: return read_axes(r, t, at);
    case FIELD_layout: return read_layout(r, t, at);
    case FIELD_split: return read_split(r, t, at);
    case FIELD_dims: return read_dims(r, t, at, (uint8_t *)record + f->count);
    case FIELD_deals:
    case FIELD_ids: return read_ids(r, f, t, record);
    case FIELD_list: return read_list(r, t, at);
    case FIELD_numbers: return read_numbers(r, f, t, at);
    case FIELD_intervals: return read_intervals(r, t, (Deal *)(void *)record);
    case FIELD_args: return read_args(r, t, (Instr *)(void *)record);
    case FIELD_after: return read_after(r, t, at);
    }
    return wrong(r, "unknown field");
}
