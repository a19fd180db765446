/* Parses a plan's text. Anybody may have written the text, so every value is checked. Parsing ends
 * at the first error. check.c checks indices after all records have been parsed. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "planner/ir/text/value.h"

typedef struct Parser {
    ValueReader reader;
    const char *file, *at, *end;
    uint32_t line;
    Diag *diag;
    bool seen[RECORD_COUNT];
    LIST(uint32_t) lines[RECORD_COUNT]; /* [kind]: the line of each record of this kind */
    TextSeals seals;
    /* [kind]: the line with the seals (TextSeal) of this kind of record; 0: none */
    uint32_t seal_line[RECORD_COUNT];
} Parser;

enum { MAX_MESH_RANKS = 1 << 22 };

static bool fail(Parser *p, const char *problem, Token t)
{
    const ptrdiff_t n = t.end - t.at;
    Loc loc = {p->file, p->line};
    char shown[41];
    int k = 0;
    for (const char *c = t.at; c < t.end && k < 40; c++)
        shown[k++] = *c >= ' ' && *c < 0x7f ? *c : '?';
    shown[k] = 0;
    return diag_error(p->diag, FAULT_input, "plan-syntax", loc, "%s at '%s%s'", problem, shown,
                      n > 40 ? "..." : "");
}

static bool at_line_end(const Parser *p)
{
    return p->at == p->end || *p->at == '\n';
}

/* Returns the next word of the line, up to a space outside quotes, and moves behind it. Returns an
 * empty word at the end of the line. */
static Token next_token(Parser *p)
{
    while (!at_line_end(p) && *p->at == ' ') p->at++;
    Token t = {p->at, p->at};
    bool quoted = false;
    for (; !at_line_end(p) && (quoted || *p->at != ' '); p->at++) {
        if (*p->at == '\\' && quoted && p->at + 1 < p->end && p->at[1] != '\n')
            p->at++;
        else if (*p->at == '"')
            quoted = !quoted;
    }
    t.end = p->at;
    return t;
}

/* Returns the field with the key of token "key=value", shortens the token to "value", and sets
 * *index to the field's index. The search starts at field `hint`, because texts list fields in
 * order. Returns NULL for an unknown key. */
static const TextField *find_field(const Record *record, Token *t, uint32_t hint, uint32_t *index)
{
    const char *equal = memchr(t->at, '=', (size_t)(t->end - t->at));
    if (!equal) return NULL;
    Token key = {t->at, equal};
    for (uint32_t k = 0; k < record->n_fields; k++) {
        uint32_t i = (hint + k) % record->n_fields;
        if (!record->fields[i].key || !text_is(key, record->fields[i].key)) continue;
        t->at = equal + 1;
        *index = i;
        return &record->fields[i];
    }
    return NULL;
}

static bool fail_field(Parser *p, const Record *record, const TextField *f, Token t)
{
    Arena *arena = p->reader.arena;
    if (f->type == FIELD_deals) /* FIELD_deals needs one deal for each dimension */
        return fail(
            p, arena_print(arena, "%s.%s: more than %s.dims", record->word, f->key, record->word),
            t);
    const char *name = text_field_name(f);
    return fail(p, arena_print(arena, "%s.%s: %s", record->word, name, p->reader.problem), t);
}

/* Reports that the text states a field which the reader derives or does not need. */
static bool refuse_unwritten(Parser *p, const Record *record, const TextField *f, Token t)
{
    const char *why =
        f->trust == TRUST_derived ? "other fields determine it" : "only passes read it";
    return fail(p,
                arena_print(p->reader.arena, "%s.%s: a text must not state it, because %s",
                            record->word, text_field_name(f), why),
                t);
}

/* Refuses a view that states a field which it always has from its root. Bit i of `seen`: the line
 * states field i. `line`: where the line's text begins. */
static bool check_view(Parser *p, const Record *record, TextRecordKind kind, uint64_t seen,
                       const void *at, const char *line)
{
    const Token here = {line, p->at};
    for (uint32_t i = 0; kind == RECORD_buffer && i < record->n_fields; i++)
        if (seen >> i & 1 && text_is_shared(&record->fields[i], at))
            return fail(p,
                        arena_print(p->reader.arena,
                                    "buffer.%s: a view must not state it, because its root does",
                                    text_field_name(&record->fields[i])),
                        here);
    return true;
}

