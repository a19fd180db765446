/* Attention and its gradient on the target against the CPU kernels in fp64 on the same numbers:
 * types, head sizes, groups, ragged sizes, parts of the whole, causal or not, dropout,
 * accumulation; in two orders, to the same bits; by our own kernels, of the smallest device and of
 * the target's, and by a library where the target has one that takes the case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/arena.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"

enum { SEED = 3, SMALLEST = 86, MAX_CASE_ARGS = 10 };

typedef struct Case {
    DType dtype;
    int64_t b, s, T, g, r, E;
    int64_t start_s; /* queries are [start_s, start_s + s) of the whole */
    bool causal;
    double drop;
    bool accumulate;
} Case;

static const Case cases[] = {
    /* head sizes of each tile, whole tiles and ragged ones */
    {DT_bf16, 1, 64, 64, 1, 1, 64, 0, true, 0, false},
    {DT_bf16, 2, 37, 37, 2, 2, 64, 0, true, 0, false},
    {DT_bf16, 1, 200, 200, 1, 1, 32, 0, true, 0, true},
    {DT_bf16, 1, 130, 130, 1, 3, 72, 0, true, 0, false},
    {DT_bf16, 1, 70, 131, 2, 1, 128, 0, false, 0, true},
    {DT_bf16, 1, 33, 33, 1, 2, 136, 0, true, 0, false},
    {DT_bf16, 1, 66, 40, 1, 1, 256, 0, false, 0, true},
    {DT_f16, 1, 50, 50, 1, 2, 64, 0, true, 0, false},
    {DT_f16, 1, 65, 65, 2, 1, 104, 0, true, 0, false},
    {DT_f16, 1, 20, 35, 1, 1, 248, 0, false, 0, false},
    {DT_bf16, 1, 1, 1, 1, 1, 8, 0, true, 0, false},
    /* a part of the sequence, all keys */
    {DT_bf16, 1, 40, 160, 1, 2, 64, 120, true, 0, false},
    {DT_bf16, 1, 40, 160, 1, 1, 128, 60, true, 0, true},
    {DT_bf16, 1, 24, 96, 1, 1, 256, 30, true, 0, false},
    /* dropout, of a part of the whole */
    {DT_bf16, 2, 40, 81, 2, 2, 64, 41, true, 0.25, false},
    {DT_f16, 1, 33, 66, 1, 1, 128, 33, true, 0.1, true},
    {DT_bf16, 1, 20, 41, 1, 1, 200, 0, false, 0.5, false},
    /* row by row: fp32, and what tiles do not hold */
    {DT_f32, 2, 19, 37, 2, 2, 24, 18, true, 0, true},
    {DT_f32, 1, 40, 40, 1, 3, 5, 0, true, 0.2, false},
    {DT_f32, 1, 35, 70, 1, 1, 300, 0, false, 0, false},
    {DT_bf16, 1, 21, 21, 1, 2, 20, 0, true, 0, true},
    {DT_bf16, 1, 9, 9, 1, 1, 264, 0, true, 0, false},
};

typedef struct Run {
    Arena *arena;
    const Case *c;
    OpKind op;
    Binding *binding; /* of the whole */
    KernelArgs device, cpu;
    uint32_t n_in, n_out;
} Run;

static const char *const letters[][6] = {{"bsgrE", "bTgE", "bTgE", "bsgrE", "bsgr", NULL}};

static int64_t letter_size(const Case *c, char letter)
{
    switch (letter) {
    case 'b': return c->b;
    case 's': return c->s;
    case 'T': return c->T;
    case 'g': return c->g;
    case 'r': return c->r;
    }
    assert_int_equal(letter, 'E');
    return c->E;
}

static int64_t elements_of(const Case *c, const char *dims)
{
    int64_t n = 1;
    for (; *dims; dims++) n *= letter_size(c, *dims);
    return n;
}

/* Memory for argument i of both runs, with the same numbers; what is written first is NaN. */
static void add(Run *run, uint32_t i, const char *dims, DType dtype, bool filled)
{
    int64_t n = elements_of(run->c, dims);
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    char *at = compare_alloc(bytes, 0);
    double *exact = arena_array(run->arena, (size_t)n, sizeof *exact);
    for (int64_t k = 0; k < n; k++) {
        exact[k] = NAN;
        if (!filled) continue;
        number_write(dtype, at, (uint64_t)k, rng_normal(SEED, i, (uint64_t)k));
        exact[k] = number_read(dtype, at, (uint64_t)k);
    }
    run->device.ptr[i] = at;
    run->device.dtype[i] = dtype;
    run->cpu.ptr[i] = exact;
    run->cpu.dtype[i] = DT_f64;
    run->device.elements[i] = run->cpu.elements[i] = n;
}

static void set_common(Run *run, KernelArgs *a, const Control *control)
{
    const Case *c = run->c;
    a->n_in = run->n_in;
    a->n_args = run->n_in + run->n_out;
    a->rows = 1;
    a->binding = run->binding;
    a->control = control;
    a->microbatch = 2;
    a->attrs = (Attrs){.scale = 1 / sqrt((double)c->E),
                       .causal = c->causal,
                       .drop = c->drop,
                       .site = 9,
                       .accumulate = c->accumulate && run->n_out == 3 ? 7 : 0};
    static const char all[] = "bsTgrE";
    for (const char *l = all; *l; l++) {
        int64_t n = letter_size(c, *l);
        a->size[(unsigned char)*l] = a->valid[(unsigned char)*l] = n;
        run->binding->size[(unsigned char)*l] = n;
    }
    a->start['s'] = c->start_s;
    run->binding->size['s'] = c->start_s + c->s + 3;
    if (c->drop > 0) { /* local parts begin anywhere */
        a->start['b'] = 1;
        a->start['g'] = 2;
        run->binding->size['b'] += 1;
        run->binding->size['g'] += 5;
    }
}

