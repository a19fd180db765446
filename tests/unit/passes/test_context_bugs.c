/* Plants faults in good plans whose sequences are shared over cp. Each fault must be reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static Tiny tiny_context(void)
{
    Tiny t = tiny_default();
    t.cp = 2, t.cp_options.mode = CP_all_to_all;
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

/* ---- the bugs ---- */

static Pc find(const Plan *plan, OpKind op, Phase phase, uint32_t n)
{
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == op && p->code.at[pc].phase == phase && n-- == 0) return pc;
    fail_msg("no %s", op_info(op)->name);
    return 0;
}

static Instr *code(Plan *plan, OpKind op, Phase phase, uint32_t n)
{
    return &plan->programs.at[0].code.at[find(plan, op, phase, n)];
}

static void heads_stay(Plan *bad)
{
    Instr *in = code(bad, OP_all_to_all, PHASE_forward, 0);
    in->op = OP_copy;
    in->axes = 0;
    in->match = 0;
}

static void output_stays(Plan *bad)
{
    Instr *in = code(bad, OP_all_to_all, PHASE_forward, 3);
    in->op = OP_copy;
    in->axes = 0;
    in->match = 0;
}

/* Keys are sent instead of values. */
static void keys_for_values(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    const Instr *keys = code(bad, OP_all_to_all, PHASE_forward, 1),
                *values = code(bad, OP_all_to_all, PHASE_forward, 2);
    p->args.at[values->args.first] = p->args.at[keys->args.first];
}

static void read_before_it_is_there(Plan *bad)
{
    code(bad, OP_attention, PHASE_forward, 0)->after.n = 0;
}

/* Every rank trains only on its part of the sequence. */
static void gradients_stay(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_all_reduce && p->code.at[pc].unit) {
            p->code.at[pc].op = OP_copy;
            p->code.at[pc].axes = 0;
            p->code.at[pc].match = 0;
            return;
        }
    fail_msg("the plan has no sum of gradients");
}

/* The loss is scaled as if each rank of cp had other samples. */
static void loss_counted_by_samples(Plan *bad)
{
    bad->step.global_tokens /= 2;
}

/* Chunks stay in the order of the ranks, instead of the order of the sequence. */
static void out_of_order(Plan *bad)
{
    Instr *in = code(bad, OP_unpack, PHASE_forward, 0);
    Attrs attrs = *graph_attrs_at(&bad->graph, in->attrs);
    attrs.chunks = 0;
    in->attrs = graph_attrs(&bad->graph, arena, &attrs);
}

static void gradients_out_of_order(Plan *bad)
{
    Instr *in = code(bad, OP_pack, PHASE_backward, 0);
    Attrs attrs = *graph_attrs_at(&bad->graph, in->attrs);
    attrs.chunks = 0;
    in->attrs = graph_attrs(&bad->graph, arena, &attrs);
}

/* Sequences are split into equal parts, but positions and masks are those of a zigzag. */
static void dealt_out_otherwise(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    const bool rings = bad->mesh.n_ranks == 4;
    const Instr *in = code(bad, rings ? OP_attention_part : OP_attention, PHASE_forward, 0);
    Buffer *query = &p->buffers.at[program_arg(p, in, 0)];
    Shape s = *plan_shape_at(bad, query->shape);
    s.deal[1] = 0;
    query->shape = plan_shape(bad, &s);
}

static void values_stay(Plan *bad)
{
    Instr *in = code(bad, OP_all_gather, PHASE_forward, 1);
    const Instr *keys = code(bad, OP_all_gather, PHASE_forward, 0);
    in->match = keys->match;
    bad->programs.at[0].args.at[in->args.first] = bad->programs.at[0].args.at[keys->args.first];
}

static void set_accumulate(Plan *bad, Instr *in, int64_t accumulate)
{
    Attrs attrs = *graph_attrs_at(&bad->graph, in->attrs);
    attrs.accumulate = accumulate;
    in->attrs = graph_attrs(&bad->graph, arena, &attrs);
}

/* A rank works with its own keys twice. */
static void own_keys_again(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    const Instr *first = code(bad, OP_attention_part, PHASE_forward, 0),
                *second = code(bad, OP_attention_part, PHASE_forward, 1);
    p->args.at[second->args.first + 1] = p->args.at[first->args.first + 1];
    p->args.at[second->args.first + 2] = p->args.at[first->args.first + 2];
}

