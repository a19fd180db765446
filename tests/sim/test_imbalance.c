/* Experts that are chosen unevenly: computation on their rows and the exchange of tokens take
 * longer, and nothing else does. Also the part of a model that one token uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/experts.h"
#include "sim/sim.h"
#include "tests/support/plans/tiny.h"

static Cluster node(void)
{
    Cluster c = {.name = "node", .nodes = 1, .devices_per_node = 8, .intra = FABRIC_nvswitch};
    c.intra_bytes_per_s = 450e9;
    c.device = (Device){.name = "H100", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3.35e12};
    for (int t = 1; t < DT_COUNT; t++) c.device.peak_flops[t] = 989e12;
    c.device.memory_bytes = UINT64_C(80) << 30;
    return c;
}

static Plan *mixture_of(int64_t experts, int64_t capacity, Arena *arena)
{
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    t.experts = experts, t.top_k = 2, t.capacity = capacity;
    t.dim = 64, t.hidden = 256, t.seq = 64;
    t.ep = experts ? 2 : 1, t.dp_replicate = experts ? 1 : 2;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    if (!plan) fail_msg("%s", d.items.at[0].text);
    return plan;
}

static Plan *mixture(int64_t experts, Arena *arena)
{
    return mixture_of(experts, 32, arena);
}

static SimReport simulate(const Plan *plan, double imbalance, Arena *arena)
{
    const Cluster c = node();
    const SimOptions options = {.explain = true, .imbalance = imbalance, .steps = 1};
    SimReport report;
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &options, arena, &report, &d));
    return report;
}

static Ps kernels_ps(const SimReport *r, OpKind op)
{
    for (uint32_t i = 0; i < r->kinds.n; i++)
        if (r->kinds.at[i].op == op) return r->kinds.at[i].time_ps;
    fail_msg("no kernels of %s", op_info(op)->name);
    return 0;
}

static Ps stream_ps(const SimReport *r, Stream stream)
{
    for (uint32_t i = 0; i < r->axes.n; i++)
        if (r->axes.at[i].stream == stream) return r->axes.at[i].total_ps;
    fail_msg("nothing on stream %s", stream_name(stream));
    return 0;
}

/* Rounding loses one picosecond for each kernel. */
static void assert_times(Ps longer, Ps time, double factor)
{
    enum { KERNELS = 64 };
    if (llabs((long long)longer - llround((double)time * factor)) > KERNELS)
        fail_msg("%lld is not %g x %lld", (long long)longer, factor, (long long)time);
}

static void busiest_rank_sets_the_pace(void **state)
{
    (void)state;
    static const OpKind on_rows[] = {OP_linear_experts, OP_linear_experts_d0, OP_linear_experts_d1,
                                     OP_silu,           OP_silu_grad,         OP_mul};
    static const OpKind others[] = {OP_linear_q, OP_dispatch, OP_combine, OP_route, OP_rmsnorm};
    Arena *arena = arena_new();
    const Plan *plan = mixture(4, arena);
    const SimReport even = simulate(plan, 1, arena), uneven = simulate(plan, 1.5, arena);
    for (size_t i = 0; i < sizeof on_rows / sizeof *on_rows; i++)
        assert_times(kernels_ps(&uneven, on_rows[i]), kernels_ps(&even, on_rows[i]), 1.5);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(kernels_ps(&uneven, others[i]) == kernels_ps(&even, others[i]));
    assert_true(stream_ps(&uneven, STREAM_ep) > stream_ps(&even, STREAM_ep));
    assert_true(uneven.step_ps > even.step_ps);
    assert_int_equal(uneven.n_classes, even.n_classes); /* ranks stay alike */
    arena_free(arena);
}

