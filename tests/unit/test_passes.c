/* The passes: collectives counted and weighed against closed forms; orders and sizes that are
 * refused; periodic offsets. The forms are those of FSDP2 and of Megatron's tensor and sequence
 * parallelism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/support/tiny.h"

static Arena *arena;
static Diag diag;

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    diag = diag_in(arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static Plan *compile(const Tiny *t)
{
    Plan *plan = tiny_plan(t, false, arena, &diag);
    Str s = str_in(arena);
    diag_print(&diag, &s);
    if (!plan) fail_msg("%s", str_text(&s));
    return plan;
}

typedef struct Count {
    uint32_t n;
    uint64_t bytes;
} Count;

/* Collectives of one op on one axis name, outside the update. */
static Count count(const Plan *plan, OpKind op, AxisName axis)
{
    const Program *p = &plan->programs.at[0];
    AxisSet axes = mesh_axes(&plan->mesh, axis);
    Count c = {0, 0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != op || in->phase == PHASE_update || !in->axes || (in->axes & ~axes)) continue;
        c.n++;
        c.bytes += plan_comm_bytes(plan, p, in);
    }
    return c;
}

static uint64_t padded_elements(const Plan *plan)
{
    uint64_t n = 0;
    for (UnitId u = 1; u < plan->graph.units.n; u++) n += plan->graph.units.at[u].padded;
    return n;
}

static void fsdp2_counts(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m += 2)
        for (int ac = AC_none; ac <= AC_selective; ac++)
            for (uint32_t L = 1; L <= 4; L++) {
                Tiny t = tiny_default();
                t.dp_shard = 4, t.layers = L, t.microbatches = m, t.ac = (AcMode)ac;
                const Plan *plan = compile(&t);
                assert_int_equal(count(plan, OP_all_gather, AXIS_dp_shard).n, m * (2 * L + 1));
                assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).n, m * (L + 1));
                assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).bytes,
                                 m * 4 * padded_elements(plan));
                t.fsdp2.reshard_root = true;
                plan = compile(&t);
                assert_int_equal(count(plan, OP_all_gather, AXIS_dp_shard).n, m * 2 * (L + 1));
                assert_int_equal(count(plan, OP_all_gather, AXIS_dp_shard).bytes,
                                 m * 2 * 4 * padded_elements(plan));
                t.fsdp2.defer_grad_sync = true;
                t.fsdp2.reshard_after_forward = RESHARD_false;
                plan = compile(&t);
                assert_int_equal(count(plan, OP_all_gather, AXIS_dp_shard).n, m * (L + 1));
                assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).n, L + 1);
            }
}

/* FSDP2's choices of what stays gathered, all with L blocks and m micro-batches. */
static void what_stays_gathered(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 4; m += 3)
        for (int ac = AC_none; ac <= AC_full; ac++)
            for (uint32_t L = 1; L <= 4; L++) {
                Tiny t = tiny_default();
                t.dp_shard = 4, t.layers = L, t.microbatches = m, t.ac = (AcMode)ac;
                t.fsdp2.reshard_root = true;
                assert_int_equal(count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 m * 2 * (L + 1));
                t.fsdp2.reshard_last = false;
                assert_int_equal(count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 m * (2 * L + 1));
                t.fsdp2.reshard_root = false;
                assert_int_equal(count(compile(&t), OP_all_gather, AXIS_dp_shard).n, m * 2 * L);
                t.fsdp2.reshard_after_forward = RESHARD_false;
                assert_int_equal(count(compile(&t), OP_all_gather, AXIS_dp_shard).n, m * (L + 1));
            }
}

/* Bytes of flat gathered weights and of whole unsharded gradients at their highest. */
static uint64_t peak_of(const Plan *plan, Category category)
{
    const Program *p = &plan->programs.at[0];
    uint64_t peak = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        uint64_t now = 0;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            bool live =
                !at->persistent && !at->result && !at->parent && at->first <= pc && at->last >= pc;
            if (live && at->category == category) now += at->bytes;
        }
        if (now > peak) peak = now;
    }
    return peak;
}

/* One gather and one reduction a unit and step, whatever the micro-batches; all of the weights and
 * of their gradients lie there whole for it. In a pipeline each rank does so with its stage. */
