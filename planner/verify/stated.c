/* Checks numbers in the text that follow from other fields, such as sizes of arenas, and settings
 * that must be the same in several instructions. An executor uses these numbers without a check. */
#include <inttypes.h>
#include <string.h>

#include "planner/verify/private.h"

#define RULE "verify-metadata"

/* ---- tensors have different names ---- */

/* Checks that names are unique, because weights are compared and stored by name. */
static void check_names(Verifier *v)
{
    const Graph *g = v->g;
    uint32_t n_slots = 16;
    while (n_slots < 2 * g->tensors.n) n_slots *= 2;
    TensorId *slots = arena_array(v->arena, n_slots, sizeof *slots);
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const char *name = g->tensors.at[t].name;
        uint32_t s = (uint32_t)hash_bytes(name, strlen(name)).lo & (n_slots - 1);
        while (slots[s] && strcmp(g->tensors.at[slots[s]].name, name) != 0)
            s = (s + 1) & (n_slots - 1);
        if (slots[s])
            verify_report(v, RULE, 0, "tensors %" PRIu32 " and %" PRIu32 " have the same name, %s",
                          slots[s], t, name);
        slots[s] = t;
    }
}

/* ---- counts and sizes ---- */

static void check_matches(Verifier *v)
{
    uint32_t newest = 0;
    /* a program that gathers state numbers all tensors, even those that are not sent */
    if (v->plan->programs.n > 0 && v->plan->programs.at[0].purpose == PURPOSE_gather) return;
    for (uint32_t i = 0; i < v->plan->programs.n; i++) {
        const Program *p = &v->plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++)
            if (p->code.at[pc].match > newest) newest = p->code.at[pc].match;
    }
    if (v->plan->n_match != newest + 1)
        verify_report(v, RULE, 0,
                      "the plan states n_match=%" PRIu32 ", but its last match is %" PRIu32,
                      v->plan->n_match, newest);
}

/* Checks that each arena ends at the end of its last buffer. */
static void check_arenas(Verifier *v)
{
    static const char *const field[] = {[SPACE_device] = "bytes", [SPACE_host] = "host_bytes"};
    uint64_t end[2] = {0, 0};
    for (BufferId b = 1; b < v->p->buffers.n; b++) {
        const Buffer *at = &v->p->buffers.at[b];
        if (!at->parent && at->offset + at->bytes > end[at->space])
            end[at->space] = at->offset + at->bytes;
    }
    const uint64_t said[] = {[SPACE_device] = v->p->bytes, [SPACE_host] = v->p->host_bytes};
    for (int space = 0; space < 2; space++)
        if (said[space] != end[space])
            verify_report(v, RULE, 0,
                          "the program states %s=%" PRIu64 ", but its buffers end at %" PRIu64,
                          field[space], said[space], end[space]);
}

/* ---- the end of a step ---- */

/* True if two updates have the same settings, as all updates of a plan must. */
static bool same_settings(const Attrs *a, const Attrs *b)
{
    return a->eps == b->eps && a->beta1 == b->beta1 && a->beta2 == b->beta2 &&
           a->weight_decay == b->weight_decay && a->stochastic == b->stochastic;
}

static const Attrs *settings_of(const Plan *plan, const Instr *in)
{
    return &plan->graph.attrs.at[in->attrs];
}

/* Checks that one optimizer updates all parameters, and that one bound clips all gradients. */
static void check_optimizer(Verifier *v)
{
    const Instr *update = NULL, *clip = NULL;
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        for (Pc pc = 1; pc < v->p->code.n; pc++) {
            const Instr *in = &v->p->code.at[pc];
            const Attrs *now = settings_of(v->plan, in);
            if (op_is_optimizer(in->op)) {
                if (in->op == OP_adamw && !(now->eps > 0))
                    verify_report(v, RULE, pc, "has eps=%g, but eps must be above 0", now->eps);
                if (!update) update = in;
                if (in->op != update->op || !same_settings(now, settings_of(v->plan, update)))
                    verify_report(v, RULE, pc, "has other settings than the first update");
            }
            if (in->op != OP_clip_coef) continue;
            if (!clip) clip = in;
            if (!(now->clip >= 0)) /* 0 means no clipping */
                verify_report(v, RULE, pc, "clips at %g, but the bound must not be negative",
                              now->clip);
            if (now->clip != settings_of(v->plan, clip)->clip)
                verify_report(v, RULE, pc, "clips at %g, but another program clips at %g",
                              now->clip, settings_of(v->plan, clip)->clip);
        }
    }
    v->p = NULL;
}

