/* The proofs take short cuts, which must not change a verdict or a report. The test changes one
 * field of one instruction or buffer in plans of the corpus. It proves each plan with short cuts
 * and in full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "planner/base/rng.h"
#include "planner/verify/verify.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"

typedef struct Field {
    const char *name;
    size_t offset, size;
} Field;

#define INSTR(key, field, ...) {#field, offsetof(Instr, field), sizeof(((Instr *)0)->field)},
#define INSTR_WORD             INSTR
static const Field instr_fields[] = {
#include "planner/ir/program.def"
    {"n_in", offsetof(Instr, n_in), sizeof(uint8_t)}};
#define BUFFER(key, field, ...) {#field, offsetof(Buffer, field), sizeof(((Buffer *)0)->field)},
#define BUFFER_WORD             BUFFER
static const Field buffer_fields[] = {
#include "planner/ir/program.def"
};
enum {
    INSTR_FIELDS = sizeof instr_fields / sizeof *instr_fields,
    BUFFER_FIELDS = sizeof buffer_fields / sizeof *buffer_fields,
    OTHERS = 2, /* an argument and a predecessor */
    CHANGES = INSTR_FIELDS + BUFFER_FIELDS + OTHERS
};

typedef struct Tally {
    uint64_t changes; /* number of changes for each plan */
    uint32_t every, n_plans, n, refused[CHANGES];
    uint64_t seed;
} Tally;

/* A place that was changed, and its old bytes. */
typedef struct Edit {
    unsigned char *at, old[16];
    size_t size;
    uint32_t kind;
} Edit;

static uint64_t draw(Tally *t, uint64_t n)
{
    return n == 0 ? 0 : rng_below(t->seed++, 1, 2, n);
}

/* Gives the field the value of another element, or the next number. */
static Edit change_field(Tally *t, void *items, size_t size, uint64_t n, const Field *f,
                         uint32_t kind)
{
    Edit c = {.size = f->size, .kind = kind};
    c.at = (unsigned char *)items + (1 + draw(t, n - 1)) * size + f->offset;
    assert_true(f->size <= sizeof c.old);
    memcpy(c.old, c.at, f->size);
    for (int k = 0; k < 8 && memcmp(c.old, c.at, f->size) == 0; k++)
        memcpy(c.at, (unsigned char *)items + (1 + draw(t, n - 1)) * size + f->offset, f->size);
    const bool counts = f->size == sizeof(uint32_t) && memcmp(c.old, c.at, f->size) == 0;
    if (counts) *c.at = (unsigned char)(*c.at ^ 1);
    return c;
}

static Edit edit(Tally *t, Program *p, uint32_t kind)
{
    if (kind < INSTR_FIELDS)
        return change_field(t, p->code.at, sizeof *p->code.at, p->code.n, &instr_fields[kind],
                            kind);
    if (kind < INSTR_FIELDS + BUFFER_FIELDS)
        return change_field(t, p->buffers.at, sizeof *p->buffers.at, p->buffers.n,
                            &buffer_fields[kind - INSTR_FIELDS], kind);
    const Field whole = {"element", 0, sizeof(uint32_t)};
    if (kind == CHANGES - 1 && p->after.n > 1)
        return change_field(t, p->after.at, sizeof(Pc), p->after.n, &whole, kind);
    return change_field(t, p->args.at, sizeof(BufferId), p->args.n, &whole, CHANGES - 2);
}

static const char *reports(const Plan *plan, uint32_t proofs, bool *ok, Arena *arena)
{
    Diag d = diag_in(arena);
    Str text = str_in(arena);
    *ok = verify_plan(plan, proofs, false, &d);
    diag_print(&d, &text);
    return str_text(&text);
}

static void compare_proofs(Tally *t, const Plan *plan, uint32_t proofs, const char *name,
                           uint32_t kind)
{
    Arena *arena = arena_new();
    bool ok, full;
    const char *is = reports(plan, proofs, &ok, arena);
    const char *should = reports(plan, proofs | VERIFY_in_full, &full, arena);
    if (ok != full || strcmp(is, should) != 0)
        fail_msg("%s, change %u: with short cuts\n%.2000s\nin full\n%.2000s", name, kind, is,
                 should);
    t->n++;
    if (!ok && kind < CHANGES) t->refused[kind]++;
    arena_free(arena);
}

static void compare(Tally *t, const Plan *plan, const char *name, uint32_t kind)
{
    compare_proofs(t, plan, VERIFY_all, name, kind);
}

static void visit(void *self, const Tiny *tiny)
{
    Tally *t = self;
    if (t->n_plans++ % t->every != 0) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(tiny, true, arena, &d);
    assert_non_null(plan);
    const char *name = corpus_name(tiny, arena);
    compare(t, plan, name, CHANGES);
    for (uint64_t i = 0; i < t->changes; i++) {
        const uint32_t kind = (uint32_t)draw(t, CHANGES);
        const Edit c = edit(t, &plan->programs.at[draw(t, plan->programs.n)], kind);
        if (memcmp(c.old, c.at, c.size) != 0) compare(t, plan, name, c.kind);
        memcpy(c.at, c.old, c.size);
    }
    arena_free(arena);
}

