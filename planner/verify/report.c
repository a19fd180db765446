/* Writes the reports of proofs. A report names the rule, the program, the instruction and the line
 * of the script. Reports of proofs that were not requested are left out. */
#include <assert.h>
#include <string.h>

#include "planner/verify/private.h"

enum { MAX_REPORTS = 100, MAX_WARNINGS = 8 };

static const struct {
    const char *rule;
    uint32_t proof;
} rules[] = {
    {"verify-structure", VERIFY_structure},
    {"verify-segments", VERIFY_structure},
    {"verify-layout", VERIFY_layouts},
    {"verify-dtype", VERIFY_layouts},
    {"verify-scale", VERIFY_scale},
    {"verify-tiles", VERIFY_coverage},
    {"verify-race", VERIFY_races},
    {"verify-read-before-write", VERIFY_races | VERIFY_layouts},
    {"verify-deadlock", VERIFY_deadlock},
    {"verify-sequence", VERIFY_deadlock},
    {"verify-coverage", VERIFY_coverage},
    {"verify-purity", VERIFY_coverage},
    {"verify-redundant", VERIFY_redundant},
    {"verify-metadata", VERIFY_metadata},
};

bool verify_reports(const Verifier *v, const char *rule)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].rule, rule) == 0) return (v->proofs & rules[i].proof) != 0;
    assert(false);
    return true;
}

/* Returns for example "program 0, 13 tp all_reduce (mb 0, layers.0.attention): ", and sets *loc to
 * the line of the script. */
static const char *place(const Verifier *v, Pc pc, Loc *loc)
{
    *loc = (Loc){NULL, 0};
    if (!pc) return v->p ? arena_print(v->d->arena, "program %u: ", v->program) : "";
    const Instr *in = &v->p->code.at[pc];
    const char *path = "";
    if (in->origin && in->origin < v->g->nodes.n) {
        const Node *n = &v->g->nodes.at[in->origin];
        *loc = n->loc;
        if (n->module < v->g->modules.n) path = v->g->modules.at[n->module].path;
    }
    if (!path) path = "";
    return arena_print(v->d->arena, "program %u, %u %s %s (mb%u%s%s): ", v->program, pc,
                       in->stream < STREAM_COUNT ? stream_name(in->stream) : "?",
                       in->op < OP_COUNT ? op_info(in->op)->name : "?", in->microbatch,
                       *path ? ", " : "", path);
}

/* Returns the message, preceded by the program and the instruction, and sets *loc. */
__attribute__((format(printf, 4, 0))) static const char *placed(const Verifier *v, Pc pc, Loc *loc,
                                                                const char *format, va_list args)
{
    Str text = str_in(v->d->arena);
    str_print(&text, "%s", place(v, pc, loc));
    str_vprint(&text, format, args);
    return str_text(&text);
}

void verify_report(Verifier *v, const char *rule, Pc pc, const char *format, ...)
{
    if (!verify_reports(v, rule)) return;
    if (v->n_reported == MAX_REPORTS) {
        v->n_left_out++;
        return;
    }
    v->n_reported++;
    Loc loc;
    va_list args;
    va_start(args, format);
    const char *text = placed(v, pc, &loc, format, args);
    va_end(args);
    diag_error(v->d, v->fault, rule, loc, "%s", text);
}

void verify_warn(Verifier *v, Pc pc, const char *format, ...)
{
    if (!(v->proofs & VERIFY_redundant) || v->n_warned++ >= MAX_WARNINGS) return;
    Loc loc;
    va_list args;
    va_start(args, format);
    const char *text = placed(v, pc, &loc, format, args);
    va_end(args);
    diag_warning(v->d, "verify-redundant", loc, "%s", text);
}

void verify_report_rest(Verifier *v)
{
    if (v->n_left_out)
        diag_error(v->d, v->fault, "verify-structure", (Loc){NULL, 0},
                   "%u more errors were found, but are not listed", v->n_left_out);
    if (v->n_warned > MAX_WARNINGS)
        diag_warning(v->d, "verify-redundant", (Loc){NULL, 0},
                     "%u more communications are redundant, but are not listed",
                     v->n_warned - MAX_WARNINGS);
}
