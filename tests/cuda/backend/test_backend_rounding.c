/* Runs whole plans in bf16 and with 8-bit products on the CUDA backend. Heads have 64 or 128
 * elements, because attention has kernels for these sizes. The plans are judged as `run --verify`
 * judges rounding: each gradient and moment of each tensor by its distance from fp64, against the
 * CPU's in the same precision. On the double, the device's own kernels run thread by thread, and
 * products use the library's calls. With `compile`, the number of products with fused ops is
 * counted. A planted fault must be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "exec/cuda/module.h"
#include "exec/cuda/options.h"
#include "exec/exec.h"
#include "kernels/cuda/product/products.h"
#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/double/double.h"
#include "tests/cuda/emulator/kernels_emulated.h"
#include "tests/support/plans/tiny.h"

typedef enum Eight { EIGHT_none, EIGHT_tensorwise, EIGHT_rowwise } Eight;

static const struct Case {
    const char *name;
    int64_t head_dim;
    bool gpt2, compile;
    Eight eight;
    AcMode ac;
    uint32_t ac_ops;     /* ops whose outputs are kept instead of recomputed: bits of tiny_ac_ops */
    DType compute, rest; /* rest: dtype of weights, gradients and moments between their uses */
    bool timed;          /* kernels of products and attention are timed and chosen, as in `run` */
    int64_t experts, top_k;
} cases[] = {
    {"Llama, heads of 64", 64, .compute = DT_bf16},
    {"Llama, heads of 128, recomputed", 128, .compute = DT_bf16, .ac = AC_full, .compile = true},
    {"Llama, heads of 128, all bf16", 128, .compute = DT_bf16, .rest = DT_bf16, .compile = true},
    {"Llama, heads of 128, ways that were timed", 128, .compute = DT_bf16, .timed = true},
    {"Llama, heads of 64, fp16", 64, .compute = DT_f16},
    {"GPT-2, heads of 64, products with what goes along", 64, true, true, .compute = DT_bf16},
    {"GPT-2, the same in fp32", 64, true, true, .compute = DT_f32},
    {"Llama, 8 bits tensorwise", 64, .eight = EIGHT_tensorwise, .compute = DT_bf16},
    {"Llama, 8 bits rowwise", 128, .eight = EIGHT_rowwise, .compute = DT_bf16},
    {"experts in fp32", 64, .compute = DT_f32, .compile = true, .experts = 4},
    {"experts, fp16", 64, .compute = DT_f16, .compile = true, .experts = 4},
    {"experts that all are chosen", 64, .compute = DT_bf16, .compile = true, .experts = 4,
     .top_k = 4},
    {"Llama, silu alone recomputed", 64, .compute = DT_bf16, .ac = AC_full, .ac_ops = 0x7fdf,
     .compile = true},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

#ifdef __SANITIZE_ADDRESS__
enum { HEADS_MOST = 64 }; /* larger heads are slower here, and attention of 128 has another test */
#else
enum { HEADS_MOST = 128 };
#endif

/* Sizes that 8-bit products and attention's kernels accept, with two blocks of queries. */
static Tiny tiny_of(const struct Case *c)
{
    Tiny t = tiny_default();
    t.layers = 1, t.seq = 128, t.vocab = 64;
    t.gpt2 = c->gpt2;
    t.groups = c->gpt2 ? 2 : 1, t.repeat = c->gpt2 ? 1 : 2, t.head_dim = c->head_dim;
    t.dim = 64, t.hidden = 96;
    t.deviation = 0.125, t.scale = c->head_dim == 64 ? 0.125 : 0.0883883; /* activations near 1 */
    t.microbatches = 2;
    t.ac = c->ac, t.ac_ops = c->ac_ops;
    t.compile = c->compile;
    t.compute = c->compute;
    t.experts = c->experts, t.capacity = 80, t.aux_loss = 0.5;
    if (c->top_k) t.top_k = c->top_k, t.capacity = 0;
    if (c->rest) t.param = t.reduce = t.state = c->rest;
    t.use_float8 = c->eight != EIGHT_none;
    if (c->eight == EIGHT_rowwise) t.float8.recipe = FLOAT8_rowwise;
    return t;
}

/* ---- number of products with fused ops ---- */

static uint32_t n_along;
bool __real_cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                CudaError *error);
bool __wrap_cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                CudaError *error);
bool __wrap_cuda_products_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                                CudaError *error)
{
    n_along++;
    return __real_cuda_products_chain(part, n, cuda, error);
}

/* ---- a plan, judged ---- */

static bool get_nothing(void *self, const char *device, const char *call, void *choice,
                        size_t bytes)
{
    (void)self, (void)device, (void)call, (void)choice, (void)bytes;
    return false;
}

static void put_nowhere(void *self, const char *device, const char *call, const void *choice,
                        size_t bytes, int64_t median_ps)
{
    (void)self, (void)device, (void)call, (void)choice, (void)bytes, (void)median_ps;
}

static Plan *device_plan(const Tiny *t, Arena *arena, Diag *d)
{
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    options.workspace = tandem_cuda_module.workspace;
    tiny_build(t, arena, config, &graph);
    return plan_compile(config, &graph, &options, NULL, arena, d);
}

