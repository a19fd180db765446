/* Attention and its gradient on the target, compared with the CPU kernels in fp64 on the same
 * numbers. Cases cover types, head sizes, groups, odd sizes, parts of the whole in one or two
 * chunks, causal masks, dropout and accumulation. Two orders of threads must give the same bits.
 * The test runs our own kernels for the smallest device and for the target's, the kernels with
 * Hopper's instructions, and a library's kernel if it accepts the case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"
#include "tests/cuda/attention/attention_case.h"
#include "tests/cuda/compare.h"
#include "tests/support/sample.h"

enum { SMALLEST = 86, HOPPER = 90, MAX_CASE_ARGS = 10 };

static const AttentionCase cases[] = {
    /* head sizes of each tile, full and partial tiles */
    {DT_bf16, 1, 64, 64, 1, 1, 64, 0, true, 0, false, 0},
    {DT_bf16, 2, 37, 37, 2, 2, 64, 0, true, 0, false, 0},
    {DT_bf16, 1, 200, 200, 1, 1, 32, 0, true, 0, true, 0},
    {DT_bf16, 1, 130, 130, 1, 3, 72, 0, true, 0, false, 0},
    {DT_bf16, 1, 70, 131, 2, 1, 128, 0, false, 0, true, 0},
    {DT_bf16, 1, 33, 33, 1, 2, 136, 0, true, 0, false, 0},
    {DT_bf16, 1, 66, 40, 1, 1, 256, 0, false, 0, true, 0},
    {DT_f16, 1, 50, 50, 1, 2, 64, 0, true, 0, false, 0},
    {DT_f16, 1, 65, 65, 2, 1, 104, 0, true, 0, false, 0},
    {DT_f16, 1, 20, 35, 1, 1, 248, 0, false, 0, false, 0},
    {DT_bf16, 1, 1, 1, 1, 1, 8, 0, true, 0, false, 0},
    /* a part of the sequence, with all keys */
    {DT_bf16, 1, 40, 160, 1, 2, 64, 120, true, 0, false, 0},
    {DT_bf16, 1, 40, 160, 1, 1, 128, 60, true, 0, true, 0},
    {DT_bf16, 1, 24, 96, 1, 1, 256, 30, true, 0, false, 0},
    /* dropout in a part of the whole */
    {DT_bf16, 2, 40, 81, 2, 2, 64, 41, true, 0.25, false, 0},
    {DT_f16, 1, 33, 66, 1, 1, 128, 33, true, 0.1, true, 0},
    {DT_bf16, 1, 20, 41, 1, 1, 200, 0, false, 0.5, false, 0},
    /* fp32 and sizes that do not fit tiles are computed row by row */
    {DT_f32, 2, 19, 37, 2, 2, 24, 18, true, 0, true, 0},
    {DT_f32, 1, 40, 40, 1, 3, 5, 0, true, 0.2, false, 0},
    {DT_f32, 1, 35, 70, 1, 1, 300, 0, false, 0, false, 0},
    {DT_bf16, 1, 21, 21, 1, 2, 20, 0, true, 0, true, 0},
    {DT_bf16, 1, 9, 9, 1, 1, 264, 0, true, 0, false, 0},
    /* tiles of 128, and more of them than Hopper's ring of slots holds */
    {DT_bf16, 1, 128, 128, 1, 1, 128, 0, true, 0, false, 0},
    {DT_f16, 1, 129, 129, 1, 2, 128, 0, true, 0, false, 0},
    {DT_bf16, 1, 70, 520, 1, 1, 64, 450, true, 0, false, 0},
    {DT_f16, 1, 70, 450, 1, 1, 128, 0, false, 0, false, 0},
    /* full tiles to which several blocks add, so that one kernel computes the gradient */
    {DT_bf16, 2, 256, 256, 1, 2, 64, 0, true, 0, true, 0},
    {DT_f16, 1, 128, 384, 2, 1, 40, 0, false, 0, false, 0},
    {DT_f16, 1, 192, 256, 1, 2, 128, 64, true, 0, true, 0},
    {DT_bf16, 1, 256, 512, 1, 1, 64, 0, true, 0, false, 384},
    /* heads in chunks of three groups (on the CPU's target) */
    {DT_bf16, 2, 70, 40, 4, 2, 64, 0, false, 0, false, 0},
};

/* Stands for a library: runs Hopper's kernel for each case that this kernel accepts. */
static bool by_hopper(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                      bool *taken, CudaError *error)
{
    (void)self;
    *taken = cuda_attention_hopper_takes(op, args, cuda);
    return !*taken || cuda_attention_hopper(op, args, cuda, error);
}
static const CudaAttentionLibrary hopper = {NULL, by_hopper};

