/* Buffers, and memory traffic other than collectives: copies, state on the host, moments and
 * scratch. All inner micro-batches must have equal offsets, so that a backend can replay one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/compiled.h"

/* Returns the bytes that copies and casts of unit u read and write on a stream. */
static uint64_t copied_bytes(const Plan *plan, UnitId u, Stream stream)
{
    const Program *p = &plan->programs.at[0];
    uint64_t bytes = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        bool moves = in->op == OP_copy || in->op == OP_cast;
        if (moves && in->unit == u && !in->origin && in->stream == stream)
            bytes += plan_hbm_bytes(plan, p, in);
    }
    return bytes;
}

/* FSDP2's order moves 14 bytes more than flat units, for each parameter, unit and micro-batch.
 * Twice it copies out of the gathered buffer (2 bytes read, 2 written), and once into the
 * reduction's buffer (2 read, 4 written). Both orders cast the shard. */
static void copies_count_the_bytes_that_they_move(void **state)
{
    (void)state;
    const uint32_t m = 3;
    Tiny t = tiny_default();
    t.dp_shard = 4, t.layers = 3, t.microbatches = m, t.compute = DT_bf16;
    const Plan *plain = compile(&t);
    t.fsdp2.copy = true;
    const Plan *plan = compile(&t);
    uint32_t n_blocks = 0;
    for (UnitId u = 1; u < plan->graph.units.n; u++) {
        const Unit *unit = &plan->graph.units.at[u];
        if (strcmp(unit->name, "root") == 0) continue;
        uint64_t n = 0;
        for (uint32_t i = 0; i < unit->params.n; i++) {
            const Tensor *at = &plan->graph.tensors.at[unit->params.at[i]];
            uint64_t elements = 1;
            for (int d = 0; d < at->n_dims; d++) elements *= (uint64_t)at->dim[d];
            n += elements;
        }
        assert_int_equal(copied_bytes(plan, u, STREAM_compute), m * 14 * n);
        assert_int_equal(copied_bytes(plan, u, STREAM_copy_in), m * 2 * 6 * unit->padded / 4);
        assert_int_equal(copied_bytes(plain, u, STREAM_compute), m * 2 * 6 * unit->padded / 4);
        assert_int_equal(copied_bytes(plain, u, STREAM_copy_in), 0);
        n_blocks++;
    }
    assert_int_equal(n_blocks, t.layers);
    static const OpKind collectives[] = {OP_all_gather, OP_reduce_scatter};
    for (int k = 0; k < 2; k++) {
        CommCount a = comm_count(plan, collectives[k], AXIS_dp_shard),
                  b = comm_count(plain, collectives[k], AXIS_dp_shard);
        assert_int_equal(a.n, b.n);
        assert_int_equal(a.bytes, b.bytes);
    }
}

/* With offload, no part of a parameter is on the device between steps. The host has 16 bytes for
 * each element of the rank's part of each unit (fp32 weight, gradient, two moments). It also has
 * one part of a gradient that is about to be added to the sum (two, while the next one arrives),
 * and the scalars. */
static void offloaded_state_lies_on_the_host(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m += 2) {
        Tiny t = tiny_default();
        t.dp_shard = 4, t.layers = 4, t.microbatches = m;
        t.fsdp2.offload = true;
        const Plan *plan = compile(&t);
        const Program *p = &plan->programs.at[0];
        uint64_t at_rest = 0, persistent = 0, largest = 0;
        for (UnitId u = 1; u < plan->graph.units.n; u++) {
            uint64_t part = plan->graph.units.at[u].padded / 4 * 4;
            at_rest += 4 * part;
            if (part > largest) largest = part;
        }
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            if (at->parent || !at->persistent) continue;
            assert_int_equal(at->space, at->unit ? SPACE_host : SPACE_device);
            if (at->unit) persistent += at->bytes;
        }
        assert_int_equal(persistent, at_rest);
        const uint64_t sums = m > 1;
        assert_true(p->host_bytes >= at_rest + sums * largest);
        assert_true(p->host_bytes <= at_rest + sums * 2 * (largest + 256) + 1024);
        uint32_t n_in = 0, n_out = 0, n_sums = 0, n_updates = 0, n_units = 0;
        n_units = plan->graph.units.n - 1;
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            n_in += in->op == OP_copy && in->stream == STREAM_copy_in && in->unit;
            n_out += in->op == OP_copy && in->stream == STREAM_copy_out && in->unit;
            n_sums += in->op == OP_pass && in->stream == STREAM_host;
            n_updates += in->op == OP_adamw && in->stream == STREAM_host;
        }
        assert_int_equal(n_in, m * (2 * t.layers + 1));
        assert_int_equal(n_out, m * n_units);
        assert_int_equal(n_sums, (m - 1) * n_units);
        assert_int_equal(n_updates, n_units);
        t.fsdp2.offload = false;
        assert_true(compile(&t)->programs.at[0].bytes > p->bytes);
    }
}

