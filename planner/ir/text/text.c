/* Prints the exact text of a plan. A large plan has half a million lines, so values are formatted
 * by hand into a block of memory, which is much faster than printf. */
#include "planner/ir/text/text.h"

#include <assert.h>
#include <string.h>

#include "planner/ir/text/private.h"

enum { BLOCK = 4096 };

typedef struct TextWriter {
    const Plan *plan;
    const Program *program;
    Str *out;
    uint32_t flags;
    size_t n;
    char at[BLOCK];
} TextWriter;

static void flush(TextWriter *w)
{
    str_add_bytes(w->out, w->at, w->n);
    w->n = 0;
}

static void put(TextWriter *w, const char *text, size_t n)
{
    if (w->n + n > BLOCK) flush(w);
    for (; n > BLOCK; n -= BLOCK, text += BLOCK) {
        memcpy(w->at, text, BLOCK);
        w->n = BLOCK;
        flush(w);
    }
    memcpy(w->at + w->n, text, n);
    w->n += n;
}

static void put_text(TextWriter *w, const char *text)
{
    put(w, text, strlen(text));
}

static void put_char(TextWriter *w, char c)
{
    if (w->n == BLOCK) flush(w);
    w->at[w->n++] = c;
}

static void put_u64(TextWriter *w, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;
    do {
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    put(w, digits + n, sizeof digits - n);
}

static void put_i64(TextWriter *w, int64_t value)
{
    if (value < 0) put_char(w, '-');
    put_u64(w, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static void put_double(TextWriter *w, double value)
{
    char text[DOUBLE_ROOM];
    put(w, text, double_text(text, value));
}

static void put_quoted(TextWriter *w, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    put_char(w, '"');
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\') {
            put_char(w, '\\');
            put_char(w, *c);
        } else if (byte < 0x20 || byte == 0x7f) {
            const char escape[4] = {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
            put(w, escape, sizeof escape);
        } else {
            put_char(w, *c);
        }
    }
    put_char(w, '"');
}

static void put_hash(TextWriter *w, Hash128 h)
{
    static const char hex[] = "0123456789abcdef";
    for (int shift = 60; shift >= 0; shift -= 4) put_char(w, hex[h.hi >> shift & 15]);
    for (int shift = 60; shift >= 0; shift -= 4) put_char(w, hex[h.lo >> shift & 15]);
}

static void put_axes(TextWriter *w, AxisSet axes)
{
    bool any = false;
    for (uint32_t a = 0; a < w->plan->mesh.n_axes; a++) {
        if (!(axes >> a & 1)) continue;
        if (any) put_char(w, ',');
        put_text(w, w->plan->mesh.axis[a].text);
        any = true;
    }
}

/* Appends a layout such as "tp:1,dp_shard:sum". Axes with WHOLE are left out. */
static void put_layout(TextWriter *w, const Layout *l)
{
    bool any = false;
    for (uint32_t a = 0; a < w->plan->mesh.n_axes; a++) {
        int8_t on = l->on[a];
        if (on == WHOLE) continue;
        if (any) put_char(w, ',');
        put_text(w, w->plan->mesh.axis[a].text);
        put_char(w, ':');
        if (layout_is_split(on))
            put_u64(w, (uint64_t)layout_dim(on));
        else
            put_text(w, on == PARTIAL_SUM ? "sum" : "max");
        any = true;
    }
}

static void put_split(TextWriter *w, const char *split)
{
    bool any = false;
    for (uint32_t a = 0; a < w->plan->mesh.n_axes; a++) {
        if (!split[a]) continue;
        if (any) put_char(w, ',');
        put_text(w, w->plan->mesh.axis[a].text);
        put_char(w, ':');
        put_char(w, split[a]);
        any = true;
    }
}

static void put_u32s(TextWriter *w, const uint32_t *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i) put_char(w, ',');
        put_u64(w, at[i]);
    }
}

