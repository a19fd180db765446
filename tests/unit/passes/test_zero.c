/* Compares DDP, ZeRO-1, 2, 3 and hybrid sharding with closed forms of the bytes moved in a step and
 * held between steps. Numbers of micro-batches and sizes of groups are mostly prime. Then tests the
 * effect of each option of zero{}. P: padded elements, D: shards, m: micro-batches, L: blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_diag.h"

static const Plan *compile(const Tiny *t)
{
    const Plan *plan = tiny_plan(t, false, arena, &diag);
    Str s = str_in(arena);
    diag_print(&diag, &s);
    if (!plan) fail_msg("%s", str_text(&s));
    return plan;
}

typedef struct Moved {
    uint32_t n;
    uint64_t bytes;
} Moved;

/* Counts the collectives of units: gathers of weights, or reductions of gradients. */
static Moved moved(const Plan *plan, OpKind op, AxisName axis)
{
    const Program *p = &plan->programs.at[0];
    Moved c = {0, 0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != op || !in->unit || in->axes != mesh_axes(&plan->mesh, axis)) continue;
        c.n++;
        c.bytes += plan_comm_bytes(plan, p, in);
    }
    return c;
}

static uint64_t held(const Plan *plan, Category category)
{
    const Program *p = &plan->programs.at[0];
    uint64_t bytes = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        const bool stays = at->persistent || at->result;
        if (!at->parent && stays && at->category == category) bytes += at->bytes;
    }
    return bytes;
}

static uint64_t padded(const Plan *plan)
{
    uint64_t n = 0;
    for (UnitId u = 1; u < plan->graph.units.n; u++) n += plan->graph.units.at[u].padded;
    return n;
}

static uint64_t padded_of(const Plan *plan, const char *name)
{
    for (UnitId u = 1; u < plan->graph.units.n; u++)
        if (strcmp(plan->graph.units.at[u].name, name) == 0) return plan->graph.units.at[u].padded;
    fail_msg("no unit %s", name);
    return 0;
}

#define EXPECT(c, count, amount)                                                                   \
    do {                                                                                           \
        const Moved c_ = (c);                                                                      \
        assert_int_equal(c_.n, count);                                                             \
        assert_int_equal(c_.bytes, amount);                                                        \
    } while (0)

enum { LAYERS = 4 };

/* Weights are bf16 in use (2 bytes) and fp32 at rest (4 bytes). Gradients are summed in fp32 (4
 * bytes). */
static Tiny mixed(uint32_t m)
{
    Tiny t = tiny_default();
    t.layers = LAYERS, t.microbatches = m;
    t.compute = DT_bf16;
    t.use_zero = true;
    return t;
}

static const uint32_t groups[] = {2, 3, 5, 7};

static void no_shard_moves_the_bytes_of_ddp(void **state)
{
    (void)state;
    for (int g = 0; g < 4; g++)
        for (uint32_t m = 1; m <= 3; m++) {
            Tiny t = mixed(m);
            t.zero = ZERO_no_shard, t.dp_replicate = groups[g];
            t.zero_options.bucket_size = 500;
            const Plan *plan = compile(&t);
            uint64_t P = padded(plan);
            EXPECT(moved(plan, OP_all_reduce, AXIS_dp_replicate), plan->graph.units.n - 1, 4 * P);
            assert_int_equal(moved(plan, OP_all_gather, AXIS_dp_replicate).n, 0);
            assert_int_equal(held(plan, CATEGORY_parameter), 4 * P);
            assert_int_equal(held(plan, CATEGORY_optimizer), 8 * P);
            assert_int_equal(held(plan, CATEGORY_gradient), 4 * P);
        }
}

/* The strategy optim reduces gradients once a step, and optim_grads reduces them m times. Both
 * gather the updated weights once. */
