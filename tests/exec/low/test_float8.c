/* 8-bit products are rounded equally on many ranks and on one. Largest magnitudes are taken over
 * all ranks, so all ranks use the same scales. Everything else is in fp64, so results agree as
 * closely as without rounding. Any difference in a scale would be visible. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

static const double tolerance = 1e-10;

typedef struct Pair {
    Arena *arena;
    Diag d;
    Plan *plan;
    const Plan *one_rank;
    const DataSource *data;
} Pair;

static Pair pair_of(const Tiny *t, uint64_t seed)
{
    Arena *arena = arena_new();
    Tiny one = tiny_one_rank(t);
    DTypeMap dtypes = dtype_map_but_eight_bits(DT_f64);
    Pair p = {.arena = arena, .d = diag_in(arena)};
    p.plan = tiny_plan_in(t, dtypes, arena, &p.d);
    p.one_rank = tiny_plan_in(&one, dtypes, arena, &p.d);
    p.data = data_synthetic(seed, t->vocab, 0.1, arena);
    if (!p.plan || !p.one_rank || !verify_plan(p.plan, VERIFY_all, false, &p.d)) {
        Str s = str_in(arena);
        diag_print(&p.d, &s);
        fail_msg("plan %llu: %s", (unsigned long long)seed, str_text(&s));
    }
    return p;
}

static bool agrees(Pair *p, uint64_t seed, VerifyResult *result)
{
    BackendOptions options = {.order_seed = seed};
    return exec_verify(p->plan, p->one_rank, p->data, &options, tolerance, p->arena, result, &p->d);
}

static void check(const Tiny *t, uint64_t seed)
{
    Pair p = pair_of(t, seed);
    VerifyResult result;
    if (!agrees(&p, seed, &result)) {
        Str s = str_in(p.arena);
        diag_print(&p.d, &s);
        fail_msg("plan %llu: %s", (unsigned long long)seed, str_text(&s));
    }
    assert_true(result.n_tensors > 10);
    arena_free(p.arena);
}

static Tiny sizes(void)
{
    Tiny t = tiny_default();
    t.groups = 8, t.head_dim = 4, t.dim = 24, t.hidden = 32, t.vocab = 61, t.seq = 16;
    t.use_float8 = true;
    return t;
}

/* Rows of { gpt2, dp_shard, dp_replicate, tp, sequence, pp, ac, micro-batches }. */
static const int rows[][8] = {
    {0, 2, 1, 1, 0, 1, AC_none, 2}, {1, 1, 2, 1, 0, 1, AC_selective, 3},
    {0, 1, 1, 2, 1, 1, AC_full, 1}, {1, 2, 1, 2, 0, 1, AC_none, 1},
    {0, 2, 2, 1, 0, 1, AC_none, 3}, {0, 1, 1, 4, 1, 1, AC_selective, 2},
    {1, 2, 1, 2, 1, 2, AC_none, 4}, {0, 3, 1, 1, 0, 1, AC_full, 2},
};

static void many_ranks_round_as_one_rank(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 5 * sizeof rows / sizeof rows[0]; i++) {
        static const Float8Recipe recipes[] = {FLOAT8_tensorwise, FLOAT8_rowwise, FLOAT8_tensorwise,
                                               FLOAT8_mxfp8, FLOAT8_nvfp4};
        const int *r = rows[i / 5];
        Tiny t = sizes();
        t.gpt2 = r[0], t.dp_shard = (uint32_t)r[1], t.dp_replicate = (uint32_t)r[2];
        t.tp = (uint32_t)r[3], t.tp_options.sequence = r[4], t.pp = (uint32_t)r[5];
        t.ac = (AcMode)r[6], t.microbatches = (uint32_t)r[7];
        t.float8.recipe = recipes[i % 5];
        /* also gathers weights in 8 bits, which needs one scale for the whole tensor */
        t.float8.fsdp_gather = i % 5 == 2;
        check(&t, i + 1);
        if (t.float8.recipe == FLOAT8_tensorwise) continue;
        t.float8.keep_quantised = true;
        check(&t, i + 1);
        if (t.float8.recipe != FLOAT8_rowwise) continue;
        t.float8.gather_first = true;
        check(&t, i + 1);
        t.float8.keep_quantised = false;
        check(&t, i + 1);
    }
}

/* Returns the number of gathers of 8-bit numbers in the first program. */
static uint32_t count_8_bit_gathers(const Tiny *t)
{
    Pair p = pair_of(t, 3);
    const Program *program = &p.plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < program->code.n; pc++) {
        const Instr *in = &program->code.at[pc];
        n += in->op == OP_all_gather &&
             program->buffers.at[program->args.at[in->args.first]].dtype == DT_e4m3;
    }
    arena_free(p.arena);
    return n;
}

