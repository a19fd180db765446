/* A step of many equal micro-batches is simulated in part: the rest is added as multiples of a
 * period. The period must be found if micro-batches repeat. It must not be found if they differ in
 * any time or order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/period.h"
#include "tests/sim/synthetic.h"

/* Describes a step. Each micro-batch has a gather (45 ps), which waits for the first kernel of the
 * previous micro-batch. It runs a kernel (20 ps), then another kernel (40 ps) that waits for both.
 * A last kernel (30 ps) ends the step. */
typedef struct Steps {
    uint32_t n;         /* micro-batches */
    Ps issue;           /* time in which the host issues an instruction; 0: never late */
    Ps issue_last;      /* the same for the last kernel */
    uint32_t slow;      /* number of a micro-batch whose last kernel takes 1 ps longer; 0: none */
    uint32_t unordered; /* number of a micro-batch that does not wait for its gather; 0: none */
} Steps;

static Ps cost(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Steps *s = self;
    (void)plan, (void)p;
    return (Ps)in->origin + (s->slow > 0 && in->microbatch == s->slow && in->origin == 40);
}

static Ps issue(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Steps *s = self;
    (void)plan, (void)p;
    return in->origin == 30 ? s->issue_last : s->issue;
}

static Pc kernel(Plan *plan, uint32_t microbatch, NodeId ps)
{
    const Instr in = {
        .op = OP_fill, .stream = STREAM_compute, .microbatch = microbatch, .origin = ps};
    return list_push(plan->arena, &plan->programs.at[0].code, in);
}

/* Returns the time of the step. Sets *found to whether a period was found. */
static Ps run(const Steps *s, Period *period, bool *found)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    Pc before = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather,
                                   synthetic_axis(plan, AXIS_dp_shard), 0, 1 + k, 45);
        plan->programs.at[0].code.at[gather].microbatch = k;
        if (k > 0) synthetic_after(plan, 0, gather, before);
        before = kernel(plan, k, 20);
        Pc last = kernel(plan, k, 40);
        if (k == 0 || k != s->unordered) synthetic_after(plan, 0, last, gather);
    }
    kernel(plan, s->n - 1, 30);
    const CostModel model = {.compute = cost, .issue = s->issue > 0 ? issue : NULL, .self = s};
    FixedNet net;
    NetModel transfers = fixed_net(&net);
    const EngineOptions o = {
        .cost = &model, .net = &transfers, .fold = fold_ranks(plan, 4, 4, false, arena)};
    EngineResult result;
    assert_true(engine_run(plan, &o, arena, &result, &d));
    *found = period_find(plan, o.fold, &model, &result, arena, period);
    const Ps step = result.step_ps;
    arena_free(arena);
    return step;
}

/* A period can be found from four micro-batches on. */
static void longer_steps_add_periods(void **state)
{
    (void)state;
    const Ps issues[] = {0, 1, 60};
    for (size_t i = 0; i < 2 * sizeof issues / sizeof *issues; i++) {
        const uint32_t fewest = i % 2 == 0 ? 4 : 6;
        const Ps each = issues[i / 2];
        const Steps few = {.n = fewest, .issue = each, .issue_last = each},
                    many = {.n = 20, .issue = each, .issue_last = each};
        Period period, of_many;
        bool found, found_in_many;
        const Ps short_ps = run(&few, &period, &found),
                 long_ps = run(&many, &of_many, &found_in_many);
        assert_true(found && found_in_many);
        assert_int_equal(period.microbatches, 1);
        assert_int_equal(period.length, each == 60 ? 180 : 60);
        assert_int_equal(of_many.length, period.length);
        assert_int_equal(short_ps + (20 - fewest) * period.length, long_ps);
    }
}

static void uneven_steps_have_no_period(void **state)
{
    (void)state;
    const Steps uneven[] = {
        {.n = 6, .slow = 3},      /* a time inside the periods differs */
        {.n = 6, .slow = 4},      /* a time in the second period differs */
        {.n = 6, .unordered = 3}, /* the order differs, but no time */
        {.n = 3},                 /* too few micro-batches to compare */
        /* with more micro-batches, the host would no longer be late */
        {.n = 6, .issue = 1, .issue_last = 400},
    };
    for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
        Period period;
        bool found;
        run(&uneven[i], &period, &found);
        if (found) fail_msg("step %zu has a period of %lld ps", i, (long long)period.length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longer_steps_add_periods),
        cmocka_unit_test(uneven_steps_have_no_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
