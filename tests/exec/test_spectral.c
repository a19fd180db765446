/* Spectral norm. Its gradient is compared with central differences while u and v stay fixed. Its
 * state is compared with power iteration by hand: it is updated once a step, and is equal on every
 * rank of every mesh. The proofs must reject a state that is updated twice or never, or that
 * recomputation updates. A checkpoint must hold the state in its dtype. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "kernels/number.h"
#include "planner/ir/state/state.h"
#include "planner/lower/gather.h"
#include "planner/verify/verify.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/nets.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_diag.h"

static void require(bool fine)
{
    Str s = str_in(arena);
    diag_print(&diag, &s);
    if (!fine) fail_msg("%s", str_text(&s));
}

static Tiny normed(void)
{
    Tiny t = tiny_default();
    t.spectral = true;
    t.biases = true;
    t.microbatches = 2;
    return t;
}

/* ---- power iteration by hand */

/* A weight w [rows, columns] with its state: v has an element for each row, u for each column. In
 * these models, the rows of every weight are its inputs. */
typedef struct Matrix {
    double *w, *u, *v;
    int64_t rows, columns;
} Matrix;

static double *start_of(const Plan *plan, TensorId id)
{
    const Tensor *t = &plan->graph.tensors.at[id];
    uint64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dim[d];
    double *x = arena_array(arena, n, sizeof *x);
    for (uint64_t i = 0; i < n; i++)
        x[i] =
            kernel_init_value(plan->step.seed, t->init_stream, graph_original(&plan->graph, id, i),
                              (int)t->init.kind, t->init.a, t->init.b);
    return x;
}

static TensorId tensor_named(const Graph *g, const char *name)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (strcmp(g->tensors.at[t].name, name) == 0) return t;
    fail_msg("no tensor %s", name);
    return 0;
}

static int64_t elements(const Tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->dim[d];
    return n;
}

/* Returns the weight to which state `t`, "NAME_u" or "NAME_v", belongs. */
static Matrix matrix_of(const Plan *plan, const Tensor *t)
{
    const Graph *g = &plan->graph;
    const char *name = arena_copy(arena, t->name, strlen(t->name) - 2);
    TensorId w = tensor_named(g, name), u = tensor_named(g, arena_print(arena, "%s_u", name)),
             v = tensor_named(g, arena_print(arena, "%s_v", name));
    Matrix m = {start_of(plan, w), start_of(plan, u), start_of(plan, v),
                elements(&g->tensors.at[v]), elements(&g->tensors.at[u])};
    assert_int_equal(m.rows * m.columns, elements(&g->tensors.at[w]));
    return m;
}

static void normalise(double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < n; i++) x[i] /= sqrt(sum);
}

/* Iterates by hand: u = W v, then v = W^T u, each divided by its length. W maps inputs to
 * outputs. */
static void iterate(Matrix *m, int n_steps)
{
    for (int s = 0; s < n_steps; s++) {
        memset(m->u, 0, (size_t)m->columns * sizeof *m->u);
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->columns; j++) m->u[j] += m->w[i * m->columns + j] * m->v[i];
        normalise(m->u, m->columns);
        memset(m->v, 0, (size_t)m->rows * sizeof *m->v);
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->columns; j++) m->v[i] += m->w[i * m->columns + j] * m->u[j];
        normalise(m->v, m->rows);
    }
}

static double sigma_of(const Matrix *m)
{
    double sum = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++)
            sum += m->v[i] * m->w[i * m->columns + j] * m->u[j];
    return sum;
}

/* ---- the gradient */

static double dot(const Value *a, const Value *b)
{
    double sum = 0;
    for (int64_t i = 0; i < value_elements(a); i++) sum += value_get(a, i) * value_get(b, i);
    return sum;
}

static double loss_of(Eval *e)
{
    eval_forward(e);
    return value_get(&e->value[e->graph->loss], 0);
}

