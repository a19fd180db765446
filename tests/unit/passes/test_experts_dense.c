/* Compares experts with dense models. A mixture of one expert equals the plain MLP, in the loss and
 * in every gradient. A mixture of several experts equals plain MLPs, token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/front/front.h"
#include "tests/support/command.h"
#include "tests/support/ops/eval.h"
#include "tests/support/test_arena.h"

enum { DIM = 8, HIDDEN = 10, VOCAB = 12, SEED = 5 };

/* Evaluates a model with an embedding, `mlp` between residuals, and a head, forward and
 * backward. */
static Eval model_with(const char *mlp)
{
    Graph *graph = arena_alloc(arena, sizeof *graph);
    Diag d = diag_in(arena);
    Config config;
    command_write_file(
        "dense.lua",
        arena_print(arena,
                    "local nn = require 'tandem.nn'\n"
                    "local first, last = nn.normal(0, 0.4), nn.normal(0, 0.3)\n"
                    "return plan { batch = { seq = 6, global = 3, micro = 3 },\n"
                    "  model = nn.module { e = nn.embedding(12, 8), norm = nn.rmsnorm(8),\n"
                    "    mlp = %s, h = nn.linear(8, 12),\n"
                    "    forward = function(m, t, y)\n"
                    "      local x = m.e(t)\n"
                    "      return nn.cross_entropy(m.h(x + m.mlp(m.norm(x))), y) end } }\n",
                    mlp));
    if (!front_load("dense.lua", NULL, arena, &config, graph, &d)) {
        Str text = str_in(arena);
        diag_print(&d, &text);
        fail_msg("%s", str_text(&text));
    }
    Eval e = eval_new(arena, graph, DT_f64, data_synthetic(SEED, VOCAB, 0.1, arena));
    eval_init(&e, SEED);
    eval_forward(&e);
    eval_backward(&e);
    return e;
}

static TensorId tensor_named(const Graph *g, const char *name)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (strcmp(g->tensors.at[t].name, name) == 0) return t;
    fail_msg("no parameter %s", name);
    return 0;
}

static double most_apart(const Value *a, const Value *b)
{
    const int64_t n = value_elements(a);
    double apart = 0, most = 0;
    assert_int_equal(n, value_elements(b));
    for (int64_t i = 0; i < n; i++) {
        apart = fmax(apart, fabs(value_get(a, i) - value_get(b, i)));
        most = fmax(most, fabs(value_get(b, i)));
    }
    assert_true(most > 1e-6); /* otherwise no expert would be in use */
    return apart / most;
}

/* Weights with equal names start equal, so the two models differ only by the router. */
static void one_expert_equals_the_plain_mlp(void **state)
{
    (void)state;
    Eval mixture = model_with("nn.moe { dim = 8, hidden = 10, experts = 1, top_k = 1,\n"
                              "  capacity_factor = 'all', aux_loss = 0, init = first,\n"
                              "  out_init = last }");
    Eval dense = model_with("nn.module { w1 = nn.linear(8, 10, { init = first }),\n"
                            "  w3 = nn.linear(8, 10, { init = first }),\n"
                            "  w2 = nn.linear(10, 8, { init = last }),\n"
                            "  forward = function(m, x)\n"
                            "    return m.w2(nn.silu(m.w1(x)) * m.w3(x)) end }");
    const Graph *g = dense.graph;
    assert_true(most_apart(&mixture.value[mixture.graph->loss], &dense.value[g->loss]) < 1e-14);
    uint32_t n = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param) continue;
        TensorId twin = tensor_named(mixture.graph, g->tensors.at[t].name);
        assert_true(most_apart(&mixture.grad[twin], &dense.grad[t]) < 1e-13);
        n++;
    }
    assert_int_equal(n, 6);
    const Value *router = &mixture.grad[tensor_named(mixture.graph, "mlp.router.weight")];
    for (int64_t i = 0; i < DIM; i++) assert_true(fabs(value_get(router, i)) < 1e-15);
}

/* Adds weight * w2(silu(w1 x) * w3 x) of one expert to y, for one token. */
static void add_expert(const Eval *e, int64_t expert, double weight, const double *x, double *y)
{
    const Value *w1 = &e->value[tensor_named(e->graph, "mlp.w1.weight")],
                *w3 = &e->value[tensor_named(e->graph, "mlp.w3.weight")],
                *w2 = &e->value[tensor_named(e->graph, "mlp.w2.weight")];
    for (int64_t f = 0; f < HIDDEN; f++) {
        double gate = 0, up = 0;
        for (int64_t k = 0; k < DIM; k++) {
            gate += x[k] * value_get(w1, (expert * DIM + k) * HIDDEN + f);
            up += x[k] * value_get(w3, (expert * DIM + k) * HIDDEN + f);
        }
        const double hidden = gate / (1 + exp(-gate)) * up;
        for (int64_t k = 0; k < DIM; k++)
            y[k] += weight * hidden * value_get(w2, (expert * HIDDEN + f) * DIM + k);
    }
}

/* Computes a token's result by hand: sends x through its two most likely experts. */
static void route_token(const Eval *e, int64_t n_experts, const double *x, double *y)
{
    const Value *router = &e->value[tensor_named(e->graph, "mlp.router.weight")];
    double logit[8] = {0};
    int64_t first = 0, second = -1;
    for (int64_t i = 0; i < n_experts; i++)
        for (int64_t k = 0; k < DIM; k++) logit[i] += x[k] * value_get(router, k * n_experts + i);
    for (int64_t i = 1; i < n_experts; i++)
        if (logit[i] > logit[first]) first = i;
    for (int64_t i = 0; i < n_experts; i++)
        if (i != first && (second < 0 || logit[i] > logit[second])) second = i;
    const double weight = 1 / (1 + exp(logit[second] - logit[first]));
    add_expert(e, first, weight, x, y);
    add_expert(e, second, 1 - weight, x, y);
}

static void several_experts_equal_plain_mlps(void **state)
{
    (void)state;
    Eval e = model_with("nn.moe { dim = 8, hidden = 10, experts = 5, top_k = 2,\n"
                        "  capacity_factor = 'all', init = first, out_init = last }");
    const Node *combine = NULL, *router = NULL;
    for (NodeId id = 1; id < e.graph->nodes.n; id++) {
        if (e.graph->nodes.at[id].op == OP_combine) combine = &e.graph->nodes.at[id];
        if (!router && e.graph->nodes.at[id].op == OP_linear) router = &e.graph->nodes.at[id];
    }
    assert_true(combine && router);
    const Value *x = &e.value[router->in[0]], *y = &e.value[combine->out[0]];
    Value by_hand = value_new(arena, DT_f64, y->n_dims, y->dim);
    for (int64_t token = 0; token < value_elements(x) / DIM; token++) {
        double in[DIM], out[DIM] = {0};
        for (int64_t k = 0; k < DIM; k++) in[k] = value_get(x, token * DIM + k);
        route_token(&e, 5, in, out);
        for (int64_t k = 0; k < DIM; k++) value_set(&by_hand, token * DIM + k, out[k]);
    }
    assert_true(most_apart(y, &by_hand) < 1e-13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_expert_equals_the_plain_mlp, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(several_experts_equal_plain_mlps, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests_name("experts_dense", tests, NULL, NULL);
}
