/* PyTorch, or software on top of it, keeps some tensors after their last use. This raises the peak
 * of memory. The test computes the peaks of programs with a few instructions by hand. In the
 * comments, a number such as "at 3" is that of an instruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/memory/torch_memory.h"
#include "tests/sim/synthetic.h"

#define MIB (UINT64_C(1) << 20)

typedef struct Short {
    Arena *arena;
    Plan *plan;
    Program *p;
    Runtime runtime;
} Short;

/* Begins a program of n instructions that do nothing. */
static Short begin(uint32_t n)
{
    Short s = {.arena = arena_new(), .runtime = {.name = "test"}};
    s.plan = synthetic_plan(s.arena, 1, 1, 1, 1);
    for (uint32_t i = 0; i < n; i++) synthetic_compute(s.plan, 0, STREAM_compute, 1);
    s.p = &s.plan->programs.at[0];
    for (uint32_t i = 1; i <= n; i++) s.p->code.at[i].microbatch = 0;
    return s;
}

static BufferId tensor(Short *s, uint64_t mib, Pc first, Pc last)
{
    return synthetic_buffer(s->plan, mib * MIB, first, last, CATEGORY_activation, false);
}

/* Makes instruction pc an `op` of node `origin` that reads and writes the listed buffers. A list
 * ends with 0. */
static void instr(Short *s, Pc pc, OpKind op, Phase phase, NodeId origin, const BufferId *reads,
                  const BufferId *writes)
{
    Instr *in = &s->p->code.at[pc];
    *in = (Instr){.op = op, .stream = STREAM_compute, .phase = phase, .origin = origin};
    in->args.first = s->p->args.n;
    for (; *reads; reads++, in->n_in++, in->args.n++) list_push(s->arena, &s->p->args, *reads);
    for (; *writes; writes++, in->args.n++) list_push(s->arena, &s->p->args, *writes);
}

#define IDS(...) ((const BufferId[]){__VA_ARGS__})

static NodeId node(Short *s, OpKind op, uint32_t region, NodeId forward, TensorId in, TensorId out)
{
    const NodeId id = list_add(s->arena, &s->plan->graph.nodes);
    Node *n = &s->plan->graph.nodes.at[id];
    *n = (Node){.op = op, .region = region, .forward = forward, .n_in = in > 0, .n_out = out > 0};
    n->in[0] = in, n->out[0] = out;
    if (out) s->plan->graph.tensors.at[out].producer = id;
    return id;
}

static TensorId value(Short *s)
{
    return list_add(s->arena, &s->plan->graph.tensors);
}

/* Returns the peak, without cuBLAS's workspace [MiB]. */
static uint64_t peak_mib(const Short *s)
{
    const Device device = {.arch = "Ampere"};
    TorchStats t = torch_memory(s->plan, s->p, &s->runtime, &device, 100000 * MIB);
    assert_int_equal((t.peak_allocated - 8519680) % MIB, 0);
    return (t.peak_allocated - 8519680) / MIB;
}

/* The two gradients of one product are made at 2 and at 4. The input of the first gradient stays
 * until the second is made, beside 100 MiB at 3. If the two gradients are separate autograd nodes,
 * each releases its own inputs. So does compiled code. A recomputed tensor did not exist before, so
 * it is not kept. */
static void an_autograd_node_keeps_all_its_inputs(void **state)
{
    (void)state;
    Short s = begin(5);
    const NodeId f = node(&s, OP_mul, 0, 0, 0, 0), g = node(&s, OP_mul, 0, 0, 0, 0);
    const NodeId a = node(&s, OP_mul, 0, f, 0, 0), b = node(&s, OP_mul, 0, f, 0, 0);
    const BufferId x = tensor(&s, 40, 1, 2), y = tensor(&s, 8, 1, 4);
    tensor(&s, 100, 3, 3);
    instr(&s, 2, OP_mul, PHASE_backward, a, IDS(x, 0), IDS(0));
    instr(&s, 4, OP_mul, PHASE_backward, b, IDS(y, 0), IDS(0));
    assert_int_equal(peak_mib(&s), 148);
    s.plan->graph.nodes.at[b].forward = g;
    assert_int_equal(peak_mib(&s), 108);
    s.plan->graph.nodes.at[b].forward = f;
    s.p->code.at[4].microbatch = 1;
    assert_int_equal(peak_mib(&s), 108);
    s.p->code.at[4].microbatch = 0;
    s.runtime.is_compiled = true, s.runtime.compiled = COMPILE_model;
    assert_int_equal(peak_mib(&s), 108);
    s.runtime.is_compiled = false;
    s.p->code.at[1].op = OP_silu;
    s.runtime.op[OP_silu].remade = true; /* y is recomputed too, so both tensors exist only at 1 */
    assert_int_equal(peak_mib(&s), 100);
    arena_free(s.arena);
}

