/* The exact text of a plan is a list of records, one a line: a word, an index, then key=value for
 * every field that is not zero. Printer and parser use the same table for each record, so they
 * cannot disagree. Only the files of planner/ir/text and tests include this. */
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
    FIELD_word, /* an enum, by the names of the field */
    FIELD_op,
    FIELD_text, /* const char *, quoted; NULL prints nothing */
    FIELD_loc,
    FIELD_hash,
    FIELD_axes,      /* AxisSet: "dp_shard,tp" */
    FIELD_layout,    /* Layout: "tp:1,dp_shard:sum" */
    FIELD_split,     /* char[MAX_AXES]: "tp:k" */
    FIELD_dims,      /* int64_t[]; the uint8_t at offset `count` holds their number: "[2,4096]" */
    FIELD_deals,     /* DealId[], with the same kind of count */
    FIELD_ids,       /* uint32_t[] with the same kind of count; at most `room` of them */
    FIELD_list,      /* LIST(uint32_t) */
    FIELD_numbers,   /* double[room], up to the last that is not 0: "1.5,2" */
    FIELD_intervals, /* Deal.first, n in Deals.intervals: "0-4,28-32" */
    FIELD_args,      /* Instr.args in Program.args: "3,4>5" */
    FIELD_after      /* Instr.after in Program.after */
} FieldType;

/* The effect of changing a field's value in the text. A field is proven, free or a label. The
 * proven fields have four rows here: a change of a given or a reported field contradicts no other
 * field, so only its seal refuses it, and the op decides the class of an attribute (attrs.def).
 * Tests check the class of each field. */
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
    X(label, "A change affects no number of the executor or the simulator, and no proof.")
typedef enum TextTrust {
#define X(name, meaning) TRUST_##name,
    TRUSTS(X)
#undef X
        TRUST_COUNT
} TextTrust;

typedef LIST(uint32_t) IdList;

typedef struct TextField {
    const char *key; /* NULL: the value is always printed, without a key, at a fixed position */
    FieldType type;
    uint16_t offset, count; /* byte offsets in the record */
    uint32_t room;          /* FIELD_word: number of names; FIELD_ids: size of the array */
    const char *const *names;
    TextTrust trust;
    const char *member; /* its name in the record, for a field without a key */
} TextField;

typedef enum TextRecordKind {
    RECORD_plan,
    RECORD_step,
    RECORD_nccl, /* written only if a setting is made */
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
    RECORD_buffer, /* "%12 ..." */
    RECORD_instr,  /* "12 ..." */
    RECORD_ranks,  /* the ranks that run a program; has no fields */
    RECORD_seal,   /* the hashes of a record's fields; has no fields of its own */
    RECORD_COUNT
} TextRecordKind;

typedef struct Record {
    const char *word;
    const TextField *fields;
    uint32_t n_fields;
} Record;
const Record *text_record(TextRecordKind kind);
/* Returns how many numbers a field of FIELD_numbers has. */
uint32_t text_numbers(const TextField *f, const void *record);
/* True for a proven field. */
static inline bool text_has_seal(const TextField *f)
{
    return f->trust != TRUST_free && f->trust != TRUST_label;
}
/* Returns the key, or the member's name for a field without a key. */
const char *text_field_name(const TextField *f);

enum { MOST_FIELDS = 64 };
/* The seal of a field: the sum of the hashes of its values, and the sum of each hash times the
 * number of its record. If one value changes, the quotient of both differences is the number of its
 * record. 0, 0: the field has no seal, because it is free or a label. */
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
/* Returns the number of the only record, from 1, in which the values of two seals differ. Returns 0
 * if they differ in no record or in several of the first n. */
uint32_t text_seal_place(TextSeal was, TextSeal now, uint32_t n);

/* The number goes up when texts of the old form cannot be read any more. */
#define TEXT_HEADER_LINE "tandem plan 2"
#define TEXT_HEADER      TEXT_HEADER_LINE "\n"

/* Checks that every index is inside its list, that no view has a view as parent, and that sizes and
 * counts are within their bounds. Reports "plan-syntax" at line 0 of `file`. */
bool text_check(const Plan *plan, const char *file, Diag *d);

#endif
