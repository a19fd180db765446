/* The exact text of a plan: one record in each line, such as
 *
 *     node 10 linear_o in=16,18 out=19 module=10 split=cp:s,tp:g
 *
 * A record is a word, an index, and key=value for every field that is not zero. One table for each
 * kind of record (fields.c) describes the fields of the C struct. The printer and the parser both
 * use this table, so they cannot differ. Only planner/ir/text and tests include this header. */
#ifndef TANDEM_IR_TEXT_PRIVATE_H
#define TANDEM_IR_TEXT_PRIVATE_H

#include <stddef.h>

#include "planner/ir/text/text.h"

typedef enum FieldType {
    FIELD_u8,
    FIELD_u32,
    FIELD_u64,
    FIELD_i32,
    FIELD_i64,
    FIELD_f64,
    FIELD_bool,
    FIELD_word, /* an enum, written as a word, such as "forward" */
    FIELD_op,
    FIELD_text, /* const char *, written in quotes; nothing is written for NULL */
    FIELD_loc,
    FIELD_hash,
    FIELD_axes,   /* AxisSet, such as "dp_shard,tp" */
    FIELD_layout, /* Layout, such as "tp:1,dp_shard:sum" */
    FIELD_split,  /* char[MAX_AXES], such as "tp:k" */
    /* int64_t[], such as "[2,4096]"; a uint8_t at offset `count` of the record has the length */
    FIELD_dims,
    FIELD_deals, /* DealId[], with the length as for FIELD_dims */
    /* uint32_t[] of at most `room` elements, with the length as for FIELD_dims */
    FIELD_ids,
    FIELD_list,      /* LIST(uint32_t), such as "1,2,3" */
    FIELD_numbers,   /* double[room], such as "1.5,2"; zeros at the end are left out */
    FIELD_intervals, /* Deal.first and n, written as the intervals themselves: "0-4,28-32" */
    FIELD_args,      /* Instr.args, written as the buffers: "3,4>5" reads 3 and 4 and writes 5 */
    FIELD_after      /* Instr.after, written as the pcs */
} FieldType;

/* Classes of fields, by the effect of changing a value in a text. Fields of the classes proven,
 * given, reported and by_op have seals, which are checksums (TextSeal). A changed value of the
 * classes given and reported contradicts no other field, so only its seal refuses the change. The
 * class of an attribute (by_op) is in attrs.def. Tests check the class of every field. */
#define TRUSTS(X)                                                                                  \
    X(proven, "A change contradicts other fields, and the proofs refuse it.")                      \
    X(given, "An input of the computation, such as a seed or an initial value. Its seal refuses "  \
             "a change. Without the seal, the plan would be one of another computation.")          \
    X(reported, "Reports and predictions read it, such as the layer of an instruction. Its seal "  \
                "refuses a change. Without the seal, the executor would compute the same.")        \
    X(by_op, "An attribute of an op. The table of attributes says for each op whether the proofs " \
             "refuse a change, or only the seal.")                                                 \
    X(free, "A change is refused, or gives another legal program with the same results. Its time " \
            "may differ.")                                                                         \
    X(label, "A change affects no number of the executor or the simulator, and no proof.")         \
    X(derived, "Other fields determine it. The text does not have it, and the reader derives it.") \
    X(of_passes, "Only passes read it, and a plan that is read from its text has passed them.")
typedef enum TextTrust {
#define X(name, meaning) TRUST_##name,
    TRUSTS(X)
#undef X
        TRUST_COUNT
} TextTrust;

typedef LIST(uint32_t) IdList;