static double slope(Eval *e, TensorId t, int64_t i)
{
    static const double shift[] = {1, -1, 2, -2}, factor[] = {8, -8, -1, 1}, step = 1e-3;
    Value *x = &e->value[t];
    double at = value_get(x, i), sum = 0;
    for (int s = 0; s < 4; s++) {
        value_set(x, i, at + shift[s] * step);
        sum += factor[s] * loss_of(e);
    }
    value_set(x, i, at);
    return sum / (12 * step);
}

static bool is_normed(const Graph *g, TensorId t)
{
    for (TensorId u = 1; u < g->tensors.n; u++)
        if (g->tensors.at[u].role == ROLE_state &&
            strncmp(g->tensors.at[u].name, g->tensors.at[t].name, strlen(g->tensors.at[t].name)) ==
                0)
            return true;
    return false;
}

static uint32_t check_gradients(const Graph *g, Eval *e)
{
    uint32_t n_normed = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *p = &g->tensors.at[t];
        if (p->role != ROLE_param) continue;
        const Value *grad = &e->value[p->grad], *w = &e->value[t];
        double length = sqrt(dot(grad, grad)), size = sqrt(dot(w, w));
        int64_t n = value_elements(w);
        for (int64_t i = 0; i < n; i += n / 7 + 1) {
            double want = slope(e, t, i), is = value_get(grad, i);
            if (!(fabs(want - is) <= 1e-8 * fmax(length, 1e-3)))
                fail_msg("%s, element %lld: %g, not %g", p->name, (long long)i, is, want);
        }
        bool flat = fabs(dot(grad, w)) <= 1e-12 * fmax(length * size, 1e-6);
        if (!is_normed(g, t)) continue;
        /* W / sigma(W) does not depend on the length of W, so the loss does not either */
        n_normed++;
        if (!flat) fail_msg("%s: the loss depends on its length", p->name);
    }
    return n_normed;
}

static uint32_t n_states(const Graph *g)
{
    uint32_t n = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) n += g->tensors.at[t].role == ROLE_state;
    assert_true(n >= 10);
    return n;
}

/* Checks that sigma is u^T W v after one iteration, and that the weight's output is divided by
 * it. */
static void check_norms(const Plan *plan, const Eval *e)
{
    const Graph *g = &plan->graph;
    for (NodeId id = 1; id <= g->n_forward; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->op != OP_divide) continue;
        const Tensor *w = &g->tensors.at[g->nodes.at[g->tensors.at[n->in[0]].producer].in[1]];
        const char *u = arena_print(arena, "%s_u", w->name);
        Matrix m = matrix_of(plan, &g->tensors.at[tensor_named(g, u)]);
        iterate(&m, 1);
        double sigma = value_get(&e->value[n->in[1]], 0), want = sigma_of(&m);
        assert_true(fabs(sigma - want) <= 1e-13 * want);
        const Value *y = &e->value[n->in[0]], *z = &e->value[n->out[0]];
        for (int64_t i = 0; i < value_elements(y); i++)
            assert_true(fabs(value_get(z, i) * want - value_get(y, i)) <= 1e-13);
    }
}

static void the_gradient_goes_through_the_norm(void **state)
{
    (void)state;
    for (int fused = 0; fused < 3; fused++) {
        Tiny t = normed();
        t.layers = 1, t.microbatches = 1, t.compute = t.param = t.reduce = DT_f64;
        t.fused = fused, t.unequal = fused == 2;
        Config config;
        Graph graph;
        tiny_build(&t, arena, &config, &graph);
        LowerOptions options = lower_options_default();
        const Plan *plan = plan_compile(&config, &graph, &options, "backward", arena, &diag);
        require(plan != NULL);
        Eval e = eval_new(arena, &plan->graph, DT_f64, data_synthetic(3, t.vocab, 0.1, arena));
        eval_init(&e, plan->step.seed);
        eval_forward(&e);
        eval_graph_backward(&e);
        check_norms(plan, &e);
        e.frozen = true;
        assert_int_equal(2 * check_gradients(&plan->graph, &e), n_states(&plan->graph));
    }
}

