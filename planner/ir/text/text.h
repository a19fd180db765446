/* The exact text of plans. A plan that is printed and read again is the same plan. Sizes are in
 * bytes. Every field that is not zero is written. */
#ifndef TANDEM_IR_TEXT_TEXT_H
#define TANDEM_IR_TEXT_TEXT_H

#include "planner/ir/plan.h"

enum {
    /* also write script:line of each node, tensor and module; these are not part of the
     * plan's id */
    TEXT_WITH_LOCATIONS = 1,
    /* also write a hash of each field's values, for texts that people keep as files */
    TEXT_WITH_SEALS = 2
};
void text_print(const Plan *plan, uint32_t flags, Str *out);
/* Reads a plan from text. On an error, reports "plan-syntax" with file:line of the text and returns
 * NULL. Every index, size and count is checked, so no input can make it crash. The plan is in
 * `arena`. If the text has seals, reports "plan-seal" for each field whose values were changed. */
Plan *text_parse(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d);
/* Like text_parse, but the text must have seals. Reports about seals go to `seals`, and the plan is
 * returned nevertheless. The caller can then prove the plan first, because a failed proof explains
 * better what is wrong. */
Plan *text_parse_sealed(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d,
                        Diag *seals);
/* Returns the plan's id: the XXH3-128 hash of all values that the text contains, except locations
 * and ModelInfo.name. A plan that is printed and read again has the same id. */
Hash128 text_plan_id(const Plan *plan, Arena *scratch);
/* Writes one instruction in the form of `tandem show`. */
void text_instr(const Plan *plan, const Program *p, Pc pc, Arena *scratch, Str *out);
/* Writes a whole program in the form of `tandem show`: header, summary of buffers, instructions. */
void text_show(const Plan *plan, uint32_t program, Arena *scratch, Str *out);

#endif
