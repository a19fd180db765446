/* Compares gradients of whole tiny models with central differences in fp64: a Llama and a GPT-2,
 * with two micro-batches whose gradients accumulate. It tests some elements of every parameter
 * tensor, and one random direction that moves all elements of the tensor at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "planner/base/rng.h"
#include "planner/lower/compile.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/models.h"

enum { SEED = 5, SAMPLE = 40, BATCH = 2, MICROBATCHES = 2 };
#define TOLERANCE 1e-8
#define STEP      1e-3

static void fill_data(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                      int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)step;
    for (int64_t i = 0; i < n * seq; i++) {
        uint64_t at = (uint64_t)(first * seq + i);
        tokens[i] = (int32_t)rng_below(SEED, microbatch, at, 29);
        labels[i] = i % 7 == 3 ? -1 : (int32_t)rng_below(SEED, 10 + microbatch, at, 29);
    }
}

static const DataSource data = {.fill = fill_data};

static double loss_of(Eval *e)
{
    double loss = 0;
    for (e->microbatch = 0; e->microbatch < MICROBATCHES; e->microbatch++) {
        eval_forward(e);
        loss += value_get(&e->value[e->graph->loss], 0);
    }
    return loss;
}

static void gradients_of(Eval *e)
{
    for (e->microbatch = 0; e->microbatch < MICROBATCHES; e->microbatch++) {
        eval_clear(e, e->microbatch == 0);
        eval_forward(e);
        eval_backward(e);
    }
}

/* Returns the derivative of the loss along `direction` from x; with direction NULL, along element i
 * alone. */
static double slope(Eval *e, Value *x, const double *direction, int64_t i, double *backup)
{
    static const double shift[] = {1, -1, 2, -2}, factor[] = {8, -8, -1, 1};
    int64_t n = value_elements(x);
    double sum = 0;
    for (int64_t k = 0; k < n; k++) backup[k] = value_get(x, k);
    for (int s = 0; s < 4; s++) {
        for (int64_t k = 0; k < n; k++) {
            double along = direction != NULL ? direction[k] : k == i ? 1 : 0;
            value_set(x, k, backup[k] + shift[s] * STEP * along);
        }
        sum += factor[s] * loss_of(e);
    }
    for (int64_t k = 0; k < n; k++) value_set(x, k, backup[k]);
    return sum / (12 * STEP);
}

static double largest(const Value *v)
{
    double top = 0;
    for (int64_t i = 0; i < value_elements(v); i++) top = fmax(top, fabs(value_get(v, i)));
    return top;
}

/* Returns the largest error of a parameter's gradient, relative to the largest gradient of the
 * tensor, or to `floor` if that is larger. */
static double check_parameter(Eval *e, TensorId t, double floor)
{
    Value *x = &e->value[t], *gradient = &e->grad[t];
    int64_t n = value_elements(x), step = n > SAMPLE ? n / SAMPLE | 1 : 1;
    double *backup = arena_array(e->arena, (size_t)n, sizeof *backup);
    double *direction = arena_array(e->arena, (size_t)n, sizeof *direction);
    double along = 0, top = fmax(floor, largest(gradient)), length = floor * floor, worst = 0;
    assert_non_null(gradient->at);
    for (int64_t i = 0; i < n; i++) {
        direction[i] = rng_normal(SEED, 1000 + t, (uint64_t)i) / sqrt((double)n);
        along += direction[i] * value_get(gradient, i);
        length += value_get(gradient, i) * value_get(gradient, i);
    }
    for (int64_t i = 0; i < n; i += step)
        worst = fmax(worst, fabs(slope(e, x, NULL, i, backup) - value_get(gradient, i)) / top);
    double d = fabs(slope(e, x, direction, 0, backup) - along) / sqrt(length);
    return d > worst ? d : worst;
}

static void check_model(void (*build)(Graph *, Arena *, int64_t, double))
{
    Arena *arena = arena_new();
    Graph g;
    build(&g, arena, BATCH, 40);
    Eval e = eval_new(arena, &g, DT_f64, &data);
    eval_init(&e, SEED);
    gradients_of(&e);
    /* without rotary positions, a bias of keys has no gradient at all */
    double worst = 0, floor = 0;
    for (TensorId t = 1; t < g.tensors.n; t++)
        if (g.tensors.at[t].role == ROLE_param) floor = fmax(floor, 1e-3 * largest(&e.grad[t]));
    for (TensorId t = 1; t < g.tensors.n; t++) {
        if (g.tensors.at[t].role != ROLE_param) continue;
        double d = check_parameter(&e, t, floor);
        if (!(d <= TOLERANCE)) print_error("%s is off by %g\n", g.tensors.at[t].name, d);
        assert_true(d <= TOLERANCE);
        worst = fmax(worst, d);
    }
    print_message("worst relative difference %g\n", worst);
    arena_free(arena);
}

/* The gradient nodes that the backward pass makes must give the same gradients as the wiring of the
 * op table. They add the same contributions to each tensor, but in another order. */
static void check_pass(void (*build)(Graph *, Arena *, int64_t, double))
{
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Graph g;
    build(&g, arena, BATCH, 40);
    Config config = {.file = "model", .global_batch = BATCH, .micro_batch = BATCH, .seq = 1};
    config.param = config.compute = config.reduce = DT_f64;
    for (int a = 0; a < AXIS_NAMES; a++) config.axis_size[a] = 1;
    LowerOptions options = lower_options_default();
    const Plan *plan = plan_compile(&config, &g, &options, "backward", arena, &diag);
    assert_non_null(plan);
    assert_true(plan->graph.n_forward > 0 && plan->graph.nodes.n > 2 * plan->graph.n_forward);
    Eval e = eval_new(arena, &plan->graph, DT_f64, &data);
    eval_init(&e, SEED);
    eval_forward(&e);
    eval_backward(&e);
    eval_graph_backward(&e);
    for (TensorId t = 1; t < plan->graph.tensors.n; t++) {
        const Tensor *p = &plan->graph.tensors.at[t];
        if (p->role != ROLE_param) continue;
        assert_int_not_equal(p->grad, 0);
        const Value *mine = &e.grad[t], *theirs = &e.value[p->grad];
        double top = fmax(largest(mine), 1e-6);
        for (int64_t i = 0; i < value_elements(mine); i++)
            assert_true(fabs(value_get(mine, i) - value_get(theirs, i)) <= 1e-13 * top);
    }
    arena_free(arena);
}

static void the_backward_pass_gives_the_gradients_of_the_op_table(void **state)
{
    (void)state;
    check_pass(model_llama);
    check_pass(model_gpt2);
}

static void gradients_of_a_llama_equal_finite_differences(void **state)
{
    (void)state;
    check_model(model_llama);
}

static void gradients_of_a_gpt2_equal_finite_differences(void **state)
{
    (void)state;
    check_model(model_gpt2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_a_llama_equal_finite_differences),
        cmocka_unit_test(gradients_of_a_gpt2_equal_finite_differences),
        cmocka_unit_test(the_backward_pass_gives_the_gradients_of_the_op_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