/* Does the same with the kernel that computes the whole gradient at once. */
static bool by_one(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                   bool *taken, CudaError *error)
{
    (void)self;
    *taken = op == OP_attention_grad && cuda_attention_one_takes(args, cuda);
    return !*taken || cuda_attention_one(args, cuda, error);
}
static const CudaAttentionLibrary one = {NULL, by_one};

static void call_device(const AttentionRun *run, uint64_t order)
{
    CudaError error = {""};
    CudaKernel_function *kernel = run->op == OP_attention ? cuda_attention : cuda_attention_grad;
    if (!TARGET_RUN(order, kernel(&run->device, target_context(), &error), &error))
        fail_msg("%s: %s", target_case_now(), error.text);
    compare_check();
}

static void check_output(const AttentionRun *run, uint32_t i)
{
    char why[ATTENTION_WHY];
    if (!attention_is_near(run, i, why)) fail_msg("%s: %s", target_case_now(), why);
}

/* Names the run in messages of failures. */
static void name_run(const AttentionRun *run)
{
    const AttentionCase *c = run->c;
    const CudaContext *cuda = target_context();
    target_case("%s %s, %lld queries from %lld, %lld, %lld keys, heads of %lld, %g dropped, "
                "capability %u%s",
                op_info(run->op)->name, dtype_name(c->dtype), (long long)c->s,
                (long long)c->start_s, (long long)c->second_s, (long long)c->T, (long long)c->E,
                c->drop, cuda->compute_capability, cuda->attention ? ", by a library" : "");
}

/* Runs the attention twice from the same memory, with the device's threads in two orders. Both must
 * give equal bits. Under the sanitizers it runs only once, in each of the two orders in turn. */
static void run_twice(const AttentionRun *run, void *const *before)
{
    static uint32_t turn;
    static const uint64_t orders[] = {0, 11};
    const uint32_t begin = SAMPLE(0, turn++ % 2), end = SAMPLE(2, begin + 1);
    void *first[MAX_CASE_ARGS];
    name_run(run);
    for (uint32_t k = begin; k < end; k++) {
        for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) {
            size_t bytes = (size_t)run->device.elements[i] * dtype_bytes(run->device.dtype[i]);
            memcpy(run->device.ptr[i], before[i], bytes);
        }
        call_device(run, orders[k]);
        for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) {
            size_t bytes = (size_t)run->device.elements[i] * dtype_bytes(run->device.dtype[i]);
            if (k == begin)
                first[i] = memcpy(arena_array(run->arena, bytes, 1), run->device.ptr[i], bytes);
            else if (memcmp(run->device.ptr[i], first[i], bytes) != 0)
                fail_msg("%s: output %u has other bits in another order", target_case_now(),
                         i - run->n_in);
        }
    }
    for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) check_output(run, i);
}

/* Compares the results of each implementation with the CPU's: our general kernels, our kernels for
 * Hopper and the library's. */
static void run_and_compare(const AttentionRun *run)
{
    void *before[MAX_CASE_ARGS];
    CudaContext *cuda = target_context();
    const uint32_t own = cuda->compute_capability;
    bool taken;
    for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) {
        size_t bytes = (size_t)run->device.elements[i] * dtype_bytes(run->device.dtype[i]);
        before[i] = memcpy(arena_array(run->arena, bytes, 1), run->device.ptr[i], bytes);
    }
    kernel_cpu(run->op)(&run->cpu);
    cuda->compute_capability = SMALLEST;
    if (target_has(SMALLEST)) run_twice(run, before);
    cuda->compute_capability = own;
    if (own > SMALLEST || !target_has(SMALLEST)) run_twice(run, before);
    cuda->compute_capability = HOPPER;
    cuda->attention = &hopper;
    if (target_is(HOPPER) && cuda_attention_hopper_takes(run->op, &run->device, cuda))
        run_twice(run, before);
    cuda->attention = &one;
    if (target_is(HOPPER) && run->op == OP_attention_grad &&
        cuda_attention_one_takes(&run->device, cuda))
        run_twice(run, before);
    cuda->compute_capability = own;
    cuda->attention = target_attention(run->op, &run->device, &taken);
    if (taken) run_twice(run, before);
    cuda->attention = NULL;
}

