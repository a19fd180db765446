/* A plan with many equal blocks may be proven through a shorter plan with fewer blocks. The verdict
 * must be that of a proof of the whole plan. The test changes plans in one place, in any field of
 * any record, and proves them both ways. Most changes are in blocks that the shorter plan leaves
 * out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "planner/base/rng.h"
#include "planner/verify/copies/copies.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

typedef struct Tally {
    uint64_t seed, n_changes; /* n_changes: changes for each plan and kind of record */
    uint32_t n, n_refused, n_short;
} Tally;

static uint64_t draw(Tally *t, uint64_t n)
{
    return n == 0 ? 0 : rng_below(t->seed++, 3, 4, n);
}

/* ---- both ways ---- */

static const char *reports(const Plan *plan, uint32_t proofs, bool *ok, Arena *arena)
{
    Diag d = diag_in(arena);
    Str text = str_in(arena);
    *ok = verify_plan(plan, proofs, false, &d);
    diag_print(&d, &text);
    return str_text(&text);
}

/* Proves the plan both ways. `what` names the change. */
static void compare(Tally *t, const Plan *plan, const char *what, uint64_t at, uint64_t field)
{
    Arena *arena = arena_new();
    bool ok, full;
    const char *is = reports(plan, VERIFY_all, &ok, arena);
    const char *should = reports(plan, VERIFY_all | VERIFY_in_full, &full, arena);
    if (ok != full || strcmp(is, should) != 0)
        fail_msg("%s %u, byte or field %u: with fewer blocks\n%.2000s\nin full\n%.2000s", what,
                 (uint32_t)at, (uint32_t)field, is, should);
    t->n++;
    t->n_refused += !full;
    t->n_short += copies_shorten(plan, arena) != NULL;
    arena_free(arena);
}

/* ---- changes ---- */

/* The records of one kind. The bytes [hidden, hidden_end) belong to a list inside a record. */
typedef struct Records {
    const char *name;
    void *at;
    size_t size;
    uint64_t n;
    size_t hidden, hidden_end;
    size_t numbers; /* the first bytes of a record are numbers, which may have any value */
} Records;

enum { WORD = 8 }; /* no pointer lies across two words */

/* Gives a word of a record the value of the same word in another record, or changes its lowest
 * bit. */
static void change_record(Tally *t, const Plan *plan, const Records *r)
{
    const uint64_t at = 1 + draw(t, r->n - 1), from = 1 + draw(t, r->n - 1);
    const size_t word = WORD * draw(t, r->size / WORD);
    unsigned char *own = (unsigned char *)r->at + at * r->size + word, old[WORD];
    if (word + WORD > r->hidden && word < r->hidden_end) return;
    memcpy(old, own, WORD);
    memcpy(own, (unsigned char *)r->at + from * r->size + word, WORD);
    if (memcmp(old, own, WORD) != 0) compare(t, plan, r->name, at, word);
    memcpy(own, old, WORD);
}

/* Gives four bytes of a record any value. */
static void change_bytes(Tally *t, const Plan *plan, const Records *r)
{
    const uint64_t at = 1 + draw(t, r->n - 1);
    const size_t offset = 4 * draw(t, r->numbers / 4);
    unsigned char *own = (unsigned char *)r->at + at * r->size + offset;
    const uint32_t any =
        draw(t, 2) ? (uint32_t)draw(t, UINT32_MAX) : (uint32_t)-1 - (uint32_t)draw(t, 3);
    uint32_t old;
    memcpy(&old, own, sizeof old);
    memcpy(own, &any, sizeof any);
    compare(t, plan, r->name, at, offset);
    memcpy(own, &old, sizeof old);
}

/* Changes the lowest bit of one of the first two bytes of a number in a record. */
static void change_number(Tally *t, const Plan *plan, const Records *r, size_t offset)
{
    const uint64_t at = 1 + draw(t, r->n - 1);
    unsigned char *own = (unsigned char *)r->at + at * r->size + offset + draw(t, 2);
    *own ^= 1;
    compare(t, plan, r->name, at, offset);
    *own ^= 1;
}

#define BUFFER(key, field, ...) offsetof(Buffer, field),
#define BUFFER_WORD             BUFFER
static const size_t buffer_fields[] = {
#include "planner/ir/program.def"
};
#define INSTR(key, field, ...) offsetof(Instr, field),
#define INSTR_WORD             INSTR
static const size_t instr_fields[] = {
#include "planner/ir/program.def"
    offsetof(Instr, n_in)};
static const size_t node_fields[] = {
    offsetof(Node, op),      offsetof(Node, n_in),  offsetof(Node, n_out),  offsetof(Node, keep),
    offsetof(Node, in),      offsetof(Node, out),   offsetof(Node, attrs),  offsetof(Node, module),
    offsetof(Node, layer),   offsetof(Node, stage), offsetof(Node, region), offsetof(Node, tile),
    offsetof(Node, forward), offsetof(Node, split)};
