/* The loss of a step is a sum divided by a number of labels. If some labels are ignored, the choice
 * of this number changes the loss. Small plans run in fp64 on loopback, and the test counts their
 * labels itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "exec/exec.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

enum { SEQ = 8, VOCAB = 29 };

static const uint64_t data_seed = 4;

typedef struct Step {
    double loss, norm;
} Step;

static Step run(const Tiny *t, const DataSource *data, Arena *arena)
{
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, true, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    ExecResult result;
    ExecOptions options = {.backend = "loopback",
                           .steps = 1,
                           .lr = 1e-3,
                           .data = data,
                           .trace_step = 2,
                           .backend_options = {.poison = true}};
    assert_true(exec_run(plan, &options, arena, &result, &d));
    const StepRow *row = &result.trace.steps.at[0];
    return (Step){row->loss, row->grad_norm};
}

static Tiny small(Denominator denominator)
{
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    t.micro = 2;
    t.microbatches = 3;
    t.denominator = denominator;
    return t;
}

static int64_t count_kept(const DataSource *data, const Tiny *t)
{
    enum { MOST = 64 };
    int32_t tokens[MOST * SEQ], labels[MOST * SEQ];
    int64_t n = t->micro * (int64_t)t->dp_shard * (int64_t)t->dp_replicate, kept = 0;
    assert_true(n <= MOST);
    for (uint32_t mb = 0; mb < t->microbatches; mb++) {
        data->fill(data->self, 0, mb, 0, n, SEQ, tokens, labels);
        for (int64_t i = 0; i < n * SEQ; i++) kept += labels[i] >= 0;
    }
    return kept;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* Some labels are ignored. `kept` and `all` divide the same sum by different numbers. The mean of
 * the micro-batches' means differs from both. */
static void divisors_differ_if_labels_are_ignored(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const DataSource *data = data_ragged(data_seed, VOCAB, arena);
    Tiny t = small(DENOMINATOR_kept);
    double kept_tokens = (double)count_kept(data, &t), tokens = 12 * SEQ;
    assert_true(kept_tokens > 0 && kept_tokens < tokens);
    Step kept = run(&t, data, arena);
    t.denominator = DENOMINATOR_all;
    Step all = run(&t, data, arena);
    t.denominator = DENOMINATOR_microbatch_mean;
    Step means = run(&t, data, arena);
    assert_true(near(kept.loss * kept_tokens, all.loss * tokens));
    assert_true(near(kept.norm * kept_tokens, all.norm * tokens));
    assert_true(fabs(means.norm - kept.norm) > 0.01 * kept.norm);
    arena_free(arena);
}

/* If no label is ignored, all three divisors give the same loss. The first two give the same
 * bits. */
static void divisors_agree_if_all_labels_count(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const DataSource *data = data_synthetic(data_seed, VOCAB, 0, arena);
    Tiny t = small(DENOMINATOR_kept);
    Step kept = run(&t, data, arena);
    t.denominator = DENOMINATOR_all;
    Step all = run(&t, data, arena);
    t.denominator = DENOMINATOR_microbatch_mean;
    Step means = run(&t, data, arena);
    assert_true(kept.loss == all.loss && kept.norm == all.norm);
    assert_true(near(means.loss, all.loss) && near(means.norm, all.norm));
    arena_free(arena);
}

/* A step without labels has loss 0, not 0 / 0. */
static void a_step_without_labels_has_loss_zero(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const DataSource *data = data_synthetic(data_seed, VOCAB, 1, arena);
    for (Denominator k = DENOMINATOR_kept; k < DENOMINATOR_COUNT; k++) {
        Tiny t = small(k);
        Step step = run(&t, data, arena);
        assert_true(step.loss == 0 && step.norm == 0);
        Diag d = diag_in(arena);
        VerifyResult result;
        const Plan *plan = tiny_plan(&t, true, arena, &d);
        Tiny whole = tiny_one_rank(&t); /* --verify refuses to compare such a step */
        const Plan *one = tiny_plan(&whole, true, arena, &d);
        assert_false(exec_verify(plan, one, data, NULL, 1e-10, arena, &result, &d));
        assert_string_equal(d.items.at[0].rule, "verify-nothing");
    }
    arena_free(arena);
}

/* Padded texts give some micro-batches and some samples without any label. */
static void some_micro_batches_have_no_labels(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const DataSource *data = data_ragged(data_seed, VOCAB, arena);
    int32_t tokens[SEQ], labels[SEQ];
    int empty_batches = 0, empty_samples = 0, other = 0;
    for (uint32_t mb = 0; mb < 40; mb++) {
        int kept = 0, empty = 0;
        for (int64_t i = 0; i < 4; i++) {
            int n = 0;
            data->fill(data->self, 0, mb, i, 1, SEQ, tokens, labels);
            for (int s = 0; s < SEQ; s++) n += labels[s] >= 0;
            kept += n, empty += n == 0;
        }
        empty_batches += kept == 0;
        empty_samples += kept > 0 && empty > 0;
        other += kept > 0;
    }
    assert_true(empty_batches > 4 && empty_samples > 4 && other > 15);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(divisors_differ_if_labels_are_ignored),
                                       cmocka_unit_test(divisors_agree_if_all_labels_count),
                                       cmocka_unit_test(a_step_without_labels_has_loss_zero),
                                       cmocka_unit_test(some_micro_batches_have_no_labels)};
    return cmocka_run_group_tests_name("denominator", tests, NULL, NULL);
}
