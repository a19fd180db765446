/* Lowering compares the state at the start of an action with the state at the start of an earlier
 * one, the original. The test makes both states by hand, so that they differ in single numbers. An
 * action may be copied only if its instructions would be the same, except for the numbers of
 * buffers and instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/lower/blocks/actions.h"
#include "planner/lower/compile.h"

enum { PARAM = 1, UNIT = 1, ROOM = 2 };

typedef struct Case {
    Arena *arena;
    Lower *l;
    StageItems items;
    Original original;
    Moves moves;
} Case;

/* Makes a state with one parameter, which is in one unit. */
static void open_case(Case *c)
{
    static Job job;
    static Schedule schedule;
    memset(c, 0, sizeof *c);
    memset(&job, 0, sizeof job);
    job.options = lower_options_default();
    job.pipe.schedule = &schedule;
    Arena *arena = c->arena = arena_new();
    Lower *l = c->l = arena_alloc(arena, sizeof *l);
    l->job = &job;
    l->arena = l->scratch = arena;
    l->g = arena_alloc(arena, sizeof *l->g);
    graph_init(l->g, arena);
    l->p = arena_alloc(arena, sizeof *l->p);
    list_add(arena, &l->g->units); /* the unit after the unused first one */
    list_add(arena, &l->p->code);
    list_add(arena, &l->p->buffers);
    list_add(arena, &l->value.versions);
    l->n_microbatches = 4;
    l->value.versions_of = arena_array(arena, ROOM, sizeof *l->value.versions_of);
    l->grad.of = arena_array(arena, ROOM, sizeof *l->grad.of);
    l->grad.arrived = arena_array(arena, ROOM, sizeof *l->grad.arrived);
    l->unit.of = arena_array(arena, ROOM, sizeof *l->unit.of);
    l->unit.is_mixed = arena_array(arena, ROOM, sizeof *l->unit.is_mixed);
    l->unit.weight_view = arena_array(arena, ROOM, sizeof *l->unit.weight_view);
    l->unit.grad_view = arena_array(arena, ROOM, sizeof *l->unit.grad_view);
    list_push(arena, &c->items.tensors, (TensorId)PARAM);
    list_push(arena, &c->items.units, (UnitId)UNIT);
    list_push(arena, &c->items.params, ((ParamItem){0, 0}));
}

/* Stores the present state as the state of an original. */
static void begin(Case *c)
{
    original_begin(c->l, &c->items, &c->original);
    c->original.unit[0] = c->original.start.unit[0];
    c->l->microbatch++;
}

static bool matches(Case *c)
{
    return original_matches(c->l, &c->items, &c->original, &c->moves);
}

/* Lowering takes the larger of two instruction numbers, so both states must have them in the same
 * order. */
static void instructions_keep_their_order(void **state)
{
    (void)state;
    Case c;
    open_case(&c);
    c.l->unit.last_release = 3;
    c.l->unit.last_reduce = 5;
    begin(&c);
    static const struct {
        Pc release, reduce;
        bool match;
    } now[] = {{3, 5, true}, {13, 15, true}, {13, 14, true}, {15, 13, false}, {14, 14, false}};
    for (size_t i = 0; i < sizeof now / sizeof *now; i++) {
        c.l->unit.last_release = now[i].release;
        c.l->unit.last_reduce = now[i].reduce;
        assert_true(matches(&c) == now[i].match);
    }
    arena_free(c.arena);
}

/* If two numbers name one instruction in the original, they must name one instruction in the
 * copy. */
static void an_instruction_has_one_counterpart(void **state)
{
    (void)state;
    Case c;
    open_case(&c);
    c.l->unit.last_release = c.l->unit.last_reduce = 5;
    begin(&c);
    c.l->unit.last_release = c.l->unit.last_reduce = 15;
    assert_true(matches(&c));
    c.l->unit.last_release = 14;
    assert_false(matches(&c));
    arena_free(c.arena);
}

/* If the original reduces a gradient, an equal number of contributions to it must have arrived.
 * Otherwise it only matters whether any has arrived. */
static void reductions_need_equal_contributions(void **state)
{
    (void)state;
    for (uint32_t reduces = 0; reduces < 2; reduces++) {
        Case c;
        open_case(&c);
        c.l->grad.arrived[PARAM] = 2;
        begin(&c);
        c.original.unit[0].n_reduced += reduces;
        for (uint32_t arrived = 0; arrived < 4; arrived++) {
            c.l->grad.arrived[PARAM] = arrived;
            assert_true(matches(&c) == (reduces ? arrived == 2 : arrived > 0));
        }
        arena_free(c.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(instructions_keep_their_order),
                                       cmocka_unit_test(an_instruction_has_one_counterpart),
                                       cmocka_unit_test(reductions_need_equal_contributions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
