/* compile{} joins ops into kernels. Tests which ops it joins, what this saves, and wrong kernels
 * that the verifier must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

static Plan *compiled(CompilePer per, AcMode ac, Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.compile = true;
    t.compile_per = per;
    t.ac = ac;
    t.tp = 2, t.dp_shard = 2;
    t.tp_options.sequence = true;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    return plan;
}

static uint32_t n_fused(const Plan *plan)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) n += p->code.at[pc].fuse != 0;
    return n;
}

static Pc find(const Program *p, OpKind op, Phase phase)
{
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == op && p->code.at[pc].phase == phase) return pc;
    return 0;
}

/* Whether an op works row by row follows from its signature. This is the expected list. */
static void rowwise_ops_are_those_without_sums(void **state)
{
    (void)state;
    static const OpKind yes[] = {OP_add,  OP_mul,  OP_silu, OP_gelu, OP_silu_grad, OP_scale,
                                 OP_bias, OP_rope, OP_cast, OP_pass, OP_rmsnorm,   OP_layernorm};
    static const OpKind no[] = {
        OP_linear,    OP_embed,     OP_attention, OP_rmsnorm_grad, OP_bias_grad,     OP_batch,
        OP_xent_max,  OP_xent_loss, OP_xent_pick, OP_adamw,        OP_sumsq,         OP_all_reduce,
        OP_linear_d0, OP_slice,     OP_pack,      OP_fill,         OP_position_grad, OP_position};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(op_is_rowwise(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(op_is_rowwise(no[i]));
}

/* The kernel of silu(w1 x) * (w3 x) reads both inputs and writes the product. silu's result stays
 * inside the kernel. */
static void a_kernel_saves_the_bytes_that_stay_inside(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = compiled(COMPILE_block, AC_full, arena);
    const Program *p = &plan->programs.at[0];
    Pc silu = find(p, OP_silu, PHASE_forward), mul = find(p, OP_mul, PHASE_forward);
    const Instr *a = &p->code.at[silu], *b = &p->code.at[mul];
    assert_int_not_equal(a->fuse, 0);
    assert_int_equal(a->fuse, b->fuse);
    uint64_t one = p->buffers.at[program_arg(p, a, 0)].bytes;
    assert_int_equal(plan_hbm_bytes(plan, p, a) + plan_hbm_bytes(plan, p, b), 5 * one);
    assert_int_equal(plan_kernel_bytes(plan, p, a) + plan_kernel_bytes(plan, p, b), 3 * one);
    assert_true(plan_begins_kernel(p, a));
    assert_false(plan_begins_kernel(p, b));
    arena_free(arena);
}

static bool sums_over_rows(OpKind op)
{
    for (uint32_t j = 0; j < op_info(op)->sig.n_out; j++)
        if (op_sums_rows(op, j)) return true;
    return false;
}

/* The gradient of a norm sums over rows, so it visits them in another order than ops that work row
 * by row. It begins a kernel, which only the search for a largest magnitude may join. */
static void gradients_of_norms_begin_kernels(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        t.compile = true, t.compile_per = i & 1 ? COMPILE_model : COMPILE_block;
        t.gpt2 = i & 2, t.variant = i & 4 ? TINY_normed : TINY_plain,
        t.ac = i & 8 ? AC_full : AC_none;
        const Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        const Program *p = &plan->programs.at[0];
        uint32_t n_gradients = 0;
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (!op_joins_kernel(in->op) || op_info(in->op)->flags & (OP_MAGNITUDE | OP_OF_LOSS) ||
                !sums_over_rows(in->op))
                continue;
            n_gradients++;
            assert_true(!in->fuse || plan_begins_kernel(p, in));
            for (const Instr *part = in; (part = plan_next_part(p, part)) != NULL;)
                assert_true(op_info(part->op)->flags & OP_MAGNITUDE);
        }
        assert_true(n_gradients >= 2 * t.layers);
        arena_free(arena);
    }
}

/* If only silu is recomputed, it joins the kernel of its gradient. Then the forward kernel does not
 * write silu's result, and the gradient does not read it. */