static void sharded_optimizer_and_gradients_move_these_bytes(void **state)
{
    (void)state;
    for (int g = 0; g < 4; g++)
        for (uint32_t m = 1; m <= 3; m++)
            for (int k = 0; k < 4; k++) {
                Tiny t = mixed(m);
                uint32_t D = t.dp_shard = groups[g], n = LAYERS + 1;
                t.zero = k < 2 ? ZERO_optim : ZERO_optim_grads;
                t.zero_options.gather = k % 2 ? ZERO_GATHER_eager : ZERO_GATHER_lazy;
                const Plan *plan = compile(&t);
                uint64_t P = padded(plan);
                uint32_t times = k < 2 ? 1 : m;
                assert_int_equal(P % (64 * D), 0);
                EXPECT(moved(plan, OP_reduce_scatter, AXIS_dp_shard), times * n, times * 4 * P);
                EXPECT(moved(plan, OP_all_gather, AXIS_dp_shard), n, 2 * P);
                assert_int_equal(held(plan, CATEGORY_parameter), 4 * P / D);
                assert_int_equal(held(plan, CATEGORY_optimizer), 8 * P / D);
                assert_int_equal(held(plan, CATEGORY_gradient), 4 * P / D);
                assert_int_equal(held(plan, CATEGORY_gathered), k % 2 ? 2 * P : 0);
            }
}

/* Weights are gathered forward and backward, but the root unit once. Gradients are reduced in every
 * micro-batch. */
static void fully_sharded_weights_move_these_bytes(void **state)
{
    (void)state;
    for (int g = 0; g < 4; g++)
        for (uint32_t m = 1; m <= 3; m++) {
            Tiny t = mixed(m);
            uint32_t D = t.dp_shard = groups[g];
            t.zero = ZERO_optim_grads_params;
            const Plan *plan = compile(&t);
            uint64_t P = padded(plan), root = padded_of(plan, "root");
            EXPECT(moved(plan, OP_all_gather, AXIS_dp_shard), m * (2 * LAYERS + 1),
                   m * 2 * (2 * P - root));
            EXPECT(moved(plan, OP_reduce_scatter, AXIS_dp_shard), m * (LAYERS + 1), m * 4 * P);
            assert_int_equal(held(plan, CATEGORY_parameter), 4 * P / D);
            assert_int_equal(held(plan, CATEGORY_optimizer), 8 * P / D);
            assert_int_equal(held(plan, CATEGORY_gathered), 0);
        }
}

/* With shards over D and replicas over R, a step moves the bytes of ZeRO over D. It also reduces
 * the shard of the gradient over R once. */
static void hybrid_sharding_reduces_shards_over_replicas(void **state)
{
    (void)state;
    for (uint32_t R = 2; R <= 3; R++)
        for (int k = 0; k < ZERO_COUNT - 1; k++) {
            Tiny t = mixed(3);
            t.zero = (ZeroStrategy)(k + 1);
            t.dp_shard = 3, t.dp_replicate = R;
            const Plan *plan = compile(&t);
            uint64_t P = padded(plan);
            EXPECT(moved(plan, OP_all_reduce, AXIS_dp_replicate), LAYERS + 1, 4 * P / 3);
            assert_int_equal(moved(plan, OP_reduce_scatter, AXIS_dp_shard).bytes,
                             (k == 0 ? 1u : 3u) * 4 * P);
            assert_int_equal(held(plan, CATEGORY_optimizer), 8 * P / 3);
        }
}

/* Each stage of ZeRO needs a smaller arena than the stage before. */
static void each_stage_of_zero_saves_memory(void **state)
{
    (void)state;
    uint64_t before = UINT64_MAX;
    for (int k = ZERO_optim; k < ZERO_COUNT; k++) {
        Tiny t = mixed(3);
        t.layers = 8, t.dim = 48, t.hidden = 96, t.dp_shard = 4;
        t.zero = (ZeroStrategy)k;
        uint64_t bytes = compile(&t)->programs.at[0].bytes;
        assert_true(bytes < before);
        before = bytes;
    }
}

/* ---- options ---- */

static bool waits_for(const Program *p, Pc pc, Pc on)
{
    const Instr *in = program_instr(p, pc);
    for (uint32_t i = 0; i < in->after.n; i++)
        if (p->after.at[in->after.first + i] == on) return true;
    return false;
}

static Pc next_computation(const Program *p, Pc pc)
{
    while (++pc < p->code.n)
        if (p->code.at[pc].stream == STREAM_compute) return pc;
    return 0;
}

/* Counts the collectives of units for which the next computation waits (*waited), and the others
 * (*free). */
static void count_waits(const Plan *plan, OpKind op, uint32_t *waited, uint32_t *free)
{
    const Program *p = &plan->programs.at[0];
    *waited = *free = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        if (in->op != op || !in->unit) continue;
        if (waits_for(p, next_computation(p, pc), pc))
            ++*waited;
        else
            ++*free;
    }
}