/* ---- convolutions: outputs are the first index of a weight, or the second if transposed */

static Net normed_net(void)
{
    const Window half = net_window(4, 2, 1, WINDOW_zero), same = net_window(3, 1, 1, WINDOW_zero);
    Net n = net_default();
    n.spectral = true;
    n.compute = DT_f64;
    n.n_layers = 3;
    n.layer[0] = (NetLayer){NET_conv, half, half};
    n.layer[1] = (NetLayer){NET_transpose, half, half};
    n.layer[2] = (NetLayer){NET_residual, same, same};
    return n;
}

/* Returns sigma after one iteration by hand. w is [a, b, r], with the outputs in index a or b. */
static double conv_sigma(const Plan *plan, TensorId id, bool transposed)
{
    const Tensor *t = &plan->graph.tensors.at[id];
    const int64_t a = t->dim[0], b = t->dim[1], taps = t->dim[2] * t->dim[3];
    const int64_t n_out = transposed ? b : a, n_in = transposed ? a : b;
    const double *w = start_of(plan, id);
    Matrix m = {arena_array(arena, (size_t)(n_in * taps * n_out), sizeof(double)),
                start_of(plan, tensor_named(&plan->graph, arena_print(arena, "%s_u", t->name))),
                start_of(plan, tensor_named(&plan->graph, arena_print(arena, "%s_v", t->name))),
                n_in * taps, n_out};
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            for (int64_t k = 0; k < taps; k++)
                m.w[((transposed ? i : j) * taps + k) * n_out + (transposed ? j : i)] =
                    w[(i * b + j) * taps + k];
    iterate(&m, 1);
    return sigma_of(&m);
}

static void convolutions_are_normed_by_their_outputs(void **state)
{
    (void)state;
    const Net n = normed_net();
    Config config;
    Graph graph;
    net_build(&n, arena, &config, &graph);
    LowerOptions options = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &options, "backward", arena, &diag);
    require(plan != NULL);
    const Graph *g = &plan->graph;
    Eval e = eval_new(arena, g, DT_f64, data_ragged(3, 0, arena));
    eval_init(&e, plan->step.seed);
    eval_forward(&e);
    eval_graph_backward(&e);
    uint32_t n_transposed = 0;
    for (NodeId id = 1; id <= g->n_forward; id++) {
        if (g->nodes.at[id].op != OP_divide) continue;
        const Node *conv = &g->nodes.at[g->tensors.at[g->nodes.at[id].in[0]].producer];
        const bool transposed = conv->op == OP_conv_transpose2d;
        const double want = conv_sigma(plan, conv->in[1], transposed);
        assert_true(fabs(value_get(&e.value[g->nodes.at[id].in[1]], 0) - want) <= 1e-13 * want);
        n_transposed += transposed;
    }
    assert_int_equal(n_transposed, 1);
    e.frozen = true;
    assert_int_equal(check_gradients(g, &e), 3);
}

/* Rows, columns and samples are divided over ranks, but the norm is that of the whole weight. */
static void normed_convolutions_over_domains(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 6; k++) {
        Net n = normed_net();
        n.domain = 1 + k % 3, n.domain_w = k < 3 ? 2 : 1, n.dp_shard = k & 1 ? 2 : 1;
        n.microbatches = 1 + k % 2;
        n.ac = k & 1 ? AC_full : AC_none;
        if (n.domain * n.domain_w == 1) continue;
        const Net one = net_one_rank(&n);
        const Plan *plan = net_plan(&n, true, arena, &diag);
        const Plan *right = net_plan(&one, true, arena, &diag);
        VerifyResult result = {0};
        BackendOptions backend = {.poison = true, .order_seed = k, .timeout_s = 20};
        require(plan && right && verify_plan(plan, VERIFY_all, false, &diag));
        require(exec_verify(plan, right, data_ragged(1, 0, arena), &backend, 1e-10, arena, &result,
                            &diag));
    }
}

