/* See places.h. */
#include "tests/support/fields/places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"

static const char *token_end(const char *at)
{
    bool quoted = false;
    for (; *at != 0 && *at != '\n' && (quoted || *at != ' '); at++) {
        if (*at == '\\' && quoted && at[1] != 0)
            at++;
        else if (*at == '"')
            quoted = !quoted;
    }
    return at;
}

static bool find_record(const char *line, TextRecordKind *kind, const char **fields)
{
    const char *end = token_end(line);
    const char *next = *end == ' ' ? end + 1 : end;
    if (*line == '%') {
        *kind = RECORD_buffer;
        *fields = next;
        return true;
    }
    if (*line >= '0' && *line <= '9') {
        *kind = RECORD_instr;
        *fields = next;
        return true;
    }
    for (int k = 0; k < RECORD_ranks; k++) {
        const char *word = text_record((TextRecordKind)k)->word;
        if (strlen(word) != (size_t)(end - line) || strncmp(word, line, strlen(word)) != 0)
            continue;
        *kind = (TextRecordKind)k;
        *fields = next;
        if (*next >= '0' && *next <= '9') {
            end = token_end(next);
            *fields = *end == ' ' ? end + 1 : end;
        }
        return true;
    }
    return false;
}

/* Returns what Place.sort means for a record: `index` is the record's number, and `program` is the
 * program that contains it. */
static uint32_t sort_of(const Plan *plan, const uint32_t *op_of, TextRecordKind kind,
                        uint32_t program, uint32_t index)
{
    const Graph *g = &plan->graph;
    const Program *p = &plan->programs.at[program];
    if (kind == RECORD_attrs) return op_of[index];
    if (kind == RECORD_node) return g->nodes.at[index].op;
    if (kind == RECORD_instr) return p->code.at[index].op;
    if (kind == RECORD_tensor) return g->tensors.at[index].role;
    if (kind == RECORD_deal) return g->deals.deals.at[index].kind;
    if (kind != RECORD_buffer) return 0;
    return 2 * p->buffers.at[index].category + (p->buffers.at[index].parent != 0);
}

/* For each set of attributes, returns the op of the first instruction or node that has it
 * [attributes]. */
static uint32_t *ops_of_attrs(const Plan *plan, Arena *arena)
{
    const Graph *g = &plan->graph;
    uint32_t *op_of = arena_array(arena, g->attrs.n, sizeof *op_of);
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (Pc pc = 1; pc < plan->programs.at[i].code.n; pc++) {
            const Instr *in = &plan->programs.at[i].code.at[pc];
            if (op_of[in->attrs] == 0) op_of[in->attrs] = in->op;
        }
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (op_of[g->nodes.at[id].attrs] == 0) op_of[g->nodes.at[id].attrs] = g->nodes.at[id].op;
    return op_of;
}

static void add_places(Arena *arena, const char *fields, TextRecordKind kind, uint32_t sort,
                       Places *places)
{
    const Record *record = text_record(kind);
    const char *line_end = fields + strcspn(fields, "\n");
    assert(sort < PLACE_SORTS);
    for (uint32_t i = 0; i < record->n_fields; i++) {
        const char *key = record->fields[i].key;
        Place p = {kind, i, sort, line_end, line_end, line_end};
        if (!text_is_written(&record->fields[i])) continue;
        uint32_t word = 0;
        for (const char *at = fields; at < line_end;) {
            const char *end = token_end(at);
            if (key == NULL ? word == i
                            : strncmp(at, key, strlen(key)) == 0 && at[strlen(key)] == '=') {
                p.at = key == NULL ? at : at + strlen(key) + 1;
                p.end = end;
            }
            word++;
            at = *end == ' ' ? end + 1 : end;
        }
        list_push(arena, &places->of[kind][i], places->all.n);
        list_push(arena, &places->all, p);
    }
}

Places *places_find(const Plan *plan, const char *text, Arena *arena)
{
    Places *places = arena_alloc(arena, sizeof *places);
    const uint32_t *op_of = ops_of_attrs(plan, arena);
    uint32_t program = 0;
    for (const char *line = text; *line != 0;) {
        TextRecordKind kind;
        const char *fields;
        if (find_record(line, &kind, &fields)) {
            const char *number = line + strcspn(line, "0123456789\n");
            const uint32_t index = (uint32_t)strtoul(number, NULL, 10);
            if (kind == RECORD_program) program = index;
            add_places(arena, fields, kind, sort_of(plan, op_of, kind, program, index), places);
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return places;
}

const char *places_other_value(const Places *all, const Place *p, uint64_t draw, Arena *arena)
{
    const char *now = arena_copy(arena, p->at, (size_t)(p->end - p->at));
    const FieldType type = text_record(p->kind)->fields[p->field].type;
    const bool number = type <= FIELD_f64;
    if (number && draw % 2 == 0)
        return type == FIELD_f64
                   ? arena_print(arena, "%g", 2 * strtod(now, NULL) + 1)
                   : arena_print(arena, "%lld", (long long)(strtoull(now, NULL, 10) + 1));
    if (type == FIELD_bool) return *now != 0 ? "" : "1";
    const PlaceNumbers *same = &all->of[p->kind][p->field];
    for (uint32_t k = 0; k < same->n; k++) {
        const Place *q = &all->all.at[same->at[(draw + k) % same->n]];
        const size_t n = (size_t)(q->end - q->at);
        if (n != strlen(now) || memcmp(q->at, now, n) != 0) return arena_copy(arena, q->at, n);
    }
    return NULL;
}

/* Replaces the characters from `from` to `to` by three texts: `before`, `key` and `value`. */
static const char *splice(const char *text, const char *from, const char *to, const char *before,
                          const char *key, const char *value, Arena *arena)
{
    const size_t head = (size_t)(from - text), tail = strlen(to) + 1;
    const size_t n[] = {strlen(before), strlen(key), strlen(value)};
    char *out = arena_alloc(arena, head + n[0] + n[1] + n[2] + tail), *at = out;
    memcpy(at, text, head), at += head;
    memcpy(at, before, n[0]), at += n[0];
    memcpy(at, key, n[1]), at += n[1];
    memcpy(at, value, n[2]), at += n[2];
    memcpy(at, to, tail);
    return out;
}

const char *places_edit(const char *text, const Place *p, const char *value, Arena *arena)
{
    const char *key = text_record(p->kind)->fields[p->field].key;
    const char *from = p->at;
    if (p->at == p->end) {
        if (key == NULL || *value == 0) return NULL;
        return splice(text, p->line_end, p->line_end, " ", arena_print(arena, "%s=", key), value,
                      arena);
    }
    if (*value == 0) {
        if (key == NULL) return NULL;
        from -= strlen(key) + 2;
    }
    return splice(text, from, p->end, "", "", value, arena);
}