static void without_overlap_computation_waits(void **state)
{
    (void)state;
    uint32_t waited, free;
    Tiny t = mixed(2);
    t.dp_shard = 3, t.zero = ZERO_optim;
    count_waits(compile(&t), OP_reduce_scatter, &waited, &free);
    assert_true(free > 0);
    t.zero_options.overlap_grad_reduce = CHOICE_no;
    t.zero_options.overlap_param_gather = CHOICE_no;
    const Plan *plan = compile(&t);
    count_waits(plan, OP_reduce_scatter, &waited, &free);
    assert_int_equal(waited, LAYERS + 1);
    assert_int_equal(free, 0);
    count_waits(plan, OP_all_gather, &waited, &free);
    assert_int_equal(waited, LAYERS + 1);
    assert_int_equal(free, 0);
}

static void options_decide_the_dtypes(void **state)
{
    (void)state;
    Tiny t = mixed(2);
    t.dp_shard = 3, t.zero = ZERO_optim_grads;
    t.zero_options.grad_reduce_in_fp32 = CHOICE_no;
    const Plan *plan = compile(&t);
    uint64_t P = padded(plan);
    assert_int_equal(moved(plan, OP_reduce_scatter, AXIS_dp_shard).bytes, 2 * 2 * P);
    assert_int_equal(held(plan, CATEGORY_gradient), 2 * P / 3);
    t.reduce = DT_bf16, t.param = DT_bf16;
    t.zero_options.grad_reduce_in_fp32 = t.zero_options.preserve_fp32_weights = CHOICE_yes;
    plan = compile(&t);
    assert_int_equal(moved(plan, OP_reduce_scatter, AXIS_dp_shard).bytes, 2 * 4 * P);
    assert_int_equal(held(plan, CATEGORY_parameter), 4 * P / 3);
    t.zero_options.preserve_fp32_weights = CHOICE_no;
    assert_int_equal(held(compile(&t), CATEGORY_parameter), 2 * P / 3);
}

static void assert_units_differ_in_name(const Plan *plan)
{
    const Graph *g = &plan->graph;
    for (UnitId u = 1; u < g->units.n; u++)
        for (UnitId k = 1; k < u; k++)
            assert_string_not_equal(g->units.at[u].name, g->units.at[k].name);
}

/* Parameters outside all units form buckets by size, or a single bucket. */
static void parameters_outside_units_form_buckets(void **state)
{
    (void)state;
    Tiny t = mixed(1);
    t.dp_shard = 2, t.zero = ZERO_optim_grads_params;
    /* The default bucket of 40M elements is larger than the whole model. */
    assert_int_equal(compile(&t)->graph.units.n - 1, LAYERS + 1);
    t.zero_options.bucket_size = 100;
    /* Embedding, norm and head have one bucket each. */
    assert_int_equal(compile(&t)->graph.units.n - 1, LAYERS + 3);
    assert_units_differ_in_name(compile(&t));
    t.zero_options.bucket_size = 29 * 12 + 12;
    /* Embedding and norm fit into one bucket. */
    assert_int_equal(compile(&t)->graph.units.n - 1, LAYERS + 2);
    t.zero_options = (ZeroOptions){.has_units = true};
    const Plan *plan = compile(&t);
    assert_int_equal(plan->graph.units.n - 1, 1); /* the whole model is the root */
    EXPECT(moved(plan, OP_all_gather, AXIS_dp_shard), 1, 2 * padded(plan));
    t.dp_shard = 1, t.dp_replicate = 2, t.zero = ZERO_no_shard;
    t.zero_options = (ZeroOptions){.bucket_size = 0};
    assert_int_equal(moved(compile(&t), OP_all_reduce, AXIS_dp_replicate).n, 1);
    t.zero_options.disable_bucketing = true;
    assert_int_equal(moved(compile(&t), OP_all_reduce, AXIS_dp_replicate).n, LAYERS + 1);
}

/* There are two permanent buffers of a block's size for weights, and two for gradients. The last
 * two blocks of a forward or backward pass are still there when the next pass begins. */
