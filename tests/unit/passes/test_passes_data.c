/* Data parallelism. Counts the collectives of FSDP2, ZeRO, DDP and HSDP, and compares their bytes
 * with closed forms. Also checks which tensors these passes keep gathered, and which dtypes they
 * move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/compiled.h"
#include "tests/support/plans/tiny.h"

static void fsdp2_gathers_and_scatters_each_unit(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m += 2)
        for (int ac = AC_none; ac <= AC_selective; ac++)
            for (uint32_t L = 1; L <= 4; L++) {
                Tiny t = tiny_default();
                t.dp_shard = 4, t.layers = L, t.microbatches = m, t.ac = (AcMode)ac;
                const Plan *plan = compile(&t);
                assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).n, m * (2 * L + 1));
                assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).n, m * (L + 1));
                assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).bytes,
                                 m * 4 * padded_elements(plan));
                t.fsdp2.reshard_root = true;
                plan = compile(&t);
                assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).n, m * 2 * (L + 1));
                assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).bytes,
                                 m * 2 * 4 * padded_elements(plan));
                t.fsdp2.defer_grad_sync = true;
                t.fsdp2.reshard_after_forward = RESHARD_false;
                plan = compile(&t);
                assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).n, m * (L + 1));
                assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).n, L + 1);
            }
}

/* Counts the gathers for each of FSDP2's choices of weights that stay gathered, with L blocks and m
 * micro-batches. */
static void options_decide_which_weights_stay_gathered(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 4; m += 3)
        for (int ac = AC_none; ac <= AC_full; ac++)
            for (uint32_t L = 1; L <= 4; L++) {
                Tiny t = tiny_default();
                t.dp_shard = 4, t.layers = L, t.microbatches = m, t.ac = (AcMode)ac;
                t.fsdp2.reshard_root = true;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 m * 2 * (L + 1));
                t.fsdp2.reshard_last = false;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 m * (2 * L + 1));
                t.fsdp2.reshard_root = false;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 m * 2 * L);
                t.fsdp2.reshard_after_forward = RESHARD_false;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 m * (L + 1));
            }
}

/* Returns the peak bytes of flat gathered weights or of whole unsharded gradients. */
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

/* Each unit is gathered once and reduced once a step, for any number of micro-batches. Meanwhile
 * all weights and gradients are whole. In a pipeline, each rank does this for its stage. */
static void weights_kept_for_the_step_are_gathered_once(void **state)
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
            assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).n, n);
            assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).n, n);
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

/* Returns true if every reduction of a unit follows the last backward computation of the step. */
static bool reductions_come_last(const Plan *plan)
{
    const Program *p = &plan->programs.at[0];
    Pc last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool computes = in->origin && in->stream == STREAM_compute;
        if (computes && in->phase == PHASE_backward) last = pc;
    }
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_reduce_scatter && pc < last) return false;
    return true;
}

/* A stage of PyTorch's pipelines keeps weights gathered after a backward pass, until the next
 * forward pass frees them. So m micro-batches gather a block m + 1 times. In 1F1B these are w + 1
 * forward passes (w of them warm up) and the m - w backward passes that follow a forward pass.
 * Gradients are reduced once, after the last backward pass. The root unit of the first of two
 * stages has only an embedding, whose weights no backward pass reads. */
static void a_pipeline_stage_keeps_weights_after_backward(void **state)
{
    (void)state;
    for (uint32_t pp = 1; pp <= 2; pp++)
        for (uint32_t m = 2; m <= 6; m += 4)
            for (int copy = 0; copy < 2; copy++) {
                const uint32_t L = 4, blocks = L / pp;
                Tiny t = tiny_default();
                t.dp_shard = 4, t.layers = L, t.microbatches = m, t.pp = pp;
                t.fsdp2.defer_grad_sync = t.fsdp2.reshard_root = true, t.fsdp2.copy = copy;
                uint32_t root = pp == 1 ? 2 * m : m;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 2 * m * blocks + root);
                assert_false(reductions_come_last(compile(&t)));
                t.fsdp2.pipeline_stage = true;
                root = pp == 1 ? m + 1 : m;
                const Plan *plan = compile(&t);
                assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).n,
                                 (m + 1) * blocks + root);
                assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).n, blocks + 1);
                assert_true(reductions_come_last(plan));
                t.fsdp2.reshard_root = false;
                root = 1;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 (m + 1) * blocks + root);
                t.fsdp2.keep_gathered = true;
                assert_int_equal(comm_count(compile(&t), OP_all_gather, AXIS_dp_shard).n,
                                 blocks + 1);
                assert_true(reductions_come_last(compile(&t)));
            }
}

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

/* The policy decides the dtypes of gathers, reductions and computation, whatever `precision` says.
 * If `output` differs from `param`, the result of every block is cast to `output`, and cast back at
 * the next unit. So are the logits before the loss. The gradients are cast in the opposite order.
 * */