static bool read_fields(Parser *p, TextRecordKind kind, void *at)
{
    const Record *record = text_record(kind);
    /* the text of the fields, behind the space that follows the record's index */
    const char *const line = p->at + !at_line_end(p);
    uint64_t seen = 0;
    list_push(p->reader.arena, &p->lines[kind], p->line);
    uint32_t i = 0;
    assert(record->n_fields <= 64);
    for (; i < record->n_fields && !record->fields[i].key; i++) {
        Token t = next_token(p);
        if (!text_read(&p->reader, &record->fields[i], t, at))
            return fail_field(p, record, &record->fields[i], t);
    }
    for (uint32_t hint = i;; hint = i + 1) {
        Token t = next_token(p), value = t;
        if (t.at == t.end) return check_view(p, record, kind, seen, at, line);
        const TextField *f = find_field(record, &value, hint, &i);
        if (!f) return fail(p, "unknown field", t);
        if (!text_is_written(f)) return refuse_unwritten(p, record, f, t);
        if (seen >> i & 1) return fail(p, "a field twice", t);
        seen |= UINT64_C(1) << i;
        if (!text_read(&p->reader, f, value, at)) return fail_field(p, record, f, t);
    }
}

static bool read_index(Parser *p, uint64_t expected)
{
    uint64_t index;
    Token t = next_token(p), digits = t;
    if (!text_read_u64(&digits, UINT32_MAX, &index) || digits.at != digits.end)
        return fail(p, "expected an index", t);
    return index == expected ? true : fail(p, "indices must follow one another", t);
}

#define READ_ITEM(list, kind)                                                                      \
    (read_index(p, (list)->n) &&                                                                   \
     read_fields(p, kind, (list_add(p->reader.arena, list), &(list)->at[(list)->n - 1])))

/* Sets axis->name from its text: dp_shard for "dp_shard", and also for "dp_shard.1". */
static bool find_axis_name(Axis *axis)
{
    const Token name = {axis->text, axis->text + strcspn(axis->text, ".")};
    for (int a = 0; a < AXIS_NAMES; a++) {
        axis->name = (AxisName)a;
        if (text_is(name, axis_name_text(axis->name))) return true;
    }
    return false;
}

static bool read_axis_record(Parser *p)
{
    Mesh *mesh = &p->reader.plan->mesh;
    Token here = {p->at, p->at};
    if (p->seen[RECORD_shape] || p->seen[RECORD_tensor] || p->seen[RECORD_program])
        return fail(p, "axes come first", here);
    if (!read_index(p, mesh->n_axes)) return false;
    if (mesh->n_axes == MAX_AXES) return fail(p, "too many axes", here);
    Axis axis = {.text = NULL};
    if (!read_fields(p, RECORD_axis, &axis)) return false;
    const char *const letters = "abcdefghijklmnopqrstuvwxyz0123456789_.";
    if (!axis.text || !*axis.text || axis.text[strspn(axis.text, letters)])
        return fail(p, "axis.text must consist of lower-case letters, digits, '_' and '.'", here);
    if (!find_axis_name(&axis)) return fail(p, "axis.text names no axis", here);
    const uint32_t most = MAX_MESH_RANKS / mesh->n_ranks;
    if (axis.size < 2 || axis.size > most) return fail(p, "axis.size is out of bounds", here);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (strcmp(mesh->axis[a].text, axis.text) == 0)
            return fail(p, "two axes have the same axis.text", here);
    mesh->axis[mesh->n_axes++] = axis;
    if (!mesh_set_strides(mesh)) return fail(p, "axis.size and axis.apart leave ranks out", here);
    return true;
}

static bool read_program_record(Parser *p)
{
    Plan *plan = p->reader.plan;
    if (!READ_ITEM(&plan->programs, RECORD_program)) return false;
    Program *program = p->reader.program = &plan->programs.at[plan->programs.n - 1];
    list_reserve_none(p->reader.arena, &program->code);
    list_reserve_none(p->reader.arena, &program->buffers);
    return true;
}