static void kept_for_the_step(void **state)
{
    (void)state;
    for (uint32_t pp = 1; pp <= 2; pp++)
        for (uint32_t m = 2; m <= 6; m += 4) {
            const uint32_t L = 4;
            Tiny t = tiny_default();
            t.dp_shard = 4, t.layers = L, t.microbatches = m, t.pp = pp;
            t.fsdp2.keep_gathered = true;
            const Plan *plan = compile(&t);
            uint32_t n = L / pp + 1; /* blocks of the stage, and its root unit */
            assert_int_equal(count(plan, OP_all_gather, AXIS_dp_shard).n, n);
            assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).n, n);
            uint64_t elements = 0;
            for (UnitId u = 1; u < plan->graph.units.n; u++) {
                TensorId first = plan->graph.units.at[u].params.at[0];
                const char *name = plan->graph.tensors.at[first].name;
                bool here = pp == 1 || strncmp(name, "layers.0", 8) == 0 ||
                            strncmp(name, "layers.1", 8) == 0 || strncmp(name, "embed", 5) == 0;
                if (here) elements += plan->graph.units.at[u].padded;
            }
            assert_int_equal(peak_of(plan, CATEGORY_gathered), 4 * elements);
            assert_int_equal(peak_of(plan, CATEGORY_gradient), 4 * elements);
            t.fsdp2.keep_gathered = false;
            uint64_t with_reshard = peak_of(compile(&t), CATEGORY_gathered);
            assert_true(pp == 2 ? with_reshard <= 4 * elements : with_reshard < 4 * elements);
        }
}

static const Diagnostic *refused(const Tiny *t, void (*change)(Config *));

static uint32_t count_op(const Plan *plan, OpKind op, DType from, DType to)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        n += in->op == op && in->origin && p->buffers.at[program_arg(p, in, 0)].dtype == from &&
             p->buffers.at[program_arg(p, in, 1)].dtype == to;
    }
    return n;
}

/* The policy decides what is gathered, reduced and computed in, whatever `precision` says. With
 * another output than param every block's result is cast on its way out and on its way into the
 * next unit, the logits on their way into the loss, and all their gradients back. */
static void mixed_precision_policy(void **state)
{
    (void)state;
    const uint32_t L = 3, m = 2;
    Tiny t = tiny_default();
    t.dp_shard = 4, t.layers = L, t.microbatches = m;
    t.fsdp2.mp.param = DT_bf16, t.fsdp2.mp.reduce = DT_bf16;
    const Plan *plan = compile(&t);
    Count g = count(plan, OP_all_gather, AXIS_dp_shard),
          s = count(plan, OP_reduce_scatter, AXIS_dp_shard);
    assert_int_equal(g.bytes, m * 2 * (2 * padded_elements(plan) - plan->graph.units.at[1].padded));
    assert_int_equal(s.bytes, m * 2 * padded_elements(plan));
    assert_int_equal(count_op(plan, OP_cast, DT_bf16, DT_f32), 0);
    for (TensorId id = 1; id < plan->graph.tensors.n; id++) {
        const Tensor *at = &plan->graph.tensors.at[id];
        if (at->role == ROLE_param) assert_int_equal(at->rest_dtype, DT_f32);
        if (at->role == ROLE_activation && at->n_dims == 3 && at->dim[2] == t.dim)
            assert_int_equal(at->dtype, DT_bf16);
    }
    t.fsdp2.mp.reduce = DT_f32, t.fsdp2.mp.output = DT_f32;
    plan = compile(&t);
    assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).bytes,
                     m * 4 * padded_elements(plan));
    assert_int_equal(count_op(plan, OP_cast, DT_bf16, DT_f32), m * (2 * L + 1));
    assert_int_equal(count_op(plan, OP_cast, DT_f32, DT_bf16), m * (2 * L + 1));
    t.fsdp2.mp.cast_forward_inputs = false; /* the loss may stay in fp32, the blocks may not */
    const Diagnostic *d = refused(&t, NULL);
    assert_string_equal(d->rule, "mp-dtypes");
    assert_non_null(strstr(d->text, "in f32 and layers.1.attention_norm.weight in bf16"));
}

