/* If experts are chosen unevenly, computing on their rows and exchanging tokens takes longer.
 * Nothing else does. The test also covers the part of a model that one token uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/experts.h"
#include "sim/compute/imbalance.h"
#include "sim/sim.h"
#include "store/store.h"
#include "tests/sim/eight.h"
#include "tests/support/plans/tiny.h"

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
    const Cluster c = eight_h100();
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

static void the_busiest_rank_sets_the_pace(void **state)
{
    (void)state;
    static const OpKind products[] = {OP_linear_experts, OP_linear_experts_d0,
                                      OP_linear_experts_d1};
    static const OpKind on_rows[] = {OP_silu, OP_silu_grad, OP_mul};
    static const OpKind others[] = {OP_linear_q, OP_dispatch, OP_combine, OP_route, OP_rmsnorm};
    Arena *arena = arena_new();
    const Plan *plan = mixture(4, arena);
    const SimReport even = simulate(plan, 1, arena), uneven = simulate(plan, 1.5, arena);
    for (size_t i = 0; i < sizeof on_rows / sizeof *on_rows; i++)
        assert_times(kernels_ps(&uneven, on_rows[i]), kernels_ps(&even, on_rows[i]), 1.5);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        /* weights and the number of tiles stay the same */
        const double longer = (double)kernels_ps(&uneven, products[i]),
                     before = (double)kernels_ps(&even, products[i]);
        assert_true(longer >= before && longer < 1.45 * before);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(kernels_ps(&uneven, others[i]) == kernels_ps(&even, others[i]));
    assert_true(stream_ps(&uneven, STREAM_ep) > stream_ps(&even, STREAM_ep));
    assert_true(uneven.step_ps > even.step_ps);
    /* Ranks still do equal work, so they are folded. */
    assert_int_equal(uneven.n_classes, even.n_classes);
    arena_free(arena);
}

/* Returns the time of one exchange of tokens. `width` is the number of features of a token. */
static Ps exchange_ps(int64_t width, double imbalance)
{
    /* in each of two layers: to the experts and back, forward and backward */
    enum { EXCHANGES = 2 * 4 };
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

/* An uneven exchange takes as long as an even one of the bytes that the busiest rank receives. Its
 * time without latency is bytes / rate. Each of 2 ranks sends half of its 4 x 512 rows of `width`
 * numbers of 4 bytes. The rate is between half and all of a port, which has 18 links of 20.6
 * GB/s. */
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

static Plan *four_ranks(int64_t width, Arena *arena)
{
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    t.experts = 8, t.top_k = 2, t.capacity = 512, t.ep = 4, t.groups = 1, t.head_dim = 2;
    t.dim = width, t.hidden = 64, t.seq = 1024;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    if (plan == NULL) fail_msg("%s", d.items.at[0].text);
    return plan;
}

static SimReport simulate_loads(const Plan *plan, const RowLoads *loads, Arena *arena)
{
    const Cluster c = eight_h100();
    const SimOptions options = {.trace = true, .unfolded = true, .loads = loads, .steps = 1};
    SimReport report;
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &options, arena, &report, &d));
    return report;
}

/* Returns the time of a rank's kernels of this op, or of its exchanges of tokens if `op` is
 * OP_none. */
static Ps rank_ps(const Plan *plan, const SimReport *r, Rank rank, OpKind op)
{
    Ps sum = 0;
    for (uint32_t i = 0; i < r->trace.rows.n; i++) {
        const TraceRow *row = &r->trace.rows.at[i];
        const Instr *in = &plan->programs.at[plan->program_of[rank]].code.at[row->pc];
        if (row->rank == rank && (op ? in->op == op : op_exchanges(in->op)))
            sum += row->end_ps - row->start_ps;
    }
    return sum;
}

/* In each layer, each rank computes only on its own rows. This device launches kernels in no time.
 * So kernels that only move rows take time in proportion to the rows. */
