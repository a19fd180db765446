/* How kernels with aligned tensors access memory. The test compares the 32-byte sectors of each
 * warp's requests with the smallest number that could hold their bytes. It compares the passes of
 * shared memory with the number without bank conflicts (watch.h). This was not measured on a GPU,
 * but a bad layout would show here. TANDEM_WATCH=print prints the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/cuda/attention/attention_case.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/emulator/watch.h"

#define ATTRS                                                                                      \
    {                                                                                              \
        .eps = 1e-5, .drop = 0.25, .site = 9, .smoothing = 0.1, .scale = 0.5, .theta = 1e4,        \
        .beta1 = .9, .beta2 = .95, .hi = 1000000, .segment = 1, .top_k = 4, .experts = 16,         \
        .capacity = 24                                                                             \
    }
#define CASE(name, types)                                                                          \
    {                                                                                              \
        OP_##name, cuda_##name, types, ATTRS, 0, NULL, 0                                           \
    }

static const CudaCase cases[] = {
    CASE(add, "fff"),
    CASE(silu_grad, "fff"),
    CASE(scale, "ff"),
    CASE(fill, "f"),
    CASE(quantise_of_tokens, "fPq"),
    CASE(dropout, "ff"),
    CASE(bias, "fff"),
    CASE(bias_grad, "fF"),
    CASE(segment, "ff"),
    CASE(tokens, "ff"),
    CASE(topk, "fi"),
    CASE(route, "fif"),
    CASE(route_grad, "ffif"),
    CASE(slots, "ii"),
    CASE(dispatch, "fif"),
    CASE(dispatch_grad, "fif"),
    CASE(combine, "ifff"),
    CASE(combine_grad, "fiff"),
    CASE(combine_weights, "fiff"),
    CASE(balance, "fiF"),
    CASE(balance_grad, "Ffif"),
    CASE(topk_biased, "ffi"),
    CASE(loads, "if"),
    CASE(router_z, "fF"),
    CASE(router_z_grad, "Fff"),
    CASE(charge, "FFF"),
    CASE(charge_grad, "FF"),
    CASE(embed, "iff"),
    CASE(embed_grad, "fif"),
    CASE(rmsnorm, "ffff"),
    CASE(rmsnorm_grad, "fffFff"),
    CASE(layernorm, "ffffFF"),
    CASE(layernorm_grad, "fffFFfff"),
    CASE(rope, "ff"),
    CASE(xent_max, "fF"),
    CASE(xent_sumexp, "fPF"),
    CASE(xent_pick, "fiF"),
    CASE(xent_sumexp_grad, "fFPf"),
    CASE(xent_smooth_grad, "Fif"),
    CASE(xent_loss, "fPFidd"),
    CASE(xent_loss_grad, "fPiFF"),
    CASE(amax, "fF"),
    CASE(amax_of_tokens, "fF"),
    CASE(amax_over_tokens, "fF"),
    CASE(project_of_first, "fFF"),
    CASE(project_over_first, "fFF"),
    CASE(outer_first, "FFFf"),
    CASE(sumsq, "fd"),
    CASE(adamw, "fFfFdfFf"),
    CASE(sgd, "ffdf"),
    CASE(turn_tokens, "qq"),
    CASE(turn_first, "qq"),
    CASE(turn_last, "qq"),
    CASE(turn_tokens, "ff"),
    CASE(turn_first, "ff"),
    CASE(turn_last, "ff"),
};
static const Sizes sizes = {{['b'] = 1,
                             ['s'] = 64,
                             ['k'] = 256,
                             ['D'] = 1024,
                             ['E'] = 128,
                             ['v'] = 4096,
                             ['x'] = 32768,
                             ['T'] = 64,
                             ['F'] = 128,
                             ['X'] = 64,
                             ['n'] = 256,
                             ['N'] = 4,
                             ['S'] = 64,
                             ['K'] = 4,
                             ['C'] = 24,
                             ['m'] = 24,
                             ['e'] = 16,
                             ['M'] = 2},
                            {4, 64}};

static void attention(DType dtype, int64_t E, bool hopper)
{
    const AttentionCase c = {.dtype = dtype,
                             .b = 1,
                             .s = 128,
                             .T = 256,
                             .g = 2,
                             .r = 2,
                             .E = E,
                             .causal = true,
                             .start_s = 128};
    const Control control = {.step = 3, .seed = 77};
    Arena *arena = arena_new();
    AttentionRun run = attention_run(arena, &c, &control);
    CudaContext cuda = *target_context();
    CudaError error = {""};
    cuda.compute_capability = 90;
    bool launched = hopper ? cuda_attention_hopper(OP_attention, &run.device, &cuda, &error)
                           : cuda_attention(&run.device, &cuda, &error);
    assert_true(launched);
    kernel_cpu(run.op)(&run.cpu);
    AttentionRun back = gradient_run(arena, &c, &control, &run);
    launched = hopper ? cuda_attention_hopper(OP_attention_grad, &back.device, &cuda, &error)
                      : cuda_attention_grad(&back.device, &cuda, &error);
    assert_true(launched);
    compare_free();
    arena_free(arena);
}

/* One kernel that makes 8-bit numbers and stores them in both orders. */
static void quantised_and_turned(void)
{
    static const int64_t dim[] = {1, 128, 256}, turned[] = {256, 1, 128};
    static const struct {
        DType dtype;
        uint32_t n_dims;
        const int64_t *dim;
    } of[] = {{DT_bf16, 3, dim}, {DT_f32, 2, dim}, {DT_e4m3, 3, dim}, {DT_e4m3, 3, turned}};
    const Attrs attrs = {.scale = 448};
    Value v[4];
    Binding binding[2];
    CudaError error = {""};
    for (int i = 0; i < 4; i++) {
        v[i] = (Value){.dtype = of[i].dtype, .n_dims = (uint8_t)of[i].n_dims};
        memcpy(v[i].dim, of[i].dim, of[i].n_dims * sizeof *dim);
        uint64_t bytes = (uint64_t)value_elements(&v[i]) * dtype_bytes(v[i].dtype);
        v[i].at = compare_alloc(bytes, 0);
        memset(v[i].at, 0, bytes);
    }
    const KernelArgs quantise =
        eval_args(OP_quantise_of_tokens, &attrs, v, 2, 1, NULL, &binding[0]);
    const KernelArgs turn = eval_args(OP_turn_tokens, NULL, v + 2, 1, 1, NULL, &binding[1]);
    const CudaChainPart part[] = {{OP_quantise_of_tokens, &quantise, 0},
                                  {OP_turn_tokens, &turn, 0}};
    assert_int_equal(kernel_cuda_chain_length(part, 2), 2);
    assert_true(TARGET_RUN(0, kernel_cuda_chain(part, 2, target_context(), &error), &error));
    compare_free();
}