static void the_policy_decides_the_dtypes(void **state)
{
    (void)state;
    const uint32_t L = 3, m = 2;
    Tiny t = tiny_default();
    t.dp_shard = 4, t.layers = L, t.microbatches = m;
    t.fsdp2.mp.param = DT_bf16, t.fsdp2.mp.reduce = DT_bf16;
    const Plan *plan = compile(&t);
    CommCount g = comm_count(plan, OP_all_gather, AXIS_dp_shard),
              s = comm_count(plan, OP_reduce_scatter, AXIS_dp_shard);
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
    assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).bytes,
                     m * 4 * padded_elements(plan));
    assert_int_equal(count_op(plan, OP_cast, DT_bf16, DT_f32), m * (2 * L + 1));
    assert_int_equal(count_op(plan, OP_cast, DT_f32, DT_bf16), m * (2 * L + 1));
    t.fsdp2.mp.cast_forward_inputs = false; /* the loss may be in fp32, but blocks may not */
    const Diagnostic *d = compile_refused(&t, NULL);
    assert_string_equal(d->rule, "mp-dtypes");
    assert_non_null(strstr(d->text, "in f32 and layers.1.attention_norm.weight in bf16"));
}

/* With a single data rank, a data pass does nothing. This is reported, and `precision` decides the
 * dtypes. */
static void data_passes_without_ranks_are_reported(void **state)
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
        tiny_build(&t, compile_arena(), &config, &graph);
        config.passes[0] = passes[i];
        config.passes[0].fsdp2.mp.param = i == 0 ? DT_bf16 : DT_none;
        config.n_passes = 1;
        *compile_diag() = diag_in(compile_arena());
        LowerOptions options = lower_options_default();
        options.workspace = kernel_cpu_workspace;
        const Plan *plan =
            plan_compile(&config, &graph, &options, NULL, compile_arena(), compile_diag());
        assert_non_null(plan);
        assert_int_equal(compile_diag()->items.n, 1);
        assert_string_equal(compile_diag()->items.at[0].rule, "not-applied");
        if (i == 0) assert_non_null(strstr(compile_diag()->items.at[0].text, "precision"));
        for (UnitId u = 1; u < plan->graph.units.n; u++)
            assert_int_equal(plan->graph.units.at[u].dtype, DT_f32);
        assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_dp_replicate).n, 0);
    }
}

/* With reshard_after_forward = 2 of 4 ranks, gathers of the backward pass use only 2 ranks. */
static void backward_gathers_may_use_a_part_of_the_ranks(void **state)
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

/* ZeRO-1 gathers and scatters each unit once a step. ZeRO-2 scatters it in every micro-batch. */
static void zero_stages_have_their_collectives(void **state)
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
            assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_shard).n, gathers);
            assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).n, scatters);
        }
    Tiny t = tiny_default();
    t.dp_replicate = 4, t.microbatches = 3, t.use_zero = true, t.zero = ZERO_no_shard;
    t.zero_options.bucket_size = 250;
    const Plan *plan = compile(&t);
    assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_dp_replicate).n, plan->graph.units.n - 1);
}

static void ddp_reduces_each_bucket_once_a_step(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m += 2) {
        Tiny t = tiny_default();
        t.dp_replicate = 4, t.microbatches = m;
        const Plan *plan = compile(&t);
        assert_true(plan->graph.units.n - 1 > 1); /* there are several buckets */
        assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_dp_replicate).n,
                         plan->graph.units.n - 1);
        assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_dp_replicate).bytes,
                         4 * padded_elements(plan));
        assert_int_equal(comm_count(plan, OP_all_gather, AXIS_dp_replicate).n, 0);
    }
}

static void hsdp_reduces_each_shard_once_a_step(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_replicate = 2, t.dp_shard = 2, t.microbatches = 3;
    const Plan *plan = compile(&t);
    assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_dp_shard).n, 3 * 3);
    /* Each shard is reduced once a step. */
    assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_dp_replicate).n, 3);
    assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_dp_replicate).bytes,
                     4 * padded_elements(plan) / 2);
}

/* fsdp2.mp casts the inputs and the outputs of a unit. Each cast belongs to the layer of its
 * module, because the nodes of a layer must follow each other. */
static void casts_belong_to_layers(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.layers = 3, t.dp_shard = 2;
    t.fsdp2.mp.param = DT_bf16, t.fsdp2.mp.output = DT_f32;
    t.fsdp2.mp.cast_forward_inputs = true;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    const Graph *g = &plan->graph;
    uint32_t n_casts = 0;
    for (NodeId id = 1; id <= g->n_forward; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->op != OP_cast || !n->module) continue;
        assert_int_equal(n->layer, g->modules.at[n->module].layer);
        n_casts += n->layer > 0;
    }
    assert_true(n_casts > t.layers);
    arena_free(arena);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)
    const struct CMUnitTest tests[] = {TEST(fsdp2_gathers_and_scatters_each_unit),
                                       TEST(options_decide_which_weights_stay_gathered),
                                       TEST(weights_kept_for_the_step_are_gathered_once),
                                       TEST(a_pipeline_stage_keeps_weights_after_backward),
                                       TEST(the_policy_decides_the_dtypes),
                                       TEST(casts_belong_to_layers),
                                       TEST(data_passes_without_ranks_are_reported),
                                       TEST(backward_gathers_may_use_a_part_of_the_ranks),
                                       TEST(zero_stages_have_their_collectives),
                                       TEST(ddp_reduces_each_bucket_once_a_step),
                                       TEST(hsdp_reduces_each_shard_once_a_step)};
    return cmocka_run_group_tests_name("passes_data", tests, NULL, NULL);
}
