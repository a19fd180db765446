/* Ranks of cp share sequences. The tests count the communications of each mode. The right ranks
 * must hold and sum each tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

static uint32_t n_exchanges(const Plan *plan, Phase phase)
{
    const Program *p = &plan->programs.at[0];
    const AxisSet cp = mesh_axes(&plan->mesh, AXIS_cp);
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_all_to_all) continue;
        assert_int_equal(in->axes, cp);
        assert_int_equal(in->stream, STREAM_cp);
        n += in->phase == phase;
    }
    return n;
}

/* A layer exchanges four tensors: q, k, v and the output. The gradient of attention reads the kept
 * copies. */
static void four_exchanges_a_layer_and_direction(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.layers = 3;
    const Plan *plan = right_plan(&t);
    assert_int_equal(n_exchanges(plan, PHASE_forward), 4 * 3);
    assert_int_equal(n_exchanges(plan, PHASE_backward), 4 * 3);
    assert_int_equal(n_exchanges(plan, PHASE_recompute), 0);
    t.ac = AC_full;
    plan = right_plan(&t);
    assert_int_equal(n_exchanges(plan, PHASE_recompute), 4 * 3);
}

/* Attention has whole sequences and a part of the heads; all other ops have a part of the
 * tokens. */
static void attention_sees_whole_sequences(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.repeat = 2;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool attends = in->op == OP_attention || in->op == OP_attention_grad;
        int64_t size['z' + 1], start['z' + 1];
        if (!attends && in->op != OP_linear && in->op != OP_rope && in->op != OP_batch) continue;
        assert_true(plan_bind(plan, p, in, 1, NULL, size, start, NULL));
        assert_int_equal(size['s'], attends ? t.seq : t.seq / 2);
        assert_int_equal(start['s'], attends ? 0 : t.seq / 2);
        if (attends) assert_int_equal(size['g'], t.groups / 2);
        if (attends) assert_int_equal(start['g'], t.groups / 2);
        n += attends;
    }
    assert_int_equal(n, 2 * t.layers);
}

/* Ranks of cp read the same samples. They share states and sum gradients like ranks of dp_shard. */
static void states_are_shared_over_cp(void **state)
{
    (void)state;
    for (int ddp = 0; ddp < 2; ddp++) {
        Tiny t = tiny_context();
        t.use_ddp = ddp;
        *(ddp ? &t.dp_replicate : &t.dp_shard) = 3;
        const Plan *plan = right_plan(&t);
        const AxisSet all = (AxisSet)((1u << plan->mesh.n_axes) - 1);
        assert_int_equal(plan->mesh.n_axes, 2);
        /* Not six, because the two ranks of cp have the same samples. */
        assert_int_equal(plan->step.micro_batch, 3);
        for (UnitId u = 1; u < plan->graph.units.n; u++) {
            assert_int_equal(plan->graph.units.at[u].shard, ddp ? 0 : all);
            assert_int_equal(plan->graph.units.at[u].replicate, ddp ? all : 0);
        }
    }
}

static uint32_t n_of(const Plan *plan, OpKind op, Phase phase, Stream stream)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        n += in->op == op && in->phase == phase && in->stream == stream;
    }
    return n;
}

/* A unit is sharded over sixteen ranks and kept over two of them. The two are ranks of dp_shard,
 * never of cp. */
static void a_kept_part_is_split_over_dp_shard_alone(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.cp_options.mode = CP_all_gather, t.cp = 4, t.dp_shard = 4;
    t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 2;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_all_gather || in->phase != PHASE_backward || in->unit == 0) continue;
        n++;
        assert_int_equal(mesh_size(&plan->mesh, in->axes), 2);
        assert_true((in->axes & ~mesh_axes(&plan->mesh, AXIS_dp_shard)) == 0);
    }
    assert_true(n > 0);
}

/* Keys and values are gathered for attention and again for its gradient, and so their gradients are
 * scattered. */
static void keys_and_values_are_gathered(void **state)
{
    (void)state;
    for (uint32_t tp = 1; tp <= 2; tp++) { /* with tp, heads and tokens are split further */
        Tiny t = tiny_context();
        t.cp_options.mode = CP_all_gather, t.tp = tp, t.layers = 3;
        const Plan *plan = right_plan(&t);
        assert_int_equal(n_of(plan, OP_all_gather, PHASE_forward, STREAM_cp), 2 * 3);
        assert_int_equal(n_of(plan, OP_all_gather, PHASE_backward, STREAM_cp), 2 * 3);
        assert_int_equal(n_of(plan, OP_reduce_scatter, PHASE_forward, STREAM_cp), 0);
        assert_int_equal(n_of(plan, OP_reduce_scatter, PHASE_backward, STREAM_cp), 2 * 3);
        assert_int_equal(n_of(plan, OP_all_to_all, PHASE_forward, STREAM_cp), 0);
    }
}