/* Without other data ranks a data pass does nothing: it is said, and `precision` decides. */
static void data_passes_without_ranks(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    const PassConfig passes[] = {
        {.name = PASS_fsdp2, .fsdp2 = t.fsdp2},
        {.name = PASS_ddp, .ddp = {.bucket_mib = 25}},
        {.name = PASS_zero, .zero = {.strategy = ZERO_no_shard, .prefetch = 1}},
        {.name = PASS_zero, .zero = {.strategy = ZERO_optim, .prefetch = 1}},
    };
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        Config config;
        Graph graph;
        tiny_build(&t, arena, &config, &graph);
        config.passes[0] = passes[i];
        config.passes[0].fsdp2.mp.param = i == 0 ? DT_bf16 : DT_none;
        config.n_passes = 1;
        diag = diag_in(arena);
        LowerOptions options = lower_options_default();
        options.workspace = kernel_cpu_workspace;
        const Plan *plan = passes_compile(&config, &graph, &options, NULL, arena, &diag);
        assert_non_null(plan);
        assert_int_equal(diag.items.n, 1);
        assert_string_equal(diag.items.at[0].rule, "not-applied");
        if (i == 0) assert_non_null(strstr(diag.items.at[0].text, "precision"));
        for (UnitId u = 1; u < plan->graph.units.n; u++)
            assert_int_equal(plan->graph.units.at[u].dtype, DT_f32);
        assert_int_equal(count(plan, OP_all_reduce, AXIS_dp_replicate).n, 0);
    }
}

/* Bytes that copies and casts of unit u read and write on a stream. */
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

/* FSDP2's order moves 14 bytes a parameter, unit and micro-batch that flat units need not: twice
 * out of the gathered buffer (read 2, write 2), once into that of the reduction (read 2, write 4).
 * The shard is cast in both. */
static void copies_cost_what_they_move(void **state)
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
        Count a = count(plan, collectives[k], AXIS_dp_shard),
              b = count(plain, collectives[k], AXIS_dp_shard);
        assert_int_equal(a.n, b.n);
        assert_int_equal(a.bytes, b.bytes);
    }
}

/* Offloaded, nothing of a parameter is on the device between steps; the host holds 16 bytes an
 * element of my part of each unit (fp32 weight, gradient, two moments), one part of a gradient on
 * its way into the sum at a time (two, with the next one arriving), and the scalars. */
static void offloaded_state(void **state)
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

/* Moments are as parameters at rest, or as the optimizer says. */
static void moments_in_their_dtype(void **state)
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

/* reshard_after_forward = 2 of 4: the backward gathers go over 2 ranks only. */
static void reshard_to_a_part(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 4, t.layers = 3;
    t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 2;
    const Plan *plan = compile(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t n_all = 0, n_inner = 0, n_slices = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        uint32_t size = mesh_size(&plan->mesh, in->axes);
        n_all += in->op == OP_all_gather && size == 4;
        n_inner += in->op == OP_all_gather && size == 2;
        n_slices += in->op == OP_slice;
    }
    assert_int_equal(n_all, 3 + 1);
    assert_int_equal(n_inner, 3);
    assert_int_equal(n_slices, 3);
}

/* ZeRO-1: one gather and one scatter a unit and step. ZeRO-2 scatters every micro-batch. */
static void zero_counts(void **state)
{
    (void)state;
    static const ZeroStrategy strategies[] = {ZERO_optim, ZERO_optim_grads,
                                              ZERO_optim_grads_params};
    for (uint32_t m = 1; m <= 3; m += 2)
        for (int k = 0; k < 3; k++) {
            Tiny t = tiny_default();
            t.dp_shard = 4, t.layers = 3, t.microbatches = m, t.use_zero = true;
            t.zero = strategies[k];
            const Plan *plan = compile(&t);
            uint32_t gathers = k == 2 ? m * (2 * 3 + 1) : 3 + 1,
                     scatters = k == 0 ? 3 + 1 : m * (3 + 1);
            assert_int_equal(count(plan, OP_all_gather, AXIS_dp_shard).n, gathers);
            assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).n, scatters);
        }
    Tiny t = tiny_default();
    t.dp_replicate = 4, t.microbatches = 3, t.use_zero = true, t.zero = ZERO_no_shard;
    t.zero_options.bucket_size = 250;
    const Plan *plan = compile(&t);
    assert_int_equal(count(plan, OP_all_reduce, AXIS_dp_replicate).n, plan->graph.units.n - 1);
}