/* ---- the state after each step */

typedef struct Look {
    const Plan *plan;
    int n_steps;
    uint32_t n_seen;
} Look;

static bool look(void *self, Backend *backend, Diag *d)
{
    Look *l = self;
    (void)d;
    for (Rank r = 0; r < l->plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(l->plan, r);
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            if (!plan_is_state(l->plan, at)) continue;
            const Tensor *t = &l->plan->graph.tensors.at[at->tensor];
            Matrix m = matrix_of(l->plan, t);
            iterate(&m, l->n_steps);
            const double *is = backend->memory(backend, r, b);
            const double *want = t->name[strlen(t->name) - 1] == 'u' ? m.u : m.v;
            for (int64_t i = 0; i < elements(t); i++)
                if (!(fabs(is[i] - want[i]) <= 1e-12))
                    fail_msg("rank %u, %s[%lld]: %g, not %g", r, t->name, (long long)i, is[i],
                             want[i]);
            l->n_seen++;
        }
    }
    return true;
}

/* Three steps do not change the weights. After each of them, the state is one iteration further. */
static void the_state_is_advanced_once_a_step(void **state)
{
    (void)state;
    static const struct {
        /* n_state: the number of states, counted on all ranks */
        uint32_t pp, replicate, shard, tp, n_state;
        AcMode ac;
    } rows[] = {{1, 1, 1, 1, 30, AC_none},
                {1, 1, 2, 2, 120, AC_full},
                {1, 2, 2, 1, 120, AC_selective},
                {2, 1, 1, 2, 60, AC_full}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Tiny t = normed();
        t.pp = rows[i].pp, t.dp_replicate = rows[i].replicate, t.dp_shard = rows[i].shard;
        t.tp = rows[i].tp, t.ac = rows[i].ac;
        t.microbatches = 3;
        const Plan *plan = tiny_plan(&t, true, arena, &diag);
        require(plan && verify_plan(plan, VERIFY_all, false, &diag));
        Look l = {plan, 3, 0};
        ExecOptions options = {.steps = 3,
                               .lr = 0,
                               .data = data_synthetic(1, t.vocab, 0, arena),
                               .trace_step = 4,
                               .backend_options = {.poison = true, .order_seed = 3},
                               .at_end = look,
                               .self = &l};
        ExecResult result;
        require(exec_run(plan, &options, arena, &result, &diag));
        assert_int_equal(l.n_seen, rows[i].n_state);
    }
}

/* ---- planted faults are reported */

static Plan *planted(bool recomputed)
{
    Tiny t = normed();
    t.tp = t.dp_shard = 2;
    t.ac = recomputed ? AC_full : AC_none;
    Plan *plan = tiny_plan(&t, false, arena, &diag);
    require(plan && verify_plan(plan, VERIFY_all, false, &diag));
    assert_int_equal(diag.items.n, 0);
    return plan;
}

static void refused_by(const Plan *plan, const char *rule, const char *words)
{
    Diag d = diag_in(arena);
    Str s = str_in(arena);
    assert_false(verify_plan(plan, VERIFY_all, false, &d));
    diag_print(&d, &s);
    for (uint32_t i = 0; i < d.items.n; i++)
        if (strcmp(d.items.at[i].rule, rule) == 0 && strstr(d.items.at[i].text, words)) return;
    fail_msg("no %s \"%s\" in\n%s", rule, words, str_text(&s));
}

static Pc find(const Program *p, OpKind op, uint32_t n)
{
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == op && n-- == 0) return pc;
    fail_msg("no such instruction");
    return 0;
}

static void recomputation_writes_no_state(void **state)
{
    (void)state;
    Plan *plan = planted(true);
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n;
         pc++) /* marks it as recomputation, which the planner would refuse */
        if (op_info(p->code.at[pc].op)->flags & OP_ONCE)
            assert_int_equal(p->code.at[pc].phase, PHASE_forward);
    p->code.at[find(p, OP_normalise, 0)].phase = PHASE_recompute;
    refused_by(plan, "verify-purity",
               "recomputation must not touch state that lives between steps");
}