static void check_case(const AttentionCase *c)
{
    Arena *arena = arena_new();
    const Control control = {.step = target_control()->step, .seed = target_control()->seed};
    AttentionRun forward = attention_run(arena, c, &control);
    run_and_compare(&forward);
    AttentionRun gradient = gradient_run(arena, c, &control, &forward);
    run_and_compare(&gradient);
    compare_free();
    arena_free(arena);
}

#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 2 }; /* takes only every second case */
#else
enum { EVERY = 1 };
#endif

static void each_case_matches_the_cpu(void **state)
{
    (void)state;
    /* Under compute-sanitizer, which is a hundred times slower, only a fifth of the cases runs. */
    const size_t every = getenv("TANDEM_FEW_CASES") ? 5 : EVERY;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += every) check_case(&cases[i]);
}

/* ---- queries in two chunks: part p of n has chunks p and 2 n - 1 - p of 2 n, and all keys */

static const AttentionCase wholes[] = {
    {.dtype = DT_bf16, .b = 1, .T = 160, .g = 1, .r = 2, .E = 64, .causal = true},
    {.dtype = DT_f16, .b = 1, .T = 200, .g = 1, .r = 1, .E = 128, .causal = true},
    {.dtype = DT_bf16, .b = 1, .T = 72, .g = 1, .r = 1, .E = 256, .causal = true},
    {.dtype = DT_bf16, .b = 1, .T = 48, .g = 2, .r = 1, .E = 64},
    {.dtype = DT_bf16, .b = 1, .T = 104, .g = 1, .r = 2, .E = 72, .causal = true, .drop = 0.25},
    {.dtype = DT_f32, .b = 2, .T = 56, .g = 2, .r = 2, .E = 12, .causal = true},
    {.dtype = DT_f32, .b = 1, .T = 88, .g = 1, .r = 1, .E = 5, .causal = true, .drop = 0.2},
};

typedef struct Whole {
    Arena *arena;
    Control control;
    AttentionRun forward, gradient;
    double *sum[2]; /* dK, dV summed over the parts so far */
} Whole;

static void run_part(Whole *w, int64_t n, int64_t p)
{
    AttentionCase c = *w->forward.c;
    const int64_t chunk = c.T / (2 * n);
    c.s = 2 * chunk;
    c.start_s = p * chunk;
    c.second_s = (2 * n - 1 - p) * chunk;
    AttentionRun forward = attention_run(w->arena, &c, &w->control);
    attention_take_rows(&forward, &w->forward, 0);
    run_and_compare(&forward);
    AttentionRun gradient = gradient_run(w->arena, &c, &w->control, &forward);
    attention_take_rows(&gradient, &w->gradient, 0);
    run_and_compare(&gradient);
    for (uint32_t o = 0; o < 2; o++)
        for (int64_t k = 0; k < gradient.device.elements[7 + o]; k++)
            w->sum[o][k] += number_read(c.dtype, gradient.device.ptr[7 + o], (uint64_t)k);
}

/* The sum of the parts' gradients of keys and values must equal the whole's. */
static void check_sum(const Whole *w, uint32_t o)
{
    const AttentionRun *run = &w->gradient;
    char why[ATTENTION_WHY];
    for (int64_t k = 0; k < run->device.elements[7 + o]; k++)
        number_write(run->c->dtype, run->device.ptr[7 + o], (uint64_t)k, w->sum[o][k]);
    if (!attention_is_near(run, 7 + o, why))
        fail_msg("%s: the sum over parts, %s", target_case_now(), why);
}

static void parts_of_the_queries_match_the_whole(void **state)
{
    (void)state;
    const size_t every = getenv("TANDEM_FEW_CASES") ? 5 : 1;
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i += every)
        for (int64_t n = 2; n <= 4; n += 2) {
            Whole w = {.arena = arena_new()};
            AttentionCase c = wholes[i];
            c.s = c.T;
            w.control = (Control){.step = target_control()->step, .seed = target_control()->seed};
            w.forward = attention_run(w.arena, &c, &w.control);
            kernel_cpu(OP_attention)(&w.forward.cpu);
            w.gradient = gradient_run(w.arena, &c, &w.control, &w.forward);
            kernel_cpu(OP_attention_grad)(&w.gradient.cpu);
            for (int o = 0; o < 2; o++)
                w.sum[o] =
                    arena_array(w.arena, (size_t)w.gradient.cpu.elements[7 + o], sizeof *w.sum[o]);
            for (int64_t p = 0; p < n; p++) run_part(&w, n, p);
            for (uint32_t o = 0; o < 2; o++) check_sum(&w, o);
            compare_free();
            arena_free(w.arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_case_matches_the_cpu),
                                       cmocka_unit_test(parts_of_the_queries_match_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