static void ddp_counts(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m += 2) {
        Tiny t = tiny_default();
        t.dp_replicate = 4, t.microbatches = m;
        const Plan *plan = compile(&t);
        assert_true(plan->graph.units.n - 1 > 1); /* several buckets */
        assert_int_equal(count(plan, OP_all_reduce, AXIS_dp_replicate).n, plan->graph.units.n - 1);
        assert_int_equal(count(plan, OP_all_reduce, AXIS_dp_replicate).bytes,
                         4 * padded_elements(plan));
        assert_int_equal(count(plan, OP_all_gather, AXIS_dp_replicate).n, 0);
    }
}

static void hsdp_counts(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_replicate = 2, t.dp_shard = 2, t.microbatches = 3;
    const Plan *plan = compile(&t);
    assert_int_equal(count(plan, OP_reduce_scatter, AXIS_dp_shard).n, 3 * 3);
    assert_int_equal(count(plan, OP_all_reduce, AXIS_dp_replicate).n,
                     3); /* once a step, on the shard */
    assert_int_equal(count(plan, OP_all_reduce, AXIS_dp_replicate).bytes,
                     4 * padded_elements(plan) / 2);
}

/* Sequence parallel: 6 all_gathers and 4 reduce_scatters a layer (4 and 4 with the gathered input
 * kept), and around them the embedding (reduce_scatter; backward all_gather) and the head
 * (all_gather, again in backward unless kept; backward reduce_scatter). Each moves micro x seq x
 * dim. */
static void sequence_parallel_counts(void **state)
{
    (void)state;
    for (uint32_t tp = 2; tp <= 4; tp += 2)
        for (int keep = 0; keep <= 1; keep++)
            for (uint32_t L = 1; L <= 3; L++) {
                Tiny t = tiny_default();
                t.tp = tp, t.layers = L, t.microbatches = 3, t.micro = 2;
                t.tp_options.keep_gathered = keep;
                const Plan *plan = compile(&t);
                uint32_t gathers = keep ? 4 * L + 2 : 6 * L + 3, scatters = 4 * L + 2;
                Count g = count(plan, OP_all_gather, AXIS_tp),
                      s = count(plan, OP_reduce_scatter, AXIS_tp);
                uint64_t bytes = (uint64_t)(t.micro * t.seq * t.dim) * 4;
                assert_int_equal(g.n, 3 * gathers);
                assert_int_equal(s.n, 3 * scatters);
                assert_int_equal(g.bytes, 3 * gathers * bytes);
                assert_int_equal(s.bytes, 3 * scatters * bytes);
                /* the loss (max, pick, sum-exp) each micro-batch; norm weights' partial gradients
                 * once */
                assert_int_equal(count(plan, OP_all_reduce, AXIS_tp).n, 3 * 3 + 1);
            }
}

static void plain_tensor_parallel_counts(void **state)
{
    (void)state;
    for (uint32_t L = 1; L <= 3; L++) {
        Tiny t = tiny_default();
        t.tp = 2, t.layers = L;
        t.tp_options.sequence = false;
        const Plan *plan = compile(&t);
        assert_int_equal(count(plan, OP_all_gather, AXIS_tp).n, 0);
        assert_int_equal(count(plan, OP_reduce_scatter, AXIS_tp).n, 0);
        /* o and down forward, qkv and gate-up backward; embedding forward, head backward; the loss
         */
        assert_int_equal(count(plan, OP_all_reduce, AXIS_tp).n, 4 * L + 2 + 3);
    }
}

/* Full recomputation repeats both gathers and o's scatter, not down's; the recomputed gathers serve
 * wgrad. */
static void full_recompute_counts(void **state)
{
    (void)state;
    for (uint32_t L = 1; L <= 3; L++) {
        Tiny t = tiny_default();
        t.tp = 2, t.layers = L, t.ac = AC_full;
        const Plan *plan = compile(&t);
        assert_int_equal(count(plan, OP_all_gather, AXIS_tp).n, 6 * L + 3);
        assert_int_equal(count(plan, OP_reduce_scatter, AXIS_tp).n, 5 * L + 2);
    }
}

/* KempnerForge's DTensor plan gathers for q, k, v, gate and up each: 7 and 7 a layer. */
static void unshared_gathers(void **state)
{
    (void)state;
    for (uint32_t L = 1; L <= 2; L++) {
        Tiny t = tiny_default();
        t.tp = 2, t.layers = L;
        t.tp_options.share_gathers = false, t.tp_options.keep_gathered = true;
        const Plan *plan = compile(&t);
        assert_int_equal(count(plan, OP_all_gather, AXIS_tp).n, 7 * L + 2);
        assert_int_equal(count(plan, OP_reduce_scatter, AXIS_tp).n, 7 * L + 2);
    }
}

