/* The loads of experts that `run` reports do not depend on the mesh, and equal a count by hand.
 * Replicated tokens or recomputation must not be counted twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "tests/support/plans/tiny.h"

static ExpertLoads loads_of(const Tiny *t, Arena *arena)
{
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, true, arena, &d);
    if (!plan) fail_msg("%s", d.items.at[0].text);
    const ExecOptions options = {.backend = "loopback",
                                 .steps = 2,
                                 .lr = 1e-3,
                                 .trace_step = 9,
                                 .data = data_ragged(3, t->vocab, arena)};
    ExecResult result;
    assert_true(exec_run(plan, &options, arena, &result, &d));
    return result.experts;
}

static Tiny mixture(void)
{
    Tiny t = tiny_default();
    t.experts = 4, t.top_k = 2, t.capacity = 3, t.seq = 16, t.dim = 12, t.groups = 4;
    t.microbatches = 2, t.micro = 4;
    return t;
}

/* Ranks of tp and cp route the same tokens. Ranks of ep and dp_shard route different tokens.
 * Recomputation routes the same tokens again, which must not count. */
static void loads_do_not_depend_on_the_mesh(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = mixture();
    const ExpertLoads one = loads_of(&t, arena);
    assert_true(one.busiest > 1 && one.busiest <= 4 && one.idlest < 1);
    assert_true(one.dropped_part > 0.2 && one.dropped_part < 1);
    for (uint32_t k = 0; k < 4; k++) {
        Tiny m = mixture();
        m.micro = k == 3 ? 4 : 2;
        m.ep = k == 0 ? 2 : 1, m.dp_shard = k == 1 || k == 2 ? 2 : 1;
        m.tp = k == 1 ? 2 : 1, m.cp = k >= 2 ? 2 : 1;
        m.ac = k == 2 ? AC_full : AC_none;
        m.tp_options.sequence = true;
        const ExpertLoads is = loads_of(&m, arena);
        assert_true(fabs(is.busiest - one.busiest) < 1e-12);
        assert_true(fabs(is.idlest - one.idlest) < 1e-12);
        assert_true(fabs(is.dropped_part - one.dropped_part) < 1e-12);
        assert_int_equal(is.module, one.module);
    }
    arena_free(arena);
}

/* Each of 4 experts has room for 1 token, so at most 4 of a sequence's 32 choices are kept. At
 * least 2 are kept, because the first token chooses two experts. If there is room for all, no
 * choice is dropped. */
static void choices_beyond_the_rooms_are_dropped(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = mixture();
    t.capacity = 1;
    const ExpertLoads few = loads_of(&t, arena);
    assert_true(few.dropped_part >= 28.0 / 32 && few.dropped_part <= 30.0 / 32);
    t.capacity = 0;
    assert_true(loads_of(&t, arena).dropped_part == 0);
    t.experts = 0;
    assert_true(loads_of(&t, arena).busiest == 0);
    arena_free(arena);
}

/* Dropless experts drop no token. If a rank gets more rows than its memory can hold, the run ends.
 * The error names two values of `bound`: one is large enough for these rows, the other is always
 * large enough. */
static void more_rows_than_the_bound_end_the_run(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = mixture();
    t.dropless = true, t.ep = 2, t.micro = 2;
    assert_true(loads_of(&t, arena).dropped_part == 0);
    bool fits = false;
    t.bound = 1;
    for (int tries = 0; !fits && tries < 8; tries++) {
        Diag d = diag_in(arena);
        const Plan *plan = tiny_plan(&t, true, arena, &d);
        const ExecOptions options = {.backend = "loopback",
                                     .steps = 1,
                                     .lr = 1e-3,
                                     .trace_step = 9,
                                     .data = data_ragged(3, t.vocab, arena)};
        ExecResult result;
        assert_non_null(plan);
        fits = exec_run(plan, &options, arena, &result, &d);
        if (fits) break;
        const Diagnostic *why = &d.items.at[0];
        assert_string_equal(why->rule, "rows-over-bound");
        assert_non_null(strstr(why->text, "layers."));
        if (tries == 0) assert_non_null(strstr(why->text, "ep { bound = 1 } times a mean of 64"));
        assert_non_null(strstr(why->text, "with 2 every exchange fits"));
        static const char at_least[] = "This exchange needs bound = ";
        const char *named = strstr(why->text, at_least);
        assert_non_null(named);
        const double least = strtod(named + strlen(at_least), NULL);
        assert_true(least > t.bound && least < 2);
        t.bound = least;
    }
    assert_true(fits && t.bound > 1);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(loads_do_not_depend_on_the_mesh),
                                       cmocka_unit_test(choices_beyond_the_rooms_are_dropped),
                                       cmocka_unit_test(more_rows_than_the_bound_end_the_run)};
    return cmocka_run_group_tests_name("loads", tests, NULL, NULL);
}
