/* docs/reference/plan.md: every key that a plan may have, from the table that reads them. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"
#include "tests/docs/pages.h"

/* Prints a number with separators, as in 131,072. Numbers from 10^10 on must have only one digit
 * that is not 0, and are printed as 10^12 or 9 x 10^15. */
static const char *count_text(Arena *arena, double n)
{
    if (n != 0 && fabs(n) < 1e-3) return arena_print(arena, "%g", n);
    if (n < 1e4) return arena_print(arena, "%.10g", n);
    if (n < 1e10) return str_count(arena, (uint64_t)n);
    const int power = (int)floor(log10(n) + 1e-9);
    const double digit = n / pow(10, power);
    assert(fabs(digit - round(digit)) < 1e-9);
    return fabs(digit - 1) < 1e-9 ? arena_print(arena, "10^%d", power)
                                  : arena_print(arena, "%.0f x 10^%d", digit, power);
}

static const char *range(Arena *arena, const Field *f, const char *word)
{
    if (f->most <= f->least) return word;
    return arena_print(arena, "%s, %s to %s", word, count_text(arena, f->least),
                       count_text(arena, f->most));
}

static const char *type_text(Arena *arena, const Field *f)
{
    switch (f->kind) {
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: return "table";
    case FIELD_i64:
    case FIELD_u32:
    case FIELD_u64: return range(arena, f, "integer");
    case FIELD_f64: return range(arena, f, "number");
    case FIELD_rate: return range(arena, f, "0, or a number");
    case FIELD_axis: return range(arena, f, "integer");
    case FIELD_bool:
    case FIELD_offload:
    case FIELD_choice: return "true or false";
    case FIELD_text: return "text";
    case FIELD_dtype: return "dtype";
    case FIELD_reshard: return "true, false or a number";
    case FIELD_word: break;
    }
    Str out = str_in(arena);
    for (uint32_t i = 0; f->words[i] != NULL; i++)
        str_print(&out, "%s\"%s\"", i > 0 ? ", " : "", f->words[i]);
    return str_text(&out);
}

/* Returns the value of a field that is not set, if its default can be stated. */
static const char *default_text(Arena *arena, const Field *f, const char *from)
{
    const void *at = from + f->offset;
    switch (f->kind) {
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: return "";
    case FIELD_i64: {
        int64_t n;
        memcpy(&n, at, sizeof n);
        return n == 0 && f->least > 0 ? "" : arena_print(arena, "%" PRIi64, n);
    }
    case FIELD_u32: {
        uint32_t n;
        memcpy(&n, at, sizeof n);
        return n == 0 && f->least > 0 ? "" : arena_print(arena, "%" PRIu32, n);
    }
    case FIELD_u64: {
        uint64_t n;
        memcpy(&n, at, sizeof n);
        return arena_print(arena, "%" PRIu64, n);
    }
    case FIELD_f64:
    case FIELD_rate: {
        double n;
        memcpy(&n, at, sizeof n);
        return n == 0 && f->least > 0 ? "" : count_text(arena, n);
    }
    case FIELD_axis: return "1";
    case FIELD_bool:
    case FIELD_offload: {
        bool b;
        memcpy(&b, at, sizeof b);
        return b ? "true" : "false";
    }
    case FIELD_text:
    case FIELD_choice: return "";
    case FIELD_reshard: return "true";
    case FIELD_dtype: {
        DType t;
        memcpy(&t, at, sizeof t);
        return t == DT_none ? "" : dtype_name(t);
    }
    case FIELD_word: break;
    }
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return arena_print(arena, "\"%s\"", f->words[word]);
}

typedef struct PlanPage {
    Arena *arena;
    Str out;
    const char *from; /* the values of a plan, or of a pass, in which nothing is set */
    const char *last; /* the pattern of the last row; other keys with this pattern get no row */
    bool in_table;
} PlanPage;

