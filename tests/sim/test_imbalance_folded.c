/* Uneven experts that are divided over ranks of tp or cp beside ranks of ep (ep_mode = "folded").
 * Ranks of tp or cp have the same tokens, and each computes the rows of its own experts. Only ranks
 * of ep exchange rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "sim/compute/imbalance.h"
#include "sim/sim.h"
#include "tests/sim/eight.h"
#include "tests/support/plans/tiny.h"

enum { EXPERTS = 8, TOP_K = 2, SEQ = 4096, WIDTH = 1024 };

typedef struct Lent {
    uint32_t ep, tp, cp; /* the number of ranks along each axis that divide the experts */
} Lent;

static Plan *folded(Lent lent, int64_t width, bool dropless, Arena *arena)
{
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    t.experts = EXPERTS, t.top_k = TOP_K, t.capacity = dropless ? 0 : SEQ, t.dropless = dropless;
    t.ep = lent.ep, t.tp = t.tp_lent = lent.tp, t.cp = t.cp_lent = lent.cp;
    t.groups = 2, t.head_dim = 2, t.dim = width, t.hidden = 64, t.seq = SEQ;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    if (plan == NULL) fail_msg("%s", d.items.at[0].text);
    return plan;
}

static SimReport simulate(const Plan *plan, const RowLoads *loads, bool unfolded, Arena *arena)
{
    const Cluster c = eight_h100();
    const SimOptions options = {.trace = true, .unfolded = unfolded, .loads = loads, .steps = 1};
    SimReport report;
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &options, arena, &report, &d));
    return report;
}

/* Returns the time of a rank's kernels of this op, or of its exchanges of rows if `op` is
 * OP_none. */
static Ps rank_ps(const Plan *plan, const SimReport *r, Rank rank, OpKind op)
{
    const AxisSet ep = mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts));
    Ps sum = 0;
    for (uint32_t i = 0; i < r->trace.rows.n; i++) {
        const TraceRow *row = &r->trace.rows.at[i];
        const Instr *in = &plan->programs.at[plan->program_of[rank]].code.at[row->pc];
        if (row->rank == rank &&
            (op ? in->op == op : op_exchanges(in->op) && in->axes && !(in->axes & ~ep)))
            sum += row->end_ps - row->start_ps;
    }
    return sum;
}

/* Checks the bytes of an exchange. A rank sends only rows for experts in its own group of ep: T
 * top_k / (tp cp) rows of WIDTH numbers. The size of the reserved memory does not change this. */
static void an_exchange_has_the_bytes_of_its_rows(void **state)
{
    (void)state;
    static const Lent lent[] = {{2, 1, 1}, {2, 2, 1}, {2, 1, 2}, {2, 2, 2}};
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++) {
        Arena *arena = arena_new();
        const Plan *plan = folded(lent[i], WIDTH, true, arena);
        const Program *p = &plan->programs.at[0];
        const uint64_t rows = SEQ * TOP_K / (lent[i].tp * lent[i].cp);
        uint32_t n = 0;
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (in->op != OP_exchange_uneven) continue;
            assert_int_equal(plan_comm_bytes(plan, p, in), rows * WIDTH * 4);
            n++;
        }
        /* in each of two layers: to the experts and back, forward and backward */
        assert_int_equal(n, 2 * 4);
        arena_free(arena);
    }
}

/* If the experts of a group of ep are half of all experts, the group exchanges half of the rows.
 * That takes as long as an exchange of all rows at half the width, without tp and cp. */
static void an_exchange_takes_the_time_of_its_rows(void **state)
{
    (void)state;
    static const Lent lent[] = {{2, 2, 1}, {2, 1, 2}};
    Arena *arena = arena_new();
    const Plan *narrow = folded((Lent){2, 1, 1}, WIDTH / 2, true, arena);
    const SimReport r = simulate(narrow, NULL, true, arena);
    const Ps want = rank_ps(narrow, &r, 0, OP_none);
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++) {
        const Plan *plan = folded(lent[i], WIDTH, true, arena);
        const SimReport is = simulate(plan, NULL, true, arena);
        for (Rank rank = 0; rank < 4; rank++) {
            const Ps time = rank_ps(plan, &is, rank, OP_none);
            if (!(llabs((long long)(time - want)) <= want / 100))
                fail_msg("rank %u: %lld ps, %lld expected", rank, (long long)time, (long long)want);
        }
    }
    arena_free(arena);
}

