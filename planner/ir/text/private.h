/* The exact text of a plan is a list of records, one in each line. A record is a word, an index,
 * and then key=value for every field that is not zero. One table describes each kind of record.
 * Both the printer and the parser use it, so they cannot differ. Only the files of planner/ir/text
 * and tests include this header. */
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
    FIELD_word, /* an enum, written as one of the field's names */
    FIELD_op,
    FIELD_text, /* const char *, written in quotes; NULL is not written */
    FIELD_loc,
    FIELD_hash,
    FIELD_axes,   /* AxisSet, such as "dp_shard,tp" */
    FIELD_layout, /* Layout, such as "tp:1,dp_shard:sum" */
    FIELD_split,  /* char[MAX_AXES], such as "tp:k" */
    /* int64_t[], such as "[2,4096]"; the uint8_t at offset `count` is the number of elements */
    FIELD_dims,
    FIELD_deals, /* DealId[], with a number of elements as for FIELD_dims */
    /* uint32_t[] of at most `room` elements, with a number of elements as for FIELD_dims */
    FIELD_ids,
    FIELD_list,      /* LIST(uint32_t), such as "1,2,3" */
    FIELD_numbers,   /* double[room], such as "1.5,2"; zeros at the end are not written */
    FIELD_intervals, /* Deal.first and n, as the intervals in Deals.intervals: "0-4,28-32" */
    FIELD_args,      /* Instr.args, as the buffers in Program.args: "3,4>5" */
    FIELD_after      /* Instr.after, as the instructions in Program.after */
} FieldType;

/* Classes of fields, by the effect of changing a value in the text. Fields of the classes proven,
 * given, reported and by_op have seals (TextSeal). A changed value of a given or a reported field
 * contradicts no other field, so only its seal refuses the change. For an attribute (by_op),
 * attrs.def says which class it has. Tests check the class of each field. */
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
    /* the field's name in the text; NULL: the value comes at a fixed position without a name */
    const char *key;
    FieldType type;
    /* byte offsets in the record: of the value; of its number of elements */
    uint16_t offset, count;
    uint32_t room; /* FIELD_word: number of names; FIELD_ids: the most elements */
    const char *const *names;
    TextTrust trust;
    const char *member; /* for a field without a key: the member of the record */
    /* a note for the docs: what a label is for, how the reader derives the field, or why the text
     * has it although it follows from other fields; NULL: none */
    const char *note;
    /* true if a view has the same value as its root; the text of a view does not have it */
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
    RECORD_ranks,  /* the ranks that run each program; the record has no fields */
    RECORD_seal,   /* the seals of a kind of records; the record has no fields of its own */
    RECORD_COUNT
} TextRecordKind;

typedef struct Record {
    const char *word;
    const TextField *fields;
    uint32_t n_fields;
} Record;
const Record *text_record(TextRecordKind kind);
/* Returns the number of elements of a FIELD_numbers, without the zeros at the end. */
uint32_t text_numbers(const TextField *f, const void *record);
/* True if the text has the field. */
static inline bool text_is_written(const TextField *f)
{
    return f->trust != TRUST_derived && f->trust != TRUST_of_passes;
}
/* True if the field has a seal. */
static inline bool text_has_seal(const TextField *f)
{
    return f->trust != TRUST_free && f->trust != TRUST_label && text_is_written(f);
}
/* True if the record is a view of a buffer, and the field has the same value as in its root. */
static inline bool text_is_shared(const TextField *f, const void *record)
{
    return f->of_root && ((const Buffer *)record)->parent != 0;
}
/* Returns the bytes of a value of this type; 0 if it has a list or a location. */
size_t text_plain_bytes(FieldType type);
/* Returns the key of a field or, if it has none, the name of its member. */
const char *text_field_name(const TextField *f);

enum { MOST_FIELDS = 64 };
/* The seal of a field has two sums over all records. One is the sum of the hashes of its values.
 * The other is the sum of each hash times the number of its record. If only one value changes, both
 * sums change, and the quotient of the two differences is the number of its record. Both sums are 0
 * if the field has no seal, because it is free or a label. */
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
/* Returns the number, from 1 to n, of the only record whose value explains the difference of two
 * seals. Returns 0 if there is no such record. */
uint32_t text_seal_place(TextSeal was, TextSeal now, uint32_t n);

/* The number in this line is increased when the form of texts changes so that old texts cannot be
 * read any more. */
#define TEXT_HEADER_LINE "tandem plan 3"
#define TEXT_HEADER      TEXT_HEADER_LINE "\n"

/* Sets the fields that the text does not have (derive.c). Indices must have been checked. */
void text_derive(Plan *plan);
/* Checks that every index is inside its list, that no view has a view as its parent, and that sizes
 * and counts are within their limits. Reports "plan-syntax" at line 0 of `file`. */
bool text_check(const Plan *plan, const char *file, Diag *d);

#endif
