/* Plants bugs of halos and domains that published trainers had, in correct plans. A proof must
 * report each. Each row stands for a public report, or for a defect found in public source code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/nets.h"

static Arena *arena; /* arena of the running test */

/* Returns the plan of the net, which the proofs must accept. */
static const Plan *proven(const Net *n)
{
    Diag d = diag_in(arena);
    const Plan *plan = net_plan(n, true, arena, &d);
    assert_non_null(plan);
    const bool holds = verify_plan(plan, VERIFY_all, false, &d);
    Str said = str_in(arena);
    diag_print(&d, &said);
    if (!holds) fail_msg("%s", str_text(&said));
    return plan;
}

/* Returns a plan over three ranks of domain: convolutions with strides, dilation and an even
 * kernel, and a group norm. */
static const Plan *right_plan(void)
{
    const Window same = net_window(3, 1, 1, WINDOW_zero), odd = net_window(3, 2, 1, WINDOW_zero);
    const Window even = net_window(2, 1, 1, WINDOW_zero), wide = net_window(3, 1, 2, WINDOW_zero);
    const Window back = net_window(4, 2, 1, WINDOW_zero), pair = net_window(2, 2, 1, WINDOW_zero);
    Net n = net_default();
    n.height = 24;
    n.domain = 3;
    n.use_ddp = true;
    n.n_layers = 8;
    n.layer[0] = (NetLayer){NET_conv, same, same};
    n.layer[1] = (NetLayer){NET_norm, same, same};
    n.layer[2] = (NetLayer){NET_conv, odd, odd};
    n.layer[3] = (NetLayer){NET_conv, even, even};
    n.layer[4] = (NetLayer){NET_residual, wide, wide};
    n.layer[5] = (NetLayer){NET_transpose, back, back};
    n.layer[6] = (NetLayer){NET_attention, pair, pair};
    n.layer[7] = (NetLayer){NET_apart, pair, pair};
    return proven(&n);
}

/* Returns a plan of two convolutions with split rows and columns. */
static const Plan *plan_of_columns(void)
{
    const Window same = net_window(3, 1, 1, WINDOW_zero),
                 ring = net_window(3, 1, 1, WINDOW_periodic);
    Net n = net_default();
    n.height = 24;
    n.width = 16;
    n.domain = n.domain_w = 2;
    n.use_ddp = true;
    n.n_layers = 2;
    n.layer[0] = n.layer[1] = (NetLayer){NET_conv, same, ring};
    return proven(&n);
}

/* Returns a plan of a convolution with sharded weights, on two data ranks with two ranks of rows
 * each. */
static const Plan *plan_of_shards(void)
{
    Net n = net_default();
    n.domain = n.dp_shard = 2;
    return proven(&n);
}

static Instr *at(const Plan *plan, Pc pc)
{
    return &plan->programs.at[0].code.at[pc];
}

/* Returns the nth instruction of `op` whose node has op `of` (OP_none: any op). */
static Pc find(const Plan *plan, OpKind op, OpKind of, Phase phase, uint32_t nth)
{
    for (Pc pc = 1; pc < plan->programs.at[0].code.n; pc++) {
        const Instr *in = at(plan, pc);
        const OpKind is = plan->graph.nodes.at[in->origin].op;
        if (in->op == op && (of == OP_none || is == of) && in->phase == phase && nth-- == 0)
            return pc;
    }
    fail_msg("no %s in the plan", op_info(op)->name);
    return 0;
}

static BufferId *arg(Plan *plan, Pc pc, uint32_t i)
{
    return &plan->programs.at[0].args.at[at(plan, pc)->args.first + i];
}

/* A convolution reads only the rank's own rows. At the edge between two ranks it reads zeros
 * instead of the neighbours' rows. */
static Plan *no_exchange(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc join = find(plan, OP_halo_join, OP_conv2d, PHASE_forward, 0);
    const Pc conv = find(plan, OP_conv2d, OP_conv2d, PHASE_forward, 0);
    *arg(bad, conv, 0) = *arg(bad, join, 0);
    return bad;
}