/* Returns the share of a rank: the sum of the shares of its experts. */
static double share_of(const Plan *plan, const double *share, Rank rank)
{
    const Program *p = &plan->programs.at[plan->program_of[rank]];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_linear_experts && in->op != OP_linear_uneven) continue;
        const Shape *w = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 1)].shape);
        const AxisSet axes = layout_axes_split(&w->layout, 0);
        return share[mesh_part(&plan->mesh, rank, axes)];
    }
    fail_msg("rank %u computes no experts", rank);
    return 0;
}

static const double shares[] = {0.5, 1.5, 0, 2};

static void each_rank_has_its_own_rows(void **state)
{
    (void)state;
    static const Lent lent[] = {{2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {4, 1, 1}};
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = shares};
    for (size_t i = 0; i < 2 * sizeof lent / sizeof *lent; i++) {
        Arena *arena = arena_new();
        const Plan *plan = folded(lent[i / 2], 256, i % 2 == 0, arena);
        const SimReport even = simulate(plan, NULL, true, arena),
                        own = simulate(plan, &loads, true, arena);
        double sum = 0;
        for (Rank r = 0; r < 4; r++) {
            const double share = share_of(plan, shares, r);
            assert_true(rank_ps(plan, &even, r, OP_silu) > 0);
            assert_times(rank_ps(plan, &own, r, OP_silu), rank_ps(plan, &even, r, OP_silu), share);
            assert_true(rank_ps(plan, &own, r, OP_linear_q) ==
                        rank_ps(plan, &even, r, OP_linear_q));
            sum += share;
        }
        assert_true(sum == 4); /* no rank is counted twice */
        assert_int_equal(own.n_classes, 4);
        arena_free(arena);
    }
}

/* Two ranks that differ in ep exchange rows. Rank r receives half of its rows from the other rank,
 * and sends it half of the other's rows. So the exchange takes as long as an even exchange of m
 * times the bytes, where m is the larger share of the two. If their experts get no rows, only the
 * latency remains. */
static void only_ranks_of_ep_exchange_rows(void **state)
{
    (void)state;
    static const double one_pair[] = {2, 2, 0, 0},
                        mixed[] = {0.5, 1.5, 0, 2}, *const loaded[] = {one_pair, mixed};
    static const Lent lent[] = {{2, 2, 1}, {2, 1, 2}};
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        for (size_t k = 0; k < 2; k++) {
            Arena *arena = arena_new();
            const double *share = loaded[k];
            const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = share};
            const Plan *plan = folded(lent[i], WIDTH, true, arena),
                       *wide = folded(lent[i], 2 * WIDTH, true, arena);
            const AxisSet ep = mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts));
            const SimReport even = simulate(plan, NULL, true, arena),
                            twice = simulate(wide, NULL, true, arena),
                            own = simulate(plan, &loads, true, arena);
            for (Rank r = 0; r < 4; r++) {
                const Rank a = mesh_member(&plan->mesh, r, ep, 0),
                           b = mesh_member(&plan->mesh, r, ep, 1);
                const double most = fmax(share_of(plan, share, a), share_of(plan, share, b));
                const double once = (double)rank_ps(plan, &even, r, OP_none),
                             more = (double)rank_ps(plan, &twice, r, OP_none) - once,
                             is = (double)rank_ps(plan, &own, r, OP_none);
                /* The time of the bytes grows with the rows, but the latency does not. Short
                 * messages are slightly slower. */
                const double want = once + (most - 1) * more;
                if (!(fabs(is - want) <= .02 * once))
                    fail_msg("rank %u: %.0f ps, %.0f expected of %g times the rows", r, is, want,
                             most);
            }
            arena_free(arena);
        }
}

/* Ranks with the same experts have the same loads, so they are folded. */
static void ranks_of_the_same_experts_fold(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    const RowLoads loads = {.n_layers = 1, .n_ranks = 4, .share = shares};
    t.experts = EXPERTS, t.top_k = TOP_K, t.dropless = true, t.seq = 64;
    t.dp_shard = t.ep = t.tp = t.tp_lent = 2;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    const SimReport folded = simulate(plan, &loads, false, arena),
                    all = simulate(plan, &loads, true, arena);
    assert_int_equal(folded.n_classes, 4);
    assert_int_equal(all.n_classes, 8);
    assert_true(folded.step_ps == all.step_ps);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_has_the_bytes_of_its_rows),
        cmocka_unit_test(an_exchange_takes_the_time_of_its_rows),
        cmocka_unit_test(each_rank_has_its_own_rows),
        cmocka_unit_test(only_ranks_of_ep_exchange_rows),
        cmocka_unit_test(ranks_of_the_same_experts_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
