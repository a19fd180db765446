/* Attention with a part of the keys, as in a ring, on the target, compared with the CPU kernels in
 * fp64. It tests every pair of parts of a zigzag, both alone and merged with an earlier result. In
 * some pairs, queries see no key of the part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/target.h"

typedef struct PartCase {
    DType dtype;
    int64_t b, n, chunk, g, r, E; /* n ranks hold two chunks each */
    bool causal;
    double drop;
} PartCase;

static const PartCase cases[] = {
    {DT_bf16, 1, 3, 20, 1, 2, 64, true, 0},   {DT_bf16, 2, 2, 33, 2, 1, 64, true, 0},
    {DT_f16, 1, 2, 70, 1, 1, 128, true, 0},   {DT_bf16, 2, 2, 17, 1, 2, 40, false, 0},
    {DT_f32, 2, 3, 9, 2, 2, 12, true, 0},     {DT_bf16, 2, 2, 24, 2, 1, 64, true, 0.25},
    {DT_f32, 1, 2, 11, 1, 3, 5, false, 0.25},
};

typedef struct Both {
    KernelArgs device, cpu;
} Both;

static int64_t chunk_start(const PartCase *c, int64_t part, int second)
{
    return (second ? 2 * c->n - 1 - part : part) * c->chunk;
}

/* Fills argument i of both sides with the same random numbers around `middle`. */
static void add(Arena *arena, Both *x, uint32_t i, DType dtype, int64_t n, double middle)
{
    char *at = compare_alloc((size_t)n * dtype_bytes(dtype), 0);
    double *exact = arena_array(arena, (size_t)n, sizeof *exact);
    for (int64_t k = 0; k < n; k++) {
        number_write(dtype, at, (uint64_t)k, middle + rng_normal(5, i, (uint64_t)k));
        exact[k] = number_read(dtype, at, (uint64_t)k);
    }
    x->device.ptr[i] = at, x->device.dtype[i] = dtype;
    x->cpu.ptr[i] = exact, x->cpu.dtype[i] = DT_f64;
    x->device.elements[i] = x->cpu.elements[i] = n;
}

static void set(const PartCase *c, KernelArgs *a, Binding *whole, const Control *control,
                int64_t queries, int64_t keys, int64_t accumulate)
{
    static const char all[] = "bsTgrE";
    const int64_t size[] = {c->b, 2 * c->chunk, 2 * c->chunk, c->g, c->r, c->E};
    for (int k = 0; all[k]; k++) {
        const unsigned char l = (unsigned char)all[k];
        a->size[l] = a->valid[l] = whole->size[l] = size[k];
        a->second[l] = size[k] / 2;
    }
    whole->size['s'] = whole->size['T'] = 2 * c->n * c->chunk;
    a->start['s'] = chunk_start(c, queries, 0), a->second['s'] = chunk_start(c, queries, 1);
    a->start['T'] = chunk_start(c, keys, 0), a->second['T'] = chunk_start(c, keys, 1);
    a->rows = 1;
    a->binding = whole;
    a->control = control;
    a->microbatch = 1;
    a->attrs = (Attrs){.scale = 1 / sqrt((double)c->E),
                       .causal = c->causal,
                       .drop = c->drop,
                       .site = 4,
                       .accumulate = accumulate};
}

static double tolerance(DType t)
{
    return t == DT_bf16 ? 1.5e-2 : t == DT_f16 ? 2.5e-3 : 1e-5;
}

static void check(const PartCase *c, OpKind op, const Both *x, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const double *exact = x->cpu.ptr[i];
        double difference = 0, size = 0;
        for (int64_t k = 0; k < x->cpu.elements[i]; k++) {
            const double is = number_read(x->device.dtype[i], x->device.ptr[i], (uint64_t)k);
            /* also if both are infinite, where the difference would be NaN */
            if (is == exact[k]) continue;
            difference += (is - exact[k]) * (is - exact[k]);
            size += exact[k] * exact[k];
        }
        if (!(sqrt(difference) <= tolerance(c->dtype) * (sqrt(size) + 1e-3)))
            fail_msg("%s, %s: output %u differs by %g of %g", op_info(op)->name, target_case_now(),
                     i - from, sqrt(difference), sqrt(size));
    }
}

enum { HOPPER = 90 };

/* Stands for a library: runs Hopper's kernels for the calls that they accept, and counts these
 * calls in `self`. */
static bool by_hopper(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                      bool *taken, CudaError *error)
{
    *taken = cuda_attention_hopper_takes(op, args, cuda);
    *(uint32_t *)self += *taken;
    return !*taken || cuda_attention_hopper(op, args, cuda, error);
}