static void a_recomputed_op_joins_its_gradient(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    const uint32_t silu_bit = 5;
    assert_string_equal(tiny_ac_ops[silu_bit], "silu");
    t.compile = true, t.ac = AC_full;
    t.ac_ops = ((1u << TINY_AC_OPS) - 1) & ~(1u << silu_bit);
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    const Program *p = &plan->programs.at[0];
    const Pc again = find(p, OP_silu, PHASE_recompute),
             slope = find(p, OP_silu_grad, PHASE_backward);
    const Pc silu = find(p, OP_silu, PHASE_forward), mul = find(p, OP_mul, PHASE_forward);
    const Instr *in = p->code.at;
    const uint64_t one = p->buffers.at[program_arg(p, &in[silu], 0)].bytes;
    assert_int_not_equal(again, 0);
    assert_int_not_equal(in[again].fuse, 0);
    assert_int_equal(slope - again, 2); /* the product between them reads silu's result */
    uint64_t bytes = 0;
    for (Pc pc = again - 1; pc <= slope; pc++) {
        assert_int_equal(in[pc].fuse, in[again].fuse);
        bytes += plan_kernel_bytes(plan, p, &in[pc]);
    }
    assert_int_equal(bytes, 5 * one);
    assert_int_equal(plan_kernel_bytes(plan, p, &in[silu]) + plan_kernel_bytes(plan, p, &in[mul]),
                     3 * one);
    arena_free(arena);
}

static void a_kernel_of_the_model_may_cross_blocks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    uint32_t block = n_fused(compiled(COMPILE_block, AC_none, arena));
    uint32_t model = n_fused(compiled(COMPILE_model, AC_none, arena));
    assert_true(block > 0);
    assert_true(model > block);
    arena_free(arena);
}

/* The loss needs three sums over a row of logits. One read serves all three, compiled or not. If tp
 * splits the vocabulary, the maximum over all ranks comes between them. */
static void the_loss_reads_its_logits_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t tp = 1 + i / 2;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        t.compile = i % 2;
        t.tp = tp, t.smoothing = tp == 1 ? 0.1 : 0;
        Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        assert_true(verify_plan(plan, VERIFY_all, false, &d));
        const Program *p = &plan->programs.at[0];
        const Instr *max = &p->code.at[find(p, OP_xent_max, PHASE_forward)];
        const Instr *sum = &p->code.at[find(p, OP_xent_sumexp, PHASE_forward)];
        OpKind picks = tp == 1 ? OP_xent_smooth : OP_xent_pick;
        const Instr *pick = &p->code.at[find(p, picks, PHASE_forward)];
        const Instr *grad = &p->code.at[find(p, OP_xent_sumexp_grad, PHASE_backward)];
        const Buffer *logits = &p->buffers.at[program_arg(p, max, 0)];
        const uint64_t one = logits->bytes, rows = p->buffers.at[program_arg(p, max, 1)].bytes;
        if (tp == 1) {
            assert_int_not_equal(max->fuse, 0);
            assert_true(max->fuse == sum->fuse && max->fuse == pick->fuse);
            assert_int_equal(plan_kernel_bytes(plan, p, max), one + rows);
            assert_int_equal(plan_kernel_bytes(plan, p, sum), rows);
            /* The kernel reads the labels and writes the picked logits. */
            assert_int_equal(plan_kernel_bytes(plan, p, pick), 2 * rows);
        } else {
            assert_int_not_equal(max->fuse != 0 && max->fuse == sum->fuse, 1);
            assert_int_equal(plan_kernel_bytes(plan, p, sum), one + 2 * rows);
        }
        assert_int_equal(p->buffers.at[program_arg(p, grad, 3)].offset, logits->offset);
        arena_free(arena);
    }
}

/* A kernel whose output is quantised (a norm, a gated feed-forward, or a norm's gradient) also
 * finds the output's largest magnitude. The ops that read the magnitude come later. */
static Plan *compiled_float8(Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.use_float8 = true;
    t.dim = 32, t.hidden = 32, t.head_dim = 16;
    t.compile = true, t.compile_per = COMPILE_model;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    if (!plan) fail_msg("%s", d.items.at[0].text);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    return plan;
}

static void a_largest_magnitude_is_found_where_it_is_made(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = compiled_float8(arena);
    const Program *p = &plan->programs.at[0];
    uint32_t norms = 0, products = 0, gradients = 0;
    for (Pc pc = 2; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc], *before = in;
        if (in->op != OP_amax || !in->fuse) continue;
        do before--; /* finds the part that makes its input */
        while (before->fuse == in->fuse &&
               program_arg(p, in, 0) != program_arg(p, before, before->n_in));
        assert_int_equal(in->fuse, before->fuse);
        assert_int_not_equal(in[1].fuse, in->fuse);
        assert_int_equal(plan_kernel_bytes(plan, p, in),
                         plan_hbm_bytes(plan, p, in) - p->buffers.at[program_arg(p, in, 0)].bytes);
        norms += before->op == OP_rmsnorm;
        products += before->op == OP_mul;
        gradients += before->op == OP_rmsnorm_grad;
    }
    assert_true(norms > 0 && products > 0 && gradients > 0);
    arena_free(arena);
}

static void assert_refused(Plan *bad, const char *rule, const char *text)
{
    Diag d = diag_in(bad->arena);
    assert_false(verify_plan(bad, VERIFY_all, false, &d));
    assert_string_equal(d.items.at[0].rule, rule);
    if (!strstr(d.items.at[0].text, text)) print_error("%s\n", d.items.at[0].text);
    assert_non_null(strstr(d.items.at[0].text, text));
}