static bool read_program_line(Parser *p)
{
    Program *program = p->reader.program;
    Token here = {p->at, p->at};
    if (!program) return fail(p, "an instruction or buffer outside a program", here);
    if (*p->at == '%') {
        p->at++;
        return READ_ITEM(&program->buffers, RECORD_buffer);
    }
    if (!read_index(p, program->code.n)) return false;
    uint32_t pc = (uint32_t)list_add(p->reader.arena, &program->code);
    Instr in = {.args = {program->args.n, 0}, .after = {program->after.n, 0}};
    if (!read_fields(p, RECORD_instr, &in)) return false;
    program->code.at[pc] = in;
    return true;
}

/* Parses a line such as "ranks 0 0-7": program 0 runs on ranks 0 to 7. All lines together must list
 * the ranks in order, without gaps. */
static bool read_ranks(Parser *p, uint32_t *n_done)
{
    Plan *plan = p->reader.plan;
    uint64_t program, first, last;
    Token word = next_token(p), t = word;
    if (!text_read_u64(&t, UINT32_MAX, &program) || t.at != t.end || program >= plan->programs.n)
        return fail(p, "expected a program", word);
    t = word = next_token(p);
    bool fine = text_read_u64(&t, UINT32_MAX, &first) && t.at < t.end && *t.at++ == '-' &&
                text_read_u64(&t, UINT32_MAX, &last) && t.at == t.end;
    if (!fine || first != *n_done || last < first || last >= plan->mesh.n_ranks)
        return fail(p, "expected the next ranks, first-last, by axis.size", word);
    if (!plan->program_of)
        plan->program_of =
            arena_array(p->reader.arena, plan->mesh.n_ranks, sizeof *plan->program_of);
    for (uint64_t rank = first; rank <= last; rank++) plan->program_of[rank] = (uint32_t)program;
    *n_done = (uint32_t)last + 1;
    word = next_token(p);
    return word.at == word.end ? true : fail(p, "unexpected text", word);
}

/* Returns the index of the field that a token "field=seal" names, and shortens the token to the
 * seal. Returns n_fields for an unknown name. */
static uint32_t sealed_field(const Record *record, Token *t)
{
    const char *equal = memchr(t->at, '=', (size_t)(t->end - t->at));
    uint32_t i = 0;
    if (equal == NULL) return record->n_fields;
    const Token name = {t->at, equal};
    while (i < record->n_fields && !text_is(name, text_field_name(&record->fields[i]))) i++;
    t->at = equal + 1;
    return i;
}

/* Parses the 16 hexadecimal digits that begin at character `at` of the token. */
static bool read_hex(Token t, uint32_t at, uint64_t *out)
{
    static const char hex[] = "0123456789abcdef";
    *out = 0;
    for (uint32_t i = 0; i < 16; i++) {
        const char *digit = memchr(hex, t.at[at + i], 16);
        if (digit == NULL) return false;
        *out = *out << 4 | (uint64_t)(digit - hex);
    }
    return true;
}

static bool read_seal(Token t, TextSeal *seal)
{
    return t.end - t.at == 32 && read_hex(t, 0, &seal->sum) && read_hex(t, 16, &seal->place);
}

static bool has_seal(const Parser *p, int kind, uint32_t field)
{
    const TextSeal none = {0, 0};
    return !text_seal_equal(p->seals.of[kind][field], none);
}

/* Parses a line such as "seal tensor role=0123456789abcdef0123456789abcdef ...". */
static bool read_seals(Parser *p)
{
    const Token word = next_token(p);
    int kind = 0;
    while (kind < RECORD_ranks && !text_is(word, text_record((TextRecordKind)kind)->word)) kind++;
    if (kind == RECORD_ranks) return fail(p, "expected a record's word", word);
    const Record *record = text_record((TextRecordKind)kind);
    p->seal_line[kind] = p->line;
    for (;;) {
        const Token t = next_token(p);
        if (t.at == t.end) return true;
        Token value = t;
        const uint32_t i = sealed_field(record, &value);
        if (i == record->n_fields || has_seal(p, kind, i) ||
            !read_seal(value, &p->seals.of[kind][i]))
            return fail(p, "expected a field's seal", t);
    }
}