static void values_of_another_hop(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    const Instr *first = code(bad, OP_attention_part, PHASE_forward, 0),
                *second = code(bad, OP_attention_part, PHASE_forward, 1);
    p->args.at[second->args.first + 2] = p->args.at[first->args.first + 2];
}

static void forgets_the_first_hop(Plan *bad)
{
    set_accumulate(bad, code(bad, OP_attention_part, PHASE_forward, 1), 0);
}

static void merges_the_output_alone(Plan *bad)
{
    set_accumulate(bad, code(bad, OP_attention_part, PHASE_forward, 1), 1);
}

static void share_is_lost(Plan *bad)
{
    set_accumulate(bad, code(bad, OP_attention_part_grad, PHASE_backward, 1), 0);
}

/* Gradients arrive on another rank than their keys. */
static void gradients_do_not_come_home(Plan *bad)
{
    const Program *p = &bad->programs.at[0];
    Pc last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_rotate && p->code.at[pc].phase == PHASE_backward) last = pc;
    bad->programs.at[0].code.at[last].op = OP_copy;
    bad->programs.at[0].code.at[last].axes = 0;
    bad->programs.at[0].code.at[last].match = 0;
    bad->programs.at[0].code.at[last].launch = 0;
}

static void reads_a_part_on_its_way(Plan *bad)
{
    code(bad, OP_attention_part, PHASE_forward, 1)->after.n = 0;
}

/* The rank gets the keys of the next rank, but the deal says that it gets those of the previous
 * rank. */
static void goes_the_other_way(Plan *bad)
{
    Program *p = &bad->programs.at[0];
    const Instr *in = code(bad, OP_rotate, PHASE_forward, 0);
    Buffer *to = &p->buffers.at[program_arg(p, in, 1)];
    Shape s = *plan_shape_at(bad, to->shape);
    for (int k = 0; k < 2; k++)
        s.deal[1] = deal_turn(&bad->graph.deals, arena, s.deal[1], s.dim[1], 4);
    to->shape = plan_shape(bad, &s);
}

static void each_planted_fault_is_reported(void **state)
{
    (void)state;
    static const struct {
        void (*plant)(Plan *);
        const char *rule;
        CpMode mode;
    } bugs[] = {{heads_stay, "verify-layout", CP_all_to_all},
                {output_stays, "verify-layout", CP_all_to_all},
                {keys_for_values, "verify-layout", CP_all_to_all},
                {read_before_it_is_there, "verify-race", CP_all_to_all},
                {gradients_stay, "verify-layout", CP_all_to_all},
                {loss_counted_by_samples, "verify-scale", CP_all_to_all},
                {out_of_order, "verify-layout", CP_all_gather},
                {gradients_out_of_order, "verify-layout", CP_all_gather},
                {dealt_out_otherwise, "verify-layout", CP_all_gather},
                {values_stay, "verify-layout", CP_all_gather},
                {own_keys_again, "verify-layout", CP_ring},
                {values_of_another_hop, "verify-layout", CP_ring},
                {forgets_the_first_hop, "verify-layout", CP_ring},
                {merges_the_output_alone, "verify-layout", CP_ring},
                {share_is_lost, "verify-layout", CP_ring},
                {gradients_do_not_come_home, "verify-layout", CP_ring},
                {reads_a_part_on_its_way, "verify-race", CP_ring},
                {goes_the_other_way, "verify-layout", CP_ring},
                {dealt_out_otherwise, "verify-layout", CP_ring}};
    Tiny t = tiny_context();
    t.use_ddp = true;
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        t.cp_options.mode = bugs[i].mode;
        t.cp = bugs[i].mode == CP_ring ? 4 : 2;
        t.seq = 4 * t.cp;
        Plan *bad = right_plan(&t);
        Diag d = diag_in(arena);
        bugs[i].plant(bad);
        assert_false(verify_plan(bad, VERIFY_all, false, &d));
        bool named = false;
        Str s = str_in(arena);
        for (uint32_t k = 0; k < d.items.n; k++)
            named = named || strcmp(d.items.at[k].rule, bugs[i].rule) == 0;
        diag_print(&d, &s);
        if (!named) fail_msg("bug %zu: %.3000s", i, str_text(&s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_planted_fault_is_reported, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests_name("faults of context", tests, NULL, NULL);
}
