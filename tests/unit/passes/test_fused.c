/* Fused projections: one weight has several segments, each split separately. Segments of different
 * sizes are stored by groups of heads. Initial weights, the state of ranks, and the ops that take a
 * segment must agree on this order. Each mistake that the proofs must report is planted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/flat.h"
#include "kernels/kernel.h"
#include "planner/base/str.h"
#include "planner/ir/state/state.h"
#include "planner/verify/verify.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/suspect.h"

static Tensor *tensor(Plan *plan, const char *name)
{
    for (TensorId t = 1; t < plan->graph.tensors.n; t++)
        if (strcmp(plan->graph.tensors.at[t].name, name) == 0) return &plan->graph.tensors.at[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Two KV heads have two query heads each, and the MLP has segments of 16 and 32 features. */
static Tiny fused(uint32_t tp)
{
    Tiny t = tiny_default();
    t.tp = tp;
    t.fused = t.biases = t.unequal = true;
    t.groups = t.repeat = 2;
    return t;
}

/* ---- where features are stored ---- */

static void projections_are_cut_between_groups(void **state)
{
    (void)state;
    for (int unequal = 0; unequal <= 1; unequal++) {
        Tiny t = fused(2);
        t.unequal = unequal;
        Suspect c = suspect_of(&t);
        AxisSet tp = mesh_axes(&c.plan->mesh, AXIS_tp);
        uint32_t n = 0;
        for (TensorId id = 1; id < c.plan->graph.tensors.n; id++) {
            const Tensor *at = &c.plan->graph.tensors.at[id];
            if (at->role != ROLE_param || (!strstr(at->name, "wqkv") && !strstr(at->name, "w13")))
                continue;
            bool equal = strstr(at->name, "w13") && !unequal;
            /* the dimension that numbers segments comes before that of features */
            int d = (strstr(at->name, ".bias") ? 0 : 1) + equal;
            assert_int_equal(at->order != 0, !equal);
            assert_int_equal(layout_axes_split(&at->use, -1), tp);
            assert_int_equal(layout_axes_split(&at->use, d), tp);
            n++;
        }
        assert_int_equal(n, 4 * t.layers);
        assert_string_equal(suspect_verdict(&c), "");
        arena_free(c.arena);
    }
}

/* Returns the place of element (row, group, feature, e) of wqkv if q, k and v were stored one after
 * the other. */
static uint64_t by_hand(const Tiny *t, int64_t row, int64_t group, int64_t feature, int64_t e)
{
    int64_t heads = t->groups * t->repeat, r = t->repeat;
    int64_t head = feature < r    ? group * r + feature
                   : feature == r ? heads + group
                                  : heads + t->groups + group;
    return (uint64_t)((row * (heads + 2 * t->groups) + head) * t->head_dim + e);
}

typedef struct Seen {
    const Tiny *t;
    const Plan *plan;
    const double *at; /* the filled buffer */
    const char *name;
    uint64_t n;
} Seen;

static void check_run(void *self, const FlatRun *run)
{
    Seen *seen = self;
    const Tensor *w = &seen->plan->graph.tensors.at[run->tensor];
    int64_t features = seen->t->repeat + 2, e = seen->t->head_dim;
    if (strcmp(w->name, seen->name) != 0) return;
    for (uint64_t i = 0; i < run->n; i++) {
        int64_t at = (int64_t)(run->global + i), g = at / e / features % seen->t->groups;
        uint64_t original =
            by_hand(seen->t, at / e / features / seen->t->groups, g, at / e % features, at % e);
        double want = kernel_init_value(seen->plan->step.seed, w->init_stream, original,
                                        (int)w->init.kind, w->init.a, w->init.b);
        assert_true(want == seen->at[run->at + i]);
        seen->n++;
    }
}

/* On every mesh, a weight gets the initial value that belongs to its place in the original
 * order. */
static void first_weights_are_those_of_the_original_order(void **state)
{
    (void)state;
    for (uint32_t tp = 1; tp <= 4; tp *= 2) {
        Arena *arena = arena_new();
        Tiny t = fused(tp);
        t.dp_shard = 3;
        Diag d = diag_in(arena);
        const Plan *plan = tiny_plan(&t, true, arena, &d);
        assert_non_null(plan);
        Seen seen = {&t, plan, NULL, "layers.1.attention.wqkv.weight", 0};
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            const Program *p = plan_program(plan, r);
            for (BufferId b = 1; b < p->buffers.n; b++) {
                const Buffer *at = &p->buffers.at[b];
                if (!flat_is_home(at) || at->category != CATEGORY_parameter) continue;
                double *memory = arena_array(arena, at->bytes / sizeof *memory, sizeof *memory);
                flat_init(plan, p, b, r, arena, memory);
                seen.at = memory;
                flat_each(plan, p, b, r, arena, check_run, &seen);
            }
        }
        uint64_t all = (uint64_t)(t.dim * t.groups * (t.repeat + 2) * t.head_dim);
        assert_int_equal(seen.n, tp == 4 ? 2 * all : all); /* two ranks have the same KV head */
        arena_free(arena);
    }
}

