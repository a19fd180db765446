/* The gradient norm is taken over every axis that shards gradients, and counts each replicated
 * element once. HSDP, tensor and pipeline ranks, ZeRO and buckets, all together, clip as one rank
 * does. The proofs must report a norm that counts wrongly, swapped moments, and a stale copy of the
 * weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_diag.h"

typedef struct Row {
    uint32_t pp, replicate, shard, tp;
    int zero; /* a ZeroStrategy; -1: fsdp2 or ddp instead of zero */
} Row;

static Tiny tiny_of(const Row *r)
{
    Tiny t = tiny_default();
    t.pp = r->pp, t.dp_replicate = r->replicate, t.dp_shard = r->shard, t.tp = r->tp;
    t.layers = 2 * r->pp, t.microbatches = r->pp > 1 ? 2 * r->pp : 2;
    t.use_zero = r->zero >= 0;
    t.zero = r->zero >= 0 ? (ZeroStrategy)r->zero : ZERO_no_shard;
    t.zero_options.bucket_size = 300; /* small buckets: the root is divided into several units */
    t.clip = 0.02;                    /* far below the norm, so that gradients are clipped */
    return t;
}

static void clips_as_one_rank_does(void **state)
{
    (void)state;
    static const Row rows[] = {
        {2, 2, 2, 2, -1},
        {1, 2, 4, 2, -1},
        {4, 1, 2, 2, -1},
        {2, 4, 1, 2, -1},
        {2, 2, 2, 2, ZERO_optim},
        {1, 2, 2, 2, ZERO_optim_grads},
        {1, 2, 3, 2, ZERO_optim_grads_params},
        {2, 1, 3, 2, ZERO_optim_grads_params},
        {2, 4, 1, 2, ZERO_no_shard},
        {3, 1, 1, 4, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *own = arena_new();
        Diag d = diag_in(own);
        Tiny t = tiny_of(&rows[i]), one = tiny_one_rank(&t), unclipped = one;
        const Plan *plan = tiny_plan(&t, true, own, &d), *whole = tiny_plan(&one, true, own, &d);
        const DataSource *data = data_synthetic(i + 1, t.vocab, 0.1, own);
        BackendOptions options = {.poison = true, .order_seed = i, .timeout_s = 20};
        VerifyResult result = {0};
        Str s = str_in(own);
        bool fine = plan && whole && verify_plan(plan, VERIFY_all, false, &d) &&
                    exec_verify(plan, whole, data, &options, 1e-10, own, &result, &d);
        diag_print(&d, &s);
        if (!fine) fail_msg("row %zu: %s", i, str_text(&s));
        assert_true(result.norm_error < 1e-12);
        assert_true(result.worst_state < 1e-10); /* moments are computed from clipped gradients */
        /* without clipping the result differs, so gradients were clipped */
        unclipped.clip = 0;
        const Plan *free = tiny_plan(&unclipped, true, own, &d);
        assert_false(exec_verify(plan, free, data, &options, 1e-10, own, &result, &d));
        arena_free(own);
    }
}

/* ---- planted ---- */

static Plan *hybrid(Tiny *t)
{
    Row row = {1, 2, 2, 2, ZERO_optim};
    *t = tiny_of(&row);
    Plan *plan = tiny_plan(t, false, arena, &diag);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &diag));
    assert_int_equal(diag.items.n, 0);
    return plan;
}

/* Returns the n-th instruction of `op` (n from 0); 0 if there are fewer. */
static Pc nth(const Plan *plan, OpKind op, uint32_t n)
{
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == op && n-- == 0) return pc;
    return 0;
}

static void named(const Plan *plan, const char *rule, const char *text)
{
    assert_false(verify_plan(plan, VERIFY_all, false, &diag));
    Str all = str_in(arena);
    diag_print(&diag, &all);
    for (uint32_t i = 0; i < diag.items.n; i++)
        if (strcmp(diag.items.at[i].rule, rule) == 0 && strstr(diag.items.at[i].text, text)) return;
    fail_msg("no %s with '%s':\n%s", rule, text, str_text(&all));
}

/* Two segments are summed over the same axes. The test changes the second one so that it counts the
 * elements of the first one again. */
static void a_double_count_is_named(void **state)
{
    (void)state;
    Row row = {1, 2, 2, 2, ZERO_optim};
    Tiny t = tiny_of(&row);
    t.zero_options =
        (ZeroOptions){.has_units = true, .bucket_size = 1}; /* one unit for each parameter */
    Plan *plan = tiny_plan(&t, false, arena, &diag);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &diag));
    Program *p = &plan->programs.at[0];
    for (uint32_t i = 0;; i++) {
        Pc a = nth(plan, OP_sumsq, i), b = nth(plan, OP_sumsq, i + 1);
        if (!b) break;
        const Instr *x = &p->code.at[a], *y = &p->code.at[b];
        const Attrs *m = graph_attrs_at(&plan->graph, x->attrs),
                    *n = graph_attrs_at(&plan->graph, y->attrs);
        const Buffer *to = &p->buffers.at[program_arg(p, x, 1)],
                     *also = &p->buffers.at[program_arg(p, y, 1)];
        if (to->offset != also->offset) continue;
        Attrs attrs = *m;
        attrs.accumulate = n->accumulate;
        p->code.at[b].attrs = graph_attrs(&plan->graph, arena, &attrs);
        p->args.at[y->args.first] = program_arg(p, x, 0);
        named(plan, "verify-scale", "the gradient norm counts");
        return;
    }
    fail_msg("no two segments are summed over the same axes");
}

