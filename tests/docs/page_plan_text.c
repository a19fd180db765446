/* docs/reference/plan-text.md: the records of a plan's text, and how the proofs treat each field.
 */
#include <assert.h>
#include <string.h>

#include "planner/ir/text/private.h"
#include "tests/docs/pages.h"

#define X(name, meaning) meaning,
static const char *const meanings[] = {TRUSTS(X)};
#undef X

/* The text has only fields of the classes before this one. */
enum { WRITTEN = TRUST_derived };

static void add_record(Str *out, const Record *record)
{
    bool any = false;
    for (uint32_t i = 0; i < record->n_fields; i++)
        any = any || text_is_written(&record->fields[i]);
    if (!any) return;
    str_print(out, "| `%s` ", record->word);
    for (int t = 0; t < WRITTEN; t++) {
        const char *separator = "";
        str_add(out, "| ");
        for (uint32_t i = 0; i < record->n_fields; i++) {
            const TextField *f = &record->fields[i];
            if (f->trust != (TextTrust)t) continue;
            str_print(out, "%s`%s`", separator, text_field_name(f));
            if (f->key == NULL) str_print(out, " (word %u)", i + 1);
            separator = " ";
        }
        str_add(out, " ");
    }
    str_add(out, "|\n");
}

typedef bool Chosen(const TextField *f);

static bool is_label(const TextField *f)
{
    return f->trust == TRUST_label;
}

static bool is_derived(const TextField *f)
{
    return f->trust == TRUST_derived;
}

/* Returns true for a field that the text has, although it partly follows from other fields. */
static bool is_twice(const TextField *f)
{
    return f->note != NULL && !is_label(f) && !is_derived(f);
}

static void add_notes(Arena *arena, Str *out, const char *title, Chosen *chosen)
{
    str_print(out, "\n| record | field | %s |\n|---|---|---|\n", title);
    for (int k = 0; k < RECORD_ranks; k++) {
        const Record *record = text_record((TextRecordKind)k);
        for (uint32_t i = 0; i < record->n_fields; i++) {
            const TextField *f = &record->fields[i];
            assert(f->note != NULL || !(is_label(f) || is_derived(f)));
            if (chosen(f))
                str_print(out, "| `%s` | `%s` | %s |\n", record->word, text_field_name(f),
                          page_cell(arena, f->note));
        }
    }
}

/* Lists the fields that views share with their roots. */
static void add_shared(Str *out)
{
    const Record *record = text_record(RECORD_buffer);
    str_add(out, "\n");
    for (uint32_t i = 0, n = 0; i < record->n_fields; i++)
        if (record->fields[i].of_root)
            str_print(out, "%s`%s`", n++ > 0 ? ", " : "A view does not state ",
                      text_field_name(&record->fields[i]));
    str_add(out, ". Its root does.\n");
}

/* Lists the fields that only passes read, so that the text need not have them. */
static void add_passes(Arena *arena, Str *out)
{
    const char *separator = "Only passes read ";
    Str list = str_in(arena);
    for (int k = 0; k < RECORD_ranks; k++) {
        const Record *record = text_record((TextRecordKind)k);
        for (uint32_t i = 0; i < record->n_fields; i++) {
            const TextField *f = &record->fields[i];
            if (f->trust != TRUST_of_passes) continue;
            str_print(&list, "%s`%s.%s`", separator, record->word, text_field_name(f));
            separator = ", ";
        }
    }
    str_add(&list, ". The text does not have these, because a plan in a text has gone through all "
                   "passes.");
    str_add(out, "\n");
    page_text(out, str_text(&list));
}

static void add_unwritten(Arena *arena, Str *out)
{
    str_add(out, "\n## Labels\n\n");
    page_text(out, "No number depends on a label. The text has labels for people and messages:");
    add_notes(arena, out, "tells", is_label);
    str_add(out, "\n## Derived fields\n\n");
    page_text(out,
              "Other fields determine the fields of this table. The text does not have them, and "
              "the reader derives them. A text that states one is refused (plan-syntax).");
    add_notes(arena, out, "is", is_derived);
    add_shared(out);
    add_passes(arena, out);
    str_add(out, "\n");
    page_text(
        out,
        "In most plans, other fields determine the fields below. In some plans they do not, so the "
        "text has them:");
    add_notes(arena, out, "because", is_twice);
}

