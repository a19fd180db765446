/* The plan's id: a hash of all fields that the tables of the text list (fields.c, program.def).
 *
 * A record is hashed as its kind, then a tag and a value for every field that is not zero, then a
 * zero tag. The tag is a hash of the field's key, and an enum value counts by its name. So a new
 * field, op or stream does not change the ids of plans that do not use it. Each value has a fixed
 * width or is preceded by its length, so different plans never give the same bytes. No pointer,
 * padding or script location is hashed. */
#include <assert.h>
#include <string.h>

#include "planner/ir/text/private.h"

/* BLOCK: bytes that are collected before they are hashed. MOST_NUMBERS: bytes of a record's numbers
 * and short lists at most. SHORT: elements of a short list; longer lists are hashed directly. */
enum { BLOCK = 1 << 15, MOST_NUMBERS = 4096, MOST_WORDS = 1024, SHORT = 64 };

/* The index of each field of buffers and instructions in their tables. */
enum {
#define BUFFER(key, field, ...)      AT_BUFFER_##field,
#define BUFFER_WORD(key, field, ...) AT_BUFFER_##field,
#include "planner/ir/program.def"
    BUFFER_FIELDS
};
enum {
#define INSTR(key, field, ...)      AT_INSTR_##field,
#define INSTR_WORD(key, field, ...) AT_INSTR_##field,
#include "planner/ir/program.def"
    INSTR_FIELDS
};

/* A field of a table, prepared for hashing. */
typedef struct Hashed {
    const TextField *field;
    FieldType type;
    uint32_t tag, offset;
    /* The hashes of the names of an enum: `n_words` entries of Coder.word from index `words` on. 0
     * for other fields. */
    uint32_t words, n_words;
    bool always; /* hashed even if it is zero */
    /* a 32-bit number, or an enum */
    bool plain;
} Hashed;

typedef struct Coder {
    const Plan *plan;
    const Program *program;
    Hasher *hasher;
    Arena *scratch;
    /* if a seal (TextSeal) is being computed: to which each record is added; otherwise NULL */
    TextSeal *seal;
    uint32_t n_sealed;
    /* the record did not fit into `at`, so its first bytes are already in the hasher */
    bool spilled;
    Hashed field[RECORD_COUNT][MOST_FIELDS];
    uint32_t n_fields[RECORD_COUNT], word[MOST_WORDS], n_words, ops;
    size_t n;
    unsigned char at[BLOCK];
} Coder;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are hashed as they are in memory");

/* Returns the tag of a field: an FNV-1a hash of its key, never 0, because 0 ends a record. `place`
 * makes the tags of fields without keys different. */
static uint32_t tag_of(const char *key, uint32_t place)
{
    uint32_t h = 2166136261U + place;
    for (; key != NULL && *key != 0; key++) h = (h ^ (unsigned char)*key) * 16777619U;
    return h != 0 ? h : 1;
}

static uint32_t add_words(Coder *c, uint32_t n)
{
    assert(c->n_words + n <= MOST_WORDS);
    c->n_words += n;
    return c->n_words - n;
}

static void add_field(Coder *c, uint32_t kind, uint32_t place, const TextField *f)
{
    if (f->type == FIELD_loc || (kind == RECORD_model && place == 0)) return;
    Hashed *h = &c->field[kind][c->n_fields[kind]++];
    assert(c->n_fields[kind] <= MOST_FIELDS);
    *h = (Hashed){.field = f,
                  .type = f->type,
                  .tag = tag_of(f->key, f->key != NULL ? 0 : place + 1),
                  .offset = f->offset,
                  .always = f->type == FIELD_word && f->key == NULL,
                  .plain = f->type == FIELD_u32 || f->type == FIELD_i32 || f->type == FIELD_word ||
                           f->type == FIELD_op};
    if (f->type == FIELD_op) h->words = c->ops, h->n_words = OP_COUNT;
    if (f->type != FIELD_word) return;
    h->words = add_words(c, f->room);
    h->n_words = f->room;
    for (uint32_t i = 0; i < f->room; i++)
        c->word[h->words + i] = f->names[i] != NULL ? tag_of(f->names[i], 0) : 0;
}