/* A rank of tp has its query heads, keys and values: three boxes of [k, 8 heads, e]. */
static void the_state_is_in_the_original_order(void **state)
{
    (void)state;
    Tiny t = fused(2);
    t.layers = 1;
    Suspect c = suspect_of(&t);
    static const int64_t from[2][3] = {{0, 4, 6}, {2, 5, 7}}, heads[3] = {2, 1, 1};
    const State *whole = state_of(c.plan, c.arena);
    for (Rank r = 0; r < 2; r++) {
        StateSlices slices = {0};
        uint32_t n = 0;
        state_of_rank(whole, r, c.arena, &slices);
        for (uint32_t i = 0; i < slices.n; i++) {
            const StateSlice *s = &slices.at[i];
            if (s->kind != STATE_param || strcmp(s->name, "layers.0.attention.wqkv.weight") != 0)
                continue;
            assert_int_equal(s->n_dims, 3);
            assert_int_equal(s->dim[1], 8);
            assert_int_equal(s->size[0], t.dim);
            assert_int_equal(s->offset[1], from[r][n]);
            assert_int_equal(s->size[1], heads[n]);
            assert_int_equal(s->size[2], t.head_dim);
            n++;
        }
        assert_int_equal(n, 3);
    }
    arena_free(c.arena);
}

/* Each element of the state is written once, wherever the shards cut a weight. */
static void each_element_of_the_state_is_written_once(void **state)
{
    (void)state;
    for (uint32_t shards = 1; shards <= 5; shards++)
        for (uint32_t tp = 1; tp <= 4; tp *= 2) {
            Tiny t = fused(tp);
            t.dp_shard = shards;
            Suspect c = suspect_of(&t);
            Diag d = diag_in(c.arena);
            assert_true(state_check(state_of(c.plan, c.arena), &d));
            arena_free(c.arena);
        }
}

/* ---- the function ---- */

typedef struct Model {
    Graph graph;
    Eval eval;
} Model;

static Model *model_of(const Tiny *t, Arena *arena)
{
    Model *m = arena_alloc(arena, sizeof *m);
    Config *config = arena_alloc(arena, sizeof *config);
    tiny_build(t, arena, config, &m->graph);
    m->eval = eval_new(arena, &m->graph, DT_f64, data_synthetic(3, t->vocab, 0.1, arena));
    eval_init(&m->eval, 7);
    return m;
}

static TensorId named(const Model *m, const char *name)
{
    for (TensorId t = 1; t < m->graph.tensors.n; t++)
        if (strcmp(m->graph.tensors.at[t].name, name) == 0) return t;
    fail_msg("no tensor %s", name);
    return 0;
}

/* Puts the weights parts[0], parts[1], ... of `whole` side by side, in the order of `fused`. A
 * weight has a row for each input, and a bias has one row. */
static void fuse(Model *fused, const Model *whole, Arena *arena, const char *module,
                 const char *own, const char *const *parts, uint32_t n_parts, const char *kind,
                 int64_t rows)
{
    TensorId id = named(fused, arena_print(arena, "layers.0.%s.%s.%s", module, own, kind));
    Value *to = &fused->eval.value[id];
    int64_t n = value_elements(to), row = n / rows, before = 0;
    double *side = arena_array(arena, (size_t)n, sizeof *side);
    for (uint32_t k = 0; k < n_parts; k++) {
        const Value *from = &whole->eval.value[named(
            whole, arena_print(arena, "layers.0.%s.%s.%s", module, parts[k], kind))];
        int64_t width = value_elements(from) / rows;
        for (int64_t i = 0; i < rows * width; i++)
            side[i / width * row + before + i % width] = value_get(from, i);
        before += width;
    }
    assert_int_equal(before, row);
    for (int64_t i = 0; i < n; i++)
        value_set(to, i, side[graph_original(&fused->graph, id, (uint64_t)i)]);
}

/* A fused weight with the same numbers gives the same function, except for rounding, because sums
 * have another order. */
