/* The table of all keys that a plan may have: each row (a Field) says how the value at a path such
 * as "batch.micro" is checked, and where it is stored. */
#ifndef TANDEM_FRONT_FIELDS_H
#define TANDEM_FRONT_FIELDS_H

#include "planner/front/config.h"

typedef enum FieldKind {
    FIELD_table,
    FIELD_i64,
    FIELD_u32,
    FIELD_u64,
    FIELD_f64,
    FIELD_rate, /* a double in the range, or 0, which means "none" or "no limit" */
    FIELD_bool,
    FIELD_text,
    FIELD_dtype,
    FIELD_word, /* one of a list of words; the word's index is stored */
    /* size of a mesh axis: a positive integer, or -1 for "all devices that the other axes leave" */
    FIELD_axis,
    FIELD_offload, /* a bool; a wrong value gets its own explanation */
    FIELD_reshard,
    FIELD_choice,  /* a bool whose default depends on other options: a Choice */
    FIELD_modules, /* a list of module paths: Patterns */
    FIELD_ops,     /* a list of op names: Patterns */
    FIELD_styles,  /* styles by module path: Patterns */
    FIELD_split    /* a list of integers: the number of blocks in each pipeline stage */
} FieldKind;

typedef struct Field {
    const char *path;
    FieldKind kind;
    /* where the value is stored: offset in the Draft; for an option of a pass, such as
     * "tp.sequence": offset in PassConfig */
    size_t offset;
    double least, most;
    const char *const *words;
} Field;

/* The documentation of a key; docs/reference/plan.md is generated from these rows. */
typedef struct FieldDoc {
    /* the key, such as "batch.micro", in which `*` stands for any one word. NULL in a row that
     * belongs to a Field: the field's path is the key */
    const char *key;
    const char *unit, *text;
} FieldDoc;
/* Returns the documentation of the key of a plan or of a pass, or NULL if there is none. */
const FieldDoc *field_doc(const char *path);
/* Returns row i of the plan's documentation, or NULL if i is past the last row. */
const FieldDoc *field_doc_at(uint32_t i);
/* Returns row i of the plan's fields or, with `of_pass`, of the options of all passes. Returns NULL
 * if i is past the last row. */
const Field *field_at(bool of_pass, uint32_t i);

/* True for a key whose value is a table, such as "mesh". The table's entries are stored under their
 * own keys. */
bool field_is_table(FieldKind kind);
/* Returns the row of this key, such as "batch.micro", or NULL if a plan has no such key. */
const Field *field_of_plan(const char *path);
/* Returns sizeof the value that a field of this kind stores, or 0 for a table. */
size_t field_bytes(FieldKind kind);
/* True if the path key [n bytes] is the path table [table_n bytes] or lies below it: "mesh.tp" lies
 * below "mesh". */
bool field_is_in(const char *key, size_t n, const char *table, size_t table_n);
const Field *field_of_pass(const char *path);
/* Reads the integer or double of the configuration that has this key. Sets *whole if it is an
 * integer. Returns false if no such value has this key; options of passes cannot be read. */
bool field_number(const Config *config, const char *key, double *value, bool *whole);
/* Writes to `names` [room] the keys directly below the table `parent`, such as "batch", or with
 * `of_pass` below the pass, such as "tp". An empty `parent` is the plan. Returns the number of
 * keys. */
uint32_t field_siblings(const char *parent, bool of_pass, const char **names, uint32_t room);

#endif