/* 40 MiB of f32, made at 1, are read at 2 and by later gradients; 100 MiB exist at 3. If the only
 * reader saves its inputs in 8 bits, they shrink to 10 MiB. If the gradient of another op reads
 * them too, they stay in f32, unless that op also saves its inputs in 8 bits. */
static void inputs_are_saved_in_eight_bits(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        Short s = begin(5);
        const NodeId f = node(&s, OP_silu, 0, 0, 0, 0), g = node(&s, OP_mul, 0, 0, 0, 0);
        const NodeId a = node(&s, OP_mul, 0, f, 0, 0), b = node(&s, OP_mul, 0, g, 0, 0);
        const BufferId x = tensor(&s, 40, 1, others ? 5 : 4);
        s.p->buffers.at[x].dtype = DT_f32;
        tensor(&s, 100, 3, 3);
        instr(&s, 2, OP_silu, PHASE_forward, f, IDS(x, 0), IDS(0));
        instr(&s, 4, OP_mul, PHASE_backward, a, IDS(x, 0), IDS(0));
        if (others) instr(&s, 5, OP_mul, PHASE_backward, b, IDS(x, 0), IDS(0));
        assert_int_equal(peak_mib(&s), 140);
        s.runtime.op[OP_silu].keeps_bytes = true;
        assert_int_equal(peak_mib(&s), others ? 140 : 110);
        s.runtime.op[OP_mul].keeps_bytes = true;
        assert_int_equal(peak_mib(&s), 110);
        s.p->buffers.at[x].category = CATEGORY_gradient; /* a gradient, not a saved value */
        assert_int_equal(peak_mib(&s), 140);
        arena_free(s.arena);
    }
}

/* If a framework has no op for a gradient, a tensor that only this gradient would read is freed
 * early: before 200 MiB exist at 3. */
static void nothing_is_kept_for_an_absent_gradient(void **state)
{
    (void)state;
    for (int absent = 0; absent < 2; absent++) {
        Short s = begin(4);
        const BufferId a = tensor(&s, 100, 1, 4), b = tensor(&s, 10, 2, 3),
                       c = tensor(&s, 200, 3, 3), d = tensor(&s, 1, 4, 4);
        instr(&s, 1, OP_linear, PHASE_forward, 0, IDS(0), IDS(a, 0));
        instr(&s, 2, OP_combine, PHASE_forward, 0, IDS(a, 0), IDS(b, 0));
        instr(&s, 3, OP_linear, PHASE_forward, 0, IDS(b, 0), IDS(c, 0));
        instr(&s, 4, OP_combine_weights, PHASE_backward, 0, IDS(a, 0), IDS(d, 0));
        s.runtime.op[OP_combine_weights].reads_none = absent;
        assert_int_equal(peak_mib(&s), absent ? 210 : 310);
        arena_free(s.arena);
    }
}

/* The framework has no op for the gradient at 5. Only this gradient reads the tensor that is
 * gathered at 4. So the gather's input, made at 1, is freed before 200 MiB exist at 3. If an op at
 * 6 reads the gathered tensor too, the gather's input is kept. */
