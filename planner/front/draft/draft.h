/* Declarations that the readers of a plan's values share. */
#ifndef TANDEM_FRONT_DRAFT_H
#define TANDEM_FRONT_DRAFT_H

#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"

typedef struct Value {
    RecordKind kind;
    int64_t integer;
    double number;
    const char *text;
} Value;

const char *draft_shown(Arena *arena, const Value *v); /* the value as a message quotes it */
const char *draft_list(Arena *arena, const char *const *names, uint32_t n); /* "a, b or c" */
bool draft_whole(Value *v); /* true for an integer, also if it is written as 3.0; sets v->integer */
/* Reports that a value is not of the field's type; returns false. */
bool draft_wrong_type(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v);
void draft_unknown_key(Draft *draft, const char *path, const char *parent, bool of_pass, Loc loc);
/* Returns the plan's key for the name that another system gives to it, as "batch.micro" for
 * "micro_batch_size"; NULL for any other name. */
const char *front_other_name(const char *key);
/* Checks the value and stores it at `at`. */
bool draft_word(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v, void *at);
bool draft_store(Draft *draft, const char *path, const Field *f, Loc loc, Value *v, void *at);
bool draft_is_attention(const char *path); /* "runtime.attention.Blackwell" */
void draft_attention_field(Draft *draft, const char *path, Loc loc, Value *v);
/* Called after a value of an op ("runtime.ops.combine.passes") is stored. Also gives the value to
 * the op's form for uneven rows, unless the profile states a value for that form. */
void draft_runtime_op(Draft *draft, const char *path, Loc loc, Value *v);
/* Reads "parallel.2", "parallel.2.kind", "parallel.2.sequence": items arrive in order, and the kind
 * of an item arrives first. */
void draft_pass_field(Draft *draft, const char *path, Loc loc, Value *v);

#endif