/* SHORT_CUTS sets the number of changes for each plan. */
static void short_cuts_change_no_report(void **state)
{
    (void)state;
    const char *wanted = getenv("SHORT_CUTS");
    Tally t = {.changes = wanted ? strtoul(wanted, NULL, 10) : SAMPLE(120, 40),
               .every = wanted ? 1 : 16};
    parallel_allow(1);
    corpus_each(visit, &t);
    uint32_t refused = 0;
    for (uint32_t k = 0; k < CHANGES; k++) refused += t.refused[k];
    print_message("%u plans and changes, %u refused\n", t.n, refused);
    assert_true(t.n > SAMPLE(1000, 300) && refused > SAMPLE(500, 150));
    for (uint32_t k = 0; k < INSTR_FIELDS; k++)
        if (t.refused[k] == 0) print_message("no change of %s was refused\n", instr_fields[k].name);
}

/* Stages and micro-batches repeat, so most local checks visit only one of many equal instructions.
 * A fault in any other one must still be found, in each program. */
static void short_cuts_change_no_report_of_stages(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny tiny = tiny_default();
    tiny.layers = 8;
    tiny.pp = 4;
    tiny.microbatches = 6;
    Plan *plan = tiny_plan(&tiny, true, arena, &d);
    assert_non_null(plan);
    Tally t = {.seed = 1000};
    parallel_allow(1);
    for (uint32_t program = 0; program < plan->programs.n; program++) {
        uint32_t refused = 0;
        for (uint32_t i = 0; i < SAMPLE(400, 60); i++) {
            const uint32_t kind = i % CHANGES, before = t.refused[kind];
            const Edit c = edit(&t, &plan->programs.at[program], kind);
            if (memcmp(c.old, c.at, c.size) != 0) compare(&t, plan, "stages", kind);
            memcpy(c.at, c.old, c.size);
            refused += t.refused[kind] - before;
        }
        assert_true(refused > SAMPLE(150, 20));
    }
    arena_free(arena);
}

/* ---- values that are overwritten too early ---- */

typedef struct Uses {
    Pc first, last; /* the first and the last instruction that reads the buffer */
    Pc written;     /* the one instruction that writes it; 0: none or several */
} Uses;

static Uses *uses_of(const Program *p, Arena *arena)
{
    Uses *uses = arena_array(arena, p->buffers.n, sizeof *uses);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t k = 0; k < in->args.n; k++) {
            Uses *u = &uses[p->args.at[in->args.first + k]];
            if (k >= in->n_in)
                u->written = u->written || u->first ? 0 : pc;
            else
                u->last = pc, u->first = u->first ? u->first : pc;
        }
    }
    return uses;
}

/* Puts buffer `moved` over the bytes of view `over`, and compares the proofs. */
static void compare_over(Tally *t, const Plan *plan, Program *p, BufferId over, BufferId moved)
{
    Buffer *at = &p->buffers.at[moved], *root = &p->buffers.at[p->buffers.at[over].parent];
    const Buffer old = *at, old_root = *root;
    at->parent = p->buffers.at[over].parent;
    at->offset = p->buffers.at[over].offset;
    at->unit = root->unit;
    if (root->first > at->first) root->first = at->first;
    if (root->last < at->last) root->last = at->last;
    compare_proofs(t, plan, VERIFY_structure | VERIFY_layouts | VERIFY_races, "moved", 0);
    *at = old;
    *root = old_root;
}

static void visit_overwritten(void *self, const Tiny *tiny)
{
    Tally *t = self;
    if (t->n_plans++ % t->every != 0) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(tiny, true, arena, &d);
    assert_non_null(plan);
    Program *p = &plan->programs.at[0];
    const Uses *uses = uses_of(p, arena);
    uint64_t n = 0;
    for (BufferId v = 1; v < p->buffers.n; v++) {
        const Buffer *view = &p->buffers.at[v];
        if (!view->parent || view->persistent || view->bytes == p->buffers.at[view->parent].bytes)
            continue;
        for (BufferId b = 1; b < p->buffers.n && n < t->changes; b++) {
            const Buffer *moved = &p->buffers.at[b];
            if (moved->parent || moved->persistent || moved->bytes != view->bytes) continue;
            const Pc at = uses[b].written;
            if (!at || at <= uses[v].first || at >= uses[v].last) continue;
            compare_over(t, plan, p, v, b);
            n++;
        }
    }
    arena_free(arena);
}

/* A view is read, then another value is written over its bytes, then it is read again. The second
 * reading must not take the value that the first one found. */
static void a_value_that_is_overwritten_is_not_remembered(void **state)
{
    (void)state;
    Tally t = {.changes = SAMPLE(40, 12), .every = SAMPLE(8, 12)};
    parallel_allow(1);
    corpus_each(visit_overwritten, &t);
    print_message("%u values moved, %u refused\n", t.n, t.refused[0]);
    assert_true(t.n > SAMPLE(300, 30) && t.refused[0] > SAMPLE(300, 30));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_cuts_change_no_report),
        cmocka_unit_test(short_cuts_change_no_report_of_stages),
        cmocka_unit_test(a_value_that_is_overwritten_is_not_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