static void tokens_are_gathered_first(void **state)
{
    (void)state;
    Tiny t = sizes();
    t.tp = 2, t.tp_options.sequence = true, t.float8.recipe = FLOAT8_rowwise;
    assert_true(count_8_bit_gathers(&t) > 0);
    t.float8.gather_first = true;
    assert_int_equal(count_8_bit_gathers(&t), 0);
}

/* ---- planted bugs ---- */

static Tiny planted(void)
{
    Tiny t = sizes();
    t.dp_shard = 2, t.microbatches = 2;
    return t;
}

static void set_scale(Pair *p, OpKind op, double factor)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->plan->programs.n; i++) {
        Program *program = &p->plan->programs.at[i];
        for (Pc pc = 1; pc < program->code.n; pc++) {
            Instr *in = &program->code.at[pc];
            if (in->op != op) continue;
            Attrs attrs = *graph_attrs_at(&p->plan->graph, in->attrs);
            attrs.scale *= factor;
            in->attrs = graph_attrs(&p->plan->graph, p->plan->arena, &attrs);
            n++;
        }
    }
    assert_true(n > 0);
}

static void expect_seen(Pair *p)
{
    VerifyResult result;
    assert_false(agrees(p, 0, &result));
    assert_string_equal(p->d.items.at[p->d.items.n - 1].rule, "verify-mismatch");
    assert_true(result.worst_gradient > 1e-3);
    arena_free(p->arena);
}

static void wrong_gradient_scales_are_seen(void **state)
{
    (void)state;
    static const double factors[] = {0, 0.5};
    for (int i = 0; i < 2; i++) {
        Tiny t = planted();
        Pair p = pair_of(&t, 7);
        set_scale(&p, OP_xent_loss_grad, factors[i]);
        expect_seen(&p);
    }
}

/* Each rank uses the scale of its own part only. Numbers are then still right, but rounded
 * differently. */
static void a_missing_maximum_is_seen(void **state)
{
    (void)state;
    Tiny t = planted();
    Pair p = pair_of(&t, 8);
    uint32_t n = 0;
    Program *program = &p.plan->programs.at[0];
    assert_int_equal(p.plan->programs.n, 1);
    for (Pc pc = 1; pc < program->code.n && n == 0; pc++) {
        Instr *in = &program->code.at[pc];
        if (in->op != OP_all_reduce || in->phase != PHASE_forward) continue;
        if (graph_attrs_at(&p.plan->graph, in->attrs)->reduce != REDUCE_max) continue;
        in->op = OP_pass;
        in->axes = 0;
        in->match = in->launch = 0;
        in->attrs = 0;
        n++;
    }
    assert_int_equal(n, 1);
    expect_seen(&p);
}

/* The gradient of a weight reads the 8-bit copy of another tensor of the same shape: the input of
 * the block's MLP instead of the input of its attention. */
static void another_tensors_8_bit_copy_is_seen(void **state)
{
    (void)state;
    Tiny t = planted();
    t.float8.recipe = FLOAT8_mxfp8, t.float8.keep_quantised = true;
    Pair p = pair_of(&t, 9);
    const Graph *g = &p.plan->graph;
    Program *program = &p.plan->programs.at[0];
    uint32_t value = 0, scales = 0;
    bool planted = false;
    for (Pc pc = 1; pc < program->code.n && !planted; pc++) {
        const Instr *in = &program->code.at[pc];
        if (in->phase != PHASE_backward || op_info(in->op)->scaling != SCALING_blocks) continue;
        const NodeId by = g->tensors.at[g->nodes.at[in->origin].in[0]].producer;
        if (by > g->n_forward || g->nodes.at[by].op != OP_quantise_blocks_tokens) continue;
        uint32_t *args = &program->args.at[in->args.first];
        planted = value != 0 && value != args[0] &&
                  program->buffers.at[value].bytes == program->buffers.at[args[0]].bytes;
        if (planted)
            args[0] = value, args[2] = scales;
        else
            value = args[0], scales = args[2];
    }
    assert_true(planted);
    assert_false(verify_plan(p.plan, VERIFY_all, false, &p.d));
    arena_free(p.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks_round_as_one_rank),
        cmocka_unit_test(tokens_are_gathered_first),
        cmocka_unit_test(wrong_gradient_scales_are_seen),
        cmocka_unit_test(a_missing_maximum_is_seen),
        cmocka_unit_test(another_tensors_8_bit_copy_is_seen),
    };
    return cmocka_run_group_tests_name("float8", tests, NULL, NULL);
}
