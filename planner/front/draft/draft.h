/* Declarations that the files of this folder share. A child process runs the user's script and
 * sends the plan's values as records. The functions here check these values and store them in a
 * Draft (parent.h). */
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

/* Returns the value as messages quote it: "4", "true", "the text 'abc'". */
const char *draft_shown(Arena *arena, const Value *v);
/* Returns the n names as "a, b, c". */
const char *draft_list(Arena *arena, const char *const *names, uint32_t n);
/* True for an integer, even if the script writes it as 3.0 or 8e3. Then sets v->integer. */
bool draft_whole(Value *v);
/* Reports that `v`, the value at `path`, does not have the type that `f` asks for. Returns false.
 */
bool draft_wrong_type(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v);
/* Reports that the last word of `path` is not a key of `parent`. `parent` is a pass such as "tp" if
 * of_pass is true, and a table such as "mesh" if not. The hint gives the nearest key. */
void draft_unknown_key(Draft *draft, const char *path, const char *parent, bool of_pass, Loc loc);
/* Returns Tandem's key for a name that other frameworks use: "batch.micro" for "micro_batch_size".
 * Returns NULL if the table other_names.def lacks the name. */
const char *front_other_name(const char *key);
/* For a field whose value is one of f->words: stores the index of v->text in that list at `at`.
 * Reports an unknown word and returns false. */
bool draft_word(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v, void *at);
/* Checks the type and range of `v` against its row `f`, and stores it at `at`. Reports a mistake
 * and returns false. */
bool draft_store(Draft *draft, const char *path, const Field *f, Loc loc, Value *v, void *at);
/* True for the path of an entry of runtime.attention, such as "runtime.attention.Blackwell". */
bool draft_is_attention(const char *path);
void draft_attention_field(Draft *draft, const char *path, Loc loc, Value *v);
/* Called after a cost of an op, such as "runtime.ops.combine.passes", was stored. If the op has a
 * variant for dropless experts (combine_uneven), that variant gets the same value, unless the
 * profile gives the variant its own. */
void draft_runtime_op(Draft *draft, const char *path, Loc loc, Value *v);
/* Stores one record of the list of passes: "parallel.2" (a table), "parallel.2.kind" ("tp"), or
 * "parallel.2.sequence" (an option). The records of a pass arrive in this order. */
void draft_pass_field(Draft *draft, const char *path, Loc loc, Value *v);

#endif