/* In the nth deal of a kind, the last part lacks one halo row before its own rows. Buffers keep
 * their size, because inner parts have halos on both sides. */
static Plan *row_less(const Plan *plan, DealKind kind, uint32_t nth)
{
    Plan *bad = mutate_copy(plan, arena);
    const Deals *deals = &bad->graph.deals;
    for (DealId i = 1; i < deals->deals.n; i++) {
        const Deal *d = &deals->deals.at[i];
        if (d->kind != kind || nth-- > 0) continue;
        deals->intervals.at[d->first + d->n_parts - 1].lo++;
        return bad;
    }
    fail_msg("no such deal");
    return bad;
}

/* The halo has (k - s) / 2 rows, rounded down. For kernel 3 with stride 2 this is 0. */
static Plan *halo_too_narrow(const Plan *plan)
{
    return row_less(plan, DEAL_halo, 1);
}

/* The padding of an even kernel is left out on one side. */
static Plan *halo_of_even_kernel(const Plan *plan)
{
    return row_less(plan, DEAL_halo, 2);
}

/* The halo has (k - 1) / 2 rows, whatever the dilation is. */
static Plan *halo_without_dilation(const Plan *plan)
{
    return row_less(plan, DEAL_halo, 3);
}

/* The backward pass keeps a rank's own rows of the input's gradient, and drops the neighbours'
 * shares. */
static Plan *backward_without_exchange(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc fold = find(plan, OP_halo_fold, OP_conv_transpose2d, PHASE_backward, 0);
    Instr *in = at(bad, fold);
    in->op = OP_copy; /* the fold uses its own rows as if they were whole */
    in->n_in = 1;
    *arg(bad, fold, 1) = *arg(bad, fold, 2);
    in->args.n = 2;
    return bad;
}

/* A rank adds the strips that it should send. */
static Plan *own_strips_added(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc fold = find(plan, OP_halo_fold, OP_none, PHASE_backward, 0);
    const Pc cut = find(plan, OP_halo_cut, OP_none, PHASE_backward, 0);
    *arg(bad, fold, 1) = *arg(bad, cut, 1);
    return bad;
}

/* The border of a convolution reads the rank's own strips instead of its neighbours'. */
static Plan *border_of_own_strips(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc border = find(plan, OP_conv2d_border, OP_none, PHASE_forward, 0);
    const BufferId received = *arg(bad, border, 2);
    for (Pc pc = 1; pc < border; pc++)
        if (at(plan, pc)->op == OP_halo_exchange && *arg(bad, pc, 1) == received)
            *arg(bad, border, 2) = *arg(bad, pc, 0);
    return bad;
}

/* The border's result replaces the inner rows instead of being added. */
static Plan *border_alone(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = at(bad, find(plan, OP_conv2d_border, OP_none, PHASE_forward, 0));
    Attrs a = *graph_attrs_at(&bad->graph, in->attrs);
    a.accumulate = 0;
    in->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
    return bad;
}

/* Other ops read the inner rows before the border is added. */
static Plan *inner_rows_alone(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc border = find(plan, OP_conv2d_border, OP_none, PHASE_forward, 0);
    at(bad, border)->op = OP_copy;
    at(bad, border)->n_in = 1;
    at(bad, border)->attrs = 0;
    *arg(bad, border, 0) = *arg(bad, border, 1) = *arg(bad, border, 3);
    at(bad, border)->args.n = 2;
    return bad;
}

/* Halo rows of the gradient are copied like values, instead of being added. */
static Plan *gradient_exchanged_as_a_value(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    at(bad, find(plan, OP_halo_cut, OP_none, PHASE_backward, 0))->op = OP_halo_pack;
    return bad;
}

/* Returns the first convolution of inner rows that computes the part `which`. */
static Pc inner_part(const Plan *plan, int64_t which)
{
    for (Pc pc = 1; pc < plan->programs.at[0].code.n; pc++)
        if (at(plan, pc)->op == OP_conv2d_inner &&
            graph_attrs_at(&plan->graph, at(plan, pc)->attrs)->parts == which)
            return pc;
    fail_msg("no such part in the plan");
    return 0;
}