static Coder *coder_new(const Plan *plan, Arena *scratch)
{
    Coder *c = arena_alloc(scratch, sizeof *c);
    c->plan = plan;
    c->scratch = scratch;
    c->hasher = hasher_new(scratch);
    c->ops = add_words(c, OP_COUNT);
    for (uint32_t i = 1; i < OP_COUNT; i++)
        c->word[c->ops + i] = tag_of(op_info((OpKind)i)->name, 0);
    for (uint32_t k = 0; k < RECORD_COUNT; k++) {
        const Record *r = text_record((TextRecordKind)k);
        for (uint32_t i = 0; i < r->n_fields; i++) add_field(c, k, i, &r->fields[i]);
    }
    assert(c->n_fields[RECORD_buffer] == BUFFER_FIELDS &&
           c->n_fields[RECORD_instr] == INSTR_FIELDS);
    return c;
}

static void flush(Coder *c)
{
    hasher_add(c->hasher, c->at, c->n);
    c->spilled = true;
    c->n = 0;
}

static void put(Coder *c, const void *bytes, size_t n)
{
    if (c->n + n > BLOCK) flush(c);
    if (n > BLOCK) {
        hasher_add(c->hasher, bytes, n);
        c->spilled = true;
        return;
    }
    memcpy(c->at + c->n, bytes, n);
    c->n += n;
}

static void put_u32(Coder *c, uint32_t value)
{
    put(c, &value, sizeof value);
}

static void put_many(Coder *c, uint32_t tag, const void *items, uint32_t n, size_t size)
{
    if (n == 0) return;
    put_u32(c, tag);
    put_u32(c, n);
    put(c, items, n * size);
}

static bool any_deal(const DealId *deal, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (deal[i] != 0) return true;
    return false;
}

static void put_list(Coder *c, const Hashed *h, const void *record)
{
    const char *base = record;
    const void *at = base + h->offset;
    const uint8_t count = (uint8_t)base[h->field->count];
    if (h->type == FIELD_dims) {
        put_many(c, h->tag, at, count, sizeof(int64_t));
    } else if (h->type == FIELD_ids) {
        put_many(c, h->tag, at, count, sizeof(uint32_t));
    } else if (h->type == FIELD_deals) {
        if (any_deal(at, count)) put_many(c, h->tag, at, count, sizeof(DealId));
    } else if (h->type == FIELD_list) {
        const IdList *list = at;
        put_many(c, h->tag, list->at, list->n, sizeof(uint32_t));
    } else if (h->type == FIELD_numbers) {
        put_many(c, h->tag, at, text_numbers(h->field, record), sizeof(double));
    } else if (h->type == FIELD_intervals) {
        const Deal *deal = record;
        put_many(c, h->tag, c->plan->graph.deals.intervals.at + deal->first, deal->n,
                 sizeof(Interval));
    } else if (h->type == FIELD_args) {
        const Instr *in = record;
        put_many(c, h->tag, c->program->args.at + in->args.first, in->args.n, sizeof(BufferId));
        if (in->args.n > 0) put(c, &in->n_in, 1);
    } else if (h->type == FIELD_after) {
        const Span *after = at;
        put_many(c, h->tag, c->program->after.at + after->first, after->n, sizeof(Pc));
    } else if (h->type == FIELD_text) {
        const char *text = *(const char *const *)at;
        if (text == NULL) return;
        put_u32(c, h->tag);
        put_u32(c, (uint32_t)strlen(text));
        put(c, text, strlen(text));
    }
}

/* Appends a tag, the length and the elements of a list of at most SHORT elements. Nothing if empty.
 * Returns the end of the written bytes, as do the functions below. */
static unsigned char *put_short(unsigned char *to, uint32_t tag, const uint32_t *items, uint32_t n)
{
    if (n == 0) return to;
    memcpy(to, &tag, sizeof tag);
    memcpy(to + sizeof tag, &n, sizeof n);
    to += sizeof tag + sizeof n;
    for (uint32_t i = 0; i < n; i++, to += sizeof *items) memcpy(to, &items[i], sizeof *items);
    return to;
}

