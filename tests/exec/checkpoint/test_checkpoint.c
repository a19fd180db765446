/* A run that is saved, ended and loaded again continues as if it had never ended. Under the same
 * plan, its losses and norms equal those of the uninterrupted run, to the last bit. Under another
 * plan of the same model, they are equal except for rounding in fp64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/ir/state/state.h"
#include "tests/support/command.h"
#include "tests/support/plans/nets.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

enum { STEPS = 5, SAVED = 2 };

typedef struct Run {
    double loss[STEPS], norm[STEPS];
} Run;

/* Runs the plan up to step `steps`. Starts after the last step of the checkpoint `load`, or at the
 * first step if `load` is NULL. */
static Run run(const Plan *plan, int64_t vocab, uint32_t steps, const char *load, const char *save)
{
    Diag d = diag_in(arena);
    Str s = str_in(arena);
    ExecOptions options = {.backend = "loopback",
                           .steps = steps,
                           .lr = 1e-2,
                           .warmup_steps = 3,
                           .total_steps = 2 * STEPS,
                           .data = data_synthetic(5, vocab, 0.1, arena),
                           .trace_step = STEPS,
                           .checkpoint = {.load = load, .save = save},
                           .backend_options = {.poison = true, .order_seed = 9, .timeout_s = 20}};
    ExecResult result;
    Run r = {{0}, {0}};
    const bool fine = exec_run(plan, &options, arena, &result, &d);
    diag_print(&d, &s);
    if (!fine || d.items.n > 0) fail_msg("%s", str_text(&s));
    const uint32_t from = load != NULL ? SAVED : 0;
    assert_int_equal(result.loaded.step, from);
    assert_int_equal(result.trace.steps.n, steps - from);
    assert_int_equal(result.n_saves, save != NULL);
    for (uint32_t i = from; i < steps; i++) {
        assert_int_equal(result.trace.steps.at[i - from].step, i);
        r.loss[i] = result.trace.steps.at[i - from].loss;
        r.norm[i] = result.trace.steps.at[i - from].grad_norm;
    }
    return r;
}

static const Plan *compiled(const Tiny *t, bool fp64)
{
    Diag d = diag_in(arena);
    Str s = str_in(arena);
    const Plan *plan = tiny_plan(t, fp64, arena, &d);
    diag_print(&d, &s);
    if (plan == NULL) fail_msg("%s", str_text(&s));
    return plan;
}

static void goes_on(const Plan *plan, int64_t vocab)
{
    const char *folder = command_new_folder(arena);
    const Run whole = run(plan, vocab, STEPS, NULL, NULL);
    const Run before = run(plan, vocab, SAVED, NULL, folder);
    const Run after = run(plan, vocab, STEPS, folder, NULL);
    assert_memory_equal(before.loss, whole.loss, SAVED * sizeof(double));
    for (int i = SAVED; i < STEPS; i++)
        if (after.loss[i] != whole.loss[i] || after.norm[i] != whole.norm[i])
            fail_msg("step %d: loss %.17g, norm %.17g; uninterrupted %.17g, %.17g", i,
                     after.loss[i], after.norm[i], whole.loss[i], whole.norm[i]);
    assert_true(whole.loss[STEPS - 1] != whole.loss[SAVED]); /* later steps change the loss */
}

static void tiny_goes_on(const Tiny *t)
{
    goes_on(compiled(t, false), t->vocab);
}

/* ---- the same plan ---- */

static void one_rank_continues(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    tiny_goes_on(&t);
    t.sgd = true;
    tiny_goes_on(&t);
}

static void every_kind_of_parallelism_continues(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.tp = 2, t.pp = 2, t.microbatches = 2;
    tiny_goes_on(&t);
    t = tiny_default();
    t.dp_shard = 3, t.dp_replicate = 2, t.microbatches = 2;
    tiny_goes_on(&t);
    t = tiny_default();
    t.cp = 2, t.tp = 2;
    tiny_goes_on(&t);
}

static void every_stage_of_zero_continues(void **state)
{
    (void)state;
    for (int k = ZERO_optim; k <= ZERO_optim_grads_params; k++)
        for (int low = 0; low < 2; low++) {
            Tiny t = tiny_default();
            t.layers = 3, t.microbatches = 2, t.dp_shard = 3;
            t.use_zero = true, t.zero = (ZeroStrategy)k;
            t.compute = low ? DT_bf16 : DT_f32;
            tiny_goes_on(&t);
            /* loading must also fill the weights that stay gathered between steps */
            if (k != ZERO_optim_grads_params) t.zero_options.gather = ZERO_GATHER_eager;
            if (k != ZERO_optim_grads_params) tiny_goes_on(&t);
        }
}

static void low_precision_continues(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.compute = DT_bf16, t.param = DT_bf16, t.state = DT_f32;
    t.rounding = ROUNDING_stochastic;
    tiny_goes_on(&t);
}

static void experts_and_their_biases_continue(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.experts = 4, t.ep = 2, t.dp_shard = 2, t.balance_rate = 1e-3, t.microbatches = 2;
    tiny_goes_on(&t);
}

static void tied_and_fused_weights_continue(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.gpt2 = true, t.pp = 2, t.tp = 2, t.microbatches = 2;
    tiny_goes_on(&t);
    t.pp = 1, t.fused = true, t.dp_shard = 3;
    tiny_goes_on(&t);
    t = tiny_default();
    t.fused = true, t.tp = 2, t.dp_shard = 2, t.groups = 4, t.repeat = 2;
    tiny_goes_on(&t);
}

static void frozen_weights_continue(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.freeze = 1, t.dp_shard = 2;
    tiny_goes_on(&t);
}

