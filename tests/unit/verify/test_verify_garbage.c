/* No plan may crash the verifier: neither plans with arbitrary values in fields, nor plans parsed
 * from damaged text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/plans.h"

enum { SEED = 20250102, N_FIELDS = 6000, N_TEXTS = 2500 };

typedef struct Random {
    uint64_t stream, index;
} Random;

static uint64_t draw(Random *r, uint64_t below)
{
    return rng_below(SEED, r->stream, r->index++, below);
}

/* Returns a likely wrong value for a number. */
static uint64_t bad_number(Random *r, uint64_t was)
{
    static const uint64_t often[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 64, 255, 256, 65535};
    switch (draw(r, 7)) {
    case 0: return was + 1;
    case 1: return was - 1;
    case 2: return ~UINT64_C(0) - draw(r, 3);
    case 3: return UINT64_C(1) << draw(r, 64);
    case 4: return was ^ UINT64_C(1) << draw(r, 32);
    case 5: return draw(r, 1000);
    default: return often[draw(r, sizeof often / sizeof often[0])];
    }
}

static void damage(Random *r, void *at, size_t bytes)
{
    uint64_t value = 0;
    assert_true(bytes <= sizeof value);
    memcpy(&value, at, bytes);
    value = bad_number(r, value);
    memcpy(at, &value, bytes);
}

/* Gives a random element of a list, or NULL if the list is empty. */
#define SOME(r, list)    ((list).n ? &(list).at[draw((r), (list).n)] : NULL)
#define DAMAGE(r, field) damage((r), &(field), sizeof(field))

static void damage_instr(Random *r, Instr *in)
{
    switch (draw(r, 17)) {
    case 0: DAMAGE(r, in->op); break;
    case 1: DAMAGE(r, in->stream); break;
    case 2: DAMAGE(r, in->launch); break;
    case 3: DAMAGE(r, in->axes); break;
    case 4: DAMAGE(r, in->hop); break;
    case 5: DAMAGE(r, in->match); break;
    case 6: DAMAGE(r, in->microbatch); break;
    case 7: DAMAGE(r, in->phase); break;
    case 8: DAMAGE(r, in->args.first); break;
    case 9: DAMAGE(r, in->args.n); break;
    case 10: DAMAGE(r, in->n_in); break;
    case 11: DAMAGE(r, in->attrs); break;
    case 12: DAMAGE(r, in->after.first); break;
    case 13: DAMAGE(r, in->after.n); break;
    case 14: DAMAGE(r, in->origin); break;
    case 15: DAMAGE(r, in->unit); break;
    default: in->op = (OpKind)draw(r, OP_COUNT); break;
    }
}

static void damage_buffer(Random *r, Buffer *b)
{
    switch (draw(r, 13)) {
    case 0: DAMAGE(r, b->shape); break;
    case 1: DAMAGE(r, b->dtype); break;
    case 2: DAMAGE(r, b->category); break;
    case 3: DAMAGE(r, b->space); break;
    case 4: DAMAGE(r, b->bytes); break;
    case 5: DAMAGE(r, b->parent); break;
    case 6: DAMAGE(r, b->offset); break;
    case 7: DAMAGE(r, b->first); break;
    case 8: DAMAGE(r, b->last); break;
    case 9: DAMAGE(r, b->tensor); break;
    case 10: DAMAGE(r, b->unit); break;
    case 11: b->persistent = !b->persistent; break;
    default: b->packed = !b->packed; break;
    }
}

static void damage_shape(Random *r, uint8_t *n_dims, int64_t *dim, DealId *deal, Layout *layout)
{
    switch (draw(r, 4)) {
    case 0: DAMAGE(r, *n_dims); break;
    case 1: DAMAGE(r, dim[draw(r, MAX_DIMS)]); break;
    case 2: DAMAGE(r, deal[draw(r, MAX_DIMS)]); break;
    default: DAMAGE(r, layout->on[draw(r, draw(r, 2) ? 2 : MAX_AXES)]); break;
    }
}

static void damage_tensor(Random *r, Tensor *t)
{
    switch (draw(r, 13)) {
    case 0: DAMAGE(r, t->role); break;
    case 9: DAMAGE(r, t->order); break;
    case 10: DAMAGE(r, t->order_dim); break;
    case 7: DAMAGE(r, t->rest_dtype); break;
    case 8: DAMAGE(r, t->reduce_dtype); break;
    case 1: DAMAGE(r, t->dtype); break;
    case 2: DAMAGE(r, t->producer); break;
    case 3: DAMAGE(r, t->grad); break;
    case 4: DAMAGE(r, t->grad_of); break;
    case 5: DAMAGE(r, t->unit); break;
    case 6: DAMAGE(r, t->flat_offset); break;
    default: damage_shape(r, &t->n_dims, t->dim, t->deal, &t->use); break;
    }
}