static void put_dims(TextWriter *w, const int64_t *dim, uint32_t n)
{
    put_char(w, '[');
    for (uint32_t i = 0; i < n; i++) {
        if (i) put_char(w, ',');
        put_i64(w, dim[i]);
    }
    put_char(w, ']');
}

static void put_doubles(TextWriter *w, const double *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i) put_char(w, ',');
        put_double(w, at[i]);
    }
}

static void put_intervals(TextWriter *w, const Deal *deal)
{
    for (uint32_t i = 0; i < deal->n; i++) {
        const Interval *part = &w->plan->graph.deals.intervals.at[deal->first + i];
        if (i) put_char(w, ',');
        put_i64(w, part->lo);
        put_char(w, '-');
        put_i64(w, part->hi);
    }
}

static void put_args(TextWriter *w, const Instr *in)
{
    const BufferId *args = w->program->args.at + in->args.first;
    put_u32s(w, args, in->n_in);
    put_char(w, '>');
    put_u32s(w, args + in->n_in, in->args.n - in->n_in);
}

static bool all_zero(const void *at, size_t bytes)
{
    static const char zero[64];
    assert(bytes <= sizeof zero);
    return memcmp(at, zero, bytes) == 0;
}

size_t text_plain_bytes(FieldType type)
{
    switch (type) {
    case FIELD_u8:
    case FIELD_bool: return 1;
    case FIELD_axes: return sizeof(AxisSet);
    case FIELD_u32:
    case FIELD_i32:
    case FIELD_word:
    case FIELD_op: return 4;
    case FIELD_u64:
    case FIELD_i64:
    case FIELD_f64: return 8;
    case FIELD_hash: return sizeof(Hash128);
    case FIELD_layout: return sizeof(Layout);
    case FIELD_split: return MAX_AXES;
    case FIELD_text: return sizeof(const char *);
    case FIELD_loc:
    case FIELD_dims:
    case FIELD_deals:
    case FIELD_ids:
    case FIELD_list:
    case FIELD_numbers:
    case FIELD_intervals:
    case FIELD_args:
    /* a list or a location is no plain value */
    case FIELD_after: return 0;
    }
    return 0;
}