static void run_all(void)
{
    watch_count(true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        compare(&cases[i], &sizes, DT_bf16, DT_e4m3, 0, LIE_aligned);
    quantised_and_turned();
    for (int64_t E = 64; E <= 256; E *= 2) attention(DT_bf16, E, false);
    for (int64_t E = 64; E <= 128; E *= 2) attention(DT_f16, E, true);
    watch_count(false);
}

#define USUAL 1.1

/* Kernels that may exceed the limit, and why. */
static const struct {
    const char *kernel;
    double sectors, passes;
} others[] = {
    /* groups of eight fp32: both requests of a lane touch the same sector, half of it each */
    {"column_sums", 1.8, USUAL},
    {"spectral_rows", 1.7, USUAL},
    {"adamw_unit", 1.7, USUAL},
    {"amax_of_columns", 1.7, USUAL},
    {"amax_end", 2, USUAL},
    {"pick_rows", 4, USUAL},          /* one number of each row */
    {"sort_scatter", 2, USUAL},       /* an entry goes to its digit's place */
    {"slots_of_experts", 1.5, USUAL}, /* each choice is numbered in place by its expert's warp */
    {"rope_usual", USUAL, 2},         /* lanes of eight heads read the same angles, 16 bytes each */
    /* lse and delta of one of four neighbouring heads; boxes do not count */
    {"attention_hopper_dq_f16_64", 1.2, USUAL},
    {"attention_hopper_dkv_f16_64", 1.2, USUAL},
};

static bool is_allowed(const char *kernel, const WatchCounts *c)
{
    double sectors = USUAL, passes = USUAL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(kernel, others[i].kernel) == 0)
            sectors = others[i].sectors, passes = others[i].passes;
    return (double)c->sectors <= sectors * (double)c->fewest_sectors &&
           (double)c->passes <= passes * (double)c->fewest_passes;
}

static void kernels_touch_few_sectors_and_banks(void **state)
{
    (void)state;
    const char *name;
    uint32_t n = 0, bad = 0;
    run_all();
    for (; (name = watch_kernel(n)) != NULL; n++) {
        WatchCounts c = watch_counts_so_far(name);
        if (is_allowed(name, &c)) continue;
        print_error("%s: %llu sectors, %llu would do; %llu passes, %llu would do\n", name,
                    (unsigned long long)c.sectors, (unsigned long long)c.fewest_sectors,
                    (unsigned long long)c.passes, (unsigned long long)c.fewest_passes);
        bad++;
    }
    assert_true(n > 40);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_touch_few_sectors_and_banks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
