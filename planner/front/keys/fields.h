/* The keys that a plan may have. */
#ifndef TANDEM_FRONT_FIELDS_H
#define TANDEM_FRONT_FIELDS_H

#include "planner/front/config.h"

typedef enum FieldKind {
    FIELD_table,
    FIELD_i64,
    FIELD_u32,
    FIELD_u64,
    FIELD_f64,
    FIELD_rate, /* a number in the range, or 0 for "none" or "no limit" */
    FIELD_bool,
    FIELD_text,
    FIELD_dtype,
    FIELD_word,    /* one of a list of words; its index is stored */
    FIELD_axis,    /* a positive integer or -1 */
    FIELD_offload, /* a bool with its own explanation in messages */
    FIELD_reshard,
    FIELD_choice,  /* a bool that may be left unset: a Choice */
    FIELD_modules, /* a list of module paths: Patterns */
    FIELD_ops,     /* a list of op names: Patterns */
    FIELD_styles,  /* styles by module path: Patterns */
    FIELD_split    /* a list with the number of blocks of each stage */
} FieldKind;

typedef struct Field {
    const char *path;
    FieldKind kind;
    size_t offset; /* in Draft; for "tp.sequence" and other options of passes: in PassConfig */
    double least, most;
    const char *const *words;
} Field;

/* The meaning of a key, for people: docs/reference/plan.md consists of these rows. */
typedef struct FieldDoc {
    const char *key; /* "batch.micro"; a `*` stands for any one word; NULL: the field's path */
    const char *unit, *text;
} FieldDoc;
const FieldDoc *field_doc(const char *path); /* the row of a field or a pass; NULL: none */
const FieldDoc *field_doc_at(uint32_t i);    /* NULL behind the last row */
/* Returns row i of the keys of a plan (of_pass: of all passes), in table order; NULL behind the
 * last row. */
const Field *field_at(bool of_pass, uint32_t i);

/* True for a table of other values, which stores nothing itself. */
bool field_is_table(FieldKind kind);
const Field *field_of_plan(const char *path); /* NULL: there is no such key */
/* Returns the bytes of a value of that kind in memory; 0 for a table. */
size_t field_bytes(FieldKind kind);
/* True if the key [n bytes] names the table or a value in it: "mesh.tp" is in "mesh". */
bool field_is_in(const char *key, size_t n, const char *table, size_t table_n);
const Field *field_of_pass(const char *path);
/* Reads a number of the configuration by its key, outside `parallel`. `whole`: it is an integer.
 * Returns false if no number has this key. */
bool field_number(const Config *config, const char *key, double *value, bool *whole);
/* Writes to `names` the keys directly below `parent`, such as "batch" or "tp"; "" is the plan
 * itself. Returns their number. */
uint32_t field_siblings(const char *parent, bool of_pass, const char **names, uint32_t room);

#endif