static void a_double_buffer_serves_all_blocks(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m++)
        for (int registered = 0; registered <= 1; registered++) {
            Tiny t = mixed(m);
            t.dp_shard = 3, t.zero = ZERO_optim_grads_params;
            t.zero_options.fsdp_double_buffer = !registered;
            t.zero_options.nccl_ub = registered;
            if (m == 2) t.vocab = 499; /* the root is larger than all blocks together */
            const Plan *plan = compile(&t);
            const Program *p = &plan->programs.at[0];
            uint64_t P = padded(plan), block = padded_of(plan, "layers.0");
            assert_int_equal(held(plan, CATEGORY_gathered), 2 * 2 * block);
            assert_int_equal(held(plan, CATEGORY_gradient), 4 * P / 3 + 2 * 4 * block);
            assert_int_equal(moved(plan, OP_all_gather, AXIS_dp_shard).n,
                             m + 2 * LAYERS * m - 2 * m - 2 * (m - 1));
            assert_int_equal(moved(plan, OP_reduce_scatter, AXIS_dp_shard).n, m * (LAYERS + 1));
            uint32_t n_registered = 0;
            for (Pc pc = 1; pc < p->code.n; pc++)
                n_registered += graph_attrs_at(&plan->graph, p->code.at[pc].attrs)->registered != 0;
            uint32_t of_blocks = 2 * LAYERS * m - 2 * m - 2 * (m - 1) + m * LAYERS;
            assert_int_equal(n_registered, registered ? of_blocks : 0);
        }
    Tiny t = mixed(2);
    t.dp_shard = 3, t.zero = ZERO_optim_grads;
    t.zero_options.fsdp_double_buffer = true;
    /* weights stay gathered, so only gradients use the two buffers */
    const Plan *plan = compile(&t);
    assert_int_equal(held(plan, CATEGORY_gathered), 0);
    assert_int_equal(held(plan, CATEGORY_gradient),
                     4 * padded(plan) / 3 + 2 * 4 * padded_of(plan, "layers.0"));
}

/* Weights that stay gathered lie in registered memory, too, whatever the size of their unit. Only
 * gradients of units with another size do not. */
static void weights_that_stay_are_registered(void **state)
{
    (void)state;
    for (int eager = 0; eager <= 1; eager++) {
        Tiny t = mixed(2);
        t.dp_shard = 3, t.zero = ZERO_optim_grads;
        t.zero_options.nccl_ub = true;
        t.zero_options.gather = eager ? ZERO_GATHER_eager : ZERO_GATHER_lazy;
        const Plan *plan = compile(&t);
        const Program *p = &plan->programs.at[0];
        uint32_t n[2][2] = {{0}}; /* [gather][registered] */
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            const bool gathers = in->op == OP_all_gather;
            if (!in->unit || (!gathers && in->op != OP_reduce_scatter)) continue;
            n[gathers][graph_attrs_at(&plan->graph, in->attrs)->registered != 0]++;
        }
        assert_int_equal(n[1][1], LAYERS + 1);
        assert_int_equal(n[1][0], 0);
        assert_int_equal(n[0][1], 2 * LAYERS);
        assert_int_equal(n[0][0], 2);
    }
}

/* A schedule that mixes the weight gradients of several micro-batches needs all of them whole at
 * once, so two buffers are not enough. */
static void a_double_buffer_is_refused_with_zb_h1(void **state)
{
    (void)state;
    Tiny t = mixed(4);
    t.dp_shard = 2, t.pp = 2, t.zero = ZERO_optim_grads_params;
    t.pp_options.schedule = SCHEDULE_zb_h1;
    t.zero_options.fsdp_double_buffer = true;
    assert_null(tiny_plan(&t, false, arena, &diag));
    assert_int_equal(diag.n_errors, 1); /* the error is reported once, not for every rank */
    assert_string_equal(diag.items.at[0].rule, "zero-option");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_diag_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_shard_moves_the_bytes_of_ddp),
        TEST(sharded_optimizer_and_gradients_move_these_bytes),
        TEST(fully_sharded_weights_move_these_bytes),
        TEST(hybrid_sharding_reduces_shards_over_replicas),
        TEST(each_stage_of_zero_saves_memory),
        TEST(without_overlap_computation_waits),
        TEST(options_decide_the_dtypes),
        TEST(parameters_outside_units_form_buckets),
        TEST(a_double_buffer_serves_all_blocks),
        TEST(weights_that_stay_are_registered),
        TEST(a_double_buffer_is_refused_with_zb_h1),
    };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