static void each_rank_has_its_own_rows(void **state)
{
    (void)state;
    static const double share[] = {0.5, 1.5, 1, 1, 2, 0, 0.25, 1.75};
    const RowLoads loads = {.n_layers = 2, .n_ranks = 4, .share = share};
    Arena *arena = arena_new();
    const Plan *plan = four_ranks(256, arena);
    const SimReport even = simulate_loads(plan, NULL, arena),
                    own = simulate_loads(plan, &loads, arena);
    for (Rank r = 0; r < 4; r++) {
        const double mean = (share[r] + share[4 + r]) / 2;
        assert_true(rank_ps(plan, &even, r, OP_silu) > 0);
        assert_times(rank_ps(plan, &own, r, OP_silu), rank_ps(plan, &even, r, OP_silu), mean);
        assert_times(rank_ps(plan, &own, r, OP_silu_grad), rank_ps(plan, &even, r, OP_silu_grad),
                     mean);
        assert_true(rank_ps(plan, &own, r, OP_linear_q) == rank_ps(plan, &even, r, OP_linear_q));
    }
    assert_int_equal(own.n_classes, 4);
    arena_free(arena);
}

/* Kernels are measured with even rows. If a rank has another number of rows, the measured time
 * changes by the same factor as the modelled time. */
static void measured_kernels_scale_like_modelled_ones(void **state)
{
    (void)state;
    enum { MEASURED_PS = 40000000 };
    static const double share[] = {0.5, 1.5, 0, 2};
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = share};
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Cluster c = eight_h100();
    const Plan *plan = four_ranks(256, arena);
    const Program *p = &plan->programs.at[0];
    Store *store = store_open(":memory:", false, &d);
    assert_non_null(store);
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_silu) continue;
        n++;
        assert_true(
            store_put_kernel(store, "here", cost_key(plan, p, in, arena), MEASURED_PS, 0, 1, &d));
    }
    assert_true(n > 0);
    const SimOptions options = {.trace = true,
                                .unfolded = true,
                                .loads = &loads,
                                .steps = 1,
                                .store = store,
                                .machine = "here"};
    SimReport r;
    assert_true(sim_run(plan, &c, &options, arena, &r, &d));
    for (Rank rank = 0; rank < 4; rank++)
        assert_times(rank_ps(plan, &r, rank, OP_silu), n * (Ps)MEASURED_PS, share[rank]);
    store_close(store);
    arena_free(arena);
}

/* With s times the mean rows, a product moves s times the bytes of rows, but the bytes of its
 * weights only once. A kernel is launched only once. On this device, memory limits all products. A
 * rank without rows still launches kernels, and writes the weight's gradient. */
static void only_rows_scale_with_a_ranks_share(void **state)
{
    (void)state;
    enum { WIDTH = 64, HIDDEN = 64, ROWS = 4 * 512, EXPERTS = 2, LAUNCH_PS = 3000000 };
    static const double share[] = {0, 2, 0.5, 1.5};
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = share};
    Arena *arena = arena_new();
    const Plan *plan = four_ranks(WIDTH, arena);
    Cluster c = eight_h100();
    c.device.kernel_floor_s = LAUNCH_PS * 1e-12;
    c.device.memory_efficiency = 1;
    c.device.arch = "cpu"; /* a CPU has no tiles */
    const SimOptions options = {.trace = true, .unfolded = true, .loads = &loads, .steps = 1};
    SimReport r;
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &options, arena, &r, &d));
    const Program *p = &plan->programs.at[0];
    uint32_t n_products = 0;
    for (uint32_t i = 0; i < r.trace.rows.n; i++) {
        const TraceRow *row = &r.trace.rows.at[i];
        const Instr *in = &p->code.at[row->pc];
        const double took = (double)(row->end_ps - row->start_ps);
        if (in->op == OP_linear_experts) {
            const double weights = 4. * EXPERTS * WIDTH * HIDDEN,
                         rows = 4. * EXPERTS * ROWS * (WIDTH + HIDDEN),
                         bytes = share[row->rank] * rows + (share[row->rank] > 0 ? weights : 0),
                         expected = LAUNCH_PS + bytes / 3.35e12 * 1e12;
            if (!(fabs(took - expected) <= 2)) fail_msg("%g ps, %g expected", took, expected);
            n_products++;
        }
        if (in->op == OP_silu && share[row->rank] == 0) assert_true(took == LAUNCH_PS);
        if (in->op == OP_linear_experts_d1) assert_true(took > LAUNCH_PS);
    }
    assert_true(n_products >= 4 * 2);
    arena_free(arena);
}