static void add_heading(PlanPage *w, const char *path, const FieldDoc *doc)
{
    str_print(&w->out, "\n## %s\n\n", path);
    if (doc != NULL) page_text(&w->out, doc->text);
    w->in_table = false;
}

static void add_row(PlanPage *w, const Field *f, const FieldDoc *doc)
{
    const char *text = doc != NULL ? doc->text : "", *unit = doc != NULL ? doc->unit : "";
    const char *key = doc != NULL && doc->key != NULL ? doc->key : f->path;
    if (w->last != NULL && strcmp(w->last, key) == 0) return;
    if (strchr(key, '*') != NULL && strncmp(key, "runtime.ops.*.", 14) == 0 && w->last == NULL)
        return;
    w->last = key;
    if (!w->in_table)
        str_add(&w->out, "\n| key | type | default | unit | meaning |\n|---|---|---|---|---|\n");
    w->in_table = true;
    const char *value = field_is_table(f->kind) ? "" : default_text(w->arena, f, w->from);
    str_print(&w->out, "| `%s` | %s | %s | %s | %s |\n", key,
              page_cell(w->arena, type_text(w->arena, f)), value, unit, page_cell(w->arena, text));
}

/* Returns true for a table with its own section: "batch", but not "cluster.pcie". */
static bool is_section(const Field *f)
{
    return f->kind == FIELD_table && strchr(f->path, '.') == NULL;
}

static void add_plan(PlanPage *w)
{
    page_text(&w->out, "`return plan { name = ..., model = ..., batch = { ... } }`. Keys of tables "
                       "follow below; `--set batch.micro=2` changes one.");
    const char *first_op = NULL;
    size_t op_length = 0;
    for (int section = 0; section < 2; section++) /* first the keys that belong to no table */
        for (uint32_t i = 0; field_at(false, i) != NULL; i++) {
            const Field *f = field_at(false, i);
            const FieldDoc *doc = field_doc(f->path);
            bool alone =
                strchr(f->path, '.') == NULL && (!is_section(f) || strcmp(f->path, "model") == 0 ||
                                                 strcmp(f->path, "parallel") == 0);
            if (alone != (section == 0)) continue;
            if (strncmp(f->path, "runtime.ops.", 12) ==
                0) { /* the keys of the first op stand for those of all ops */
                const char *op = f->path + 12;
                if (first_op == NULL) first_op = op, op_length = strcspn(op, ".");
                if (strncmp(op, first_op, op_length) != 0 || strcspn(op, ".") != op_length)
                    continue;
            }
            if (!alone && is_section(f))
                add_heading(w, f->path, doc);
            else
                add_row(w, f, doc);
        }
}

static void add_passes(PlanPage *w)
{
    static const char *const names[] = {
#define PASS(name) #name,
#include "planner/front/passes.def"
    };
    str_add(&w->out, "\n# Passes\n\n");
    page_text(&w->out, "`parallel = { tp { sequence = true }, ac \"full\", fsdp2 {} }`. "
                       "`--set parallel.tp.sequence=false` changes an option.");
    PassConfig *pass = arena_alloc(w->arena, sizeof *pass);
    w->from = (const char *)pass;
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++) {
        *pass = draft_pass_default((PassName)p, (Loc){NULL, 0});
        add_heading(w, names[p], field_doc(names[p]));
        for (uint32_t i = 0; field_at(true, i) != NULL; i++) {
            const Field *f = field_at(true, i);
            size_t n = strlen(names[p]);
            if (strncmp(f->path, names[p], n) == 0 && f->path[n] == '.')
                add_row(w, f, field_doc(f->path));
        }
    }
}

const char *page_plan(Arena *arena)
{
    Diag diag = diag_in(arena);
    Draft draft = draft_new(arena, &diag);
    PlanPage w = {
        .arena = arena,
        .out = page_begin(arena, "Plan options",
                          "planner/front/keys/fields.c and planner/front/keys/fields_doc.def"),
        .from = (const char *)&draft};
    add_plan(&w);
    add_passes(&w);
    return str_text(&w.out);
}