/* The reference in the same precision is not compiled, cut into pieces or recomputed. */
static bool holds(const struct Case *c, const char *script, CudaGraphs graphs, Arena *arena,
                  RoundingResult *result, Diag *d)
{
    const Tiny t = tiny_of(c);
    Tiny one = tiny_one_rank(&t);
    one.compile = false;
    const Plan *plan = device_plan(&t, arena, d), *cpu = tiny_plan(&one, false, arena, d);
    one.use_float8 = false;
    const Plan *exact = tiny_plan(&one, true, arena, d);
    static const KernelChoices choices = {NULL, get_nothing, put_nowhere};
    const CudaOptions own = {.graphs = graphs};
    BackendOptions options = {.timeout_s = 60, .own = &own};
    if (c->timed) options.choices = &choices;
    if (plan == NULL || cpu == NULL || exact == NULL) return false;
    double_begin(script);
    n_along = 0;
    return exec_verify_rounding_on(tandem_cuda_module.backend(arena, NULL), plan, cpu, exact,
                                   data_synthetic(3, t.vocab, 0.1, arena), &options, arena, result,
                                   d);
}

static void plans_round_like_the_cpu(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_CASES; i++) {
        const struct Case *c = &cases[i];
        if (c->head_dim > HEADS_MOST) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        RoundingResult r = {.n_tensors = 0};
        const CudaGraphs graphs = i % 2 ? CUDA_GRAPHS_whole : CUDA_GRAPHS_none;
        if (!holds(c, "seed=1 memory=1073741824", graphs, arena, &r, &d)) {
            Str s = str_in(arena);
            diag_print(&d, &s);
            fail_msg("%s: %s", c->name, str_text(&s));
        }
        printf("told: %s: gradient off by %.2e, one rank of the CPU's by %.2e; at most %.2f of "
               "what may "
               "be (%s); %u products with more\n",
               c->name, r.gradient, r.gradient_of_one_rank, r.worst_excess, r.worst_tensor,
               n_along);
        assert_true(r.n_tensors > 8);
        /* values were rounded */
        assert_true(r.largest_error > (c->compute == DT_f32 ? 0 : 1e-4));
        /* at least the biases are fused */
        if (c->gpt2 && c->compute == DT_bf16) assert_true(n_along >= 2 * 6);
        arena_free(arena);
    }
}

#ifndef TANDEM_GPU
/* On compute capability 9.0, attention runs with Hopper's instructions, also in captured graphs. It
 * does not on 8.0, nor in fp32. */
static void hoppers_attention_runs_on_9_0_only(void **state)
{
    (void)state;
    static const struct {
        uint32_t of;
        int capability;
        CudaGraphs graphs;
        bool by_hopper;
    } runs[] = {{0, 90, CUDA_GRAPHS_whole, true},
                {0, 80, CUDA_GRAPHS_whole, false},
                {1, 90, CUDA_GRAPHS_cut, true},
                {4, 80, CUDA_GRAPHS_cut, false},
                {6, 90, CUDA_GRAPHS_whole, false}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const struct Case *c = &cases[runs[i].of];
        if (c->head_dim > HEADS_MOST) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        RoundingResult r = {.n_tensors = 0};
        emulated_attention = (EmulatedAttention){0};
        const char *script =
            arena_print(arena, "seed=2 memory=1073741824 capability=%d", runs[i].capability);
        if (!holds(c, script, runs[i].graphs, arena, &r, &d)) {
            Str s = str_in(arena);
            diag_print(&d, &s);
            fail_msg("%s on %d: %s", c->name, runs[i].capability, str_text(&s));
        }
        assert_true(r.n_tensors > 8);
        assert_true((runs[i].by_hopper ? emulated_attention.hopper : emulated_attention.others) >
                    0);
        assert_int_equal(runs[i].by_hopper ? emulated_attention.others : emulated_attention.hopper,
                         0);
        arena_free(arena);
    }
}

/* A planted fault halves every fourth number of one kernel's result. It must show in the gradients,
 * whichever kernel it is. */
static void a_wrong_kernel_is_found(void **state)
{
    (void)state;
    static const struct {
        uint32_t of;
        const char *op;
    } faults[] = {{0, "attention"},    {1, "attention_grad"},     {5, "layernorm_grad"},
                  {7, "attention"},    {8, "quantise_of_tokens"}, {8, "turn_tokens"},
                  {9, "balance_grad"}, {9, "charge_grad"},        {10, "balance_grad"}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        RoundingResult r = {.n_tensors = 0};
        const char *script = arena_print(arena, "seed=1 memory=1073741824 wrong=%s", faults[i].op);
        if (holds(&cases[faults[i].of], script, CUDA_GRAPHS_none, arena, &r, &d))
            fail_msg("%s with a wrong %s: nothing is seen", cases[faults[i].of].name, faults[i].op);
        printf("%s, wrong %s: %.1f of what may be\n", cases[faults[i].of].name, faults[i].op,
               r.worst_excess);
        assert_true(r.worst_excess > 1); /* without a run there is nothing to see */
        arena_free(arena);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_round_like_the_cpu),
#ifndef TANDEM_GPU
        cmocka_unit_test(hoppers_attention_runs_on_9_0_only),
        cmocka_unit_test(a_wrong_kernel_is_found),
#endif
    };
    cublas_double_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