static void damage_node(Random *r, Node *n)
{
    switch (draw(r, 8)) {
    case 0: DAMAGE(r, n->op); break;
    case 1: DAMAGE(r, n->n_in); break;
    case 2: DAMAGE(r, n->n_out); break;
    case 3: DAMAGE(r, n->in[draw(r, MAX_IN)]); break;
    case 4: DAMAGE(r, n->out[draw(r, MAX_OUT)]); break;
    case 5: DAMAGE(r, n->attrs); break;
    case 6: DAMAGE(r, n->module); break;
    default: DAMAGE(r, n->forward); break;
    }
}

static void damage_unit(Random *r, Unit *u)
{
    switch (draw(r, 9)) {
    case 0: DAMAGE(r, u->shard); break;
    case 5: DAMAGE(r, u->dtype); break;
    case 6: DAMAGE(r, u->rest_dtype); break;
    case 7: DAMAGE(r, u->reduce_dtype); break;
    case 1: DAMAGE(r, u->replicate); break;
    case 2: DAMAGE(r, u->elements); break;
    case 3: DAMAGE(r, u->padded); break;
    case 4: DAMAGE(r, u->params.n); break;
    default: DAMAGE(r, u->params.at[draw(r, u->params.n)]); break;
    }
    /* A parser cannot produce more. */
    if (u->params.n > u->params.room) u->params.n = u->params.room;
}

static void damage_attrs(Random *r, Attrs *a)
{
    switch (draw(r, 10)) {
    case 0: DAMAGE(r, a->lo); break;
    case 8: DAMAGE(r, a->first); break;
    case 9: DAMAGE(r, a->count); break;
    case 1: DAMAGE(r, a->hi); break;
    case 2: DAMAGE(r, a->parts); break;
    case 3: DAMAGE(r, a->dim); break;
    case 4: DAMAGE(r, a->accumulate); break;
    case 5: DAMAGE(r, a->registered); break;
    case 6: DAMAGE(r, a->reduce); break;
    default: DAMAGE(r, a->scale); break;
    }
}

static void damage_frame(Random *r, Plan *plan)
{
    uint32_t a = (uint32_t)draw(r, MAX_AXES);
    switch (draw(r, 12)) {
    case 0: DAMAGE(r, plan->mesh.n_ranks); break;
    case 1: DAMAGE(r, plan->mesh.n_axes); break;
    case 2: DAMAGE(r, plan->mesh.axis[a].size); break;
    case 3: DAMAGE(r, plan->mesh.axis[a].stride); break;
    case 4: DAMAGE(r, plan->n_match); break;
    case 5: DAMAGE(r, plan->step.n_microbatches); break;
    case 6: DAMAGE(r, plan->step.global_tokens); break;
    case 7: DAMAGE(r, plan->graph.n_forward); break;
    case 8: DAMAGE(r, plan->graph.loss); break;
    case 9: DAMAGE(r, plan->programs.at[0].bytes); break;
    case 10: DAMAGE(r, plan->programs.at[0].purpose); break;
    default: DAMAGE(r, plan->program_of[0]); break;
    }
}

static void damage_graph(Random *r, Plan *plan)
{
    Graph *g = &plan->graph;
    Tensor *t = SOME(r, g->tensors);
    Node *n = SOME(r, g->nodes);
    Unit *u = SOME(r, g->units);
    Attrs *a = SOME(r, g->attrs);
    Deal *d = SOME(r, g->deals.deals);
    switch (draw(r, 5)) {
    case 0:
        if (t) damage_tensor(r, t);
        break;
    case 1:
        if (n) damage_node(r, n);
        break;
    case 2:
        if (u && u->params.n) damage_unit(r, u);
        break;
    case 3:
        if (a) damage_attrs(r, a);
        break;
    default:
        if (!d) break;
        DAMAGE(r, d->n_parts);
        if (draw(r, 2)) DAMAGE(r, d->size);
        if (draw(r, 2)) DAMAGE(r, d->kind);
        if (draw(r, 2)) DAMAGE(r, d->per_part);
        if (draw(r, 2)) DAMAGE(r, d->n);
    }
}

