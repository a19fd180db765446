/* Plants faults in good plans whose experts are shared over ranks: tokens reach the wrong experts,
 * gradients are summed over the wrong ranks, or a reduction lies between the two backward
 * exchanges. Each fault must be reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "tests/support/command.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

/* ---- right plans ---- */

/* Two layers have six experts over two ranks. Each expert has room for three tokens of a
 * sequence. */
static Tiny tiny_experts(void)
{
    Tiny t = tiny_default();
    t.experts = 6, t.ep = 2, t.capacity = 3;
    return t;
}

static Plan *right_plan(const Tiny *t)
{
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    return plan;
}

/* Returns the n-th exchange of the forward or of the backward pass. */
static Pc exchange(const Plan *plan, Phase phase, uint32_t n)
{
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_all_to_all && p->code.at[pc].phase == phase && n-- == 0)
            return pc;
    fail_msg("no exchange");
    return 0;
}

/* Returns the instruction that sums the gradient of a parameter over ranks. */
static Pc sum_of(const Plan *plan, OpKind op, const char *param)
{
    const Program *p = &plan->programs.at[0];
    for (TensorId t = 1; t < plan->graph.tensors.n; t++) {
        if (strcmp(plan->graph.tensors.at[t].name, param) != 0) continue;
        for (Pc pc = 1; pc < p->code.n; pc++)
            if (p->code.at[pc].op == op && p->code.at[pc].unit == plan->graph.tensors.at[t].unit)
                return pc;
    }
    fail_msg("%s is not summed", param);
    return 0;
}

static Instr *code(Plan *plan, Pc pc)
{
    return &plan->programs.at[0].code.at[pc];
}

/* ---- the bugs ---- */

/* Copies the tokens instead of exchanging them, and keeps all waits. */
static void never_sent(Plan *bad, Phase phase, uint32_t n)
{
    Instr *in = code(bad, exchange(bad, phase, n));
    in->op = OP_copy;
    in->axes = 0;
    in->match = 0;
}

static void tokens_stay(Plan *bad)
{
    never_sent(bad, PHASE_forward, 0);
}

static void results_stay(Plan *bad)
{
    never_sent(bad, PHASE_forward, 1);
}

static void gradients_stay(Plan *bad)
{
    never_sent(bad, PHASE_backward, 1);
}

/* The second layer's exchange sends the first layer's tokens. */
static void tokens_of_another_layer(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    Instr *first = code(bad, exchange(bad, PHASE_forward, 0)),
          *second = code(bad, exchange(bad, PHASE_forward, 2));
    p->args.at[second->args.first] = p->args.at[first->args.first];
}

static void results_of_another_layer(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    Instr *first = code(bad, exchange(bad, PHASE_forward, 1)),
          *second = code(bad, exchange(bad, PHASE_forward, 3));
    uint32_t match = first->match;
    BufferId to = p->args.at[first->args.first + 1];
    p->args.at[first->args.first + 1] = p->args.at[second->args.first + 1];
    p->args.at[second->args.first + 1] = to;
    first->match = second->match;
    second->match = match;
}

static void sent_before_they_are_there(Plan *bad)
{
    code(bad, exchange(bad, PHASE_forward, 0))->after.n = 0;
}

static void read_before_they_are_there(Plan *bad)
{
    const Program *p = &bad->programs.at[0];
    Pc sent = exchange(bad, PHASE_backward, 0);
    for (Pc pc = sent + 1; pc < p->code.n; pc++) {
        Span *after = &p->code.at[pc].after;
        for (uint32_t k = 0; k < after->n; k++)
            if (p->after.at[after->first + k] == sent) p->after.at[after->first + k] = 1;
    }
}

/* The gradients of experts are also summed over ep, where each rank has other experts. So gradients
 * of different experts are added up. */
static void experts_summed_over_ep(Plan *bad)
{
    Instr *in = code(bad, sum_of(bad, OP_all_reduce, "layers.1.feed_forward.w2.weight"));
    assert_false(in->axes & mesh_axes(&bad->mesh, AXIS_ep));
    in->axes |= mesh_axes(&bad->mesh, AXIS_ep);
}

/* The gradients of experts are also summed over ep, and the graph calls them partial sums. Only the
 * outputs of products contradict this. */
static void experts_said_to_be_parts_of_a_sum(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    const Instr *in = code(bad, sum_of(bad, OP_all_reduce, "layers.1.feed_forward.w2.weight"));
    Buffer *from = &p->buffers.at[program_arg(p, in, 0)];
    Shape s = *plan_shape_at(bad, from->shape);
    experts_summed_over_ep(bad);
    for (uint32_t a = 0; a < bad->mesh.n_axes; a++)
        if (mesh_axes(&bad->mesh, AXIS_ep) >> a & 1) s.layout.on[a] = PARTIAL_SUM;
    from->shape = (ShapeId)list_push(arena, &bad->shapes, s);
}