/* Lists the attributes of one row of attrs.def, without their bounds. */
static void add_names(Str *out, const char *list)
{
    const char *separator = "";
    while (*list != 0) {
        str_print(out, "%s`%.*s`", separator, (int)strcspn(list, "[("), list);
        list += strcspn(list, ")]") + 1;
        list += strspn(list, " ");
        separator = " ";
    }
}

static void add_attributes(Str *out, const char *ops, const char *given, const char *proven,
                           const char *proof)
{
    str_add(out, "| ");
    for (const char *at = ops; *at != 0;) {
        const size_t n = strcspn(at, " ");
        str_print(out, "%s`%.*s`", at == ops ? "" : " ", (int)n, at);
        at += n + strspn(at + n, " ");
    }
    str_add(out, " | ");
    add_names(out, given);
    str_add(out, " | ");
    add_names(out, proven);
    str_print(out, " | %s |\n", proof);
}

static void add_table_of_attributes(Str *out)
{
    str_add(out, "\n## Attributes\n\n");
    page_text(
        out,
        "An attribute is given by the script, or it follows from the rest of the plan. A seal "
        "refuses a change of either kind. Where it follows from the rest, a proof refuses the "
        "change even if the seal was changed, too. This holds for forward nodes and for "
        "instructions that belong to no node. A backward node must have the attributes of its "
        "forward node, and an instruction those of its node, so a change in one place is always "
        "refused. `accumulate`, and `scale` and `group` of products of 8-bit and 4-bit numbers, "
        "are always proven. The test unit/test_plan_attrs checks this table.");
    str_add(out, "\n| ops | given by the script | proven | proof |\n|---|---|---|---|\n");
#define HAS(ops, given, proven, proof) add_attributes(out, ops, given, proven, proof);
#include "planner/ir/op/attrs.def"
}

static const char *const titles[] = {[TRUST_proven] = "proven, by other fields",
                                     [TRUST_given] = "proven, by its seal: inputs",
                                     [TRUST_reported] = "proven, by its seal: for reports",
                                     [TRUST_by_op] = "proven, as the op says",
                                     [TRUST_free] = "free",
                                     [TRUST_label] = "label"};

const char *page_plan_text(Arena *arena)
{
    Str out = page_begin(arena, "The text of a plan", "planner/ir/text/fields.c");
    str_add(&out, "```\ntandem show PLAN --text > plan.txt\ntandem check plan.txt\n```\n\n");
    page_text(
        &out,
        "The text is a list of records, one a line. A record has a word, a number, and key=value "
        "for every field that is not zero. The fields that others determine are left out. Reading "
        "the text gives the same plan. Somebody may have "
        "changed the text, so `check` proves the plan again.");
    str_add(&out, "\n");
    page_text(&out,
              "A field is proven, free, or a label. A change of a proven field is refused, and "
              "the error names the field. The table gives the proof of each field:");
    str_add(&out, "\n| | |\n|---|---|\n");
    for (int t = 0; t < WRITTEN; t++)
        str_print(&out, "| %s | %s |\n", titles[t], page_cell(arena, meanings[t]));
    str_add(&out, "\n");
    page_text(
        &out,
        "The lines `seal` at the end of the text hold a seal for each proven field: a hash of "
        "the field's values in all records. A text whose values have other seals is refused "
        "(plan-seal). A seal shows that nobody changed the text. It does not show that the "
        "planner was right, so the proofs do not rely on seals.");
    str_add(&out, "\n");
    page_text(&out,
              "The test exec/test_plan_fields changes single fields of many plans and holds each "
              "field to this table. It also tries the proofs without the seals.");
    str_add(&out, "\n| record ");
    for (int t = 0; t < WRITTEN; t++) str_print(&out, "| %s ", titles[t]);
    str_add(&out, "|\n|---");
    for (int t = 0; t < WRITTEN; t++) str_add(&out, "|---");
    str_add(&out, "|\n");
    for (int k = 0; k < RECORD_ranks; k++) add_record(&out, text_record((TextRecordKind)k));
    add_unwritten(arena, &out);
    add_table_of_attributes(&out);
    return str_text(&out);
}