/* If ranks share cores, `imbalance` is one factor: the load of the first rank. The other ranks
 * divide the remaining rows. */
static void a_factor_on_shared_cores_has_one_busiest_rank(void **state)
{
    (void)state;
    static const double share[] = {2.5, 0.5, 0.5, 0.5};
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = share};
    Arena *arena = arena_new();
    const Plan *plan = four_ranks(256, arena);
    Cluster c = {.name = "cores", .nodes = 1, .devices_per_node = 4, .cores_per_node = 2};
    c.intra = FABRIC_host, c.intra_bytes_per_s = 5e9;
    c.device = (Device){.name = "core", .arch = "cpu", .sms = 1, .hbm_bytes_per_s = 1e10};
    for (int t = 1; t < DT_COUNT; t++) c.device.peak_flops[t] = 6e10;
    c.device.memory_bytes = UINT64_C(8) << 30;
    const SimOptions by_factor = {.imbalance = 2.5, .steps = 1},
                     by_rank = {.loads = &loads, .steps = 1}, even = {.steps = 1};
    SimReport r[3];
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &by_factor, arena, &r[0], &d));
    assert_true(sim_run(plan, &c, &by_rank, arena, &r[1], &d));
    assert_true(sim_run(plan, &c, &even, arena, &r[2], &d));
    assert_true(r[0].step_ps == r[1].step_ps);
    assert_true(r[0].step_ps > r[2].step_ps);
    arena_free(arena);
}

/* Returns the time of the exchanges of both layers, forward and backward, if ranks have these
 * loads. */
static Ps exchanges_ps(int64_t width, const double *share)
{
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = share};
    Arena *arena = arena_new();
    const Plan *plan = four_ranks(width, arena);
    const SimReport r = simulate_loads(plan, share ? &loads : NULL, arena);
    const Ps time = rank_ps(plan, &r, 0, OP_none);
    for (Rank rank = 1; rank < 4; rank++) assert_true(rank_ps(plan, &r, rank, OP_none) == time);
    arena_free(arena);
    return time;
}

/* Tokens are spread evenly over n ranks. So rank r receives (n - 1) / n of its rows from other
 * ranks, and sends them back. It has share(r) times the mean rows. An exchange lasts until the
 * busiest rank has finished: as long as an even exchange of max share(r) times the bytes. */
static void exchanges_of_ranks_with_own_rows_have_their_closed_form(void **state)
{
    (void)state;
    enum { WIDTH = 1024, ROWS = 8 * 512, EXCHANGES = 2 * 4 };
    static const double one_idle[] = {2, 0, 1, 1}, two_idle[] = {0, 2, 0, 2},
                        half[] = {1.5, 0.5, 1, 1}, same[] = {1, 1, 1, 1};
    const Ps even = exchanges_ps(WIDTH, NULL), twice = exchanges_ps(2 * WIDTH, NULL);
    assert_true(exchanges_ps(WIDTH, same) == even);
    assert_true(exchanges_ps(WIDTH, one_idle) == exchanges_ps(WIDTH, two_idle));
    assert_true(llabs((long long)(exchanges_ps(WIDTH, one_idle) - twice)) <= twice / 100);
    /* Without latency, an exchange takes bytes / rate. A port has 18 links of 20.6 GB/s. */
    const double moved = EXCHANGES * (double)ROWS * WIDTH * 4 * 3 / 4,
                 least = .5 * moved / (18 * 20.6e9) * 1e12;
    const Ps longer = exchanges_ps(WIDTH, half) - even;
    if (!(longer >= (Ps)least && longer <= (Ps)(2 * least)))
        fail_msg("%lld ps longer, and at least %g expected", (long long)longer, least);
}