/* The router's gradient is not summed over ep, although the ranks have one router and different
 * samples. */
static void router_not_summed_over_ep(Plan *bad)
{
    Instr *in = code(bad, sum_of(bad, OP_all_reduce, "layers.1.feed_forward.router.weight"));
    assert_true(in->axes & mesh_axes(&bad->mesh, AXIS_ep));
    in->axes &= (AxisSet)~mesh_axes(&bad->mesh, AXIS_ep);
}

static void norm_of_my_own_experts(Plan *bad)
{
    const Program *p = &bad->programs.at[0];
    const AxisSet ep = mesh_axes(&bad->mesh, AXIS_ep);
    for (Pc pc = p->code.n; pc-- > 1;) {
        Instr *in = code(bad, pc);
        if (in->op != OP_all_reduce || in->axes != ep) continue;
        in->op = OP_copy, in->axes = 0, in->match = in->launch = in->attrs = 0;
        return;
    }
    fail_msg("no norm is summed over ep alone");
}

static void change_attribute(Plan *bad, OpKind op, size_t n)
{
    const Program *p = &bad->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        Instr *in = code(bad, pc);
        if (in->op != op) continue;
        Attrs a = *graph_attrs_at(&bad->graph, in->attrs);
        if (n == 0) a.capacity = 2;
        if (n == 1) a.normalise = !a.normalise;
        in->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
        return;
    }
    fail_msg("no %s", op_info(op)->name);
}

/* Tokens are dropped although the experts have room for them. */
static void less_room_than_was_said(Plan *bad)
{
    change_attribute(bad, OP_slots, 0);
}

static void weights_of_another_softmax(Plan *bad)
{
    change_attribute(bad, OP_route_grad, 1);
}

/* ---- the table ---- */

typedef struct Bug {
    const char *name;
    bool ddp; /* false: fsdp2 over dp_shard */
    void (*plant)(Plan *bad);
    const char *rule; /* a proof that must report the fault */
} Bug;

static const Bug bugs[] = {
    {"tokens are not sent to their experts", false, tokens_stay, "verify-layout"},
    {"results are not sent back", false, results_stay, "verify-layout"},
    {"gradients are not sent back", true, gradients_stay, "verify-layout"},
    {"tokens of another layer are sent", false, tokens_of_another_layer, "verify-layout"},
    {"results of two layers change places", false, results_of_another_layer, "verify-layout"},
    {"tokens are sent before they lie in their slots", false, sent_before_they_are_there,
     "verify-race"},
    {"gradients are read before they have come", true, read_before_they_are_there, "verify-race"},
    {"gradients of experts are summed over ep", true, experts_summed_over_ep, "verify-layout"},
    {"gradients of experts are said to be parts of a sum over ep", true,
     experts_said_to_be_parts_of_a_sum, "verify-layout"},
    {"the router's are not", true, router_not_summed_over_ep, "verify-layout"},
    {"each rank clips by the norm of its experts", true, norm_of_my_own_experts, "verify-layout"},
    {"an expert has less room than the model says", false, less_room_than_was_said,
     "verify-layout"},
    {"the weights' derivative is that of another softmax", true, weights_of_another_softmax,
     "verify-layout"},
};

static bool names_it(const Bug *bug)
{
    Tiny t = tiny_experts();
    *(bug->ddp ? &t.dp_replicate : &t.dp_shard) = 2;
    t.use_ddp = bug->ddp;
    Plan *bad = mutate_copy(right_plan(&t), arena);
    bug->plant(bad);
    Diag d = diag_in(arena);
    bool refused = !verify_plan(bad, VERIFY_all, false, &d), named = false;
    for (uint32_t i = 0; i < d.items.n; i++)
        named = named || strcmp(d.items.at[i].rule, bug->rule) == 0;
    if (!refused || !named || getenv("TANDEM_SHOW")) {
        print_error("%s: expected %s, got\n", bug->name, bug->rule);
        for (uint32_t i = 0; i < d.items.n && i < 3; i++)
            print_error("    %s: %s\n", d.items.at[i].rule, d.items.at[i].text);
    }
    return refused && named;
}

static void each_planted_fault_is_reported(void **state)
{
    (void)state;
    uint32_t n_missed = 0;
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) n_missed += !names_it(&bugs[i]);
    assert_int_equal(n_missed, 0);
}

/* ---- a reduction between the two backward exchanges ---- The ranks of dp_shard x ep are 00 01 /
 * 10 11. Suppose that both communications use one queue. Rank 00 reduces first and waits for 10,
 * which exchanges first and waits for 11. That rank reduces first and waits for 01, which exchanges
 * first and waits for 00. Published frameworks had this deadlock, in hooks that run when a gradient
 * arrives. Here each kind of communication has another stream, and all ranks have the same
 * order. */

typedef struct Trap {
    Plan *plan; /* dp_shard 2 x ep 2 */
    Pc reduce, exchange;
} Trap;