static const size_t tensor_fields[] = {
    offsetof(Tensor, role),        offsetof(Tensor, dtype),      offsetof(Tensor, n_dims),
    offsetof(Tensor, dim),         offsetof(Tensor, deal),       offsetof(Tensor, use),
    offsetof(Tensor, kept),        offsetof(Tensor, producer),   offsetof(Tensor, grad),
    offsetof(Tensor, grad_of),     offsetof(Tensor, rest_dtype), offsetof(Tensor, reduce_dtype),
    offsetof(Tensor, order),       offsetof(Tensor, init),       offsetof(Tensor, unit),
    offsetof(Tensor, flat_offset), offsetof(Tensor, partial),    offsetof(Tensor, frozen)};
static const size_t unit_fields[] = {offsetof(Unit, shard),        offsetof(Unit, replicate),
                                     offsetof(Unit, elements),     offsetof(Unit, padded),
                                     offsetof(Unit, dtype),        offsetof(Unit, rest_dtype),
                                     offsetof(Unit, reduce_dtype), offsetof(Unit, state_dtype)};

typedef struct Fields {
    const size_t *at;
    size_t n;
} Fields;
#define FIELDS(of)                                                                                 \
    {                                                                                              \
        of, sizeof of / sizeof *of                                                                 \
    }

static void change_all(Tally *t, Plan *plan)
{
    Program *p = &plan->programs.at[0];
    Graph *g = &plan->graph;
    const size_t params = offsetof(Unit, params);
    const Records records[] = {
        {"instruction", p->code.at, sizeof(Instr), p->code.n, 0, 0, sizeof(Instr)},
        {"buffer", p->buffers.at, sizeof(Buffer), p->buffers.n, 0, 0, offsetof(Buffer, persistent)},
        {"argument", p->args.at, sizeof(BufferId), p->args.n, 0, 0, sizeof(BufferId)},
        {"wait", p->after.at, sizeof(Pc), p->after.n, 0, 0, sizeof(Pc)},
        {"node", g->nodes.at, sizeof(Node), g->nodes.n, 0, 0, 0},
        {"tensor", g->tensors.at, sizeof(Tensor), g->tensors.n, 0, 0, 0},
        {"unit", g->units.at, sizeof(Unit), g->units.n, params, params + sizeof g->units.at->params,
         0}};
    static const size_t whole[] = {0};
    static const Fields fields[] = {
        FIELDS(instr_fields), FIELDS(buffer_fields), FIELDS(whole),      FIELDS(whole),
        FIELDS(node_fields),  FIELDS(tensor_fields), FIELDS(unit_fields)};
    for (size_t k = 0; k < sizeof records / sizeof *records; k++)
        for (uint64_t i = 0; i < t->n_changes && records[k].n > 2; i++) {
            const uint64_t way = draw(t, 5);
            if (way == 0 && records[k].numbers)
                change_bytes(t, plan, &records[k]);
            else if (way < 3 && records[k].size >= WORD)
                change_record(t, plan, &records[k]);
            else
                change_number(t, plan, &records[k], fields[k].at[draw(t, fields[k].n)]);
        }
}

/* Changes numbers that belong to no record, and gives a tensor the name of another. */
static void change_others(Tally *t, Plan *plan)
{
    Program *p = &plan->programs.at[0];
    Graph *g = &plan->graph;
    void *const numbers[] = {&plan->n_match,
                             &p->bytes,
                             &p->host_bytes,
                             &p->purpose,
                             &p->stage,
                             &g->n_forward,
                             &g->loss,
                             &g->info.n_params,
                             &plan->step.seq,
                             &plan->step.n_microbatches,
                             &plan->step.group,
                             &plan->step.denominator,
                             &plan->step.global_batch};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        unsigned char *own = numbers[i];
        *own ^= 1;
        compare(t, plan, "number", i, 0);
        *own ^= 1;
    }
    const TensorId at = g->tensors.n / 2;
    const char *name = g->tensors.at[at].name;
    g->tensors.at[at].name = g->tensors.at[at - 1].name;
    compare(t, plan, "name of tensor", at, 0);
    g->tensors.at[at].name = name;
}

/* Exchanges the places of two equally large parts of one buffer. */
static void exchange_parts(Tally *t, Plan *plan)
{
    Program *p = &plan->programs.at[0];
    Buffer *all = p->buffers.at;
    for (BufferId a = 1 + (BufferId)draw(t, p->buffers.n - 1); a < p->buffers.n; a++)
        for (BufferId b = a + 1; all[a].parent && b < p->buffers.n; b++) {
            const bool fits = all[a].parent == all[b].parent && all[a].bytes == all[b].bytes &&
                              all[a].offset != all[b].offset;
            if (!fits) continue;
            const uint64_t was = all[a].offset;
            all[a].offset = all[b].offset;
            all[b].offset = was;
            compare(t, plan, "part", a, b);
            all[b].offset = all[a].offset;
            all[a].offset = was;
            return;
        }
}

