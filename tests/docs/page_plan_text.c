/* docs/reference/plan-text.md: the records of a plan's text, and how the proofs treat each field.
 */
#include <string.h>

#include "planner/ir/text/private.h"
#include "tests/docs/pages.h"

#define X(name, meaning) {#name, meaning},
static const struct {
    const char *name, *meaning;
} trusts[] = {TRUSTS(X)};
#undef X

static void add_record(Str *out, const Record *record)
{
    str_print(out, "| `%s` ", record->word);
    for (int t = 0; t < TRUST_COUNT; t++) {
        const char *separator = "";
        str_add(out, "| ");
        for (uint32_t i = 0; i < record->n_fields; i++) {
            const TextField *f = &record->fields[i];
            if (f->trust != (TextTrust)t) continue;
            if (f->key != NULL)
                str_print(out, "%s`%s`", separator, f->key);
            else
                str_print(out, "%sword %u", separator, i + 1);
            separator = " ";
        }
        str_add(out, " ");
    }
    str_add(out, "|\n");
}

const char *page_plan_text(Arena *arena)
{
    Str out = page_begin(arena, "The text of a plan", "planner/ir/text/fields.c");
    str_add(&out, "```\ntandem show PLAN --text > plan.txt\ntandem check plan.txt\n```\n\n");
    page_text(
        &out,
        "The text is a list of records, one a line. A record has a word, a number, and key=value "
        "for every field that is not zero. Reading the text gives the same plan. Somebody may have "
        "changed the text, so `check` proves the plan again. Each field has one of these classes:");
    str_add(&out, "\n| | |\n|---|---|\n");
    for (int t = 0; t < TRUST_COUNT; t++)
        str_print(&out, "| %s | %s |\n", trusts[t].name, page_cell(arena, trusts[t].meaning));
    str_add(&out, "\n");
    page_text(&out,
              "The test exec/test_plan_fields changes single fields of many plans and holds each "
              "field to this table.");
    str_add(&out, "\n| record ");
    for (int t = 0; t < TRUST_COUNT; t++) str_print(&out, "| %s ", trusts[t].name);
    str_add(&out, "|\n|---|---|---|---|---|---|\n");
    for (int k = 0; k < RECORD_ranks; k++) add_record(&out, text_record((TextRecordKind)k));
    return str_text(&out);
}
