/* Runs the proofs in order. */
#include "planner/verify/verify.h"

#include <assert.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "planner/verify/copies/copies.h"
#include "planner/verify/private.h"

static void check_purity(void *self, Pc pc)
{
    Verifier *v = self;
    const Instr *in = &v->p->code.at[pc];
    if (v->p->purpose == PURPOSE_eval && verify_attrs(v, pc)->drop > 0)
        verify_report(v, "verify-purity", pc, "an evaluation must not use dropout");
    if (in->phase != PHASE_recompute) return;
    uint32_t flags = op_info(in->op)->flags;
    const Node *origin = &v->plan->graph.nodes.at[in->origin];
    if (origin->keep && origin->op == in->op)
        verify_report(v, "verify-purity", pc,
                      "recomputation must not repeat %s, because its result is kept",
                      op_info(in->op)->name);
    if (flags & (OP_STATE | OP_ONCE | OP_SOURCE))
        verify_report(v, "verify-purity", pc, "recomputation must not %s",
                      flags & OP_SOURCE ? "draw new samples"
                                        : "touch state that lives between steps");
    for (uint32_t i = in->n_in; i < in->args.n; i++) {
        uint64_t offset;
        BufferId root = program_root(v->p, program_arg(v->p, in, i), &offset);
        const Buffer *at = &v->p->buffers.at[root];
        bool place =
            at->category == CATEGORY_gathered &&
            !at->unit; /* the buffer only lends its memory, and keeps no value between steps */
        if (at->persistent && !place)
            verify_report(v, "verify-purity", pc,
                          "recomputation writes buffer %u, which lives between steps", root);
    }
}

void verify_purity(Verifier *v)
{
    verify_each_instr(v, check_purity, v);
}

static void prove_program(Verifier *v, uint32_t program)
{
    v->program = program;
    v->p = &v->plan->programs.at[program];
    if (v->proofs & VERIFY_races) {
        verify_order(v);
        verify_races(v);
    }
    if (v->proofs & VERIFY_coverage) verify_purity(v);
    if (v->proofs & VERIFY_layouts) verify_dtypes(v);
}

/* The proofs that one thread runs, with its own memory and diagnostics. */
typedef enum ProofPart {
    PROOF_values,
    PROOF_metadata,
    PROOF_deadlock,
    PROOF_programs,
    PROOF_whole = INT32_MAX
} ProofPart;
typedef struct PartRun {
    Verifier v;
    Diag told;
    uint32_t part;
} PartRun;

enum { VALUES = VERIFY_layouts | VERIFY_scale | VERIFY_coverage | VERIFY_redundant };

/* The proofs of values take the longest time, so they are started first. Part PROOF_programs + i
 * proves program i. */
static void prove_part(Verifier *v, uint32_t part)
{
    switch (part) {
    case PROOF_values:
        if (!(v->proofs & VALUES)) break;
        verify_graph_values(v);
        verify_values(v);
        break;
    case PROOF_metadata: verify_metadata(v); break;
    case PROOF_whole:
        verify_whole_graph(v);
        verify_whole_stated(v);
        for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
            v->p = &v->plan->programs.at[v->program];
            verify_whole_program(v);
        }
        break;
    case PROOF_deadlock:
        if (v->proofs & VERIFY_deadlock) verify_deadlock(v);
        break;
    default: prove_program(v, part - PROOF_programs);
    }
    v->p = NULL;
}

static void prove_in_thread(void *self, uint32_t i)
{
    PartRun *own = (PartRun *)self + i;
    own->v.arena = arena_new();
    own->told = diag_in(own->v.arena);
    own->v.d = &own->told;
    prove_part(&own->v, own->part);
    if (own->told.items.n > 0)
        return; /* the texts of the reports are in the part's arena, so it is
                   not freed */
    arena_free(own->v.arena);
    own->v.arena = NULL;
}

/* Makes a copy of the verifier for each of n parts. The caches of bound ops are empty in the
 * copies, because only one thread may write to a cache. */
static PartRun *copies_for_parts(const Verifier *v, uint32_t n)
{
    PartRun *all = arena_array(v->arena, n, sizeof *all);
    for (uint32_t i = 0; i < n; i++) {
        Verifier *own = &all[i].v;
        all[i].part = i;
        *own = *v;
        own->bounds.at = NULL;
        own->bounds.n = own->bounds.room = own->n_bound_slots = 0;
        own->bound_slots = NULL;
        own->bound_of_node = NULL;
    }
    return all;
}

/* Runs all proofs after those of structure, each part in a thread. If a proof fails, runs all of
 * them again one after the other, so that the order of reports does not depend on threads. */
static void prove_parts(Verifier *v)
{
    const uint32_t n_programs = v->plan->programs.n, n = PROOF_programs + n_programs;
    PartRun *all = copies_for_parts(v, n);
    bool again = false;
    parallel_for(n, prove_in_thread, all);
    for (uint32_t i = 0; i < n; i++)
        again = again || all[i].v.n_reported > 0 || (i != PROOF_values && all[i].v.n_warned > 0);
    if (again) {
        v->by_root = false;
        for (uint32_t i = 0; i < n_programs; i++) prove_part(v, PROOF_programs + i);
        prove_part(v, PROOF_metadata);
        prove_part(v, PROOF_deadlock);
        prove_part(v, PROOF_values);
    } else {
        v->n_warned += all[PROOF_values].v.n_warned;
        diag_add_all(v->d, &all[PROOF_values].told);
    }
    for (uint32_t i = 0; i < n; i++) arena_free(all[i].v.arena);
}