static void fused_and_separate_are_the_same_function(void **state)
{
    (void)state;
    static const char *const qkv[] = {"wq", "wk", "wv"}, *const gate_up[] = {"w1", "w3"};
    for (int64_t repeat = 1; repeat <= 3; repeat++) {
        Arena *arena = arena_new();
        Tiny one = fused(1), two;
        one.repeat = repeat, one.layers = 1, one.unequal = repeat != 1, one.qk_norm = repeat == 3;
        two = one;
        two.fused = false;
        Model *a = model_of(&one, arena), *b = model_of(&two, arena);
        fuse(a, b, arena, "attention", "wqkv", qkv, 3, "weight", one.dim);
        fuse(a, b, arena, "attention", "wqkv", qkv, 3, "bias", 1);
        fuse(a, b, arena, "feed_forward", "w13", gate_up, 2, "weight", one.dim);
        fuse(a, b, arena, "feed_forward", "w13", gate_up, 2, "bias", 1);
        eval_forward(&a->eval);
        eval_forward(&b->eval);
        eval_backward(&a->eval);
        eval_backward(&b->eval);
        double x = value_get(&a->eval.value[a->graph.loss], 0),
               y = value_get(&b->eval.value[b->graph.loss], 0);
        assert_true(fabs(x - y) < 1e-12 * fabs(y));
        const Value *dx = &a->eval.grad[named(a, "embedding.weight")],
                    *dy = &b->eval.grad[named(b, "embedding.weight")];
        double top = 0;
        for (int64_t i = 0; i < value_elements(dx); i++) {
            top = fmax(top, fabs(value_get(dy, i)));
            assert_true(fabs(value_get(dx, i) - value_get(dy, i)) < 1e-12);
        }
        assert_true(top > 1e-3);
        arena_free(arena);
    }
}

/* Two of four ranks have the same KV head. So each rank takes its query heads out of a group that
 * two ranks share. */
static void shared_groups_leave_each_rank_its_query_heads(void **state)
{
    (void)state;
    Tiny t = fused(4);
    Suspect c = suspect_of(&t);
    const Mesh *mesh = &c.plan->mesh;
    AxisSet tp = mesh_axes(mesh, AXIS_tp), outer = (AxisSet)(tp & (0u - tp));
    const Tensor *w = tensor(c.plan, "layers.0.attention.wqkv.weight");
    assert_int_equal(layout_axes_split(&w->use, -1), outer);
    uint32_t n_taken = 0;
    for (NodeId id = 1; id < c.plan->graph.nodes.n; id++) {
        const Node *node = &c.plan->graph.nodes.at[id];
        if (node->op != OP_part_heads) continue;
        const Tensor *q = &c.plan->graph.tensors.at[node->out[0]];
        assert_int_equal(layout_axes_split(&q->use, 2), outer);
        assert_int_equal(layout_axes_split(&q->use, 3), tp & ~outer);
        n_taken++;
    }
    assert_int_equal(n_taken, t.layers);
    assert_string_equal(suspect_verdict(&c), "");
    arena_free(c.arena);
}

/* The gradients of q, k and v are summed over the ranks with the same group, once a layer. */
static void the_sum_over_shared_groups_cannot_be_left_out(void **state)
{
    (void)state;
    Tiny t = fused(4);
    Suspect c = suspect_of(&t);
    AxisSet tp = mesh_axes(&c.plan->mesh, AXIS_tp), inner = (AxisSet)(tp & (tp - 1));
    uint32_t n = 0;
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        const Instr *in = &c.p->code.at[pc];
        const Shape *s = in->args.n
                             ? plan_shape_at(c.plan, c.p->buffers.at[program_arg(c.p, in, 0)].shape)
                             : NULL;
        if (in->op != OP_all_reduce || in->axes != inner || s->n_dims != 5) continue;
        n++;
        Suspect broken = c;
        broken.plan = mutate(c.plan, (Mutation){MUTATE_delete, 0, pc, 0}, c.arena);
        broken.p = &broken.plan->programs.at[0];
        assert_string_not_equal(suspect_verdict(&broken), "");
    }
    assert_int_equal(n, t.layers);
    arena_free(c.arena);
}

/* ---- faults that the proofs report ---- */

