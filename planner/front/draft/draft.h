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

const char *draft_shown(Arena *arena, const Value *v); /* Returns the value as messages quote it. */
/* Returns the names as "a, b or c". */
const char *draft_list(Arena *arena, const char *const *names, uint32_t n);
/* True for an integer, even if it is written as 3.0. Sets v->integer. */
bool draft_whole(Value *v);
/* Reports that a value does not have the field's type. Returns false. */
bool draft_wrong_type(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v);
/* Reports that `path` is not a key of the table or pass `parent`, with a hint if a name is near. */
void draft_unknown_key(Draft *draft, const char *path, const char *parent, bool of_pass, Loc loc);
/* Returns the plan's key for a name of another system: "batch.micro" for "micro_batch_size".
 * Returns NULL if no other system uses the name. */
const char *front_other_name(const char *key);
/* Checks a value that must be one of a list of words, and stores its index at `at`. */
bool draft_word(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v, void *at);
/* Checks a value by the row of its key, and stores it at `at`. Returns false after an error. */
bool draft_store(Draft *draft, const char *path, const Field *f, Loc loc, Value *v, void *at);
/* True for a path such as "runtime.attention.Blackwell". */
bool draft_is_attention(const char *path);
void draft_attention_field(Draft *draft, const char *path, Loc loc, Value *v);
/* Called after a value of an op, such as "runtime.ops.combine.passes", was stored. The op's variant
 * for uneven rows gets the same value, unless the profile gives that variant a value of its own. */
void draft_runtime_op(Draft *draft, const char *path, Loc loc, Value *v);
/* Reads one value of a pass: "parallel.2", "parallel.2.kind", "parallel.2.sequence". The items
 * arrive in order, and the kind of an item arrives before its options. */
void draft_pass_field(Draft *draft, const char *path, Loc loc, Value *v);

#endif