/* Rank r of n has chunks r and 2n - 1 - r, so that its tokens see as many keys as those of any
 * other rank. */
static void each_rank_has_two_chunks_of_a_zigzag(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.cp_options.mode = CP_all_gather, t.cp = 4, t.seq = 16;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool attends = in->op == OP_attention || in->op == OP_attention_grad;
        if (!attends && in->op != OP_rope && in->op != OP_rope_grad && in->op != OP_batch) continue;
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            Binding b;
            int64_t size['z' + 1], start['z' + 1], second['z' + 1];
            assert_true(plan_bind(plan, p, in, r, &b, size, start, NULL));
            plan_second(plan, p, in, r, &b, size, start, second);
            assert_int_equal(size['s'], 4);
            assert_int_equal(start['s'], 2 * r);
            assert_int_equal(second['s'], 2 * (7 - r));
            if (attends) assert_int_equal(size['T'], 16);
            if (attends) assert_int_equal(start['T'], 0);
        }
        n++;
    }
    assert_int_equal(n, 1 + 6 * t.layers);
}

/* Each rank of cp gets two chunks of equal length. If tp splits sequences, too, its ranks get equal
 * parts of these tokens. The test tries all lengths: a plan is made exactly if all sizes divide. */
static void lengths_divide_over_cp_and_tp(void **state)
{
    (void)state;
    uint32_t n_made = 0, n_refused = 0;
    for (uint32_t cp = 2; cp <= 4; cp++)
        for (uint32_t tp = 1; tp <= 4; tp *= 2)
            for (int sequence = 0; sequence < 2; sequence++)
                for (int64_t seq = 1; seq <= 32; seq++) {
                    Diag d = diag_in(arena);
                    Tiny t = tiny_context();
                    t.cp_options.mode = CP_all_gather, t.layers = 1;
                    t.cp = cp, t.tp = tp, t.seq = seq;
                    t.tp_options.sequence = sequence;
                    const bool fits = seq % (2 * cp) == 0 && (!sequence || seq / cp % tp == 0);
                    const bool made = tiny_plan(&t, false, arena, &d) != NULL;
                    if (made != fits)
                        fail_msg("cp %u, tp %u, sequence %d: %lld tokens are %s", cp, tp, sequence,
                                 (long long)seq, made ? "accepted" : "refused");
                    if (!made) assert_string_equal(d.items.at[0].rule, "divides-seq");
                    n_made += made, n_refused += !made;
                }
    assert_true(n_made > 50 && n_refused > 300);
}

/* Keys and values make n - 1 hops. Their gradients make n hops, because the last one brings them
 * home. No other communication uses cp. */
static void keys_and_values_go_round_the_ring(void **state)
{
    (void)state;
    for (uint32_t tp = 1; tp <= 2; tp++)
        for (uint32_t n = 2; n <= 4; n++) {
            Tiny t = tiny_context();
            t.cp_options.mode = CP_ring, t.cp = n, t.tp = tp, t.layers = 3;
            t.seq = 4 * n * tp, t.hidden = 24;
            const Plan *plan = right_plan(&t);
            const Program *p = &plan->programs.at[0];
            assert_int_equal(n_of(plan, OP_rotate, PHASE_forward, STREAM_cp), 2 * (n - 1) * 3);
            assert_int_equal(n_of(plan, OP_rotate, PHASE_backward, STREAM_cp),
                             (2 * (n - 1) + 2 * n) * 3);
            assert_int_equal(n_of(plan, OP_attention_part, PHASE_forward, STREAM_compute), n * 3);
            assert_int_equal(n_of(plan, OP_attention_part_grad, PHASE_backward, STREAM_compute),
                             n * 3);
            for (Pc pc = 1; pc < p->code.n; pc++) {
                const Instr *in = &p->code.at[pc];
                assert_true(in->op != OP_attention && in->op != OP_attention_grad);
                assert_true(in->stream != STREAM_cp || in->op == OP_rotate);
                if (in->op != OP_rotate) continue;
                const Shape *s = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 0)].shape);
                assert_int_equal(shape_local_dim(s, &plan->mesh, &plan->graph.deals, 1), 4 * tp);
            }
            t.ac = AC_full;
            plan = right_plan(&t);
            assert_int_equal(n_of(plan, OP_rotate, PHASE_recompute, STREAM_cp), 2 * (n - 1) * 3);
        }
}