static void damage_plan(Random *r, Plan *plan)
{
    Program *p = &plan->programs.at[draw(r, plan->programs.n)];
    Instr *in = SOME(r, p->code);
    Buffer *b = SOME(r, p->buffers);
    Pc *wait = SOME(r, p->after);
    BufferId *arg = SOME(r, p->args);
    Shape *s = &plan->shapes.at[draw(r, plan->shapes.n)];
    switch (draw(r, 11)) {
    case 0:
    case 1:
    case 2: damage_instr(r, in); break;
    case 3:
    case 4: damage_buffer(r, b); break;
    case 5:
        if (arg) DAMAGE(r, *arg);
        break;
    case 6:
        if (wait) DAMAGE(r, *wait);
        break;
    case 7: damage_shape(r, &s->n_dims, s->dim, s->deal, &s->layout); break;
    case 8:
    case 9: damage_graph(r, plan); break;
    default: damage_frame(r, plan); break;
    }
}

static const Plan *some_plan(uint32_t which, Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    if (which == 3) return plans_everything(arena);
    if (which == 4) return plans_linear(arena);
    t.layers = 1;
    t.vocab = 29;
    t.gpt2 = which == 1;
    t.dp_shard = which == 2 ? 1 : 2;
    t.dp_replicate = which == 2 ? 2 : 1;
    t.tp = 2;
    if (which == 5) t.groups = t.repeat = 2, t.tp = 4, t.fused = t.unequal = t.biases = true;
    t.microbatches = 2;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    return plan;
}

static void damaged_fields_do_not_crash_the_verifier(void **state)
{
    (void)state;
    Arena *arena = arena_new(), *scratch = arena_new();
    uint32_t n_rejected = 0;
    for (uint32_t which = 0; which < 6; which++) {
        const Plan *plan = some_plan(which, arena);
        for (uint32_t i = 0; i < N_FIELDS / 6; i++) {
            Random r = {which * 100000 + i, 0};
            Plan *bad = mutate_copy(plan, scratch);
            Diag d = diag_in(scratch);
            for (uint64_t n = 1 + draw(&r, 3); n > 0; n--) damage_plan(&r, bad);
            bool ok = verify_plan(bad, VERIFY_all, true, &d);
            assert_true(ok == (d.n_errors == 0));
            Capacity small = {1 << 20, 0, ok ? 1 : 0, 1};
            verify_fit(bad, &small, &d);
            n_rejected += !ok;
            arena_reset(scratch);
        }
    }
    assert_true(n_rejected > N_FIELDS / 2);
    arena_free(scratch);
    arena_free(arena);
}

/* Replaces numbers in the text, or removes, repeats and exchanges lines. */
static void damage_text(Random *r, char *text, size_t n)
{
    for (uint64_t k = 1 + draw(r, 3); k > 0; k--) {
        size_t at = draw(r, n);
        if (draw(r, 3) == 0) {
            text[at] = (char)(32 + draw(r, 95));
            continue;
        }
        while (at < n && (text[at] < '0' || text[at] > '9')) at++;
        if (at < n) text[at] = (char)('0' + draw(r, 10));
    }
}

static void damaged_texts_do_not_crash_the_verifier(void **state)
{
    (void)state;
    Arena *arena = arena_new(), *scratch = arena_new();
    uint32_t n_parsed = 0, n_rejected = 0;
    for (uint32_t which = 0; which < 6; which++) {
        Str s = str_in(arena);
        text_print(some_plan(which, arena), TEXT_WITH_LOCATIONS, &s);
        for (uint32_t i = 0; i < N_TEXTS / 6; i++) {
            Random r = {which * 100000 + 50000 + i, 0};
            char *text = arena_copy(scratch, str_text(&s), s.n);
            Diag d = diag_in(scratch);
            damage_text(&r, text, s.n);
            const Plan *plan = text_parse("damaged.plan", text, s.n, scratch, &d);
            if (plan) {
                n_parsed++;
                n_rejected += !verify_plan(plan, VERIFY_all, true, &d);
            }
            arena_reset(scratch);
        }
    }
    print_message("%u of %d damaged texts parse, of which %u are rejected\n", n_parsed, N_TEXTS,
                  n_rejected);
    assert_true(n_rejected > 0);
    arena_free(scratch);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_fields_do_not_crash_the_verifier),
                                       cmocka_unit_test(damaged_texts_do_not_crash_the_verifier)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