/* Appends the list `args` or `after` of an instruction, of at most SHORT elements. */
static unsigned char *put_few(const Coder *c, const Hashed *h, const Instr *in, unsigned char *to)
{
    const bool args = h->type == FIELD_args;
    const Span list = args ? in->args : in->after;
    to = put_short(to, h->tag, (args ? c->program->args.at : c->program->after.at) + list.first,
                   list.n);
    if (args && list.n > 0) *to++ = (unsigned char)in->n_in;
    return to;
}

/* Appends a tag and a byte; nothing if the byte is zero. */
static unsigned char *put_byte(unsigned char *to, uint32_t tag, const void *at)
{
    const unsigned char byte = *(const unsigned char *)at;
    if (byte == 0) return to;
    memcpy(to, &tag, sizeof tag);
    to[sizeof tag] = byte;
    return to + sizeof tag + 1;
}

/* Appends a tag and 64 bits; nothing if they are zero. */
static unsigned char *put_wide(unsigned char *to, uint32_t tag, const void *at)
{
    uint64_t wide;
    memcpy(&wide, at, sizeof wide);
    if (wide == 0) return to;
    memcpy(to, &tag, sizeof tag);
    memcpy(to + sizeof tag, &wide, sizeof wide);
    return to + sizeof tag + sizeof wide;
}

/* Appends a tag and the `n` bytes at `at`; nothing if all are zero. */
static unsigned char *put_number(unsigned char *to, uint32_t tag, const void *at, size_t n)
{
    unsigned char any = 0;
    for (size_t i = 0; i < n; i++) any |= ((const unsigned char *)at)[i];
    if (any == 0) return to;
    memcpy(to, &tag, sizeof tag);
    memcpy(to + sizeof tag, at, n);
    return to + sizeof tag + n;
}

static unsigned char *put_word(unsigned char *to, uint32_t tag, uint32_t value)
{
    memcpy(to, &tag, sizeof tag);
    memcpy(to + sizeof tag, &value, sizeof value);
    return to + sizeof tag + sizeof value;
}

static unsigned char *put_plain(const Coder *c, const Hashed *h, const void *at, unsigned char *to)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    if (value == 0 && !h->always) return to;
    if (h->n_words == 0) return put_word(to, h->tag, value);
    assert(value < h->n_words);
    const uint32_t word = c->word[h->words + value]; /* 0: the text never states this value */
    return word != 0 ? put_word(to, h->tag, word) : to;
}

/* Buffers and instructions make up most of a plan. So put_buffer and put_instr are straight-line
 * code, generated from program.def, in place of a loop over the table of fields. */
#define APPEND_u32(h, value)  ((value) != 0 ? put_word(to, (h)->tag, (uint32_t)(value)) : to)
#define APPEND_i32(h, value)  APPEND_u32(h, value)
#define APPEND_op(h, value)   APPEND_word(h, value)
#define APPEND_u64(h, value)  put_wide(to, (h)->tag, &(value))
#define APPEND_bool(h, value) put_byte(to, (h)->tag, &(value))
#define APPEND_axes(h, value) put_number(to, (h)->tag, &(value), sizeof(AxisSet))
#define APPEND_word(h, value) put_plain(c, h, &(value), to)