/* Makes the node, and the instructions that do its work, take other features than they should. */
static void take_other(Suspect *c, OpKind op, int64_t first)
{
    Graph *g = &c->plan->graph;
    NodeId node = 0;
    for (NodeId id = 1; id <= g->n_forward && !node; id++)
        if (g->nodes.at[id].op == op) node = id;
    assert_true(node > 0);
    Attrs a = *graph_attrs_at(g, g->nodes.at[node].attrs);
    a.first = first;
    AttrsId id = (AttrsId)list_push(c->arena, &g->attrs, a);
    g->nodes.at[node].attrs = id;
    for (Pc pc = 1; pc < c->p->code.n; pc++)
        if (c->p->code.at[pc].origin == node && c->p->code.at[pc].op == op)
            c->p->code.at[pc].attrs = id;
}

static void taking_another_segment_is_reported(void **state)
{
    (void)state;
    Tiny t = fused(2);
    Suspect c = suspect_of(&t);
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        Instr *in = &c.p->code.at[pc];
        if (in->op != OP_part_head) continue;
        Attrs a = *graph_attrs_at(&c.plan->graph, in->attrs);
        a.first += a.first == t.repeat ? 1 : -1; /* the op takes v instead of k */
        in->attrs = (AttrsId)list_push(c.arena, &c.plan->graph.attrs, a);
        break;
    }
    suspect_is_refused(&c, "has attributes that differ from those in the graph");
    arena_free(c.arena);
}

/* The graph itself takes one query head and the key from the group. All ranks agree, and all are
 * wrong. */
static void taking_half_of_another_segment_is_reported(void **state)
{
    (void)state;
    Tiny t = fused(2);
    Suspect c = suspect_of(&t);
    take_other(&c, OP_part_heads, 1);
    suspect_is_refused(&c, "verify-segments");
    suspect_is_refused(&c, "but these are not one segment");
    take_other(&c, OP_part_heads, 0);
    assert_string_equal(suspect_verdict(&c), "");
    take_other(&c, OP_part_heads, 3);
    suspect_is_refused(&c, "takes a part that does not exist in its input");
    arena_free(c.arena);
}

/* If a weight is split as one matrix, one rank has q and half of k. */
static void features_in_plain_order_are_reported(void **state)
{
    (void)state;
    static const char *const names[] = {"layers.0.attention.wqkv.weight",
                                        "layers.1.attention.wqkv.bias",
                                        "layers.0.feed_forward.w13.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Tiny t = fused(2);
        Suspect c = suspect_of(&t);
        tensor(c.plan, names[i])->order = 0;
        suspect_is_refused(&c, "their features are in plain order");
        suspect_is_refused(&c, names[i]);
        arena_free(c.arena);
    }
}

static void an_impossible_order_is_reported(void **state)
{
    (void)state;
    Tiny t = fused(2);
    Suspect c = suspect_of(&t);
    Deal *d =
        &c.plan->graph.deals.deals.at[tensor(c.plan, "layers.0.attention.wqkv.weight")->order];
    Interval *at = &c.plan->graph.deals.intervals.at[d->first], k = at[1];
    assert_int_equal(d->kind, DEAL_segments);
    at[1] = at[2], at[2] = k; /* the rank stores v before k */
    suspect_is_refused(&c, "into segments of");
    at[2] = at[1], at[1] = k;
    assert_string_equal(suspect_verdict(&c), "");
    at[1].hi++, at[2].lo++; /* the deal gives k more features than v */
    suspect_is_refused(&c, "into segments of");
    at[1].hi--, at[2].lo--;
    tensor(c.plan, "layers.0.attention.wqkv.weight")->order_dim = 0;
    suspect_is_refused(&c, "has an order that does not fit its dimensions");
    arena_free(c.arena);
}

/* A buffer must not be cut within groups, or within equal segments, as a single matrix may be. */
static void segments_are_never_split_inside(void **state)
{
    (void)state;
    static const OpKind whole[] = {OP_segment,   OP_segment_grad,  OP_part,
                                   OP_part_grad, OP_part_heads,    OP_part_heads_grad,
                                   OP_part_head, OP_part_head_grad};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        assert_false(op_may_split(whole[i], 'F'));
    for (int unequal = 0; unequal <= 1; unequal++) {
        Tiny t = fused(2);
        t.unequal = unequal;
        Suspect c = suspect_of(&t);
        const Graph *g = &c.plan->graph;
        bool found = false;
        for (BufferId b = 1; b < c.p->buffers.n && !found; b++) {
            Buffer *at = &c.p->buffers.at[b];
            const Tensor *x = &g->tensors.at[at->tensor];
            OpKind op = g->nodes.at[x->producer].op;
            if (x->role != ROLE_activation || (op != OP_linear_segments && op != OP_linear_groups))
                continue;
            Shape s = *plan_shape_at(c.plan, at->shape);
            for (uint32_t a = 0; a < c.plan->mesh.n_axes; a++)
                if (layout_is_split(s.layout.on[a]))
                    s.layout.on[a] = op == OP_linear_groups ? SPLIT(3) : SPLIT(2);
            at->shape = (ShapeId)list_push(c.arena, &c.plan->shapes, s);
            found = true;
        }
        assert_true(found);
        assert_string_not_equal(suspect_verdict(&c), "");
        arena_free(c.arena);
    }
}