/* Every tensor-parallel rank has the whole weight of a norm. If this weight were counted among the
 * tensors that tp splits, it would count tp times. */
static void replicas_counted_as_parts_are_named(void **state)
{
    (void)state;
    Tiny t;
    Plan *plan = hybrid(&t);
    Program *p = &plan->programs.at[0];
    AxisSet tp = mesh_axes(&plan->mesh, AXIS_tp);
    BufferId with_tp = 0;
    for (uint32_t i = 0; nth(plan, OP_sumsq, i); i++) {
        const Instr *in = &p->code.at[nth(plan, OP_sumsq, i)];
        BufferId to = program_arg(p, in, 1);
        AxisSet axes = layout_axes_partial(&plan_shape_at(plan, p->buffers.at[to].shape)->layout);
        if (axes & tp) with_tp = to;
    }
    assert_true(with_tp);
    for (uint32_t i = 0; nth(plan, OP_sumsq, i); i++) {
        Instr *in = &p->code.at[nth(plan, OP_sumsq, i)];
        AxisSet axes = layout_axes_partial(
            &plan_shape_at(plan, p->buffers.at[program_arg(p, in, 1)].shape)->layout);
        if (axes & tp) continue;
        p->args.at[in->args.first + 1] = with_tp;
        named(plan, "verify-scale",
              "must be summed over dp_shard, but the layout of the output states dp_shard,tp");
        return;
    }
    fail_msg("nothing is whole over tp");
}

static void exchanged_moments_are_named(void **state)
{
    (void)state;
    Tiny t;
    Plan *plan = hybrid(&t);
    Program *p = &plan->programs.at[0];
    const Instr *in = &p->code.at[nth(plan, OP_adamw, 0)];
    BufferId *args = &p->args.at[in->args.first], m = args[1];
    args[1] = args[2], args[2] = m;
    args[in->n_in + 1] = args[1], args[in->n_in + 2] = args[2];
    named(plan, "verify-coverage", "input 1 is not the state of the parameters that it updates");
}

/* With gather = "eager", the gathered copy that the next step reads must contain this step's
 * update. */
static void a_stale_copy_is_named(void **state)
{
    (void)state;
    Row row = {1, 1, 2, 1, ZERO_optim};
    Tiny t = tiny_of(&row);
    t.zero_options.gather = ZERO_GATHER_eager;
    Plan *plan = tiny_plan(&t, false, arena, &diag);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &diag));
    Program *p = &plan->programs.at[0];
    Instr *in = &p->code.at[nth(plan, OP_all_gather, 0)];
    assert_int_equal(in->phase, PHASE_update);
    in->op = OP_copy; /* replaces the gather by a local copy */
    in->axes = 0, in->match = 0, in->stream = STREAM_compute;
    p->args.at[in->args.first + 1] = program_arg(p, in, 0);
    assert_false(verify_plan(plan, VERIFY_all, false, &diag));
    named(plan, "verify-coverage", "where the next step reads it gathered");
}

/* The copy is made from the weights of another unit. Both blocks have equal sizes, so they are
 * easily confused. */
static void a_copy_of_another_unit_is_named(void **state)
{
    (void)state;
    Row row = {1, 1, 2, 1, ZERO_optim};
    Tiny t = tiny_of(&row);
    t.zero_options.gather = ZERO_GATHER_eager;
    Plan *plan = tiny_plan(&t, false, arena, &diag);
    assert_non_null(plan);
    Program *p = &plan->programs.at[0];
    for (uint32_t i = 0; nth(plan, OP_all_gather, i + 1); i++) {
        const Instr *a = &p->code.at[nth(plan, OP_all_gather, i)],
                    *b = &p->code.at[nth(plan, OP_all_gather, i + 1)];
        BufferId from = program_arg(p, a, 0);
        if (p->buffers.at[from].shape != p->buffers.at[program_arg(p, b, 0)].shape) continue;
        p->args.at[b->args.first] = from;
        named(plan, "verify-coverage", "where the next step reads it gathered");
        return;
    }
    fail_msg("no two units have the same size");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_diag_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clips_as_one_rank_does),
        TEST(a_double_count_is_named),
        TEST(replicas_counted_as_parts_are_named),
        TEST(exchanged_moments_are_named),
        TEST(a_stale_copy_is_named),
        TEST(a_copy_of_another_unit_is_named),
    };
    return cmocka_run_group_tests_name("clip", tests, NULL, NULL);
}
