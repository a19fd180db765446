/* Conversions between layouts over several axes: from every layout to every layout that can be
 * reached. No step may cut, gather or move the parts of one axis while another axis splits the same
 * dimension inside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/ir/layout/halo.h"
#include "planner/ir/layout/stride.h"
#include "planner/lower/compile.h"
#include "planner/lower/lower.h"
#include "tests/support/plans/plans.h"

enum { AXES = 3, DIMS = 3, SIZE = 16, MOST_STEPS = 3 * AXES };

static const int8_t kinds[] = {WHOLE, SPLIT(0), SPLIT(1), SPLIT(2), PARTIAL_SUM};
enum { N_KINDS = sizeof kinds, N_LAYOUTS = N_KINDS * N_KINDS * N_KINDS };

static Layout layout_number(int n)
{
    Layout l = {{0}};
    for (int a = 0; a < AXES; a++, n /= N_KINDS) l.on[a] = kinds[n % N_KINDS];
    return l;
}

/* Makes a mesh of dp_shard and of tp in two parts. tp has two parts if there are fewer KV heads
 * than ranks. */
static Plan *new_plan(Arena *arena)
{
    const uint32_t sizes[AXIS_NAMES] = {[AXIS_dp_shard] = 2, [AXIS_tp] = 4};
    Plan *plan = plans_new(arena, sizes);
    mesh_refine(&plan->mesh, arena, 1, 2);
    plans_program(plan);
    assert_int_equal(plan->mesh.n_axes, AXES);
    return plan;
}

/* Returns true if no other axis splits the dimension `on` inside the first axis that changes. */
static bool is_innermost(const Layout *l, AxisSet changed, int8_t on)
{
    for (int a = __builtin_ctz(changed); a < AXES && layout_is_split(on); a++)
        if (!(changed >> a & 1) && l->on[a] == on) return false;
    return true;
}

static void check_step(const Layout *from, const Layout *to)
{
    AxisSet changed = 0;
    for (int a = 0; a < AXES; a++)
        if (from->on[a] != to->on[a]) changed = (AxisSet)(changed | 1u << a);
    if (!changed) return;
    int first = __builtin_ctz(changed);
    for (int a = first; a < AXES; a++) {
        if (!(changed >> a & 1)) continue;
        assert_int_equal(from->on[a], from->on[first]);
        assert_int_equal(to->on[a], to->on[first]);
    }
    assert_true(is_innermost(from, changed, from->on[first]));
    assert_true(is_innermost(to, changed, to->on[first]));
}

static bool can_become(const Layout *from, const Layout *to)
{
    for (int a = 0; a < AXES; a++)
        if (layout_change(from->on[a], to->on[a]) == CHANGE_impossible) return false;
    return true;
}

/* Returns the state of a lowering of an empty program. */
static Lower lower_of(Job *job)
{
    Lower l = {.job = job,
               .plan = job->plan,
               .g = &job->plan->graph,
               .p = &job->plan->programs.at[0],
               .arena = job->arena,
               .scratch = job->scratch,
               .emit.match = 1};
    l.p->code.n = l.p->buffers.n = 1;
    list_reserve_none(l.scratch, &l.emit.clocks);
    list_reserve_none(l.scratch, &l.emit.access);
    return l;
}

static void convert(Plan *plan, const Layout *from, const Layout *to)
{
    Arena *scratch = arena_new();
    Job job = {
        .plan = plan, .arena = plan->arena, .scratch = scratch, .options = lower_options_default()};
    Lower l = lower_of(&job);
    const Program *p = l.p;
    Shape s = {.n_dims = DIMS, .dim = {SIZE, SIZE, SIZE}, .layout = *from};
    BufferId in = lower_buffer(&l, &s, DT_f32, CATEGORY_activation);
    BufferId out = lower_convert(&l, in, to, 0, CATEGORY_activation);
    assert_true(layout_equal(&lower_shape(&l, out)->layout, to));
    uint32_t n_changes = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const BufferId *args = &p->args.at[p->code.at[pc].args.first];
        n_changes += p->code.at[pc].op != OP_pack && p->code.at[pc].op != OP_unpack;
        check_step(&lower_shape(&l, args[0])->layout, &lower_shape(&l, args[1])->layout);
    }
    assert_true(n_changes <= MOST_STEPS);
    arena_free(scratch);
}