/* The sides read zeros or other columns instead of the halo of columns. */
static Plan *sides_of_own_columns(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    *arg(bad, inner_part(plan, ROWS_sides), 0) = *arg(bad, inner_part(plan, ROWS_centre), 0);
    return bad;
}

static Plan *with_attrs(const Plan *plan, Pc pc, int64_t which, int64_t accumulate)
{
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = at(bad, pc);
    Attrs a = *graph_attrs_at(&bad->graph, in->attrs);
    a.parts = which;
    a.accumulate = accumulate;
    in->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
    return bad;
}

/* The centre is added twice, and the sides never. */
static Plan *centre_twice(const Plan *plan)
{
    const Pc sides = inner_part(plan, ROWS_sides);
    Plan *bad = with_attrs(plan, sides, ROWS_centre, 1);
    *arg(bad, sides, 0) = *arg(bad, inner_part(plan, ROWS_centre), 0);
    return bad;
}

/* The sides are never computed. */
static Plan *centre_alone(const Plan *plan)
{
    const Pc sides = inner_part(plan, ROWS_sides);
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = at(bad, sides);
    *arg(bad, sides, 0) = *arg(bad, sides, 1) = *arg(bad, sides, in->n_in);
    in->op = OP_copy;
    in->n_in = 1;
    in->args.n = 2;
    in->attrs = 0;
    return bad;
}

/* The result of the sides replaces that of the centre. */
static Plan *sides_alone(const Plan *plan)
{
    return with_attrs(plan, inner_part(plan, ROWS_sides), ROWS_sides, 0);
}

/* The sides compute all inner rows, so the centre is added twice. */
static Plan *centre_in_the_sides(const Plan *plan)
{
    return with_attrs(plan, inner_part(plan, ROWS_sides), ROWS_all, 1);
}

static Plan *without(const Plan *plan, Pc pc)
{
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = at(bad, pc);
    in->op = OP_copy;
    in->axes = 0;
    in->match = in->launch = in->attrs = 0;
    return bad;
}

/* Each rank normalises by the statistics of its own rows. */
static Plan *local_statistics(const Plan *plan)
{
    return without(plan, find(plan, OP_all_reduce, OP_group_sum, PHASE_forward, 0));
}

/* The sum is global, but the gradients of the statistics are not, because the all_reduce is outside
 * autograd. */
static Plan *statistics_without_backward(const Plan *plan)
{
    return without(plan, find(plan, OP_all_reduce, OP_group_norm_grad, PHASE_backward, 0));
}

/* Weights train on the gradient of a rank's own rows. */
static Plan *weights_not_summed(const Plan *plan)
{
    for (Pc pc = 1; pc < plan->programs.at[0].code.n; pc++) {
        const Instr *in = at(plan, pc);
        if (in->op == OP_all_reduce && in->unit) return without(plan, pc);
    }
    fail_msg("no reduction of a bucket");
    return NULL;
}

/* Weight gradients are averaged over ranks. This would be right if the loss were a mean of equal
 * parts, but it is a sum. */
static Plan *weights_averaged(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    for (Pc pc = 1; pc < plan->programs.at[0].code.n; pc++) {
        Instr *in = at(bad, pc);
        if (in->op != OP_all_reduce || !in->unit) continue;
        Attrs a = *graph_attrs_at(&bad->graph, in->attrs);
        a.reduce = REDUCE_mean;
        in->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
        return bad;
    }
    return bad;
}

static Plan *shared_by(const Plan *plan, double scale)
{
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = at(bad, find(plan, OP_scale, OP_none, PHASE_backward, 0));
    Attrs a = *graph_attrs_at(&bad->graph, in->attrs);
    a.scale = scale;
    in->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
    return bad;
}

/* All ranks have the whole gradient, and each adds it to the sum over ranks. */
static Plan *whole_gradient_summed(const Plan *plan)
{
    return shared_by(plan, 1);
}

/* The gradient is halved, although there are three ranks. */
static Plan *share_of_other_ranks(const Plan *plan)
{
    return shared_by(plan, 0.5);
}