/* Returns the time of one exchange of tokens. `width` is the number of features of a token. */
static Ps exchange_ps(int64_t width, double imbalance)
{
    enum { EXCHANGES = 2 * 4 }; /* of two layers: there and back, forward and backward */
    Arena *arena = arena_new();
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    t.experts = 4, t.top_k = 2, t.capacity = 512, t.ep = 2, t.groups = 1, t.head_dim = 2;
    t.dim = width, t.hidden = 8, t.seq = 1024;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    const SimReport r = simulate(plan, imbalance, arena);
    const Ps one = stream_ps(&r, STREAM_ep) / EXCHANGES;
    arena_free(arena);
    return one;
}

/* An uneven exchange takes the time of an even one of as many bytes as the busiest rank receives.
 * Beyond its latency that is bytes by rate: each of 2 ranks sends half of its 4 x 512 rows of
 * `width` numbers of 4 bytes. No rank sends faster than its port of 18 links of 20.6 GB/s, nor
 * slower than half of that. */
static void an_uneven_exchange_has_its_closed_form(void **state)
{
    (void)state;
    enum { WIDTH = 1024, ROWS = 4 * 512 };
    const Ps even = exchange_ps(WIDTH, 1), uneven = exchange_ps(WIDTH, 2),
             wide = exchange_ps(2 * WIDTH, 1);
    const double half = ROWS * (double)WIDTH * 4 / 2, least = half / (18 * 20.6e9) * 1e12;
    assert_true(llabs((long long)(uneven - wide)) <= wide / 100);
    assert_true(uneven - even >= (Ps)least && uneven - even <= (Ps)(2 * least));
}

static void without_experts_nothing_changes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = mixture(0, arena);
    assert_null(experts_rows(&plan->graph, arena));
    assert_true(simulate(plan, 2, arena).step_ps == simulate(plan, 1, arena).step_ps);
    arena_free(arena);
}

/* Each of 64 tokens chooses 2 of 8 experts, on 2 ranks; all tokens may choose experts of one rank.
 * Thus 256 of the 512 slots go through the exchange. No other communication becomes shorter. */
static void padding_is_not_exchanged(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Runtime pads = {.name = "test", .pads_late = true}, sends = {.name = "test"},
                  own = {.pads_late = true};
    const Plan *plan = mixture_of(8, 64, arena);
    assert_true(imbalance_exchanged(plan, &pads) == .5);
    assert_true(imbalance_exchanged(plan, &sends) == 1);
    assert_true(imbalance_exchanged(plan, &own) == 1);
    assert_true(imbalance_exchanged(plan, NULL) == 1);
    assert_true(imbalance_exchanged(mixture_of(8, 16, arena), &pads) == 1); /* never more */
    assert_true(imbalance_exchanged(mixture(0, arena), &pads) == 1);
    const Cluster c = node();
    SimReport r[2];
    for (int i = 0; i < 2; i++) {
        const SimOptions options = {.explain = true, .steps = 1, .runtime = i ? &pads : &sends};
        Diag d = diag_in(arena);
        assert_true(sim_run(plan, &c, &options, arena, &r[i], &d));
    }
    assert_true(stream_ps(&r[1], STREAM_ep) < stream_ps(&r[0], STREAM_ep));
    assert_true(kernels_ps(&r[1], OP_linear_experts) == kernels_ps(&r[0], OP_linear_experts));
    arena_free(arena);
}

/* Each of two layers has three weights of 64 x 256; a token uses those of 2 of 4 experts. */
static void a_token_meets_a_part_of_the_model(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = mixture(4, arena);
    Graph *g = &plan->graph;
    g->info.n_params_no_embedding = 10000000;
    assert_int_equal(experts_active_params(g), 10000000 - 2 * 3 * 2 * 64 * 256);
    SimReport r = simulate(plan, 1, arena);
    assert_non_null(strstr(r.mfu_formula, "active params"));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(busiest_rank_sets_the_pace),
        cmocka_unit_test(an_uneven_exchange_has_its_closed_form),
        cmocka_unit_test(without_experts_nothing_changes),
        cmocka_unit_test(padding_is_not_exchanged),
        cmocka_unit_test(a_token_meets_a_part_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
