/* Some options of zero{} change only when and where weights are gathered. They must not change any
 * number. With each of them, several steps have the same losses and norms, to the last bit. Weights
 * that stay gathered for the next step must be the updated ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/exec.h"
#include "tests/support/plans/tiny.h"

enum { STEPS = 4 };

typedef struct Run {
    double loss[STEPS], norm[STEPS];
} Run;

static Run run(const Tiny *t)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    ExecOptions options = {.backend = "loopback",
                           .steps = STEPS,
                           .lr = 1e-2,
                           .data = data_synthetic(5, t->vocab, 0.1, arena),
                           .trace_step = STEPS,
                           .backend_options = {.poison = true, .order_seed = 9, .timeout_s = 20}};
    ExecResult result;
    Run r;
    Str s = str_in(arena);
    bool fine = plan && exec_run(plan, &options, arena, &result, &d);
    diag_print(&d, &s);
    if (!fine) fail_msg("%s", str_text(&s));
    assert_int_equal(result.trace.steps.n, STEPS);
    assert_int_equal(result.highest_touched, plan->programs.at[0].bytes);
    for (int i = 0; i < STEPS; i++) {
        r.loss[i] = result.trace.steps.at[i].loss;
        r.norm[i] = result.trace.steps.at[i].grad_norm;
    }
    arena_free(arena);
    return r;
}

static Tiny base(ZeroStrategy strategy, DType compute)
{
    Tiny t = tiny_default();
    t.layers = 3, t.microbatches = 2, t.dp_shard = 3, t.compute = compute;
    t.use_zero = true, t.zero = strategy;
    return t;
}

static void same(const Tiny *a, const Tiny *b)
{
    Run x = run(a), y = run(b);
    assert_true(x.loss[STEPS - 1] < x.loss[0]); /* the loss falls */
    assert_memory_equal(&x, &y, sizeof x);
}

static const DType computes[] = {DT_f32, DT_bf16};

static void eager_gathers_change_no_number(void **state)
{
    (void)state;
    for (int k = ZERO_optim; k <= ZERO_optim_grads; k++)
        for (int c = 0; c < 2; c++) {
            Tiny lazy = base((ZeroStrategy)k, computes[c]), eager = lazy;
            eager.zero_options.gather = ZERO_GATHER_eager;
            same(&lazy, &eager);
        }
}

static void double_buffers_change_no_number(void **state)
{
    (void)state;
    for (int k = ZERO_optim_grads; k <= ZERO_optim_grads_params; k++)
        for (int c = 0; c < 2; c++) {
            Tiny many = base((ZeroStrategy)k, computes[c]), two = many;
            two.zero_options.fsdp_double_buffer = true;
            same(&many, &two);
        }
}

static void waiting_changes_no_number(void **state)
{
    (void)state;
    Tiny over = base(ZERO_optim, DT_bf16), wait = over;
    wait.zero_options.overlap_grad_reduce = wait.zero_options.overlap_param_gather = CHOICE_no;
    same(&over, &wait);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eager_gathers_change_no_number),
        cmocka_unit_test(double_buffers_change_no_number),
        cmocka_unit_test(waiting_changes_no_number),
    };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