/* Attention reads points at a fixed distance only among the rank's own rows. The model defines
 * another function. */
static Plan *points_of_own_rows(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc pack = find(plan, OP_stride_pack, OP_none, PHASE_forward, 0);
    const Pc attention = find(plan, OP_strided_attention, OP_none, PHASE_forward, 0);
    for (uint32_t i = 0; i < 3; i++) *arg(bad, attention, i) = *arg(bad, pack, 0);
    return bad;
}

/* A rank unpacks the pieces that it should send. */
static Plan *own_pieces_unpacked(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc pack = find(plan, OP_stride_pack, OP_none, PHASE_forward, 0);
    *arg(bad, find(plan, OP_stride_unpack, OP_none, PHASE_forward, 0), 0) = *arg(bad, pack, 1);
    return bad;
}

/* Other ops use the output of attention as if its rows were in order. */
static Plan *points_not_returned(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc attention = find(plan, OP_strided_attention, OP_none, PHASE_forward, 0);
    const Pc back = find(plan, OP_stride_unpack, OP_none, PHASE_forward, 1);
    for (Pc pc = attention + 1; pc < plan->programs.at[0].code.n; pc++)
        for (uint32_t i = 0; i < at(bad, pc)->n_in; i++)
            if (*arg(bad, pc, i) == *arg(bad, back, 1)) *arg(bad, pc, i) = *arg(bad, attention, 4);
    return bad;
}

/* Returns the first sum of squares. The instruction before it must sum its gradient over domain. */
static Pc squares_after_sum(const Plan *plan)
{
    const Pc pc = find(plan, OP_sumsq, OP_none, PHASE_update, 0);
    const Instr *sum = at(plan, pc - 1);
    assert_true(sum->op == OP_all_reduce && sum->unit == at(plan, pc)->unit);
    assert_int_equal(sum->axes, mesh_axes(&plan->mesh, AXIS_domain));
    return pc;
}

/* The squares are added up before the gradient is summed over domain, so they lack the other ranks'
 * rows. The gradient itself is right. */
static Plan *norm_of_own_rows(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc pc = squares_after_sum(plan);
    const Instr sum = *at(plan, pc - 1);
    Program *p = &bad->programs.at[0];
    *at(bad, pc - 1) = *at(plan, pc);
    at(bad, pc - 1)->after = (Span){(uint32_t)list_push(arena, &p->after, pc - 2), 1};
    *at(bad, pc) = sum;
    at(bad, pc)->after = (Span){(uint32_t)list_push(arena, &p->after, pc - 1), 1};
    return bad;
}

/* Ranks of a domain have equal gradients, but the sum of squares also goes over these ranks. So it
 * counts each element once for each rank. */
static Plan *norm_of_every_copy(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const AxisSet shards = mesh_axes(&plan->mesh, AXIS_dp_shard);
    for (Pc pc = squares_after_sum(plan); pc < plan->programs.at[0].code.n; pc++) {
        if (at(bad, pc)->op != OP_all_reduce || at(bad, pc)->axes != shards) continue;
        at(bad, pc)->axes |= mesh_axes(&plan->mesh, AXIS_domain);
        return bad;
    }
    fail_msg("the squares are not summed");
    return bad;
}

/* The sum contains the squares of the first bucket twice, and no squares of the second bucket. */
static Plan *norm_counts_twice(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    const Pc first = find(plan, OP_sumsq, OP_none, PHASE_update, 0);
    const Pc second = find(plan, OP_sumsq, OP_none, PHASE_update, 1);
    Attrs a = *graph_attrs_at(&bad->graph, at(plan, first)->attrs);
    a.accumulate = graph_attrs_at(&bad->graph, at(plan, second)->attrs)->accumulate;
    at(bad, second)->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
    *arg(bad, second, 0) = *arg(bad, first, 0);
    return bad;
}

