/* Declarations of the keys that a plan may have. */
#ifndef TANDEM_FRONT_FIELDS_H
#define TANDEM_FRONT_FIELDS_H

#include "planner/front/config.h"

typedef enum FieldKind {
    FIELD_table,
    FIELD_i64,
    FIELD_u32,
    FIELD_u64,
    FIELD_f64,
    FIELD_rate, /* a number in the range; 0 means "none" or "no limit" */
    FIELD_bool,
    FIELD_text,
    FIELD_dtype,
    FIELD_word, /* one of a list of words; its index is stored */
    /* the size of an axis: a positive integer, or -1 for "as many ranks as remain" */
    FIELD_axis,
    FIELD_offload, /* a bool; messages explain this option in their own words */
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
    /* offset of the value in Draft; for an option of a pass, such as "tp.sequence":
     * in PassConfig */
    size_t offset;
    double least, most;
    const char *const *words;
} Field;

/* The meaning of a key in words. docs/reference/plan.md consists of these rows. */
typedef struct FieldDoc {
    /* the key, such as "batch.micro"; `*` stands for any one word. NULL in the row of a field: the
     * field's path */
    const char *key;
    const char *unit, *text;
} FieldDoc;
/* Returns the row with the words for a key of the plan or of a pass, or NULL if there is none. */
const FieldDoc *field_doc(const char *path);
/* Returns row i of these words, or NULL if i is past the last row. */
const FieldDoc *field_doc_at(uint32_t i);
/* Returns row i of the plan's keys or, with `of_pass`, of the keys of all passes. Returns NULL if i
 * is past the last row. */
const Field *field_at(bool of_pass, uint32_t i);

/* True for a table of other values, which stores nothing itself. */
bool field_is_table(FieldKind kind);
/* Returns the row of this key, or NULL if a plan has no such key. */
const Field *field_of_plan(const char *path);
/* Returns the bytes that a value of this kind takes in memory, or 0 for a table. */
size_t field_bytes(FieldKind kind);
/* True if the key [n bytes] is the table itself or a value in the table: "mesh.tp" is in "mesh". */
bool field_is_in(const char *key, size_t n, const char *table, size_t table_n);
const Field *field_of_pass(const char *path);
/* Reads a number of the configuration by its key. Keys of passes cannot be read. Sets *whole if the
 * number is an integer. Returns false if no number has this key. */
bool field_number(const Config *config, const char *key, double *value, bool *whole);
/* Writes to `names` the keys directly below `parent`: "batch" or "tp", for example. An empty
 * `parent` stands for the plan. Returns the number of keys. */
uint32_t field_siblings(const char *parent, bool of_pass, const char **names, uint32_t room);

#endif