/* Interior micro-batches use the same offsets: a backend may capture one and replay it. The
 * reduction of the first unit is accumulated a micro-batch later, so the interior begins at the
 * third. */
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

static const Diagnostic *refused(const Tiny *t, void (*change)(Config *))
{
    Config config;
    Graph graph;
    tiny_build(t, arena, &config, &graph);
    if (change) change(&config);
    LowerOptions options = lower_options_default();
    diag = diag_in(arena);
    assert_null(passes_compile(&config, &graph, &options, NULL, arena, &diag));
    assert_true(diag.n_errors > 0);
    return &diag.items.at[0];
}

/* A backend that wants scratch for attention: bytes by the local sizes. */
static uint64_t scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args)
{
    if (op != OP_attention && op != OP_attention_grad) return 0;
    assert_int_equal(n_args, op == OP_attention ? 5 : 9);
    return (uint64_t)elements[1] * dtype_bytes(dtype[0]);
}

static void workspace_is_planned(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2, t.dp_shard = 2, t.micro = 3;
    Config config;
    Graph graph;
    tiny_build(&t, arena, &config, &graph);
    LowerOptions options = lower_options_default();
    options.workspace = scratch_bytes;
    const Plan *plan = passes_compile(&config, &graph, &options, NULL, arena, &diag);
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
        assert_int_equal(b->bytes, 3 * 8 * (4 / 2) * 4 * 4); /* b s g E, fp32 */
        n++;
    }
    assert_int_equal(n, 2 * t.layers);
}

static void fsdp_first(Config *c)
{
    PassConfig tp = c->passes[0];
    c->passes[0] = c->passes[1], c->passes[1] = tp;
}
static void no_passes(Config *c)
{
    c->n_passes = 0;
}
static void tp_twice(Config *c)
{
    c->passes[c->n_passes++] = c->passes[0];
}
static void with_cp(Config *c)
{
    c->axis_size[AXIS_cp] = 2;
}

static void refusals(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2, t.dp_shard = 2;
    const Diagnostic *d = refused(&t, fsdp_first);
    assert_string_equal(d->rule, "pass-order");
    assert_non_null(strstr(d->text, "wrong slice"));
    assert_non_null(strstr(d->hint, "tp{...}, fsdp2{...}"));
    assert_string_equal(refused(&t, tp_twice)->rule, "pass-twice");
    assert_string_equal(refused(&t, no_passes)->rule, "axis-unused");
    assert_int_equal(diag.n_errors, 2); /* tp and dp_shard: all at once */
    assert_string_equal(refused(&t, with_cp)->rule, "axis-unsupported");
    t = tiny_default();
    t.groups = 25, t.tp = 2;
    d = refused(&t, NULL);
    assert_string_equal(d->rule, "divides-heads");
    assert_non_null(strstr(d->text, "heads = 25 cannot be split over tp = 2"));
    assert_non_null(strstr(d->hint, "1, 5, 25"));
    t = tiny_default();
    t.seq = 9, t.tp = 2;
    assert_string_equal(refused(&t, NULL)->rule, "divides-seq");
    t = tiny_default();
    t.dp_shard = 6, t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 4;
    d = refused(&t, NULL);
    assert_string_equal(d->rule, "reshard-divides");
    assert_non_null(strstr(d->hint, "2, 3"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(fsdp2_counts),
                                       TEST(what_stays_gathered),
                                       TEST(kept_for_the_step),
                                       TEST(mixed_precision_policy),
                                       TEST(copies_cost_what_they_move),
                                       TEST(offloaded_state),
                                       TEST(moments_in_their_dtype),
                                       TEST(data_passes_without_ranks),
                                       TEST(reshard_to_a_part),
                                       TEST(zero_counts),
                                       TEST(ddp_counts),
                                       TEST(hsdp_counts),
                                       TEST(sequence_parallel_counts),
                                       TEST(plain_tensor_parallel_counts),
                                       TEST(full_recompute_counts),
                                       TEST(unshared_gathers),
                                       TEST(interior_microbatches_repeat),
                                       TEST(workspace_is_planned),
                                       TEST(refusals)};
    return cmocka_run_group_tests_name("passes", tests, NULL, NULL);
}