static bool structure(Verifier *v)
{
    verify_structure_graph(v);
    if (v->n_reported) return false;
    if (!(v->proofs & VERIFY_in_full))
        v->twins = arena_array(v->arena, v->plan->programs.n, sizeof *v->twins);
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        verify_structure_program(v);
    }
    v->p = NULL;
    return v->n_reported == 0;
}

/* Returns NULL, or the fault of these attributes. Many instructions have the same attributes, so
 * `fits` [attributes x op] stores which combinations are known to be right. */
static const char *attributes_fault(Verifier *v, OpKind op, AttrsId attrs, bool *fits)
{
    bool *known = &fits[(size_t)attrs * OP_COUNT + op];
    if (*known) return NULL;
    Str why = str_in(v->arena);
    if (!op_attrs_fit(op, graph_attrs_at(v->g, attrs), &why)) return str_text(&why);
    *known = true;
    return NULL;
}

/* Checks the attributes of all instructions. This runs last, because the proofs of values explain a
 * wrong attribute better. */
static void check_attributes(Verifier *v)
{
    bool *fits = arena_array(v->arena, v->g->attrs.n, OP_COUNT * sizeof *fits);
    for (NodeId id = 1; id < v->g->nodes.n; id++) {
        const Node *n = &v->g->nodes.at[id];
        const char *fault = attributes_fault(v, n->op, n->attrs, fits);
        if (fault != NULL) verify_report(v, "verify-structure", 0, "graph node %u: %s", id, fault);
    }
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        for (Pc pc = 1; pc < v->p->code.n; pc++) {
            const Instr *in = &v->p->code.at[pc];
            const char *fault = attributes_fault(v, in->op, in->attrs, fits);
            if (fault != NULL) verify_report(v, "verify-structure", pc, "%s", fault);
        }
    }
    v->p = NULL;
}

/* Runs most proofs on a copy of the plan with fewer equal blocks, and the others on the whole plan
 * (copies/copies.h). Returns false, without a report, if the plan has too few equal blocks or if a
 * proof fails. */
static bool prove_shorter(const Verifier *v)
{
    enum { SHORT_values, SHORT_metadata, SHORT_program, SHORT_PARTS };
    enum { WHOLE_races, WHOLE_deadlock, WHOLE_PARTS };
    Diag unheard = diag_in(v->arena);
    Verifier few = *v, whole = *v;
    few.plan = copies_shorten(v->plan, v->arena);
    if (few.plan == NULL) return false;
    few.g = &few.plan->graph;
    few.d = whole.d = &unheard;
    if (!structure(&few)) return false;
    whole.local_elements = few.local_elements; /* both plans have the same shapes */
    prove_part(&whole, PROOF_whole);           /* first, because the proof of races relies on it */
    if (whole.n_reported) return false;
    PartRun *all = copies_for_parts(&few, SHORT_PARTS + WHOLE_PARTS), *rest = all + SHORT_PARTS;
    memcpy(rest, copies_for_parts(&whole, WHOLE_PARTS), WHOLE_PARTS * sizeof *rest);
    all[SHORT_values].part = PROOF_values;
    all[SHORT_metadata].part = PROOF_metadata;
    all[SHORT_program].part = PROOF_programs;
    all[SHORT_program].v.proofs &= ~(uint32_t)VERIFY_races;
    rest[WHOLE_races].part = PROOF_programs;
    rest[WHOLE_races].v.proofs = VERIFY_structure | VERIFY_races;
    rest[WHOLE_deadlock].part = PROOF_deadlock;
    parallel_for(SHORT_PARTS + WHOLE_PARTS, prove_in_thread, all);
    uint32_t n_told = 0;
    for (uint32_t i = 0; i < SHORT_PARTS + WHOLE_PARTS; i++) {
        n_told += all[i].v.n_reported + all[i].v.n_warned;
        arena_free(all[i].v.arena);
    }
    if (n_told == 0) check_attributes(&few);
    return n_told + few.n_reported == 0;
}

bool verify_plan(const Plan *plan, uint32_t proofs, bool user_plan, Diag *d)
{
    Verifier v = {.plan = plan,
                  .g = &plan->graph,
                  .d = d,
                  .arena = arena_new(),
                  .fault = user_plan ? FAULT_input : FAULT_internal,
                  .proofs = proofs | VERIFY_structure,
                  .by_root = proofs & VERIFY_races && !(proofs & VERIFY_in_full)};
    /* a text may come from anywhere, so it gets no proof that relies on equal blocks */
    const bool in_full =
        user_plan || (proofs & VERIFY_in_full) || (proofs & VERIFY_all) != VERIFY_all;
    if (!in_full && prove_shorter(&v)) {
        arena_free(v.arena);
        return true;
    }
    if (structure(&v)) {
        prove_parts(&v);
        if (proofs & VERIFY_metadata && v.n_reported == 0) check_attributes(&v);
    }
    verify_report_rest(&v);
    arena_free(v.arena);
    return v.n_reported == 0;
}