/* Moments have the dtype that the optimizer states, or else the dtype of parameters at rest. */
static void moments_have_the_stated_dtype(void **state)
{
    (void)state;
    static const DType rows[][3] = {{DT_f32, DT_none, DT_f32},
                                    {DT_bf16, DT_none, DT_bf16},
                                    {DT_f32, DT_bf16, DT_bf16},
                                    {DT_bf16, DT_f32, DT_f32}};
    for (int i = 0; i < 4; i++) {
        Tiny t = tiny_default();
        t.dp_shard = 2, t.param = rows[i][0], t.state = rows[i][1];
        const Plan *plan = compile(&t);
        const Program *p = &plan->programs.at[0];
        uint32_t n = 0;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            if (p->buffers.at[b].category != CATEGORY_optimizer) continue;
            assert_int_equal(p->buffers.at[b].dtype, rows[i][2]);
            n++;
        }
        assert_int_equal(n, 2 * (plan->graph.units.n - 1));
    }
}

/* Inner micro-batches use the same offsets, so a backend may capture one and replay it. The first
 * unit's reduction is added one micro-batch later, so the inner ones begin at the third. */
static void interior_microbatches_repeat(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.tp = 2, t.microbatches = 6;
    const Plan *plan = compile(&t);
    const Program *p = &plan->programs.at[0];
    Pc first[6] = {0};
    uint32_t seen = 0;
    for (Pc pc = 1; pc < p->code.n && seen < 6; pc++)
        if (p->code.at[pc].op == OP_batch) first[seen++] = pc;
    assert_int_equal(seen, 6);
    assert_int_equal(first[4] - first[3], first[3] - first[2]);
    for (Pc k = 0; k < first[3] - first[2]; k++) {
        const Instr *a = &p->code.at[first[2] + k], *b = &p->code.at[first[3] + k];
        assert_int_equal(a->op, b->op);
        assert_int_equal(a->args.n, b->args.n);
        for (uint32_t i = 0; i < a->args.n; i++) {
            uint64_t at, bt;
            program_root(p, program_arg(p, a, i), &at);
            program_root(p, program_arg(p, b, i), &bt);
            assert_int_equal(at, bt);
        }
    }
}

/* A backend that needs scratch for attention. Returns its bytes for these local sizes. */
static uint64_t scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args)
{
    if (op != OP_attention && op != OP_attention_grad) return 0;
    assert_int_equal(n_args, op == OP_attention ? 5 : 9);
    return (uint64_t)elements[1] * dtype_bytes(dtype[0]);
}

static void scratch_is_planned_by_local_sizes(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2, t.dp_shard = 2, t.micro = 3;
    Config config;
    Graph graph;
    tiny_build(&t, compile_arena(), &config, &graph);
    LowerOptions options = lower_options_default();
    options.workspace = scratch_bytes;
    const Plan *plan =
        plan_compile(&config, &graph, &options, NULL, compile_arena(), compile_diag());
    assert_non_null(plan);
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const OpInfo *info = op_info(in->op);
        if (in->op != OP_attention && in->op != OP_attention_grad) continue;
        assert_int_equal(in->args.n, info->sig.n_in + info->sig.n_out + 1);
        const Buffer *b = &p->buffers.at[program_arg(p, in, in->args.n - 1)];
        assert_int_equal(b->category, CATEGORY_workspace);
        /* the local b x s x g x E numbers of fp32 */
        assert_int_equal(b->bytes, 3 * 8 * (4 / 2) * 4 * 4);
        n++;
    }
    assert_int_equal(n, 2 * t.layers);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)
    const struct CMUnitTest tests[] = {
        TEST(copies_count_the_bytes_that_they_move), TEST(offloaded_state_lies_on_the_host),
        TEST(moments_have_the_stated_dtype), TEST(interior_microbatches_repeat),
        TEST(scratch_is_planned_by_local_sizes)};
    return cmocka_run_group_tests_name("passes_buffers", tests, NULL, NULL);
}