/* hopper: the library of Hopper's kernels, or NULL */
static void run(OpKind op, Both *x, const CudaAttentionLibrary *hopper)
{
    CudaError error = {""};
    CudaContext *const cuda = target_context();
    const CudaContext before = *cuda;
    const uint32_t n = op_info(op)->sig.n_in + op_info(op)->sig.n_out;
    const uint64_t bytes = kernel_cuda_workspace(op, x->device.dtype, x->device.elements, n);
    x->device.n_in = x->cpu.n_in = op_info(op)->sig.n_in;
    x->cpu.n_args = n;
    x->device.n_args = n + 1;
    x->device.ptr[n] = compare_alloc(bytes, 0);
    x->device.dtype[n] = DT_u8;
    x->device.elements[n] = (int64_t)bytes;
    kernel_cpu(op)(&x->cpu);
    cuda->attention = hopper;
    if (hopper != NULL) cuda->compute_capability = HOPPER;
    if (!TARGET_RUN(3, kernel_cuda(op)(&x->device, cuda, &error), &error))
        fail_msg("%s: %s", target_case_now(), error.text);
    cuda->attention = before.attention, cuda->compute_capability = before.compute_capability;
    compare_check();
}

static void check_pair(const PartCase *c, int64_t queries, int64_t keys, int64_t accumulate,
                       const CudaAttentionLibrary *hopper)
{
    Arena *arena = arena_new();
    const Control control = {.step = target_control()->step, .seed = target_control()->seed};
    Both x;
    Binding whole;
    memset(&x, 0, sizeof x);
    memset(&whole, 0, sizeof whole);
    const int64_t rows = c->b * 2 * c->chunk * c->g, of_q = rows * c->r * c->E, of_k = rows * c->E;
    target_case("case %d, queries of part %d, keys of part %d, accumulate %d%s", (int)(c - cases),
                (int)queries, (int)keys, (int)accumulate, hopper ? ", Hopper's kernels" : "");
    add(arena, &x, 0, c->dtype, of_q, 0);
    add(arena, &x, 1, c->dtype, of_k, 0), add(arena, &x, 2, c->dtype, of_k, 0);
    add(arena, &x, 3, c->dtype, of_q, 0), add(arena, &x, 4, DT_f32, rows * c->r, 1);
    set(c, &x.device, &whole, &control, queries, keys, accumulate ? 3 : 0);
    set(c, &x.cpu, &whole, &control, queries, keys, accumulate ? 3 : 0);
    run(OP_attention_part, &x, hopper);
    check(c, OP_attention_part, &x, 3, 5);
    memset(&x, 0, sizeof x);
    add(arena, &x, 0, c->dtype, of_q, 0), add(arena, &x, 1, c->dtype, of_q, 0);
    add(arena, &x, 2, c->dtype, of_k, 0), add(arena, &x, 3, c->dtype, of_k, 0);
    add(arena, &x, 4, c->dtype, of_q, 0), add(arena, &x, 5, DT_f32, rows * c->r, 4);
    add(arena, &x, 6, c->dtype, of_q, 0);
    add(arena, &x, 7, c->dtype, of_k, 0), add(arena, &x, 8, c->dtype, of_k, 0);
    set(c, &x.device, &whole, &control, queries, keys, accumulate);
    set(c, &x.cpu, &whole, &control, queries, keys, accumulate);
    run(OP_attention_part_grad, &x, hopper);
    check(c, OP_attention_part_grad, &x, 6, 9);
    compare_free();
    arena_free(arena);
}

static void check_pairs(const PartCase *c, const CudaAttentionLibrary *hopper)
{
    for (int64_t queries = 0; queries < c->n; queries++)
        for (int64_t keys = 0; keys < c->n; keys++)
            for (int64_t accumulate = 0; accumulate < 2; accumulate++)
                check_pair(c, queries, keys, accumulate ? 5 : 0, hopper);
}

static void every_pair_of_parts_matches_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_pairs(&cases[i], NULL);
}

/* A call for a part is a call of normal attention, so Hopper's kernels accept it too. They accept
 * neither dropout nor other types. */
static void hoppers_kernels_accept_parts(void **state)
{
    (void)state;
    if (!target_is(HOPPER)) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t taken = 0;
        const CudaAttentionLibrary hopper = {&taken, by_hopper};
        const bool takes = dtype_bytes(cases[i].dtype) == 2 && cases[i].drop == 0;
        check_pairs(&cases[i], &hopper);
        assert_int_equal(taken > 0, takes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_of_parts_matches_the_cpu),
                                       cmocka_unit_test(hoppers_kernels_accept_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