static void each_state_is_updated_by_one_node(void **state)
{
    (void)state;
    Plan *plan = planted(false);
    Graph *g = &plan->graph;
    NodeId of[2] = {0, 0};
    /* wk and wv have the same shape, so their states can be swapped */
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const char *name = g->tensors.at[g->nodes.at[id].in[0]].name;
        if (g->nodes.at[id].op != OP_normalise) continue;
        if (strstr(name, "wk.weight_u") && !of[0]) of[0] = id;
        if (strstr(name, "wv.weight_u") && !of[1]) of[1] = id;
    }
    g->nodes.at[of[1]].in[0] = g->nodes.at[of[0]].in[0];
    refused_by(plan, "verify-coverage", "both update");
    refused_by(plan, "verify-coverage", "the forward pass does not update state");
}

static void a_second_iteration_is_seen(void **state)
{
    (void)state;
    Plan *plan = planted(false);
    const Program *p = &plan->programs.at[0];
    Pc pc = find(p, OP_normalise, 0), other = find(p, OP_normalise, 1); /* u and v of one weight */
    p->args.at[p->code.at[other].args.first] = program_arg(p, &p->code.at[pc], 0);
    refused_by(plan, "verify-structure", "must be the same buffer");
    plan = planted(false);
    p = &plan->programs.at[0];
    pc = find(p, OP_project_over_first, 0); /* u = W v must read v before v is updated */
    plan->graph.nodes.at[p->code.at[pc].origin].in[1] =
        plan->graph.nodes.at[p->code.at[find(p, OP_normalise, 1)].origin].out[0];
    refused_by(plan, "verify-layout", "before any node makes it");
}

static void state_lives_in_one_program(void **state)
{
    (void)state;
    Plan *plan = planted(false);
    Program *p = &plan->programs.at[0];
    for (BufferId b = 1; b < p->buffers.n; b++)
        if (plan_is_state(plan, &p->buffers.at[b])) {
            p->buffers.at[b].tensor = 0;
            break;
        }
    refused_by(plan, "verify-coverage", "is in 0 buffers between steps");
}

static void updates_once_a_step_read_no_batch(void **state)
{
    (void)state;
    Plan *plan = planted(false);
    Graph *g = &plan->graph;
    /* sigma is now computed from an activation instead of W v */
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        if (n->op != OP_inner_product || n->in[0] != n->in[1]) continue;
        n->in[0] = n->in[1] = g->nodes.at[g->tensors.at[g->loss].producer].in[0];
        break;
    }
    refused_by(plan, "verify-layout", "before any node makes it");
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        if (n->op != OP_inner_product || n->in[0] != n->in[1]) continue;
        n->in[0] = n->in[1] = g->nodes.at[1].out[0]; /* a tensor that depends on the batch */
    }
    refused_by(plan, "verify-purity", "depends on the micro-batch");
}

/* ---- precision, and the state of a checkpoint */

static void state_is_fp32_in_every_precision(void **state)
{
    (void)state;
    Tiny t = normed();
    t.dp_shard = 2;
    for (int k = 0; k < 3; k++) {
        t.compute = k == 0 ? DT_bf16 : DT_f32;
        t.param = k == 1 ? DT_bf16 : DT_f32;
        t.fsdp2.mp.param = k == 2 ? DT_bf16 : DT_none;
        const Plan *plan = tiny_plan(&t, false, arena, &diag);
        require(plan && verify_plan(plan, VERIFY_all, false, &diag));
        uint32_t n = 0;
        const Program *p = &plan->programs.at[0];
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            if (!plan_is_state(plan, at)) continue;
            assert_int_equal(at->dtype, DT_f32);
            assert_int_equal(at->category, CATEGORY_state);
            n++;
        }
        assert_int_equal(n, 30);
        for (Pc pc = 1; pc < p->code.n; pc++)
            if (p->code.at[pc].op == OP_normalise)
                for (uint32_t i = 0; i < 4; i++)
                    assert_int_equal(p->buffers.at[program_arg(p, &p->code.at[pc], i)].dtype,
                                     DT_f32);
    }
}