/* Returns true if the instruction writes a buffer that lives between steps. */
static bool keeps_output(const Program *p, const Instr *in)
{
    bool keeps = false;
    for (uint32_t i = in->n_in; i < in->args.n; i++)
        keeps = keeps || p->buffers.at[program_arg(p, in, i)].persistent;
    return keeps;
}

/* Marks an instruction that adds to a gradient as recomputation, which must not add to one. */
static void change_phase(Tally *t, Plan *plan)
{
    Program *p = &plan->programs.at[0];
    Pc pc = 1 + (Pc)draw(t, p->code.n - 1);
    while (pc < p->code.n &&
           !(p->code.at[pc].phase == PHASE_backward && keeps_output(p, &p->code.at[pc])))
        pc++;
    if (pc == p->code.n) return;
    p->code.at[pc].phase = PHASE_recompute;
    compare(t, plan, "phase", pc, 0);
    p->code.at[pc].phase = PHASE_backward;
}

static void mutate_some(Tally *t, const Plan *plan)
{
    Arena *arena = arena_new();
    const Mutations all = mutate_all(plan, arena);
    for (uint64_t i = 0; i < 3 * t->n_changes && all.at.n > 0; i++) {
        Arena *scratch = arena_new();
        const Mutation *m = &all.at.at[draw(t, all.at.n)];
        compare(t, mutate(plan, *m, scratch), mutation_name(m->kind), m->pc, m->choice);
        arena_free(scratch);
    }
    arena_free(arena);
}

/* ---- the plans ---- */

static Tiny sharded(void)
{
    Tiny t = tiny_default();
    t.layers = 14;
    t.dp_shard = 2;
    return t;
}

/* Fills `all` with plans that have different communications between blocks. Returns their
 * number. */
static uint32_t plans(Tiny *all)
{
    uint32_t n = 0;
    all[n++] = sharded();
    all[n] = sharded(), all[n].microbatches = 2, all[n++].tp = 2;
    all[n] = sharded(), all[n].fsdp2.prefetch = 0, all[n++].clip = 1;
    all[n] = sharded(), all[n].tp = 2, all[n].tp_options.sequence = true, all[n++].clip = 1;
    all[n] = sharded(), all[n].ac = AC_full, all[n++].clip = 1;
    all[n] = sharded(), all[n].use_zero = true, all[n++].zero = ZERO_optim;
    all[n] = sharded(), all[n].gpt2 = true, all[n++].dp_replicate = 2;
    all[n] = sharded(), all[n].cp = 2, all[n++].ac = AC_selective;
    all[n] = sharded(), all[n].compile = true, all[n++].fused = true;
    all[n] = sharded(), all[n].use_float8 = true, all[n++].microbatches = 2;
    all[n] = sharded(), all[n].experts = 4, all[n].top_k = 2, all[n++].ep = 2;
    return n;
}

/* COPIES sets the number of changes for each plan and kind of record, COPIES_SEED another draw, and
 * COPIES_OF a single plan. */
static void a_change_gets_the_verdict_of_the_whole_plan(void **state)
{
    (void)state;
    const char *wanted = getenv("COPIES"), *seed = getenv("COPIES_SEED"), *of = getenv("COPIES_OF");
    Tally t = {.n_changes = wanted ? strtoul(wanted, NULL, 10) : 4,
               .seed = seed ? strtoul(seed, NULL, 10) << 32 : 0};
    Tiny all[16];
    const uint32_t n = plans(all);
    uint32_t n_shorter = 0;
    parallel_allow(1);
    for (uint32_t i = 0; i < n; i++) {
        if (of && i != strtoul(of, NULL, 10)) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Plan *plan = tiny_plan(&all[i], false, arena, &d);
        assert_non_null(plan);
        const Plan *few = copies_shorten(plan, arena);
        n_shorter += few != NULL;
        print_message("plan %u: %u instructions of %u\n", i, few ? few->programs.at[0].code.n : 0,
                      plan->programs.at[0].code.n);
        compare(&t, plan, "plan", i, 0);
        change_all(&t, plan);
        change_others(&t, plan);
        for (uint64_t k = 0; k < t.n_changes; k++) {
            exchange_parts(&t, plan);
            change_phase(&t, plan);
        }
        mutate_some(&t, plan);
        arena_free(arena);
    }
    print_message("%u plans and changes, %u refused, %u still with fewer blocks\n", t.n,
                  t.n_refused, t.n_short);
    assert_int_equal(n_shorter, of ? 1 : n);
    assert_true(t.n_refused > t.n / 2 && t.n_short > t.n / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_gets_the_verdict_of_the_whole_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