/* Four ranks form two groups of two, and the ring goes over the groups. Inside a group, tokens are
 * exchanged for heads, with one exchange each for q, k, v and the output. No sequence is
 * gathered. */
static void a_ring_goes_over_groups(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.cp_options.mode = CP_ring, t.cp_options.all_to_all = 2, t.cp = 4, t.layers = 3, t.seq = 16;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    assert_int_equal(n_of(plan, OP_all_to_all, PHASE_forward, STREAM_cp), 4 * 3);
    assert_int_equal(n_of(plan, OP_all_to_all, PHASE_backward, STREAM_cp), 4 * 3);
    assert_int_equal(n_of(plan, OP_rotate, PHASE_forward, STREAM_cp), 2 * 3);
    assert_int_equal(n_of(plan, OP_rotate, PHASE_backward, STREAM_cp), 6 * 3);
    assert_int_equal(n_of(plan, OP_all_gather, PHASE_forward, STREAM_cp), 0);
    assert_int_equal(n_of(plan, OP_all_gather, PHASE_backward, STREAM_cp), 0);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        int64_t size['z' + 1];
        if (in->stream == STREAM_cp) assert_int_equal(mesh_size(&plan->mesh, in->axes), 2);
        if (op_whole(in->op) == OP_none) continue;
        assert_true(plan_bind(plan, p, in, 0, NULL, size, NULL, NULL));
        assert_int_equal(size['s'], 8);
        assert_int_equal(size['T'], 8);
        assert_int_equal(size['g'], t.groups / 2);
    }
}

/* A mean of each micro-batch needs the labels of whole sequences, and so does its gradient. First
 * each group gathers the pieces of its part of the zigzag. Then the groups gather these parts from
 * each other. */
static void labels_of_groups_are_gathered_twice(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.cp_options.mode = CP_ring, t.cp_options.all_to_all = 2, t.cp = 4, t.seq = 16;
    t.denominator = DENOMINATOR_microbatch_mean;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    const AxisSet cp = mesh_axes(&plan->mesh, AXIS_cp), inner = cp & (AxisSet)(cp - 1);
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_all_gather || in->stream != STREAM_cp) continue;
        assert_int_equal(in->axes, n++ % 2 == 0 ? inner : cp ^ inner);
        assert_true(p->buffers.at[program_arg(p, in, 0)].dtype == DT_i32);
    }
    assert_true(n > 0 && n % 2 == 0);
}

/* After attention, each rank returns to its tokens, with all their features. So scales of tokens
 * need no maximum over ranks. */
static void groups_scale_their_own_tokens(void **state)
{
    (void)state;
    Tiny t = tiny_context();
    t.cp_options.mode = CP_ring, t.cp_options.all_to_all = 2, t.cp = 4, t.seq = 16;
    t.use_float8 = true, t.float8.recipe = FLOAT8_rowwise;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t n_scales = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        n_scales += in->op == OP_amax_of_tokens;
        if (in->op != OP_all_reduce) continue;
        const Tensor *x = &plan->graph.tensors.at[p->buffers.at[program_arg(p, in, 0)].tensor];
        assert_int_not_equal(plan->graph.nodes.at[x->producer].op, OP_amax_of_tokens);
    }
    assert_int_equal(n_scales, (4 + 7) * t.layers); /* inputs and gradients of seven linears */
}

/* tp splits the heads, and the groups of cp split the heads of one tp rank further. A rank then has
 * groups / (tp x all_to_all) KV heads. No rank of tp gathers heads for this, although tp lies
 * inside cp in the mesh. */