/* ---- flags of buffers ---- */

/* Returns the fault in the flags of a buffer; NULL if there is none. Weights and moments live
 * between steps. A gradient that an update reads either lives between steps or is a result, whose
 * memory is not used again. */
static const char *flag_fault(const Buffer *b, bool is_updated_from)
{
    const bool lives = b->category == CATEGORY_parameter || b->category == CATEGORY_optimizer;
    if (b->persistent && b->result)
        return "keeps its value between steps, so it cannot be a result";
    if (b->result && (b->category != CATEGORY_gradient || !is_updated_from))
        return "may be a result only if it is a gradient that an update reads";
    if (b->category == CATEGORY_optimizer && !b->persistent)
        return "must keep its value between steps";
    if (is_updated_from && !b->persistent && !b->result)
        return "is read by an update, so it must be a result or keep its value between steps";
    const bool may_live = lives || b->category == CATEGORY_gradient ||
                          b->category == CATEGORY_state ||
                          b->category == CATEGORY_gathered; /* the weights that are used in a step,
                                                               or memory for them */
    if (b->persistent && !may_live) return "has a category that cannot keep values between steps";
    return NULL;
}

/* Checks the buffers of the norm, which a run reports after the step. Marks them in `reported`. */
static void check_scalars(Verifier *v, Pc pc, bool *reported)
{
    const Instr *in = &v->p->code.at[pc];
    const uint32_t of_norm[] = {0, in->n_in};
    for (uint32_t i = 0; i < 2; i++) {
        const BufferId b = program_root(v->p, program_arg(v->p, in, of_norm[i]), NULL);
        reported[b] = true;
        if (!v->p->buffers.at[b].persistent)
            verify_report(v, RULE, pc,
                          "has the norm of the step in buffer %" PRIu32
                          ", which must keep its value between steps",
                          b);
    }
}

/* Checks that a buffer of a single number, such as the norm, is kept after the step only if a run
 * reports the number. */
static void check_lasting(Verifier *v, const bool *reported)
{
    for (BufferId b = 1; b < v->p->buffers.n; b++) {
        const Buffer *at = &v->p->buffers.at[b];
        if (at->parent || !at->persistent || at->category != CATEGORY_state) continue;
        if (!at->tensor && !reported[b])
            verify_report(v, RULE, 0,
                          "buffer %" PRIu32
                          " states persistent, but nothing reads its number after the step",
                          b);
    }
}

static void check_flags(Verifier *v)
{
    const Program *p = v->p;
    bool *updated_from = arena_array(v->arena, p->buffers.n, sizeof *updated_from),
         *reported = arena_array(v->arena, p->buffers.n, sizeof *reported);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const uint32_t flags = op_info(in->op)->flags;
        if (in->op == OP_clip_coef) check_scalars(v, pc, reported);
        if (!(flags & OP_UPDATES) || flags & OP_ONCE) continue;
        /* The last input holds the scalars of the step. The other inputs belong to the unit, and
         * the last of these is the gradient. */
        for (uint32_t i = 0; i + 1u < in->n_in; i++) {
            const BufferId b = program_root(p, program_arg(p, in, i), NULL);
            if (p->buffers.at[b].unit != in->unit)
                verify_report(v, RULE, pc,
                              "updates unit %" PRIu32 ", but buffer %" PRIu32
                              " belongs to unit %" PRIu32,
                              in->unit, b, p->buffers.at[b].unit);
        }
        updated_from[program_root(p, program_arg(p, in, verify_gradient_arg(in)), NULL)] = true;
    }
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent) continue;
        const char *fault = flag_fault(at, updated_from[b]);
        if (fault)
            verify_report(v, RULE, 0, "buffer %" PRIu32 " (%s) %s", b, category_name(at->category),
                          fault);
    }
    check_lasting(v, reported);
}

void verify_whole_stated(Verifier *v)
{
    check_names(v);
    check_matches(v);
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        check_arenas(v);
    }
    v->p = NULL;
}

void verify_stated(Verifier *v)
{
    check_names(v);
    check_matches(v);
    check_optimizer(v);
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        check_arenas(v);
        if (v->p->purpose == PURPOSE_train) check_flags(v);
    }
    v->p = NULL;
}