/* Forward, tokens go to the experts and results come back. Gradients do the same. The plan has two
 * layers. */
static void exchanges_go_there_and_back(void **state)
{
    (void)state;
    static const double share[] = {1, 1, 1, 1};
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = share};
    Arena *arena = arena_new();
    const Plan *plan = four_ranks(64, arena);
    const Fold *fold = fold_ranks(plan, 8, 8, true, arena);
    const Imbalance *b =
        imbalance_new(plan, 1, 1, &loads, fold, (CostModel){0}, (NetModel){0}, arena);
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0, layers[3] = {0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        bool back = false;
        const Instr *in = &p->code.at[pc];
        if (!op_exchanges(in->op)) continue;
        const uint32_t layer = imbalance_layer(b, plan, p, in, &back);
        assert_true(layer == 1 || layer == 2);
        layers[layer]++;
        assert_true(back == (n++ % 2 == 1));
    }
    assert_true(n == 8 && layers[1] == 4 && layers[2] == 4);
    arena_free(arena);
}

/* Ranks are folded if their loads are equal in all layers. The two ranks of a group of ep have
 * different loads, so they are not folded. */
static void ranks_of_equal_loads_fold(void **state)
{
    (void)state;
    static const double share[] = {0.5, 1.5};
    const RowLoads loads = {.n_layers = 1, .n_ranks = 2, .share = share};
    Arena *arena = arena_new();
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    t.experts = 4, t.top_k = 2, t.capacity = 64, t.seq = 64, t.dp_shard = 4, t.ep = 2;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    const Cluster c = eight_h100();
    SimReport report[2];
    for (int i = 0; i < 2; i++) {
        const SimOptions options = {.loads = &loads, .unfolded = i == 1, .steps = 1};
        assert_true(sim_run(plan, &c, &options, arena, &report[i], &d));
    }
    assert_int_equal(report[0].n_classes, 2);
    assert_int_equal(report[1].n_classes, 8);
    assert_true(report[0].step_ps == report[1].step_ps);
    arena_free(arena);
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

/* Each of 64 tokens chooses 2 of 8 experts on 2 ranks, and all may choose experts of one rank. So
 * 256 of the 512 slots of the exchange are used. No other communication becomes shorter. */
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
    /* never exchanges more than all slots */
    assert_true(imbalance_exchanged(mixture_of(8, 16, arena), &pads) == 1);
    assert_true(imbalance_exchanged(mixture(0, arena), &pads) == 1);
    const Cluster c = eight_h100();
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

/* Each of two layers has three weights of 64 x 256 for each expert. A token uses 2 of 4 experts. */
static void a_token_uses_a_part_of_the_model(void **state)
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
        cmocka_unit_test(the_busiest_rank_sets_the_pace),
        cmocka_unit_test(an_uneven_exchange_has_its_closed_form),
        cmocka_unit_test(each_rank_has_its_own_rows),
        cmocka_unit_test(measured_kernels_scale_like_modelled_ones),
        cmocka_unit_test(only_rows_scale_with_a_ranks_share),
        cmocka_unit_test(a_factor_on_shared_cores_has_one_busiest_rank),
        cmocka_unit_test(exchanges_of_ranks_with_own_rows_have_their_closed_form),
        cmocka_unit_test(exchanges_go_there_and_back),
        cmocka_unit_test(ranks_of_equal_loads_fold),
        cmocka_unit_test(without_experts_nothing_changes),
        cmocka_unit_test(padding_is_not_exchanged),
        cmocka_unit_test(a_token_uses_a_part_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
