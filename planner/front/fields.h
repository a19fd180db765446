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
    FIELD_rate, /* a number in the range, or 0: there is none, or it does not limit */
    FIELD_bool,
    FIELD_text,
    FIELD_dtype,
    FIELD_word,    /* one of words; its number is stored */
    FIELD_axis,    /* a positive integer or -1 */
    FIELD_offload, /* a bool that says why it is not more */
    FIELD_reshard,
    FIELD_choice,  /* a bool that may be left open: a Choice */
    FIELD_modules, /* a list of modules' paths: Patterns */
    FIELD_ops,     /* a list of ops' names: Patterns */
    FIELD_styles,  /* styles by modules' paths: Patterns */
    FIELD_split    /* a list of blocks a stage */
} FieldKind;

typedef struct Field {
    const char *path;
    FieldKind kind;
    size_t offset; /* in Draft, or in PassConfig for "tp.sequence" and kin */
    double least, most;
    const char *const *words;
} Field;

/* The meaning of a key, for people: docs/reference/plan.md is made of these rows. */
typedef struct FieldDoc {
    const char *key; /* "batch.micro"; a `*` stands for any one word; NULL: the field's path */
    const char *unit, *text;
} FieldDoc;
const FieldDoc *field_doc(const char *path); /* of a field or a pass; NULL: none */
const FieldDoc *field_doc_at(uint32_t i);    /* NULL: the end */
/* The keys of a plan, or of all passes, in the order of the table; NULL: the end. */
const Field *field_at(bool of_pass, uint32_t i);

/* Is it a table of other values, whose own place stores nothing? */
bool field_is_table(FieldKind kind);
const Field *field_of_plan(const char *path); /* NULL: there is no such key */
/* Bytes of a value of that kind in memory; 0: a table has none. */
size_t field_bytes(FieldKind kind);
const Field *field_of_pass(const char *path);
/* The keys beside each other below "batch", "tp", or "" for the plan's own. */
uint32_t field_siblings(const char *parent, bool of_pass, const char **names, uint32_t room);

#endif
