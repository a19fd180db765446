/* The exact text of plans, for .plan files and plan ids. A plan that is printed and parsed again is
 * the same plan. private.h describes the format. */
#ifndef TANDEM_IR_TEXT_TEXT_H
#define TANDEM_IR_TEXT_TEXT_H

#include "planner/ir/plan.h"

enum {
    /* also writes the script:line of each node, tensor and module. They are not part of the plan's
     * id */
    TEXT_WITH_LOCATIONS = 1,
    /* also writes a checksum (TextSeal) of each field, for texts that people store as files */
    TEXT_WITH_SEALS = 2
};
void text_print(const Plan *plan, uint32_t flags, Str *out);
/* Parses a plan, which is allocated in `arena`. Every index, size and count is checked, so no text
 * can make it crash. On an error, reports "plan-syntax" with the line of the text and returns NULL.
 * If the text has seals, reports "plan-seal" for each field whose values were changed. */
Plan *text_parse(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d);
/* Like text_parse, but the text must have seals. A changed field is reported to `seals`, and the
 * plan is returned nevertheless. So the caller can prove the plan first: a failed proof explains
 * better what is wrong. */
Plan *text_parse_sealed(const char *file, const char *text, size_t bytes, Arena *arena, Diag *d,
                        Diag *seals);
/* Returns the plan's id, a 128-bit hash of all values in the plan's text except locations and the
 * model's name. A plan that is printed and parsed again has the same id. */
Hash128 text_plan_id(const Plan *plan, Arena *scratch);
/* Appends one instruction as `tandem show` prints it. */
void text_instr(const Plan *plan, const Program *p, Pc pc, Arena *scratch, Str *out);
/* Appends program `program` (an index) as `tandem show` prints it: a header, a summary of the
 * buffers, and the instructions. */
void text_show(const Plan *plan, uint32_t program, Arena *scratch, Str *out);

#endif
