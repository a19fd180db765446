/* compile{} also makes kernels that begin with a product. Tests which of them exist, the order of
 * their parts, their savings and costs, and wrong kernels that the verifier must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "sim/compute/kernels.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

static Tiny gpt2(void)
{
    Tiny t = tiny_default();
    t.gpt2 = t.compile = true;
    t.groups = 4, t.head_dim = 4, t.dim = 16, t.hidden = 24, t.layers = 1;
    return t;
}

static Plan *plan_of(const Tiny *t, const char *runtime, Arena *arena)
{
    Diag d = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    tiny_build(t, arena, config, &graph);
    config->runtime.name = runtime;
    Plan *plan = plan_compile(config, &graph, &options, NULL, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    return plan;
}

/* Lists the kernels that begin with a product by their ops: "linear bias; linear_o bias add; ". */
static const char *kernels_of(const Plan *plan, Arena *arena)
{
    const Program *p = &plan->programs.at[0];
    Str s = str_in(arena);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!in->fuse || op_info(in->op)->class_ != OP_CLASS_contract) continue;
        assert_true(plan_begins_kernel(p, in));
        for (const Instr *part = in; part; part = plan_next_part(p, part)) {
            assert_ptr_equal(plan_kernel(p, part), in);
            str_print(&s, "%s%s", part == in ? "" : " ", op_info(part->op)->name);
        }
        str_add(&s, "; ");
    }
    return str_text(&s);
}

/* These are the kernels of one block. Forward, products join with biases, GELU and residuals.
 * Backward, the gradient of a bias joins the product for the weight's gradient, and GELU's gradient
 * joins the product before it. */
static void products_of_a_block_join_their_pointwise_ops(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = gpt2();
    assert_string_equal(kernels_of(plan_of(&t, NULL, arena), arena),
                        "linear_q bias; linear_kv bias; linear_kv bias; linear_o bias add; "
                        "linear bias gelu; linear bias add; "
                        "linear_d1 bias_grad; linear_d0 gelu_grad; linear_d1 bias_grad; "
                        "linear_o_d1 bias_grad; linear_kv_d1 bias_grad; linear_kv_d1 bias_grad; "
                        "linear_q_d1 bias_grad; ");
    t.gpt2 = false; /* a Llama has residuals, but no biases */
    assert_string_equal(kernels_of(plan_of(&t, NULL, arena), arena), "linear_o add; linear add; ");
    arena_free(arena);
}

/* These do not join a product: ops after a partial sum, which a collective reads first; GELU on
 * rows of 6; products of another framework; and all ops without compile{}. */
static void products_stay_alone_where_joining_is_impossible(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = gpt2();
    t.tp = 2, t.hidden = 32;
    const char *cut = kernels_of(plan_of(&t, NULL, arena), arena);
    assert_null(strstr(cut, "linear_o bias"));
    assert_null(strstr(cut, "add"));
    assert_non_null(strstr(cut, "linear bias gelu; linear_d0 gelu_grad; linear_d1 bias_grad; "));
    t.hidden = 24; /* each rank has 12 columns */
    cut = kernels_of(plan_of(&t, NULL, arena), arena);
    assert_non_null(strstr(cut, "linear bias; "));
    assert_null(strstr(cut, "gelu"));
    t = gpt2();
    assert_string_equal(kernels_of(plan_of(&t, "eager", arena), arena), "");
    t.compile = false;
    assert_string_equal(kernels_of(plan_of(&t, NULL, arena), arena), "");
    arena_free(arena);
}

/* The library reads parameters in vectors of 16 bytes, so they must begin at a multiple of 16
 * bytes. This must hold for 16-bit parameters, and whatever precedes them in their unit. */
static void parameters_are_aligned(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    uint32_t n_odd = 0;
    for (uint32_t tp = 1; tp < 3; tp++) {
        Tiny t = gpt2();
        t.vocab = tp == 1 ? 29 : 30, t.hidden = 10, t.dp_shard = 2, t.tp = tp;
        const Plan *plan = plan_of(&t, NULL, arena);
        const Graph *g = &plan->graph;
        for (TensorId id = 1; id < g->tensors.n; id++) {
            const Tensor *at = &g->tensors.at[id];
            if (at->role != ROLE_param) continue;
            int64_t n = 1;
            for (int d = 0; d < at->n_dims; d++) n *= at->dim[d];
            n_odd += n % 8 != 0;
            assert_int_equal(at->flat_offset * dtype_bytes(DT_bf16) % 16, 0);
        }
    }
    assert_true(n_odd > 0);
    arena_free(arena);
}

/* Biases have 16 bits. The sums for their gradients are fp32, like the gradients. GELU's kept input
 * has the type of its output. */
static void kernels_may_mix_16_bit_and_fp32_types(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = gpt2();
    t.compute = DT_bf16, t.reduce = DT_f32;
    const char *all = kernels_of(plan_of(&t, NULL, arena), arena);
    assert_non_null(strstr(all, "linear bias gelu; linear bias add; linear_d1 bias_grad; "));
    arena_free(arena);
}

static Pc find(const Program *p, OpKind op, Phase phase)
{
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == op && p->code.at[pc].phase == phase) return pc;
    fail_msg("no %s", op_info(op)->name);
    return 0;
}