static unsigned char *put_buffer(const Coder *c, const Buffer *b, unsigned char *to)
{
    const Hashed *h = c->field[RECORD_buffer];
#define BUFFER(key, field, form, ...)      to = APPEND_##form(&h[AT_BUFFER_##field], b->field);
#define BUFFER_ROOT(key, field, form, ...) to = APPEND_##form(&h[AT_BUFFER_##field], b->field);
#define BUFFER_WORD(key, field, ...)       to = APPEND_word(&h[AT_BUFFER_##field], b->field);
#define BUFFER_NOTED(key, field, form, trust, ...)                                                 \
    if (TRUST_##trust != TRUST_derived) to = APPEND_##form(&h[AT_BUFFER_##field], b->field);
#include "planner/ir/program.def"
    return to;
}

/* Appends an instruction. Returns NULL if one of its lists has more than SHORT elements. */
static unsigned char *put_instr(const Coder *c, const Instr *in, unsigned char *to)
{
    const Hashed *h = c->field[RECORD_instr];
    if (in->args.n > SHORT || in->after.n > SHORT) return NULL;
#define APPEND_args(h, value)        put_few(c, h, in, to)
#define APPEND_after(h, value)       put_few(c, h, in, to)
#define INSTR(key, field, form, ...) to = APPEND_##form(&h[AT_INSTR_##field], in->field);
#define INSTR_WORD(key, field, ...)  to = APPEND_word(&h[AT_INSTR_##field], in->field);
#include "planner/ir/program.def"
    return to;
}

/* Appends a buffer or an instruction by the fast code above. Returns NULL for any other record, and
 * if a seal is being computed, because a seal leaves out the fields that a view has from its root.
 * put_record then appends field by field. */
static unsigned char *put_common(const Coder *c, TextRecordKind kind, const void *record,
                                 unsigned char *to)
{
    if (c->seal != NULL) return NULL;
    if (kind == RECORD_buffer) return put_buffer(c, record, to);
    return kind == RECORD_instr ? put_instr(c, record, to) : NULL;
}

/* Adds the hash of the current record to both sums of the seal. The record's bytes are in c->at or,
 * if it was long, partly in the hasher. */
static void seal_record(Coder *c)
{
    uint64_t hash = 0;
    if (c->spilled) {
        flush(c);
        hash = hasher_end(c->hasher).lo;
        c->hasher = hasher_new(c->scratch);
        c->spilled = false;
    } else {
        hash = hash_bytes(c->at, c->n).lo;
    }
    c->n = 0;
    c->n_sealed++;
    c->seal->sum += hash;
    c->seal->place += hash * c->n_sealed;
}

static void put_record(Coder *c, TextRecordKind kind, const void *record)
{
    const Hashed *end = c->field[kind] + c->n_fields[kind];
    if (c->n + MOST_NUMBERS > BLOCK) flush(c);
    unsigned char *to = c->at + c->n;
    *to++ = (unsigned char)(kind + 1);
    unsigned char *const all = put_common(c, kind, record, to);
    if (all != NULL) {
        c->n = (size_t)(all - c->at);
        put_u32(c, 0);
        return;
    }
    for (const Hashed *h = c->field[kind]; h < end; h++) {
        const void *at = (const char *)record + h->offset;
        if (!text_is_written(h->field)) continue;
        if (c->seal != NULL && text_is_shared(h->field, record)) continue;
        if (h->plain) { /* most fields */
            to = put_plain(c, h, at, to);
            continue;
        }
        switch (h->type) {
        case FIELD_u64:
        case FIELD_i64:
        case FIELD_f64: to = put_wide(to, h->tag, at); break;
        case FIELD_u8:
        case FIELD_bool: to = put_byte(to, h->tag, at); break;
        case FIELD_axes: to = put_number(to, h->tag, at, sizeof(AxisSet)); break;
        case FIELD_hash: to = put_number(to, h->tag, at, sizeof(Hash128)); break;
        case FIELD_layout: /* one byte for each mesh axis that exists */
        case FIELD_split: to = put_number(to, h->tag, at, c->plan->mesh.n_axes); break;
        case FIELD_u32:
        case FIELD_i32:
        case FIELD_word:
        case FIELD_op: /* these types are plain, which the code above has handled */
        case FIELD_loc: break;
        case FIELD_text:
        case FIELD_dims:
        case FIELD_deals:
        case FIELD_ids:
        case FIELD_list:
        case FIELD_numbers:
        case FIELD_intervals:
        case FIELD_args:
        case FIELD_after:
            c->n = (size_t)(to - c->at);
            put_list(c, h, record);
            if (c->n + MOST_NUMBERS > BLOCK) flush(c);
            to = c->at + c->n;
            break;
        }
    }
    c->n = (size_t)(to - c->at);
    put_u32(c, 0);
    if (c->seal != NULL) seal_record(c);
}

static void put_ranks(Coder *c)
{
    const Plan *plan = c->plan;
    if (plan->program_of == NULL || plan->programs.n == 0) return;
    for (Rank first = 0, next; first < plan->mesh.n_ranks; first = next) {
        for (next = first + 1; next < plan->mesh.n_ranks; next++)
            if (plan->program_of[next] != plan->program_of[first]) break;
        put_u32(c, plan->program_of[first]);
        put_u32(c, next - first);
    }
}

/* Hashes all records of a list whose index 0 means "none". */
#define PUT_ALL(kind, list)                                                                        \
    do {                                                                                           \
        if (c->seal == NULL) put_u32(c, (list).n);                                                 \
        for (uint32_t i_ = 1; i_ < (list).n; i_++) put_record(c, kind, &(list).at[i_]);            \
    } while (0)

/* Hashes all records of one kind; those of a program for the program c->program. */
static void put_kind(Coder *c, TextRecordKind kind)
{
    const Plan *plan = c->plan;
    const Graph *g = &plan->graph;
    switch (kind) {
    case RECORD_plan: put_record(c, kind, plan); return;
    case RECORD_step: put_record(c, kind, &plan->step); return;
    case RECORD_nccl:
        if (!nccl_settings_none(&plan->nccl)) put_record(c, kind, &plan->nccl);
        return;
    case RECORD_model: put_record(c, kind, &g->info); return;
    case RECORD_axis:
        for (uint32_t a = 0; a < plan->mesh.n_axes; a++) put_record(c, kind, &plan->mesh.axis[a]);
        return;
    case RECORD_deal: PUT_ALL(kind, g->deals.deals); return;
    case RECORD_attrs: PUT_ALL(kind, g->attrs); return;
    case RECORD_shape: PUT_ALL(kind, plan->shapes); return;
    case RECORD_module: PUT_ALL(kind, g->modules); return;
    case RECORD_tensor: PUT_ALL(kind, g->tensors); return;
    case RECORD_node: PUT_ALL(kind, g->nodes); return;
    case RECORD_unit: PUT_ALL(kind, g->units); return;
    case RECORD_graph: put_record(c, kind, g); return;
    case RECORD_program: put_record(c, kind, c->program); return;
    case RECORD_buffer: PUT_ALL(kind, c->program->buffers); return;
    case RECORD_instr: PUT_ALL(kind, c->program->code); return;
    case RECORD_ranks: put_ranks(c); return;
    case RECORD_seal:
    case RECORD_COUNT: return;
    }
}

static void put_kinds(Coder *c, TextRecordKind first, TextRecordKind last)
{
    for (int k = (int)first; k <= (int)last; k++) put_kind(c, (TextRecordKind)k);
}

static void put_plan(Coder *c)
{
    put(c, TEXT_HEADER, strlen(TEXT_HEADER));
    put_kinds(c, RECORD_plan, RECORD_graph);
    put_u32(c, c->plan->programs.n);
    for (uint32_t i = 0; i < c->plan->programs.n; i++) {
        c->program = &c->plan->programs.at[i];
        put_kinds(c, RECORD_program, RECORD_instr);
    }
    put_ranks(c);
    flush(c);
}

/* Returns the seal of a field over all records of `kind`. `c` must contain only this field. */
static TextSeal seal_kind(Coder *c, TextRecordKind kind)
{
    /* starts with the field's tag, so that the seal is not 0 even if there are no records */
    TextSeal seal = {.sum = c->field[kind][0].tag};
    c->seal = &seal;
    c->n_sealed = 0;
    if (kind < RECORD_program) put_kind(c, kind);
    for (uint32_t i = 0; kind >= RECORD_program && i < c->plan->programs.n; i++) {
        c->program = &c->plan->programs.at[i];
        put_kind(c, kind);
    }
    c->seal = NULL;
    return seal;
}

void text_seals(const Plan *plan, Arena *scratch, TextSeals *seals)
{
    Coder *c = coder_new(plan, scratch);
    memset(seals, 0, sizeof *seals);
    for (int k = 0; k < RECORD_ranks; k++) {
        const uint32_t n = c->n_fields[k];
        Hashed all[MOST_FIELDS];
        memcpy(all, c->field[k], sizeof all);
        c->n_fields[k] = 1;
        for (uint32_t i = 0; i < n; i++) {
            const TextField *f = all[i].field;
            if (!text_has_seal(f)) continue;
            c->field[k][0] = all[i];
            seals->of[k][f - text_record((TextRecordKind)k)->fields] =
                seal_kind(c, (TextRecordKind)k);
        }
    }
}

Hash128 text_plan_id(const Plan *plan, Arena *scratch)
{
    Coder *c = coder_new(plan, scratch);
    put_plan(c);
    return hasher_end(c->hasher);
}