static void state_that_is_no_weight_continues(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.spectral = true, t.biases = true, t.tp = 2, t.dp_shard = 2, t.pp = 2, t.microbatches = 2;
    tiny_goes_on(&t);
    Net n = net_default();
    n.spectral = true, n.domain = 2, n.dp_shard = 2;
    n.n_layers = 1;
    n.layer[0] =
        (NetLayer){NET_conv, net_window(3, 1, 1, WINDOW_zero), net_window(3, 1, 1, WINDOW_zero)};
    Diag d = diag_in(arena);
    const Plan *plan = net_plan(&n, false, arena, &d);
    assert_non_null(plan);
    goes_on(plan, 0);
}

/* ---- another plan ---- */

static void near(const Run *a, const Run *b, const char *from, const char *to)
{
    for (int i = SAVED; i < STEPS; i++) {
        const double loss = fabs(a->loss[i] / b->loss[i] - 1);
        const double norm = fabs(a->norm[i] / b->norm[i] - 1);
        if (!(loss < 1e-10) || !(norm < 1e-10))
            fail_msg("%s to %s, step %d: loss %.17g, norm %.17g; uninterrupted %.17g, %.17g", from,
                     to, i, a->loss[i], a->norm[i], b->loss[i], b->norm[i]);
    }
}

/* Saves under each plan, then continues under every other one. All are plans of one model, with the
 * same micro-steps. */
static void between(const Tiny *plans, const char *const *names, int n)
{
    const Plan *plan[16];
    const char *folder[16];
    Run whole[16];
    for (int i = 0; i < n; i++) {
        plan[i] = compiled(&plans[i], true);
        folder[i] = command_new_folder(arena);
        whole[i] = run(plan[i], plans[i].vocab, STEPS, NULL, NULL);
        run(plan[i], plans[i].vocab, SAVED, NULL, folder[i]);
        near(&whole[i], &whole[0], names[i], names[0]);
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const Run after = run(plan[k], plans[k].vocab, STEPS, folder[i], NULL);
            near(&after, &whole[0], names[i], names[k]);
        }
}

static void llama_continues_on_any_mesh(void **state)
{
    (void)state;
    Tiny base = tiny_default(), t[8];
    base.micro = 4, base.microbatches = 2, base.fused = true;
    for (int i = 0; i < 8; i++) t[i] = base;
    t[1].tp = 2, t[1].dp_shard = 2, t[1].micro = 2, t[1].pp = 2;
    t[2].dp_shard = 4, t[2].micro = 1;
    t[3].tp = 4;
    t[4].dp_shard = 2, t[4].dp_replicate = 2, t[4].micro = 1;
    t[5].dp_shard = 2, t[5].micro = 2, t[5].use_zero = true, t[5].zero = ZERO_optim;
    t[5].zero_options.gather = ZERO_GATHER_eager;
    t[6].dp_shard = 4, t[6].micro = 1, t[6].use_zero = true, t[6].zero = ZERO_optim_grads;
    t[7].dp_shard = 2, t[7].micro = 2, t[7].cp = 2;
    static const char *const names[] = {"one rank", "tp2 dp2 pp2", "fsdp4", "tp4",
                                        "hsdp2x2",  "zero1",       "zero2", "fsdp2 cp2"};
    between(t, names, 8);
}

static void gpt2_continues_on_any_mesh(void **state)
{
    (void)state;
    Tiny base = tiny_default(), t[5];
    base.micro = 2, base.microbatches = 2, base.gpt2 = true;
    for (int i = 0; i < 5; i++) t[i] = base;
    t[0].unpadded = true;
    t[1].pp = 2; /* its tied weights are on two stages */
    t[2].tp = 2, t[2].pp = 2;
    t[3].dp_shard = 2, t[3].micro = 1;
    t[4].dp_shard = 2, t[4].micro = 1, t[4].use_zero = true, t[4].zero = ZERO_optim_grads_params;
    static const char *const names[] = {"one rank", "pp2", "tp2 pp2", "fsdp2", "zero3"};
    between(t, names, 5);
}

static void experts_continue_on_any_mesh(void **state)
{
    (void)state;
    Tiny base = tiny_default(), t[4];
    base.micro = 4, base.microbatches = 2, base.experts = 4, base.balance_rate = 1e-3;
    for (int i = 0; i < 4; i++) t[i] = base;
    t[1].ep = 2, t[1].dp_shard = 2, t[1].micro = 1;
    t[2].ep = 4, t[2].micro = 1;
    t[3].dp_shard = 2, t[3].micro = 2, t[3].tp = 2;
    static const char *const names[] = {"one rank", "ep2 fsdp2", "ep4", "fsdp2 tp2"};
    between(t, names, 4);
}

static void spectral_norms_continue_on_any_mesh(void **state)
{
    (void)state;
    Tiny base = tiny_default(), t[3];
    base.micro = 2, base.spectral = true, base.biases = true;
    for (int i = 0; i < 3; i++) t[i] = base;
    t[1].tp = 2, t[1].dp_shard = 2, t[1].micro = 1;
    t[2].pp = 2;
    static const char *const names[] = {"one rank", "tp2 fsdp2", "pp2"};
    between(t, names, 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_rank_continues),
        TEST(every_kind_of_parallelism_continues),
        TEST(every_stage_of_zero_continues),
        TEST(low_precision_continues),
        TEST(experts_and_their_biases_continue),
        TEST(tied_and_fused_weights_continue),
        TEST(frozen_weights_continue),
        TEST(state_that_is_no_weight_continues),
        TEST(llama_continues_on_any_mesh),
        TEST(gpt2_continues_on_any_mesh),
        TEST(experts_continue_on_any_mesh),
        TEST(spectral_norms_continue_on_any_mesh),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