static Trap find_trap(void)
{
    Tiny t = tiny_experts();
    t.dp_shard = 2;
    Trap trap = {.plan = mutate_copy(right_plan(&t), arena)};
    const Program *p = &trap.plan->programs.at[0];
    trap.reduce = sum_of(trap.plan, OP_reduce_scatter, "layers.1.feed_forward.w2.weight");
    trap.exchange = exchange(trap.plan, PHASE_backward, 1);
    assert_int_equal(trap.plan->programs.n, 1);
    assert_true(exchange(trap.plan, PHASE_backward, 0) < trap.reduce);
    assert_true(trap.reduce < trap.exchange);
    assert_int_equal(p->code.at[trap.reduce].axes & p->code.at[trap.exchange].axes, 0);
    assert_int_not_equal(p->code.at[trap.reduce].stream, p->code.at[trap.exchange].stream);
    return trap;
}

/* Moves the reduction to the place after the exchange. */
static void turn_round(Program *p, Pc reduce, Pc to)
{
    const Instr moved = p->code.at[reduce];
    for (Pc pc = reduce; pc < to; pc++) p->code.at[pc] = p->code.at[pc + 1];
    p->code.at[to] = moved;
    for (uint32_t i = 0; i < p->after.n; i++) {
        Pc *at = &p->after.at[i];
        *at = *at == reduce ? to : *at > reduce && *at <= to ? *at - 1 : *at;
    }
}

/* Gives half of the ranks another program: the black squares, if the mesh were a chessboard. */
static void give_every_second(Trap *trap, bool turned)
{
    Plan *other = mutate_copy(trap->plan, arena);
    Program *p = &other->programs.at[0];
    if (turned) turn_round(p, trap->reduce, trap->exchange);
    list_push(arena, &trap->plan->programs, *p);
    uint32_t *program_of = arena_array(arena, trap->plan->mesh.n_ranks, sizeof *program_of);
    for (Rank r = 0; r < trap->plan->mesh.n_ranks; r++) program_of[r] = (r / 2 + r % 2) % 2;
    trap->plan->program_of = program_of;
}

/* Checks that each rank in the circle waits for a rank of its group. */
static void waits_are_within_groups(const Plan *plan, const char *circle)
{
    const Mesh *mesh = &plan->mesh;
    uint32_t n = 0;
    for (const char *at = strstr(circle, "circle: ") + 6; at != NULL; at = strchr(at + 1, ',')) {
        uint32_t rank, pc, other;
        assert_int_equal(
            sscanf(at + 2, "rank %u in %u %*s %*s waits for rank %u", &rank, &pc, &other), 3);
        const AxisSet axes = plan_program(plan, rank)->code.at[pc].axes;
        assert_int_not_equal(rank, other);
        assert_int_equal(mesh_group(mesh, rank, axes), mesh_group(mesh, other, axes));
        n++;
    }
    assert_true(n > 1);
}

/* Checks that `tandem check` of the plan's text refuses it and prints the circle. */
static void a_user_sees_it(const Plan *plan, const char *circle)
{
    Str text = str_in(arena);
    text_print(plan, TEXT_WITH_SEALS, &text);
    command_write_file("trap.plan", str_text(&text));
    const CommandResult r = COMMAND(arena, 60, "check", "trap.plan");
    if (r.exit_code != 3 || strstr(r.err, circle) == NULL)
        fail_msg("exit code %d\n%s%s\nnot: %s", r.exit_code, r.out, r.err, circle);
}

static void a_reduction_between_exchanges_may_deadlock(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        const bool one_stream = k & 1, turned = k & 2;
        Trap trap = find_trap();
        if (one_stream)
            code(trap.plan, trap.exchange)->stream = code(trap.plan, trap.reduce)->stream;
        give_every_second(&trap, turned);
        Diag d = diag_in(arena);
        const bool ends = verify_plan(trap.plan, VERIFY_deadlock, false, &d);
        if (ends != !(one_stream && turned))
            fail_msg("wrong verdict with one_stream = %d, turned = %d", one_stream, turned);
        if (ends) continue;
        /* The report names each stuck rank and the rank for which it waits. */
        const char *circle = d.items.at[0].text;
        assert_string_equal(d.items.at[0].rule, "verify-deadlock");
        assert_non_null(strstr(circle, "ranks wait for each other in a circle: "));
        assert_non_null(strstr(circle, "reduce_scatter waits for rank "));
        assert_non_null(strstr(circle, "all_to_all waits for rank "));
        waits_are_within_groups(trap.plan, circle);
        a_user_sees_it(trap.plan, circle);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_planted_fault_is_reported, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_reduction_between_exchanges_may_deadlock,
                                        test_arena_setup, test_arena_teardown),
    };
    return cmocka_run_group_tests_name("expert bugs", tests, NULL, NULL);
}