static void nothing_is_gathered_for_an_absent_gradient(void **state)
{
    (void)state;
    for (int present = 0; present < 2; present++) {
        Short s = begin(6);
        const BufferId a = tensor(&s, 100, 1, 4), b = tensor(&s, 10, 2, 3),
                       c = tensor(&s, 200, 3, 3), e = tensor(&s, 50, 4, 6);
        instr(&s, 1, OP_linear, PHASE_forward, 0, IDS(0), IDS(a, 0));
        instr(&s, 2, OP_combine, PHASE_forward, 0, IDS(a, 0), IDS(b, 0));
        instr(&s, 3, OP_linear, PHASE_forward, 0, IDS(b, 0), IDS(c, 0));
        instr(&s, 4, OP_all_gather, PHASE_backward, 0, IDS(a, 0), IDS(e, 0));
        instr(&s, 5, OP_combine_weights, PHASE_backward, 0, IDS(e, 0), IDS(0));
        instr(&s, 6, present ? OP_mul : OP_combine_weights, PHASE_backward, 0, IDS(e, 0), IDS(0));
        s.runtime.op[OP_combine_weights].reads_none = true;
        assert_int_equal(peak_mib(&s), present ? 310 : 210);
        arena_free(s.arena);
    }
}

/* Logits of 30 MiB exist at 1 and 2, and the loss reads them at 2. 100 MiB exist at 3, the next
 * logits at 4 and 5, and 110 MiB at 6. A training loop that keeps its variable holds the logits
 * until the next ones replace them. */
static void a_loop_holds_its_logits(void **state)
{
    (void)state;
    Short s = begin(6);
    const BufferId first = tensor(&s, 30, 1, 2), second = tensor(&s, 30, 4, 5);
    tensor(&s, 100, 3, 3);
    tensor(&s, 110, 6, 6);
    instr(&s, 2, OP_xent_max, PHASE_forward, 0, IDS(first, 0), IDS(0));
    instr(&s, 5, OP_xent_max, PHASE_forward, 0, IDS(second, 0), IDS(0));
    assert_int_equal(peak_mib(&s), 110);
    s.runtime.holds_logits = true;
    assert_int_equal(peak_mib(&s), 140);
    /* the second logits now begin at 5; the first logits are freed before 6 */
    s.p->buffers.at[second].first = 5;
    assert_int_equal(peak_mib(&s), 140);
    arena_free(s.arena);
}

/* In one caller, a module makes 30 MiB at 1 and another module gets them as an argument at 2. The
 * second module returns after 4, where 100 MiB are in use. Python keeps the argument until then. */
static void a_call_holds_its_arguments(void **state)
{
    (void)state;
    Short s = begin(5);
    Graph *g = &s.plan->graph;
    while (g->modules.n < 4) list_add(s.arena, &g->modules);
    g->modules.at[2].parent = g->modules.at[3].parent = 1;
    const BufferId b = tensor(&s, 30, 1, 2);
    tensor(&s, 100, 4, 4);
    tensor(&s, 110, 5, 5);
    for (Pc pc = 1; pc <= 4; pc++) {
        const NodeId id = node(&s, OP_silu, 0, 0, 0, 0);
        g->nodes.at[id].module = pc == 1 ? 2 : 3;
        instr(&s, pc, OP_silu, PHASE_forward, id, pc == 2 ? IDS(b, 0) : IDS(0),
              pc == 1 ? IDS(b, 0) : IDS(0));
    }
    assert_int_equal(peak_mib(&s), 110);
    s.runtime.holds_arguments = true;
    assert_int_equal(peak_mib(&s), 130);
    arena_free(s.arena);
}

/* One region computes x -> norm -> balance, and x -> silu. It is recomputed at 1 and 2, and its
 * gradients read it at 3 and 4; 100 MiB exist at 5. The module keeps the result of balance. This
 * keeps the norm's output and its saved tensors, which are half as large. It keeps neither the
 * output of silu nor a tensor that is recomputed a third time. */