uint32_t text_seal_place(TextSeal was, TextSeal now, uint32_t n)
{
    uint64_t sum = now.sum - was.sum, place = now.place - was.place;
    if (sum == 0) return 0;
    /* Solves at * sum = place modulo 2^64 for `at`. A number has an inverse only if it is odd, so
     * common factors of two are divided out first. */
    const int zeros = __builtin_ctzll(sum);
    if (place << (63 - zeros) << 1 != 0) return 0;
    sum >>= zeros, place >>= zeros;
    /* Newton's method: an odd number is its own inverse in the lowest 3 bits, and each round
     * doubles the count of correct bits. */
    uint64_t inverse = sum;
    for (int i = 0; i < 5; i++) inverse *= 2 - sum * inverse;
    const uint64_t at = place * inverse << zeros >> zeros;
    return at <= n ? (uint32_t)at : 0;
}

/* Reports that field `field` of records of `kind` was changed: its seal in the text differs from
 * `now`, which was computed from the values. Names the line if the seals reveal it. */
static void report_seal(Parser *p, int kind, uint32_t field, TextSeal now, Diag *seals)
{
    const Record *record = text_record((TextRecordKind)kind);
    const char *name = text_field_name(&record->fields[field]);
    const uint32_t at = text_seal_place(p->seals.of[kind][field], now, p->lines[kind].n);
    const Loc loc = {p->file, at > 0 ? p->lines[kind].at[at - 1] : p->seal_line[kind]};
    if (!has_seal(p, kind, field))
        diag_error(seals, FAULT_input, "plan-seal", (Loc){p->file, p->seal_line[kind]},
                   "the text has no seal of %s.%s", record->word, name);
    else
        diag_error(seals, FAULT_input, "plan-seal", loc,
                   at > 0
                       ? "%s.%s was changed after the text was printed"
                       : "%s.%s was changed after the text was printed, in several lines or here",
                   record->word, name);
    diag_hint(seals, "change the script, and print the plan again");
}

/* Compares all seals in the text with seals computed from the parsed values. Reports differences to
 * `seals`, and returns false if there are any. */
static bool check_seals(Parser *p, Diag *seals)
{
    if (!p->seen[RECORD_seal]) {
        diag_error(seals, FAULT_input, "plan-seal", (Loc){p->file, 0}, "the text has no seals");
        return diag_hint(seals, "`tandem show PLAN --text` prints them"), false;
    }
    Arena *scratch = arena_new();
    TextSeals *now = arena_alloc(scratch, sizeof *now);
    bool holds = true;
    text_seals(p->reader.plan, scratch, now);
    for (int k = 0; k < RECORD_ranks; k++)
        for (uint32_t i = 0; i < text_record((TextRecordKind)k)->n_fields; i++) {
            if (text_seal_equal(now->of[k][i], p->seals.of[k][i])) continue;
            report_seal(p, k, i, now->of[k][i], seals);
            holds = false;
        }
    arena_free(scratch);
    return holds;
}

/* Refuses a second record of a kind that may occur only once, such as "step". */
static bool once(Parser *p, TextRecordKind kind, void *record)
{
    Token here = {p->at, p->at};
    if (p->seen[kind]) return fail(p, "a record twice", here);
    return read_fields(p, kind, record);
}

static bool read_record(Parser *p, TextRecordKind kind, uint32_t *n_ranks)
{
    Plan *plan = p->reader.plan;
    Graph *g = &plan->graph;
    switch (kind) {
    case RECORD_plan: return once(p, kind, plan);
    case RECORD_step: return once(p, kind, &plan->step);
    case RECORD_nccl: return once(p, kind, &plan->nccl);
    case RECORD_model: return once(p, kind, &g->info);
    case RECORD_graph: return once(p, kind, g);
    case RECORD_axis: return read_axis_record(p);
    case RECORD_deal: return READ_ITEM(&g->deals.deals, kind);
    case RECORD_attrs: return READ_ITEM(&g->attrs, kind);
    case RECORD_shape: return READ_ITEM(&plan->shapes, kind);
    case RECORD_module: return READ_ITEM(&g->modules, kind);
    case RECORD_tensor: return READ_ITEM(&g->tensors, kind);
    case RECORD_node: return READ_ITEM(&g->nodes, kind);
    case RECORD_unit: return READ_ITEM(&g->units, kind);
    case RECORD_program: return read_program_record(p);
    case RECORD_ranks: return read_ranks(p, n_ranks);
    case RECORD_seal: return read_seals(p);
    case RECORD_buffer:
    case RECORD_instr:
    case RECORD_COUNT: break;
    }
    Token here = {p->at, p->at};
    return fail(p, "unknown record", here);
}

