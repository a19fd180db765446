/* The proofs in order; reports. */
#include "planner/verify/verify.h"

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

/* "program 0, 13 tp all_reduce (mb 0, layers.0.attention): " and the script's line. */
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

void verify_report(Verifier *v, const char *rule, Pc pc, const char *format, ...)
{
    if (!verify_reports(v, rule)) return;
    if (v->n_reported == MAX_REPORTS) {
        v->n_left_out++;
        return;
    }
    v->n_reported++;
    Loc loc;
    const char *where = place(v, pc, &loc);
    Str text = str_in(v->d->arena);
    va_list args;
    va_start(args, format);
    str_vprint(&text, format, args);
    va_end(args);
    diag_error(v->d, v->fault, rule, loc, "%s%s", where, str_text(&text));
}

void verify_warn(Verifier *v, Pc pc, const char *format, ...)
{
    if (!(v->proofs & VERIFY_redundant) || v->n_warned++ >= MAX_WARNINGS) return;
    Loc loc;
    const char *where = place(v, pc, &loc);
    Str text = str_in(v->d->arena);
    va_list args;
    va_start(args, format);
    str_vprint(&text, format, args);
    va_end(args);
    diag_warning(v->d, "verify-redundant", loc, "%s%s", where, str_text(&text));
}

void verify_purity(Verifier *v)
{
    for (Pc pc = 1; pc < v->p->code.n; pc++) {
        const Instr *in = &v->p->code.at[pc];
        if (v->p->purpose == PURPOSE_eval && verify_attrs(v, pc)->drop > 0)
            verify_report(v, "verify-purity", pc, "an evaluation must not drop anything");
        if (in->phase != PHASE_recompute) continue;
        uint32_t flags = op_info(in->op)->flags;
        const Node *origin = &v->plan->graph.nodes.at[in->origin];
        if (origin->keep && origin->op == in->op)
            verify_report(v, "verify-purity", pc, "recomputation must not repeat %s: it is kept",
                          op_info(in->op)->name);
        if (flags & (OP_STATE | OP_ONCE | OP_SOURCE))
            verify_report(v, "verify-purity", pc, "recomputation must not %s",
                          flags & OP_SOURCE ? "draw new samples"
                                            : "touch what lives between steps");
        for (uint32_t i = in->n_in; i < in->args.n; i++) {
            uint64_t offset;
            BufferId root = program_root(v->p, program_arg(v->p, in, i), &offset);
            const Buffer *at = &v->p->buffers.at[root];
            bool place =
                at->category == CATEGORY_gathered && !at->unit; /* of no value that lasts */
            if (at->persistent && !place)
                verify_report(v, "verify-purity", pc,
                              "recomputation writes buffer %u, which lives between steps", root);
        }
    }
}

static void each_program(Verifier *v)
{
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        if (v->proofs & VERIFY_races) {
            verify_order(v);
            verify_races(v);
        }
        if (v->proofs & VERIFY_coverage) verify_purity(v);
        if (v->proofs & VERIFY_layouts) verify_dtypes(v);
    }
    v->p = NULL;
}

static bool structure(Verifier *v)
{
    verify_structure_graph(v);
    if (v->n_reported) return false;
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        verify_structure_program(v);
    }
    v->p = NULL;
    return v->n_reported == 0;
}

bool verify_plan(const Plan *plan, uint32_t proofs, bool user_plan, Diag *d)
{
    const uint32_t values = VERIFY_layouts | VERIFY_scale | VERIFY_coverage | VERIFY_redundant;
    Verifier v = {.plan = plan,
                  .g = &plan->graph,
                  .d = d,
                  .arena = arena_new(),
                  .fault = user_plan ? FAULT_input : FAULT_internal,
                  .proofs = proofs | VERIFY_structure};
    if (structure(&v)) {
        each_program(&v);
        verify_metadata(&v);
        if (proofs & VERIFY_deadlock) verify_deadlock(&v);
        if (proofs & values) {
            verify_graph_values(&v);
            verify_values(&v);
        }
    }
    if (v.n_left_out)
        diag_error(d, v.fault, "verify-structure", (Loc){NULL, 0},
                   "%u more violations were found and are not listed", v.n_left_out);
    if (v.n_warned > MAX_WARNINGS)
        diag_warning(d, "verify-redundant", (Loc){NULL, 0},
                     "%u more communications are redundant and are not listed",
                     v.n_warned - MAX_WARNINGS);
    arena_free(v.arena);
    return v.n_reported == 0;
}