static void a_checkpoint_holds_it_once(void **state)
{
    (void)state;
    for (uint32_t pp = 1; pp <= 2; pp++) {
        Tiny t = normed();
        t.pp = pp, t.dp_shard = t.tp = 2, t.layers = 2;
        const Plan *plan = tiny_plan(&t, false, arena, &diag);
        require(plan && state_check(state_of(plan, arena), &diag));
        uint64_t bytes = 0;
        for (TensorId k = 1; k < plan->graph.tensors.n; k++)
            if (plan->graph.tensors.at[k].role == ROLE_state)
                bytes += 4 * (uint64_t)elements(&plan->graph.tensors.at[k]);
        StateTotal total = state_total(state_of(plan, arena));
        assert_true(bytes > 0);
        assert_int_equal(total.kind_bytes[STATE_buffer], bytes);
        const Plan *gather = gather_plan(plan, STATE_buffer, arena, &diag);
        require(gather && verify_plan(gather, VERIFY_all, false, &diag));
        StateSlices slices = {0};
        for (Rank r = 0; r < plan->mesh.n_ranks; r++)
            state_of_rank(state_of(plan, arena), r, arena, &slices);
        uint32_t kept = 0; /* if a vector is missing in the checkpoint, this is reported */
        for (uint32_t i = 0; i < slices.n; i++)
            if (slices.at[i].kind != STATE_buffer || slices.at[i].rank || kept++ % 5)
                continue;
            else
                slices.at[i].writes = false;
        Diag d = diag_in(arena);
        assert_false(state_check_slices(plan, &slices, &d));
        assert_string_equal(d.items.at[0].rule, "state-gap");
    }
}

/* ---- compared with one rank */

static void every_mesh_agrees_with_one_rank(void **state)
{
    (void)state;
    static const uint32_t meshes[][4] = {
        {1, 1, 2, 2}, {1, 2, 1, 1}, {1, 2, 2, 1}, {2, 1, 2, 1}, {1, 1, 1, 4}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int k = 0; k < 2; k++) {
            Tiny t = normed();
            t.pp = meshes[i][0], t.dp_replicate = meshes[i][1], t.dp_shard = meshes[i][2];
            t.tp = meshes[i][3];
            if (t.tp == 4) t.groups = 2, t.repeat = 4;
            t.ac = k ? AC_full : AC_none, t.fused = k, t.tp_options.sequence = !k;
            t.use_zero = k, t.zero = t.dp_shard > 1 ? ZERO_optim_grads : ZERO_no_shard;
            Tiny one = tiny_one_rank(&t);
            const Plan *plan = tiny_plan(&t, true, arena, &diag),
                       *reference = tiny_plan(&one, true, arena, &diag);
            require(plan && reference);
            const DataSource *data = data_synthetic(i + 5, t.vocab, 0.1, arena);
            BackendOptions options = {.poison = true, .order_seed = i};
            VerifyResult result;
            require(exec_verify(plan, reference, data, &options, 1e-10, arena, &result, &diag));
        }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, test_diag_setup, test_arena_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_gradient_goes_through_the_norm), TEST(convolutions_are_normed_by_their_outputs),
        TEST(normed_convolutions_over_domains),   TEST(the_state_is_advanced_once_a_step),
        TEST(recomputation_writes_no_state),      TEST(each_state_is_updated_by_one_node),
        TEST(a_second_iteration_is_seen),         TEST(state_lives_in_one_program),
        TEST(updates_once_a_step_read_no_batch),  TEST(state_is_fp32_in_every_precision),
        TEST(a_checkpoint_holds_it_once),         TEST(every_mesh_agrees_with_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