/* Quantising reads the maximum over all rows. Inside the kernel that finds the maximum, it would
 * read an unfinished maximum. */
static void a_sum_over_rows_is_not_read_in_its_kernel(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = compiled_float8(arena);
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    Pc amax = 0;
    for (Pc pc = 1; pc + 1 < p->code.n && !amax; pc++)
        if (p->code.at[pc].fuse && p->code.at[pc].op == OP_amax &&
            p->code.at[pc + 1].op == OP_quantise)
            amax = pc;
    assert_int_not_equal(amax, 0);
    p->code.at[amax + 1].fuse = p->code.at[amax].fuse;
    assert_refused(bad, "verify-structure", "is complete only at the end of kernel");
    arena_free(arena);
}

static void wrong_kernels_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = compiled(COMPILE_block, AC_full, arena);
    Plan *bad = mutate_copy(plan, arena); /* a matrix product joins a kernel of rows */
    Program *p = &bad->programs.at[0];
    Pc silu = find(p, OP_silu, PHASE_forward), mul = find(p, OP_mul, PHASE_forward);
    for (Pc pc = mul + 1;; pc++)
        if (p->code.at[pc].stream == STREAM_compute) {
            p->code.at[pc].fuse = p->code.at[mul].fuse;
            break;
        }
    assert_refused(bad, "verify-structure", "does not process rows");

    bad = mutate_copy(plan, arena); /* a part waits for another stream */
    p = &bad->programs.at[0];
    p->code.at[mul].after = (Span){p->after.n, 1};
    list_push(arena, &p->after, 1);
    assert_refused(bad, "verify-structure", "but waits for another stream");

    bad = mutate_copy(plan, arena); /* an instruction waits for a part that is not the last */
    p = &bad->programs.at[0];
    for (Pc pc = mul + 1; pc < p->code.n; pc++)
        if (p->code.at[pc].stream == STREAM_tp) {
            p->code.at[pc].after = (Span){p->after.n, 1};
            list_push(arena, &p->after, silu);
            break;
        }
    assert_refused(bad, "verify-structure", "in the middle of kernel");

    /* Two ops with equally many rows of different lengths join. */
    bad = mutate_copy(plan, arena);
    p = &bad->programs.at[0];
    Pc gate_pc = 0;
    for (Pc pc = 2; pc < p->code.n && !gate_pc; pc++) {
        const Instr *a = &p->code.at[pc - 1], *b = &p->code.at[pc];
        if (a->fuse || b->fuse || a->stream != STREAM_compute || b->stream != STREAM_compute)
            continue;
        if (!op_is_rowwise(a->op) || !op_is_rowwise(b->op) || b->after.n) continue;
        BufferId x = program_arg(p, a, a->n_in), y = program_arg(p, b, b->n_in);
        if (p->buffers.at[x].bytes != p->buffers.at[y].bytes) gate_pc = pc;
    }
    assert_int_not_equal(gate_pc, 0);
    p->code.at[gate_pc - 1].fuse = p->code.at[gate_pc].fuse = p->code.n - 1;
    assert_refused(bad, "verify-structure", "have different sizes");

    bad = mutate_copy(plan, arena); /* two kernels have the same number */
    p = &bad->programs.at[0];
    Pc other = find(p, OP_silu_grad, PHASE_backward);
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].fuse == plan->programs.at[0].code.at[other].fuse)
            p->code.at[pc].fuse = p->code.at[silu].fuse;
    assert_refused(bad, "verify-structure", "must follow each other on the compute stream");

    /* The output of mul overlaps the gate, 8 bytes further on. */
    bad = mutate_copy(plan, arena);
    p = &bad->programs.at[0];
    BufferId gate = program_arg(p, &p->code.at[silu], 0);
    BufferId product = program_arg(p, &p->code.at[mul], 2);
    p->buffers.at[product].offset = p->buffers.at[gate].offset + 8;
    assert_refused(bad, "verify-race", "takes bytes of buffer");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rowwise_ops_are_those_without_sums),
        cmocka_unit_test(a_kernel_saves_the_bytes_that_stay_inside),
        cmocka_unit_test(gradients_of_norms_begin_kernels),
        cmocka_unit_test(a_recomputed_op_joins_its_gradient),
        cmocka_unit_test(a_kernel_of_the_model_may_cross_blocks),
        cmocka_unit_test(the_loss_reads_its_logits_once),
        cmocka_unit_test(a_largest_magnitude_is_found_where_it_is_made),
        cmocka_unit_test(a_sum_over_rows_is_not_read_in_its_kernel),
        cmocka_unit_test(wrong_kernels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