static void parts_nest_at_every_step(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = new_plan(arena);
    uint32_t n = 0;
    for (int i = 0; i < N_LAYOUTS; i++)
        for (int k = 0; k < N_LAYOUTS; k++) {
            Layout from = layout_number(i), to = layout_number(k);
            if (!can_become(&from, &to)) continue;
            convert(plan, &from, &to);
            n++;
        }
    /* of each axis: 4 x 4 pairs of layouts that are no sums, and 5 that begin with a sum */
    assert_int_equal(n, 21 * 21 * 21);
    arena_free(arena);
}

/* A sequence is split over two axes, in zigzag order over those of cp. Each axis moves to another
 * dimension, so it needs only an exchange. The inner axis must change first: if the outer one did,
 * the sequence would have to be gathered. */
static void tokens_are_exchanged_from_the_inside(Plan *plan, const Layout *to)
{
    Arena *scratch = arena_new();
    const AxisSet cp = mesh_axes(&plan->mesh, AXIS_cp);
    const Config config = {.seq = SIZE};
    Job job = {.plan = plan,
               .config = &config,
               .arena = plan->arena,
               .scratch = scratch,
               .options = lower_options_default()};
    job.context.seq_deal =
        deal_zigzag(&plan->graph.deals, plan->arena, SIZE, mesh_size(&plan->mesh, cp));
    Lower l = lower_of(&job);
    Shape s = {.n_dims = DIMS, .dim = {SIZE, SIZE, SIZE}, .layout = {{SPLIT(1), SPLIT(1)}}};
    s.deal[1] = sequence_deal(&job, plan->mesh.n_ranks);
    const BufferId in = lower_buffer(&l, &s, DT_f32, CATEGORY_activation),
                   out = lower_convert(&l, in, to, 0, CATEGORY_activation);
    assert_true(layout_equal(&lower_shape(&l, out)->layout, to));
    AxisSet exchanged[2] = {0};
    uint32_t n = 0;
    for (Pc pc = 1; pc < l.p->code.n; pc++) {
        const Instr *at = &l.p->code.at[pc];
        if (op_info(at->op)->class_ != OP_CLASS_comm) continue;
        assert_int_equal(at->op, OP_all_to_all);
        assert_true(n < 2);
        exchanged[n++] = at->axes;
    }
    assert_true(n == 2 && exchanged[0] == 2 && exchanged[1] == 1);
    arena_free(scratch);
}

static void two_axes_leave_a_sequence_from_the_inside(void **state)
{
    (void)state;
    static const Layout to[] = {{{SPLIT(0), SPLIT(2)}}, {{SPLIT(2), SPLIT(0)}}};
    for (uint32_t tp = 1; tp <= 2; tp++) /* cp in two parts, or cp and then tp */
        for (int i = 0; i < 2; i++) {
            Arena *arena = arena_new();
            const uint32_t sizes[AXIS_NAMES] = {[AXIS_cp] = 4 / tp, [AXIS_tp] = tp};
            Plan *plan = plans_new(arena, sizes);
            if (tp == 1) mesh_refine(&plan->mesh, arena, 0, 2);
            plans_program(plan);
            assert_int_equal(plan->mesh.n_axes, 2);
            tokens_are_exchanged_from_the_inside(plan, &to[i]);
            arena_free(arena);
        }
}

/* A value counts as strided if its rows lie at equal distances and it has no halo. */
static void rows_with_a_halo_do_not_count_as_strided(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Graph g;
    graph_init(&g, arena);
    const Lower l = {.g = &g};
    static const Interval held[] = {{0, 7}, {5, 12}};
    const DealId ceil = deal_ceil(&g.deals, arena, 11, 2),
                 strided = deal_strided(&g.deals, arena, 12, 2, 2),
                 halo = deal_around(&g.deals, arena, DEAL_halo, 12, 2, held);
    const struct {
        DealId deal[2];
        bool strided;
    } cases[] = {{{0, 0}, false},         {{ceil, 0}, false},      {{0, halo}, false},
                 {{strided, 0}, true},    {{ceil, strided}, true}, {{strided, halo}, false},
                 {{halo, strided}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Shape s = {
            .n_dims = 2, .dim = {12, 12}, .deal = {cases[i].deal[0], cases[i].deal[1]}};
        assert_int_equal(lower_shape_is_strided(&l, &s), cases[i].strided);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_nest_at_every_step),
                                       cmocka_unit_test(two_axes_leave_a_sequence_from_the_inside),
                                       cmocka_unit_test(rows_with_a_halo_do_not_count_as_strided)};
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