static Run attention_run(Arena *arena, const Case *c, const Control *control)
{
    Run run = {.arena = arena, .c = c, .op = OP_attention, .n_in = 3, .n_out = 2};
    run.binding = arena_alloc(arena, sizeof *run.binding);
    for (uint32_t i = 0; i < 5; i++) add(&run, i, letters[0][i], i == 4 ? DT_f32 : c->dtype, i < 3);
    set_common(&run, &run.device, control);
    set_common(&run, &run.cpu, control);
    return run;
}

/* dout, q, k, v, out, lse -> dq, dk, dv; out and lse as the forward run's fp64 result has them. */
static Run gradient_run(Arena *arena, const Case *c, const Control *control, const Run *forward)
{
    static const char *const dims[] = {"bsgrE", "bsgrE", "bTgE", "bTgE", "bsgrE",
                                       "bsgr",  "bsgrE", "bTgE", "bTgE"};
    Run run = {.arena = arena, .c = c, .op = OP_attention_grad, .n_in = 6, .n_out = 3};
    run.binding = arena_alloc(arena, sizeof *run.binding);
    for (uint32_t i = 0; i < 9; i++)
        add(&run, i, dims[i], i == 5 ? DT_f32 : c->dtype, i < 6 || c->accumulate);
    static const uint32_t from[] = {0, 0, 1, 2, 3, 4};
    for (uint32_t i = 1; i < 6; i++)
        for (int64_t k = 0; k < run.cpu.elements[i]; k++) {
            double x = ((const double *)forward->cpu.ptr[from[i]])[k];
            number_write(run.device.dtype[i], run.device.ptr[i], (uint64_t)k, x);
            ((double *)run.cpu.ptr[i])[k] = x;
        }
    set_common(&run, &run.device, control);
    set_common(&run, &run.cpu, control);
    uint64_t bytes = cuda_attention_workspace(run.op, run.device.dtype, run.device.elements, 9);
    run.device.ptr[9] = compare_alloc(bytes, 0);
    run.device.dtype[9] = DT_u8;
    run.device.elements[9] = (int64_t)bytes;
    run.device.n_args = 10;
    return run;
}

static void call_device(const Run *run, uint64_t order)
{
    CudaError error = {""};
    CudaKernel_function *kernel = run->op == OP_attention ? cuda_attention : cuda_attention_grad;
    if (!TARGET_RUN(order, kernel(&run->device, target_context(), &error), &error))
        fail_msg("%s", error.text);
    compare_check();
}

static double tolerance(const Case *c)
{
    return c->dtype == DT_bf16 ? 8e-3 : c->dtype == DT_f16 ? 1.2e-3 : 3e-6;
}

static void check_output(const Run *run, uint32_t i)
{
    const double *exact = run->cpu.ptr[i];
    double difference = 0, size = 0, worst = 0;
    int64_t at = 0;
    for (int64_t k = 0; k < run->cpu.elements[i]; k++) {
        double x = number_read(run->device.dtype[i], run->device.ptr[i], (uint64_t)k);
        double d = fabs(x - exact[k]);
        if (!(d <= worst)) worst = d, at = k;
        difference += d * d;
        size += exact[k] * exact[k];
    }
    double limit = tolerance(run->c), rms = sqrt(size / (double)run->cpu.elements[i]);
    if (!(sqrt(difference) <= limit * sqrt(size) && worst <= 12 * limit * (rms + 0.05)))
        fail_msg("case %d, capability %u%s, output %u: norm of the difference %g, worst %g at %d "
                 "(rms %g)",
                 (int)(run->c - cases), target_context()->compute_capability,
                 target_context()->attention ? ", by the library" : "", i - run->n_in,
                 sqrt(difference / size), worst, (int)at, rms);
}

/* Runs it in two orders, from the same memory: the same bits. */
static void run_twice(const Run *run, void *const *before)
{
    void *first[MAX_CASE_ARGS];
    for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) {
        size_t bytes = (size_t)run->device.elements[i] * dtype_bytes(run->device.dtype[i]);
        memcpy(run->device.ptr[i], before[i], bytes);
    }
    call_device(run, 0);
    for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) {
        size_t bytes = (size_t)run->device.elements[i] * dtype_bytes(run->device.dtype[i]);
        first[i] = memcpy(arena_array(run->arena, bytes, 1), run->device.ptr[i], bytes);
        memcpy(run->device.ptr[i], before[i], bytes);
    }
    call_device(run, 11);
    for (uint32_t i = run->n_in; i < run->n_in + run->n_out; i++) {
        size_t bytes = (size_t)run->device.elements[i] * dtype_bytes(run->device.dtype[i]);
        assert_memory_equal(run->device.ptr[i], first[i], bytes);
        check_output(run, i);
    }
}

/* By our own kernels and by the library. */
static void run_and_compare(const Run *run)
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
    cuda->attention = target_attention(run->op, &run->device, &taken);
    if (taken) run_twice(run, before);
    cuda->attention = NULL;
}

static void check_case(const Case *c)
{
    Arena *arena = arena_new();
    const Control control = {.step = target_control()->step, .seed = target_control()->seed};
    Run forward = attention_run(arena, c, &control);
    run_and_compare(&forward);
    Run gradient = gradient_run(arena, c, &control, &forward);
    run_and_compare(&gradient);
    compare_free();
    arena_free(arena);
}

static void each_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