/* ---- deals ---- */

/* The lengths of intervals may add up to the size although index 1 occurs twice and index 2
 * never. */
static void a_deal_with_an_index_twice_is_reported(void **state)
{
    (void)state;
    static const struct {
        Interval at[4];
        bool fine;
    } deals[] = {
        {{{0, 1}, {3, 4}, {1, 2}, {2, 3}}, true},  {{{0, 2}, {0, 0}, {2, 4}, {0, 0}}, true},
        {{{0, 1}, {3, 4}, {1, 2}, {1, 2}}, false}, {{{0, 4}, {0, 0}, {0, 0}, {0, 0}}, true},
        {{{0, 2}, {0, 2}, {0, 0}, {0, 0}}, false}, {{{0, 3}, {0, 1}, {0, 0}, {0, 0}}, false},
        {{{1, 4}, {3, 4}, {0, 0}, {0, 0}}, false}, {{{0, 4}, {0, 4}, {0, 0}, {0, 0}}, false}};
    for (size_t i = 0; i < sizeof deals / sizeof *deals; i++) {
        Tiny t = fused(2);
        Suspect c = suspect_of(&t);
        deal_listed(&c.plan->graph.deals, c.arena, 4, 2, 2, deals[i].at);
        if (deals[i].fine)
            assert_string_equal(suspect_verdict(&c), "");
        else
            suspect_is_refused(&c, "does not give each of its 4 indices to exactly one part");
        arena_free(c.arena);
    }
}

/* The batch is split over two ranks; one of them has the first and the last sequence. An op that
 * asks where its part begins learns only about the first sequence. */
static void ops_that_depend_on_places_need_one_interval(void **state)
{
    (void)state;
    static const Interval zigzag[] = {{0, 1}, {3, 4}, {1, 2}, {2, 3}};
    Tiny t = fused(1);
    t.dp_shard = 2, t.micro = 2;
    Suspect c = suspect_of(&t);
    DealId deal = deal_listed(&c.plan->graph.deals, c.arena, 4, 2, 2, zigzag);
    AxisSet axes = mesh_axes(&c.plan->mesh, AXIS_dp_shard);
    for (ShapeId i = 1; i < c.plan->shapes.n; i++) {
        Shape *s = &c.plan->shapes.at[i];
        if (s->n_dims > 1 && s->dim[0] == 4 && layout_axes_split(&s->layout, 0) == axes)
            s->deal[0] = deal;
    }
    for (TensorId i = 1; i < c.plan->graph.tensors.n; i++) {
        Tensor *x = &c.plan->graph.tensors.at[i];
        if (x->n_dims > 1 && x->dim[0] == 4 && layout_axes_split(&x->use, 0) == axes)
            x->deal[0] = deal;
    }
    suspect_is_refused(&c, "batch needs consecutive positions");
    suspect_is_refused(&c, "embed needs consecutive positions");
    suspect_is_refused(&c, "rope needs consecutive positions");
    assert_null(strstr(suspect_verdict(&c), "rmsnorm depends on"));
    arena_free(c.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(projections_are_cut_between_groups),
        cmocka_unit_test(first_weights_are_those_of_the_original_order),
        cmocka_unit_test(the_state_is_in_the_original_order),
        cmocka_unit_test(each_element_of_the_state_is_written_once),
        cmocka_unit_test(fused_and_separate_are_the_same_function),
        cmocka_unit_test(shared_groups_leave_each_rank_its_query_heads),
        cmocka_unit_test(the_sum_over_shared_groups_cannot_be_left_out),
        cmocka_unit_test(taking_another_segment_is_reported),
        cmocka_unit_test(taking_half_of_another_segment_is_reported),
        cmocka_unit_test(features_in_plain_order_are_reported),
        cmocka_unit_test(an_impossible_order_is_reported),
        cmocka_unit_test(segments_are_never_split_inside),
        cmocka_unit_test(a_deal_with_an_index_twice_is_reported),
        cmocka_unit_test(ops_that_depend_on_places_need_one_interval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