static void a_module_keeps_a_graph(void **state)
{
    (void)state;
    Short s = begin(5);
    const TensorId x = value(&s), normed = value(&s), gated = value(&s), loss = value(&s);
    const NodeId norm = node(&s, OP_rmsnorm, 1, 0, x, normed);
    const NodeId silu = node(&s, OP_silu, 1, 0, x, gated);
    node(&s, OP_balance, 1, 0, normed, loss);
    const NodeId back = node(&s, OP_rmsnorm_grad, 0, norm, normed, 0);
    const NodeId back_too = node(&s, OP_silu_grad, 0, silu, gated, 0);
    const BufferId in = tensor(&s, 2, 1, 2), n = tensor(&s, 40, 1, 3), g = tensor(&s, 7, 2, 4);
    tensor(&s, 100, 5, 5);
    instr(&s, 1, OP_rmsnorm, PHASE_recompute, norm, IDS(in, 0), IDS(n, 0));
    instr(&s, 2, OP_silu, PHASE_recompute, silu, IDS(in, 0), IDS(g, 0));
    instr(&s, 3, OP_rmsnorm_grad, PHASE_backward, back, IDS(n, 0), IDS(0));
    instr(&s, 4, OP_silu_grad, PHASE_backward, back_too, IDS(g, 0), IDS(0));
    s.runtime.op[OP_rmsnorm] = (RuntimeOp){.saved = 1};
    assert_int_equal(peak_mib(&s), 100);
    s.runtime.op[OP_balance].keeps_graph = true;
    assert_int_equal(peak_mib(&s), 160);
    s.runtime.op[OP_rmsnorm].remade = true;
    assert_int_equal(peak_mib(&s), 120);
    s.runtime.op[OP_rmsnorm].remade = false;
    /* without a recomputed region */
    for (Pc pc = 1; pc <= 2; pc++) s.p->code.at[pc].phase = PHASE_forward;
    for (NodeId id = 1; id <= silu; id++) s.plan->graph.nodes.at[id].region = 0;
    assert_int_equal(peak_mib(&s), 100);
    arena_free(s.arena);
}

/* There are four query heads for each KV head. Keys and values take 10 MiB each. Their copies, one
 * for every query head, take 60 MiB more, also if the queries (40 MiB) have fewer tokens than the
 * keys. Weights of experts, 24 MiB, are stacked into one tensor. Both kinds of copies live until
 * the gradients at 2 have run. */
static void saved_copies_live_until_their_gradients(void **state)
{
    (void)state;
    Short s = begin(3);
    const BufferId q = tensor(&s, 40, 1, 2), k = tensor(&s, 10, 1, 2), v = tensor(&s, 10, 1, 2);
    const BufferId o = tensor(&s, 40, 1, 2), w = tensor(&s, 24, 1, 1);
    tensor(&s, 5, 2, 2);
    const TensorId heads = value(&s);
    s.plan->graph.tensors.at[heads] = (Tensor){.n_dims = 5, .dim = {1, 4, 2, 4, 8}};
    node(&s, OP_attention, 0, 0, heads, 0);
    instr(&s, 1, OP_attention, PHASE_forward, 1, IDS(q, k, v, 0), IDS(o, 0));
    assert_int_equal(peak_mib(&s), 124);
    s.runtime.expands_kv = true;
    assert_int_equal(peak_mib(&s), 184);
    s.p->buffers.at[q].bytes = 10 * MIB; /* a quarter of the query tokens, for all keys */
    assert_int_equal(peak_mib(&s), 154);
    s.p->buffers.at[q].bytes = 40 * MIB;
    instr(&s, 1, OP_linear_experts, PHASE_forward, 1, IDS(q, w, 0), IDS(o, 0));
    assert_int_equal(peak_mib(&s), 124);
    s.runtime.op[OP_linear_experts].stacks = true;
    assert_int_equal(peak_mib(&s), 148);
    arena_free(s.arena);
}

/* A reduction makes 64 MiB of fp32 gradients. The parameters rest in bf16, so the gradients are
 * cast to bf16: 32 MiB. */
static void gradients_are_cast_to_the_parameters_type(void **state)
{
    (void)state;
    Short s = begin(2);
    const BufferId g = synthetic_buffer(s.plan, 64 * MIB, 1, 2, CATEGORY_gradient, true);
    s.p->buffers.at[g].dtype = DT_f32;
    s.p->buffers.at[g].unit = list_add(s.arena, &s.plan->graph.units);
    s.plan->graph.units.at[s.p->buffers.at[g].unit].rest_dtype = DT_bf16;
    s.p->code.at[1].op = OP_reduce_scatter;
    assert_int_equal(peak_mib(&s), 64);
    s.runtime.casts_gradients = true;
    assert_int_equal(peak_mib(&s), 32);
    s.p->code.at[1].op = OP_fill; /* without a reduction, nothing is cast */
    assert_int_equal(peak_mib(&s), 64);
    arena_free(s.arena);
}