static uint32_t u32_at(const void *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static bool is_zero(const TextWriter *w, const TextField *f, const char *record)
{
    const char *at = record + f->offset;
    const uint8_t count = (uint8_t)record[f->count];
    switch (f->type) {
    case FIELD_loc:
        return !(w->flags & TEXT_WITH_LOCATIONS) || !((const Loc *)(const void *)at)->file;
    case FIELD_dims:
    case FIELD_ids: return count == 0;
    case FIELD_deals: return all_zero(at, count * sizeof(DealId));
    case FIELD_list: return ((const IdList *)(const void *)at)->n == 0;
    case FIELD_numbers: return text_numbers(f, record) == 0;
    case FIELD_intervals: return ((const Deal *)(const void *)record)->n == 0;
    case FIELD_word: return u32_at(at) == 0 || f->names[u32_at(at)] == NULL;
    case FIELD_args:
    case FIELD_after: return ((const Span *)(const void *)at)->n == 0;
    case FIELD_u8:
    case FIELD_u32:
    case FIELD_u64:
    case FIELD_i32:
    case FIELD_i64:
    case FIELD_f64:
    case FIELD_bool:
    case FIELD_op:
    case FIELD_text:
    case FIELD_hash:
    case FIELD_axes:
    case FIELD_layout:
    case FIELD_split: return all_zero(at, text_plain_bytes(f->type));
    }
    return true;
}

static void put_number(TextWriter *w, FieldType type, const void *at)
{
    if (type == FIELD_f64)
        put_double(w, *(const double *)at);
    else if (type == FIELD_i64)
        put_i64(w, *(const int64_t *)at);
    else if (type == FIELD_u64)
        put_u64(w, *(const uint64_t *)at);
    else if (type == FIELD_i32)
        put_i64(w, *(const int32_t *)at);
    else if (type == FIELD_u32)
        put_u64(w, u32_at(at));
    else
        put_u64(w, *(const uint8_t *)at);
}

static void put_loc(TextWriter *w, const Loc *loc)
{
    put_quoted(w, loc->file);
    put_char(w, ':');
    put_u64(w, loc->line);
}

static void put_value(TextWriter *w, const TextField *f, const char *record)
{
    const void *at = record + f->offset;
    const uint8_t count = (uint8_t)record[f->count];
    switch (f->type) {
    case FIELD_u8:
    case FIELD_u32:
    case FIELD_u64:
    case FIELD_i32:
    case FIELD_i64:
    case FIELD_f64:
    case FIELD_bool: put_number(w, f->type, at); return;
    case FIELD_word:
        assert(u32_at(at) < f->room);
        put_text(w, f->names[u32_at(at)]);
        return;
    case FIELD_op: put_text(w, u32_at(at) ? op_info((OpKind)u32_at(at))->name : "none"); return;
    case FIELD_text: put_quoted(w, *(const char *const *)at); return;
    case FIELD_loc: put_loc(w, at); return;
    case FIELD_hash: put_hash(w, *(const Hash128 *)at); return;
    case FIELD_axes: put_axes(w, *(const AxisSet *)at); return;
    case FIELD_layout: put_layout(w, at); return;
    case FIELD_split: put_split(w, at); return;
    case FIELD_dims: put_dims(w, at, count); return;
    case FIELD_deals:
    case FIELD_ids: put_u32s(w, at, count); return;
    case FIELD_list: put_u32s(w, ((const IdList *)at)->at, ((const IdList *)at)->n); return;
    case FIELD_numbers: put_doubles(w, at, text_numbers(f, record)); return;
    case FIELD_intervals: put_intervals(w, (const Deal *)(const void *)record); return;
    case FIELD_args: put_args(w, (const Instr *)(const void *)record); return;
    case FIELD_after:
        put_u32s(w, w->program->after.at + ((const Span *)at)->first, ((const Span *)at)->n);
        return;
    }
}

static void put_fields(TextWriter *w, TextRecordKind kind, const void *record)
{
    const Record *r = text_record(kind);
    for (uint32_t i = 0; i < r->n_fields; i++) {
        const TextField *f = &r->fields[i];
        if (!text_is_written(f) || (f->key && is_zero(w, f, record))) continue;
        if (text_is_shared(f, record)) continue;
        put_char(w, ' ');
        if (f->key) {
            put_text(w, f->key);
            put_char(w, '=');
        }
        put_value(w, f, record);
    }
    put_char(w, '\n');
}

static void put_record(TextWriter *w, TextRecordKind kind, const void *record)
{
    put_text(w, text_record(kind)->word);
    put_fields(w, kind, record);
}

static void put_indexed(TextWriter *w, TextRecordKind kind, uint32_t index, const void *record)
{
    put_text(w, text_record(kind)->word);
    put_char(w, ' ');
    put_u64(w, index);
    put_fields(w, kind, record);
}

static void put_graph(TextWriter *w, const Graph *g)
{
    for (uint32_t i = 1; i < g->attrs.n; i++) put_indexed(w, RECORD_attrs, i, &g->attrs.at[i]);
    for (uint32_t i = 1; i < w->plan->shapes.n; i++)
        put_indexed(w, RECORD_shape, i, &w->plan->shapes.at[i]);
    for (uint32_t i = 1; i < g->modules.n; i++) put_indexed(w, RECORD_module, i, &g->modules.at[i]);
    for (uint32_t i = 1; i < g->tensors.n; i++) put_indexed(w, RECORD_tensor, i, &g->tensors.at[i]);
    for (uint32_t i = 1; i < g->nodes.n; i++) put_indexed(w, RECORD_node, i, &g->nodes.at[i]);
    for (uint32_t i = 1; i < g->units.n; i++) put_indexed(w, RECORD_unit, i, &g->units.at[i]);
}

static void put_program(TextWriter *w, uint32_t index)
{
    const Program *p = w->program = &w->plan->programs.at[index];
    put_indexed(w, RECORD_program, index, p);
    for (uint32_t i = 1; i < p->buffers.n; i++) {
        put_char(w, '%');
        put_u64(w, i);
        put_fields(w, RECORD_buffer, &p->buffers.at[i]);
    }
    for (uint32_t i = 1; i < p->code.n; i++) {
        put_u64(w, i);
        put_fields(w, RECORD_instr, &p->code.at[i]);
    }
}

/* Appends lines such as "ranks 0 0-7": program 0 runs on ranks 0 to 7. */
static void put_ranks(TextWriter *w)
{
    const Plan *plan = w->plan;
    if (!plan->program_of || !plan->programs.n) return;
    for (Rank first = 0, next; first < plan->mesh.n_ranks; first = next) {
        for (next = first + 1; next < plan->mesh.n_ranks; next++)
            if (plan->program_of[next] != plan->program_of[first]) break;
        put_text(w, "ranks ");
        put_u64(w, plan->program_of[first]);
        put_char(w, ' ');
        put_u64(w, first);
        put_char(w, '-');
        put_u64(w, next - 1);
        put_char(w, '\n');
    }
}

/* Appends lines such as "seal tensor role=0123456789abcdef0123456789abcdef ...": the checksum of
 * each field over all records of a kind. */
static void put_seals(TextWriter *w)
{
    static const char hex[] = "0123456789abcdef";
    Arena *scratch = arena_new();
    TextSeals *seals = arena_alloc(scratch, sizeof *seals);
    text_seals(w->plan, scratch, seals);
    for (int k = 0; k < RECORD_ranks; k++) {
        const Record *record = text_record((TextRecordKind)k);
        bool any = false;
        for (uint32_t i = 0; i < record->n_fields; i++) {
            const TextSeal seal = seals->of[k][i];
            if (seal.sum == 0 && seal.place == 0) continue;
            if (!any) {
                put_text(w, "seal ");
                put_text(w, record->word);
            }
            any = true;
            put_char(w, ' ');
            put_text(w, text_field_name(&record->fields[i]));
            put_char(w, '=');
            for (int shift = 60; shift >= 0; shift -= 4) put_char(w, hex[seal.sum >> shift & 15]);
            for (int shift = 60; shift >= 0; shift -= 4) put_char(w, hex[seal.place >> shift & 15]);
        }
        if (any) put_char(w, '\n');
    }
    arena_free(scratch);
}

static void put_plan(TextWriter *w)
{
    const Plan *plan = w->plan;
    put_text(w, TEXT_HEADER);
    put_record(w, RECORD_plan, plan);
    put_record(w, RECORD_step, &plan->step);
    if (!nccl_settings_none(&plan->nccl)) put_record(w, RECORD_nccl, &plan->nccl);
    put_record(w, RECORD_model, &plan->graph.info);
    for (uint32_t a = 0; a < plan->mesh.n_axes; a++)
        put_indexed(w, RECORD_axis, a, &plan->mesh.axis[a]);
    for (uint32_t i = 1; i < plan->graph.deals.deals.n; i++)
        put_indexed(w, RECORD_deal, i, &plan->graph.deals.deals.at[i]);
    put_graph(w, &plan->graph);
    for (uint32_t i = 0; i < plan->programs.n; i++) put_program(w, i);
    put_ranks(w);
    if (w->flags & TEXT_WITH_SEALS) put_seals(w);
    flush(w);
}

void text_print(const Plan *plan, uint32_t flags, Str *out)
{
    TextWriter writer = {.plan = plan, .out = out, .flags = flags};
    put_plan(&writer);
}