/* A fused op is launched with the product. It writes no buffer that only the next part reads, and
 * it costs its arithmetic. The product costs no less than alone. */
static void a_kernel_has_one_launch_and_moves_fewer_bytes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = gpt2();
    t.dim = t.hidden = 1024, t.groups = 16, t.head_dim = 64, t.seq = 512;
    t.compute = DT_bf16;
    const Plan *plan = plan_of(&t, NULL, arena);
    const Program *p = &plan->programs.at[0];
    const Instr *gelu = &p->code.at[find(p, OP_gelu, PHASE_forward)];
    const Instr *product = plan_kernel(p, gelu), *bias = plan_next_part(p, product);
    uint64_t x = p->buffers.at[program_arg(p, gelu, 0)].bytes;
    uint64_t w = p->buffers.at[program_arg(p, product, 1)].bytes;
    uint64_t b = p->buffers.at[program_arg(p, bias, 1)].bytes;
    uint64_t bytes = plan_kernel_bytes(plan, p, product) + plan_kernel_bytes(plan, p, bias) +
                     plan_kernel_bytes(plan, p, gelu);
    /* The kernel reads x, weight and bias, and writes the input and the output of GELU. */
    assert_int_equal(bytes, x + w + b + 2 * x);
    Cluster cluster = {.device = {.arch = "Ampere", /* Hopper's kernels have measured times */
                                  .sms = 108,
                                  .hbm_bytes_per_s = 1e9, /* memory sets the time */
                                  .kernel_floor_s = 2e-6}};
    for (int k = 0; k < DT_COUNT; k++) cluster.device.peak_flops[k] = 1e15;
    Diag d = diag_in(arena);
    CostModel cost = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
    double all = (double)cost.compute(cost.self, plan, p, product) * 1e-12;
    double memory = kernel_memory_s(&cluster.device, (double)bytes);
    assert_true(all > memory + 1.9e-6 && all < memory + 2.1e-6);
    double along = (double)cost.compute(cost.self, plan, p, bias) * 1e-12 +
                   (double)cost.compute(cost.self, plan, p, gelu) * 1e-12;
    double flops = plan_flops(plan, p, bias) + plan_flops(plan, p, gelu);
    assert_true(along > .99 * flops / .5e15 && along < 1.01 * flops / .5e15);
    arena_free(arena);
}

static void assert_refused(Plan *bad, const char *text)
{
    Diag d = diag_in(bad->arena);
    assert_false(verify_plan(bad, VERIFY_all, false, &d));
    bool found = false;
    for (uint32_t i = 0; i < d.items.n; i++)
        found = found || strstr(d.items.at[i].text, text) != NULL;
    if (!found) fail_msg("%s, not: %s", d.items.at[0].text, text);
}

static void wrong_kernels_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = gpt2();
    t.microbatches = 2;
    const Plan *plan = plan_of(&t, NULL, arena);
    const Program *good = &plan->programs.at[0];
    Pc gelu = find(good, OP_gelu, PHASE_forward), sums = find(good, OP_bias_grad, PHASE_backward);
    Pc norm = find(good, OP_layernorm, PHASE_forward);

    /* The next product, the down projection, joins the kernel. */
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    p->code.at[gelu + 1].fuse = p->code.at[gelu].fuse;
    assert_refused(bad, "because the kernel begins with a product");

    /* The norm that makes the product's operand joins the kernel. */
    bad = mutate_copy(plan, arena);
    p = &bad->programs.at[0];
    p->code.at[norm].fuse = p->code.at[norm + 1].fuse;
    assert_refused(bad, "is in kernel");

    bad = mutate_copy(plan, arena); /* GELU reads another buffer of the same size */
    p = &bad->programs.at[0];
    Pc product = (Pc)(plan_kernel(p, &p->code.at[gelu]) - p->code.at);
    p->args.at[p->code.at[gelu].args.first] = program_arg(p, &p->code.at[product], 2);
    assert_refused(bad, "does not use its result");

    /* The kernel sums a tensor that the product does not read. */
    bad = mutate_copy(plan, arena);
    p = &bad->programs.at[0];
    p->args.at[p->code.at[sums].args.first] = program_arg(p, &p->code.at[norm], 3);
    assert_refused(bad, "sums a buffer that the product");

    bad = mutate_copy(plan, arena); /* GELU's output overwrites the product's operand */
    p = &bad->programs.at[0];
    BufferId out = program_arg(p, &p->code.at[gelu], 1);
    p->buffers.at[out].offset = p->buffers.at[program_arg(p, &p->code.at[product], 0)].offset;
    assert_refused(bad, "overwrites an input of the product");

    bad = mutate_copy(plan, arena); /* a part waits for another stream */
    p = &bad->programs.at[0];
    p->code.at[gelu].after = (Span){p->after.n, 1};
    list_push(arena, &p->after, 1);
    assert_refused(bad, "but waits for another stream");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_a_block_join_their_pointwise_ops),
        cmocka_unit_test(products_stay_alone_where_joining_is_impossible),
        cmocka_unit_test(kernels_may_mix_16_bit_and_fp32_types),
        cmocka_unit_test(parameters_are_aligned),
        cmocka_unit_test(a_kernel_has_one_launch_and_moves_fewer_bytes),
        cmocka_unit_test(wrong_kernels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