static void heads_of_a_tp_rank_are_divided_over_cp(void **state)
{
    (void)state;
    for (int ring = 0; ring < 2; ring++) {
        Tiny t = tiny_context();
        t.cp_options.mode = ring ? CP_ring : CP_all_to_all, t.cp_options.all_to_all = ring ? 2 : 1;
        t.cp = ring ? 4 : 2, t.tp = 2, t.layers = 3, t.seq = 16;
        t.tp_options.sequence = false;
        const Plan *plan = right_plan(&t);
        const Mesh *mesh = &plan->mesh;
        const Program *p = &plan->programs.at[0];
        const AxisSet tp = mesh_axes(mesh, AXIS_tp);
        assert_int_equal(n_of(plan, OP_all_to_all, PHASE_forward, STREAM_cp), 4 * 3);
        assert_int_equal(n_of(plan, OP_all_to_all, PHASE_backward, STREAM_cp), 4 * 3);
        assert_int_equal(n_of(plan, OP_all_gather, PHASE_forward, STREAM_cp), 0);
        assert_int_equal(n_of(plan, OP_all_gather, PHASE_forward, STREAM_tp), 0);
        for (Rank r = 0; r < mesh->n_ranks; r++)
            assert_int_equal(mesh_part(mesh, r, tp), r % 2); /* neighbours are ranks of tp */
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            int64_t size['z' + 1], start['z' + 1];
            Binding b;
            if (op_whole(in->op) == OP_none && !op_mixes_tokens(in->op)) continue;
            for (Rank r = 0; r < mesh->n_ranks; r++) {
                assert_true(plan_bind(plan, p, in, r, &b, size, start, NULL));
                assert_int_equal(size['g'], 1);
                assert_int_equal(start['g'], 2 * (r % 2) + r / 2 % 2);
            }
        }
    }
}

/* In hop i, rank r must work with the keys of rank r - i. */
static void each_hop_works_with_the_right_keys(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    Tiny t = tiny_context();
    t.cp_options.mode = CP_ring, t.cp = RANKS, t.seq = 4 * RANKS, t.layers = 1;
    const Plan *plan = right_plan(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t hop = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_attention_part && in->op != OP_attention_part_grad) continue;
        for (Rank r = 0; r < RANKS; r++) {
            Binding b;
            int64_t size['z' + 1], start['z' + 1], second['z' + 1];
            assert_true(plan_bind(plan, p, in, r, &b, size, start, NULL));
            plan_second(plan, p, in, r, &b, size, start, second);
            const uint32_t of = (r + RANKS - hop % RANKS) % RANKS;
            assert_int_equal(size['s'], 4);
            assert_int_equal(size['T'], 4);
            assert_int_equal(start['s'], 2 * r);
            assert_int_equal(start['T'], 2 * of);
            assert_int_equal(second['T'], 2 * (2 * RANKS - 1 - of));
        }
        hop++;
    }
    assert_int_equal(hop, 2 * RANKS);
}

/* All ranks of tp compute one KV head of a fused projection. Each rank takes its query heads of
 * this head, for the tokens of its part of the ring. This also holds if spectral norm divides the
 * projection. */
static void fused_projections_give_each_rank_its_heads_beside_a_ring(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        Tiny t = tiny_context();
        t.cp_options.mode = CP_ring, t.tp = 4, t.layers = 3;
        t.groups = 1, t.repeat = 4, t.hidden = 16, t.seq = 16;
        t.fused = t.tp_options.sequence = true;
        t.spectral = k & 1, t.biases = k & 2, t.qk_norm = k & 4;
        const Plan *plan = right_plan(&t);
        const Program *p = &plan->programs.at[0];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            int64_t size['z' + 1];
            if (p->code.at[pc].op != OP_attention_part) continue;
            assert_true(plan_bind(plan, p, &p->code.at[pc], 1, NULL, size, NULL, NULL));
            assert_int_equal(size['r'], 1);
            assert_int_equal(size['s'], t.seq / 2);
        }
    }
}

/* All layers have the same heads, so heads that cannot be divided are reported once. */
static void heads_are_reported_once(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = tiny_context();
    t.layers = 3, t.groups = 3;
    assert_null(tiny_plan(&t, false, arena, &d));
    assert_int_equal(d.n_errors, 1);
    assert_string_equal(d.items.at[0].rule, "divides-heads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(four_exchanges_a_layer_and_direction, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(attention_sees_whole_sequences, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(states_are_shared_over_cp, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_kept_part_is_split_over_dp_shard_alone, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(keys_and_values_are_gathered, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(lengths_divide_over_cp_and_tp, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(each_rank_has_two_chunks_of_a_zigzag, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(keys_and_values_go_round_the_ring, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_ring_goes_over_groups, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(groups_scale_their_own_tokens, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(labels_of_groups_are_gathered_twice, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(heads_of_a_tp_rank_are_divided_over_cp, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(fused_projections_give_each_rank_its_heads_beside_a_ring,
                                        test_arena_setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(each_hop_works_with_the_right_keys, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(heads_are_reported_once, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
