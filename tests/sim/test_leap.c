/* Micro-batches that only repeat the ones before them are left out. Each time of the step must be
 * the same as if all were simulated. Nothing may be left out where a later micro-batch differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/sim/synthetic.h"

/* The shape of a step. Each micro-batch gathers (45 ps) after the first kernel of the previous one.
 * It runs a kernel (20 ps), then a kernel (40 ps) that waits for both. A last kernel (30 ps) ends
 * the step. */
typedef struct Steps {
    uint32_t n;         /* micro-batches */
    Ps issue;           /* the host's time to issue an instruction; 0: the host is never late */
    Ps issue_last;      /* the same for the last kernel */
    bool waits;         /* the host waits for the end of each second kernel */
    uint32_t slow;      /* this micro-batch's last kernel takes 1 ps longer; 0: none */
    uint32_t unordered; /* this micro-batch does not wait for its gather; 0: none */
    uint32_t large;     /* this micro-batch's gather takes 1 ps longer; 0: none */
    uint32_t far;       /* this micro-batch's gather waits for the one before it; 0: none */
    uint32_t stale;     /* this micro-batch waits for the gather of the one before it, and not for
                           its own; 0: none. If it is set, all gathers take 70 ps */
    bool early;         /* the last kernel is on a stream of its own, so it ends first */
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

static bool waits(const void *self, const Instr *in)
{
    const Steps *s = self;
    return s->waits && in->origin == 40;
}

static Pc kernel(Plan *plan, Stream stream, uint32_t microbatch, NodeId ps)
{
    const Instr in = {.op = OP_fill,
                      .stream = stream,
                      .microbatch = microbatch,
                      .phase = PHASE_backward,
                      .origin = ps};
    return list_push(plan->arena, &plan->programs.at[0].code, in);
}

static Plan *plan_of(const Steps *s, Arena *arena)
{
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    Pc before = 0, before_gather = 0;
    plan->step.n_microbatches = s->n;
    for (uint32_t k = 0; k < s->n; k++) {
        Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather,
                                   synthetic_axis(plan, AXIS_dp_shard), 0, 1 + k,
                                   s->large > 0 && k == s->large ? 46
                                   : s->stale > 0                ? 70
                                                                 : 45);
        plan->programs.at[0].code.at[gather].microbatch = k;
        if (k > 0) synthetic_after(plan, 0, gather, before);
        if (k > 0 && k == s->far) synthetic_after(plan, 0, gather, before_gather);
        before = kernel(plan, STREAM_compute, k, 20);
        Pc last = kernel(plan, STREAM_compute, k, 40);
        if (k == 0 || k != s->unordered)
            synthetic_after(plan, 0, last, k > 0 && k == s->stale ? before_gather : gather);
        before_gather = gather;
    }
    kernel(plan, s->early ? STREAM_copy_in : STREAM_compute, s->n - 1, 30);
    return plan;
}

static void run(const Steps *s, const Plan *plan, bool leaps, Arena *arena, EngineResult *result)
{
    const bool hosts = s->issue > 0;
    const CostModel model = {
        .compute = cost, .issue = hosts ? issue : NULL, .waits = hosts ? waits : NULL, .self = s};
    Diag d = diag_in(arena);
    FixedNet net;
    NetModel transfers = fixed_net(&net);
    const EngineOptions o = {.cost = &model,
                             .net = &transfers,
                             .fold = fold_ranks(plan, 4, 4, false, arena),
                             .leaps = leaps};
    assert_true(engine_run(plan, &o, arena, result, &d));
}

/* Returns how many periods were left out. */
static uint32_t compare(const Steps *s)
{
    Arena *arena = arena_new();
    const Plan *plan = plan_of(s, arena);
    EngineResult all, few;
    run(s, plan, false, arena, &all);
    run(s, plan, true, arena, &few);
    assert_int_equal(all.n_left_out, 0);
    assert_int_equal(few.step_ps, all.step_ps);
    assert_int_equal(few.n_events, all.n_events);
    assert_int_equal(few.end_ps[0], all.end_ps[0]);
    for (Pc pc = 1; pc < plan->programs.at[0].code.n; pc++)
        if (memcmp(moment_of(&few.line[0], pc), moment_of(&all.line[0], pc), sizeof(Moment)) != 0)
            fail_msg("the times of instruction %u differ", pc);
    assert_int_equal(few.host[0].n, all.host[0].n);
    for (uint32_t i = 0; i < all.host[0].n; i++)
        assert_memory_equal(&few.host[0].at[i], &all.host[0].at[i], sizeof(HostStart));
    const uint32_t n = few.n_left_out;
    arena_free(arena);
    return n;
}

static void equal_micro_batches_are_left_out(void **state)
{
    (void)state;
    const Steps of[] = {
        {.n = 40},
        {.n = 40, .early = true},
        {.n = 40, .issue = 1, .issue_last = 1},
        {.n = 40, .issue = 60, .issue_last = 60}, /* the host is always late */
        {.n = 40, .issue = 1, .issue_last = 900}, /* ... at the end of the step */
        {.n = 40, .issue = 5, .issue_last = 1, .waits = true},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const uint32_t n = compare(&of[i]);
        if (n < 28 || n >= 40) fail_msg("step %zu: %u periods were left out", i, n);
    }
}

/* The periods up to the different one may be left out. */
static void the_rest_may_differ(void **state)
{
    (void)state;
    for (uint32_t k = 1; k < 40; k++) {
        const Steps of[] = {{.n = 40, .slow = k},
                            {.n = 40, .unordered = k},
                            {.n = 40, .large = k},
                            {.n = 40, .far = k},
                            {.n = 40, .stale = k},
                            {.n = 40, .slow = k, .issue = 1, .issue_last = 1},
                            {.n = 40, .large = k, .issue = 60, .issue_last = 1},
                            {.n = 40, .slow = k, .issue = 5, .issue_last = 1, .waits = true}};
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            const uint32_t n = compare(&of[i]);
            if (n > 36) fail_msg("step %zu: %u periods were left out", i, n);
        }
    }
}

static void few_micro_batches_are_all_simulated(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 16; n++) assert_int_equal(compare(&(Steps){.n = n}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_micro_batches_are_left_out),
        cmocka_unit_test(the_rest_may_differ),
        cmocka_unit_test(few_micro_batches_are_all_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