static bool read_line(Parser *p, uint32_t *n_ranks)
{
    if (at_line_end(p)) return true;
    if (*p->at == '%' || (*p->at >= '0' && *p->at <= '9')) return read_program_line(p);
    Token word = next_token(p);
    for (int kind = 0; kind < RECORD_COUNT; kind++) {
        if (kind == RECORD_buffer || kind == RECORD_instr) continue;
        if (!text_is(word, text_record((TextRecordKind)kind)->word)) continue;
        if (!read_record(p, (TextRecordKind)kind, n_ranks)) return false;
        p->seen[kind] = true;
        return true;
    }
    return fail(p, "unknown record", word);
}

static void prepare(Plan *plan, Arena *arena)
{
    plan->arena = arena;
    plan->mesh.n_ranks = 1;
    graph_init(&plan->graph, arena);
    list_reserve_none(arena, &plan->shapes);
}

/* Reports that the first line is wrong: the text is no plan, or has the format of another
 * version. */
static void refuse_header(Parser *p, Token start)
{
    static const char word[] = "tandem plan ";
    const size_t n = sizeof word - 1;
    const char *end = memchr(start.at, '\n', (size_t)(start.end - start.at));
    const Token line = {start.at, end != NULL ? end : start.end};
    if ((size_t)(line.end - line.at) <= n || memcmp(line.at, word, n) != 0) {
        fail(p, "expected the line \"" TEXT_HEADER_LINE "\"", start);
        return;
    }
    fail(p,
         "this version of Tandem reads \"" TEXT_HEADER_LINE "\", not the text of another version",
         line);
    diag_hint(p->diag,
              "make the plan again from its script: `tandem show PLAN --text`, `sim` or `run`");
}

/* Parses a plan. If `seals` is not NULL, the text must have seals, and changed fields are reported
 * to `seals`. If it is NULL, seals are optional, and a changed field is an error. */
static Plan *parse(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d,
                   Diag *seals)
{
    const size_t header = strlen(TEXT_HEADER);
    Plan *plan = arena_alloc(arena, sizeof *plan);
    Parser parser = {.file = arena_dup(arena, file ? file : "plan"),
                     .at = text,
                     .end = text + bytes,
                     .line = 1,
                     .diag = d};
    parser.reader = (ValueReader){.plan = plan, .arena = arena};
    Parser *p = &parser;
    Token start = {text, text + bytes};
    if (bytes < header || memcmp(text, TEXT_HEADER, header) != 0) {
        refuse_header(p, start);
        return NULL;
    }
    prepare(plan, arena);
    uint32_t n_ranks = 0;
    for (p->at += header, p->line++; p->at < p->end; p->at++, p->line++) {
        if (!read_line(p, &n_ranks)) return NULL;
        if (!at_line_end(p)) {
            Token rest = {p->at, p->end};
            fail(p, "unexpected text", rest);
            return NULL;
        }
    }
    Token end = {p->end, p->end};
    if (n_ranks && n_ranks != plan->mesh.n_ranks) {
        fail(p, "ranks without a program, or axis.size is wrong", end);
        return NULL;
    }
    if (!n_ranks && plan->programs.n) {
        fail(p, "no ranks run these programs", end);
        return NULL;
    }
    if (!text_check(plan, p->file, d)) return NULL;
    text_derive(plan);
    if (seals != NULL) return check_seals(p, seals), plan;
    return !p->seen[RECORD_seal] || check_seals(p, d) ? plan : NULL;
}

Plan *text_parse(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d)
{
    return parse(file, text, bytes, arena, d, NULL);
}

Plan *text_parse_sealed(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d,
                        Diag *seals)
{
    return parse(file, text, bytes, arena, d, seals);
}