/* An activation lives in a segment of 64 MiB. A state of 40 MiB that the first step makes takes
 * this segment, so the second step needs another one. A state from before the first step has its
 * own segment. */
static void states_take_segments_of_activations(void **state)
{
    (void)state;
    Short s = begin(3);
    const BufferId a = tensor(&s, 64, 1, 2);
    const BufferId m = synthetic_buffer(s.plan, 40 * MIB, 1, 3, CATEGORY_optimizer, true);
    instr(&s, 1, OP_add, PHASE_forward, 0, IDS(0), IDS(a, 0));
    instr(&s, 2, OP_add, PHASE_forward, 0, IDS(a, 0), IDS(0));
    instr(&s, 3, OP_adamw, PHASE_update, 0, IDS(m, 0), IDS(m, 0));
    const Device device = {.arch = "Ampere"};
    const TorchStats before = torch_memory(s.plan, s.p, &s.runtime, &device, 0);
    s.runtime.makes_states = true;
    const TorchStats after = torch_memory(s.plan, s.p, &s.runtime, &device, 0);
    assert_int_equal(after.peak_allocated, before.peak_allocated);
    assert_int_equal(after.peak_reserved - before.peak_reserved, 24 * MIB);
    /* a state that belongs to a unit; the optimizer and its state are on the host */
    s.runtime.host_optimizer = true;
    s.p->buffers.at[m].unit = list_add(s.arena, &s.plan->graph.units);
    const TorchStats without = torch_memory(s.plan, s.p, &s.runtime, &device, 0);
    assert_int_equal(after.peak_allocated - without.peak_allocated, 40 * MIB);
    arena_free(s.arena);
}

/* 1024 x 512 x 100 parameters of bf16 are 100 MiB. This rank holds 10 MiB of them. */
static void a_model_is_first_made_whole(void **state)
{
    (void)state;
    Short s = begin(2);
    Tensor *w = &s.plan->graph.tensors.at[value(&s)];
    *w = (Tensor){.role = ROLE_param, .rest_dtype = DT_bf16, .n_dims = 3, .dim = {1024, 512, 100}};
    synthetic_buffer(s.plan, 10 * MIB, 1, 2, CATEGORY_parameter, true);
    const Device device = {.arch = "Ampere"};
    TorchStats t = torch_memory(s.plan, s.p, &s.runtime, &device, 90 * MIB);
    assert_true(t.peak_allocated < 30 * MIB && !t.failed);
    s.runtime.starts_whole = true;
    t = torch_memory(s.plan, s.p, &s.runtime, &device, 90 * MIB);
    assert_int_equal(t.peak_allocated, 100 * MIB);
    assert_true(t.failed && t.peak_reserved >= 100 * MIB);
    t = torch_memory(s.plan, s.p, &s.runtime, &device, 110 * MIB);
    assert_false(t.failed);
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_tp] = 2; /* the model is built on the meta device, then filled piece by piece */
    s.plan->mesh = mesh_make(sizes);
    t = torch_memory(s.plan, s.p, &s.runtime, &device, 90 * MIB);
    assert_true(t.peak_allocated < 30 * MIB && !t.failed);
    arena_free(s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_autograd_node_keeps_all_its_inputs),
        cmocka_unit_test(inputs_are_saved_in_eight_bits),
        cmocka_unit_test(nothing_is_kept_for_an_absent_gradient),
        cmocka_unit_test(nothing_is_gathered_for_an_absent_gradient),
        cmocka_unit_test(a_loop_holds_its_logits),
        cmocka_unit_test(a_call_holds_its_arguments),
        cmocka_unit_test(a_module_keeps_a_graph),
        cmocka_unit_test(saved_copies_live_until_their_gradients),
        cmocka_unit_test(gradients_are_cast_to_the_parameters_type),
        cmocka_unit_test(states_take_segments_of_activations),
        cmocka_unit_test(a_model_is_first_made_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