static const struct {
    const char *name, *where;
    Plan *(*plant)(const Plan *plan);
    const char *rule;
    const Plan *(*in)(void);
} bugs[] = {
    {"zero padding at interior edges", "NCAR/miles-credit#475", no_exchange, "verify-layout",
     right_plan},
    {"halo of kernel 3, stride 2", "miles-credit 5e14b83, halo width", halo_too_narrow,
     "verify-layout", right_plan},
    {"halo of an even kernel", "miles-credit 5e14b83, halo width", halo_of_even_kernel,
     "verify-layout", right_plan},
    {"halo without dilation", "miles-credit 5e14b83, halo width", halo_without_dilation,
     "verify-layout", right_plan},
    {"adjoint lacks exchanges", "stfc/PSyclone#3005", backward_without_exchange, "verify-layout",
     right_plan},
    {"own strips added", "distdl/distdl#35", own_strips_added, "verify-layout", right_plan},
    {"a border of own strips", "distdl/distdl#35", border_of_own_strips, "verify-layout",
     right_plan},
    {"a border without inner rows", "a sum of two parts", border_alone, "verify-layout",
     right_plan},
    {"inner rows without a border", "NCAR/miles-credit#475", inner_rows_alone, "verify-layout",
     right_plan},
    {"gradient exchanged as a value", "NVIDIA/physicsnemo#1892", gradient_exchanged_as_a_value,
     "verify-layout", right_plan},
    {"sides of own columns", "NCAR/miles-credit#475", sides_of_own_columns, "verify-layout",
     plan_of_columns},
    {"a centre twice", "a sum of three parts", centre_twice, "verify-layout", plan_of_columns},
    {"a centre without sides", "a sum of three parts", centre_alone, "verify-layout",
     plan_of_columns},
    {"sides without a centre", "a sum of three parts", sides_alone, "verify-layout",
     plan_of_columns},
    {"a centre in the sides", "a sum of three parts", centre_in_the_sides, "verify-layout",
     plan_of_columns},
    {"group norm of local rows", "NVIDIA/physicsnemo#1393", local_statistics, "verify-layout",
     right_plan},
    {"group norm without its backward", "miles-credit 5e14b83, GroupNorm",
     statistics_without_backward, "verify-layout", right_plan},
    {"weight gradients not summed", "miles-credit 9251b4f, domain sync", weights_not_summed,
     "verify-layout", right_plan},
    {"weight gradients averaged", "miles-credit 5e14b83, sync_domain_gradients", weights_averaged,
     "verify-layout", right_plan},
    {"whole gradients summed", "bias by position, over parts of a field", whole_gradient_summed,
     "verify-layout", right_plan},
    {"attention within own rows", "miles-credit 5e14b83, long-distance attention",
     points_of_own_rows, "verify-layout", right_plan},
    {"own pieces unpacked", "distdl/distdl#35", own_pieces_unpacked, "verify-layout", right_plan},
    {"points not returned", "an exchange left out", points_not_returned, "verify-layout",
     right_plan},
    {"share of other ranks", "bias by position, over parts of a field", share_of_other_ranks,
     "verify-layout", right_plan},
    {"norm of own rows", "miles-credit 9251b4f, domain sync", norm_of_own_rows, "verify-layout",
     plan_of_shards},
    {"norm of every copy", "a sum over replicas", norm_of_every_copy, "verify-layout",
     plan_of_shards},
    {"a bucket twice in the norm", "a sum over buckets", norm_counts_twice, "verify-scale",
     right_plan},
};

static void each_planted_bug_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        arena = arena_new();
        const Plan *bad = bugs[i].plant(bugs[i].in());
        Diag d = diag_in(arena);
        if (verify_plan(bad, VERIFY_all, false, &d))
            fail_msg("%s (%s) passes", bugs[i].name, bugs[i].where);
        bool named = false;
        Str said = str_in(arena);
        for (uint32_t k = 0; k < d.items.n; k++)
            named = named || strcmp(d.items.at[k].rule, bugs[i].rule) == 0;
        diag_print(&d, &said);
        if (!named) fail_msg("%s: no %s in\n%s", bugs[i].name, bugs[i].rule, str_text(&said));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_planted_bug_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
