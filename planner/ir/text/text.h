/* Plans as exact text: parse(print(p)) == p. Sizes are in bytes; every field that is not zero is
 * written. */
#ifndef TANDEM_IR_TEXT_TEXT_H
#define TANDEM_IR_TEXT_TEXT_H

#include "planner/ir/plan.h"

enum {
    /* script:line of each node, tensor and module; they are not part of the plan id */
    TEXT_WITH_LOCATIONS = 1,
    /* a hash of each field's values; for texts that people keep as files */
    TEXT_WITH_SEALS = 2
};
void text_print(const Plan *plan, uint32_t flags, Str *out);
/* Reports "plan-syntax" with file:line of the text, and returns NULL. Never crashes on any input:
 * every index, size and count is checked. The plan lives in `arena`. If the text has seals, reports
 * "plan-seal" for each field whose values were changed. */
Plan *text_parse(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d);
/* As text_parse, but also reports "plan-seal" for a text without seals. These reports go to
 * `seals`, and do not keep the function from returning the plan: the caller can prove it first,
 * because the proofs know better what is wrong. */
Plan *text_parse_sealed(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d,
                        Diag *seals);
/* XXH3-128 of the plan's structure: of every value that the text prints, except locations and
 * ModelInfo.name. It is equal for a plan and for the plan that its text parses to. */
Hash128 text_plan_id(const Plan *plan, Arena *scratch);
/* Writes one instruction in the friendly form of `tandem show`. */
void text_instr(const Plan *plan, const Program *p, Pc pc, Arena *scratch, Str *out);
/* Writes the friendly form of a whole program: header, summary of buffers, instructions. */
void text_show(const Plan *plan, uint32_t program, Arena *scratch, Str *out);

#endif