typedef struct TextField {
    /* the word before "="; NULL: the value has a fixed place on the line, without a word */
    const char *key;
    FieldType type;
    /* byte offsets in the C struct: of the value; of the value's length, for types that have one */
    uint16_t offset, count;
    /* FIELD_word: how many names `names` has; FIELD_ids, FIELD_numbers: the most elements */
    uint32_t room;
    const char *const *names;
    TextTrust trust;
    const char *member; /* the name of the struct's member, for a field without a key */
    /* A note for the docs, or NULL: what a label is for, how the reader derives the field, or why
     * the text has it although it follows from other fields. */
    const char *note;
    /* For a field of buffers: a view (a part of another buffer, its root) always has the value of
     * its root, so only roots write the field. */
    bool of_root;
} TextField;

typedef enum TextRecordKind {
    RECORD_plan,
    RECORD_step,
    RECORD_nccl, /* written only if the plan sets an option of NCCL */
    RECORD_model,
    RECORD_axis,
    RECORD_deal,
    RECORD_attrs,
    RECORD_shape,
    RECORD_module,
    RECORD_tensor,
    RECORD_node,
    RECORD_unit,
    RECORD_graph,
    RECORD_program,
    RECORD_buffer, /* written as "%12 ..." */
    RECORD_instr,  /* written as "12 ..." */
    RECORD_ranks,  /* which ranks run each program; fields.c has no table for it */
    RECORD_seal,   /* the seals of one kind of record; fields.c has no table for it */
    RECORD_COUNT
} TextRecordKind;

typedef struct Record {
    const char *word;
    const TextField *fields;
    uint32_t n_fields;
} Record;
const Record *text_record(TextRecordKind kind);
/* Returns the length of a FIELD_numbers value without the zeros at its end. */
uint32_t text_numbers(const TextField *f, const void *record);
/* True if the field appears in texts: it is neither derived nor of passes. */
static inline bool text_is_written(const TextField *f)
{
    return f->trust != TRUST_derived && f->trust != TRUST_of_passes;
}
/* True if the field has a seal: it appears in texts, and is neither free nor a label. */
static inline bool text_has_seal(const TextField *f)
{
    return f->trust != TRUST_free && f->trust != TRUST_label && text_is_written(f);
}
/* True if `record` is a view of a buffer, and `f` is a field that views have from their root. */
static inline bool text_is_shared(const TextField *f, const void *record)
{
    return f->of_root && ((const Buffer *)record)->parent != 0;
}
/* Returns sizeof the C type of a value; 0 for a list and for a location. */
size_t text_plain_bytes(FieldType type);
/* Returns the field's key; if it has none, the name of the struct's member. */
const char *text_field_name(const TextField *f);

enum { MOST_FIELDS = 64 };
/* The checksum of a field over all records of one kind. `sum` adds the hashes of its values.
 * `place` adds each hash times the index of its record. If one value changes by d in hash, `sum`
 * changes by d and `place` by d * index. So a reader can tell which record was changed. Both are 0
 * for a field without a seal. */
typedef struct TextSeal {
    uint64_t sum, place;
} TextSeal;
typedef struct TextSeals {
    TextSeal of[RECORD_COUNT][MOST_FIELDS];
} TextSeals;
void text_seals(const Plan *plan, Arena *scratch, TextSeals *seals);
static inline bool text_seal_equal(TextSeal a, TextSeal b)
{
    return a.sum == b.sum && a.place == b.place;
}
/* Compares the stored seal `was` with the computed seal `now`. If a change of a single record can
 * explain the difference, returns its index, from 1 to n. Otherwise returns 0. */
uint32_t text_seal_place(TextSeal was, TextSeal now, uint32_t n);

/* The number in this line grows whenever old texts become unreadable. */
#define TEXT_HEADER_LINE "tandem plan 3"
#define TEXT_HEADER      TEXT_HEADER_LINE "\n"

/* Computes all fields that the text does not contain (derive.c). All indices must be valid. */
void text_derive(Plan *plan);
/* Checks a plan that was just parsed: every index is inside its list, the parent of a view is a
 * root, and sizes and counts are within limits. Reports "plan-syntax" at line 0 of `file`. */
bool text_check(const Plan *plan, const char *file, Diag *d);

#endif
