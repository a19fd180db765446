/* Cases for tests of attention: see attention_case.h. */
#include "tests/cuda/attention/attention_case.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"

enum { SEED = 3 };

static const char *const letters[][6] = {{"bsgrE", "bTgE", "bTgE", "bsgrE", "bsgr", NULL}};

static int64_t letter_size(const AttentionCase *c, char letter)
{
    switch (letter) {
    case 'b': return c->b;
    case 's': return c->s;
    case 'T': return c->T;
    case 'g': return c->g;
    case 'r': return c->r;
    }
    assert(letter == 'E');
    return c->E;
}

static int64_t elements_of(const AttentionCase *c, const char *dims)
{
    int64_t n = 1;
    for (; *dims; dims++) n *= letter_size(c, *dims);
    return n;
}

/* Allocates argument i of both runs and fills both with the same numbers. Outputs start as NaN. */
static void add(AttentionRun *run, uint32_t i, const char *dims, DType dtype, bool filled)
{
    /* The first input is queries in the forward pass and dout in the gradient. Their numbers must
     * differ. */
    const uint64_t seed = SEED + (run->op == OP_attention_grad);
    int64_t n = elements_of(run->c, dims);
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    char *at = compare_alloc(bytes, 0);
    double *exact = arena_array(run->arena, (size_t)n, sizeof *exact);
    for (int64_t k = 0; k < n; k++) {
        exact[k] = NAN;
        if (!filled) continue;
        number_write(dtype, at, (uint64_t)k, rng_normal(seed, i, (uint64_t)k));
        exact[k] = number_read(dtype, at, (uint64_t)k);
    }
    run->device.ptr[i] = at;
    run->device.dtype[i] = dtype;
    run->cpu.ptr[i] = exact;
    run->cpu.dtype[i] = DT_f64;
    run->device.elements[i] = run->cpu.elements[i] = n;
}

static void set_common(AttentionRun *run, KernelArgs *a, const Control *control)
{
    const AttentionCase *c = run->c;
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
    if (c->drop > 0) { /* parts of these dimensions need not begin at 0 */
        a->start['b'] = 1;
        a->start['g'] = 2;
        a->start['r'] = 1;
        run->binding->size['b'] += 1;
        run->binding->size['g'] += 5;
        run->binding->size['r'] += 2;
    }
    for (const char *l = all; *l; l++) {
        unsigned char at = (unsigned char)*l;
        a->second[at] = a->start[at] + a->size[at] / 2;
    }
    if (c->second_s == 0) return;
    a->second['s'] = c->second_s;
    /* so that the binding equals that of a run of all queries */
    run->binding->size['s'] = c->T + 3;
}

AttentionRun attention_run(Arena *arena, const AttentionCase *c, const Control *control)
{
    AttentionRun run = {.arena = arena, .c = c, .op = OP_attention, .n_in = 3, .n_out = 2};
    run.binding = arena_alloc(arena, sizeof *run.binding);
    for (uint32_t i = 0; i < 5; i++) add(&run, i, letters[0][i], i == 4 ? DT_f32 : c->dtype, i < 3);
    set_common(&run, &run.device, control);
    set_common(&run, &run.cpu, control);
    return run;
}

/* dout, q, k, v, out, lse -> dq, dk, dv; out and lse come from the forward run's fp64 result. */
AttentionRun gradient_run(Arena *arena, const AttentionCase *c, const Control *control,
                          const AttentionRun *forward)
{
    static const char *const dims[] = {"bsgrE", "bsgrE", "bTgE", "bTgE", "bsgrE",
                                       "bsgr",  "bsgrE", "bTgE", "bTgE"};
    AttentionRun run = {.arena = arena, .c = c, .op = OP_attention_grad, .n_in = 6, .n_out = 3};
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

void attention_take_rows(const AttentionRun *run, const AttentionRun *whole, uint32_t i)
{
    const AttentionCase *c = run->c;
    const int64_t row = run->cpu.elements[i] / (c->b * c->s);
    const size_t bytes = dtype_bytes(run->device.dtype[i]);
    for (int64_t at = 0; at < run->cpu.elements[i]; at++) {
        const int64_t b = at / (row * c->s), s = at / row % c->s, half = c->s / 2;
        const int64_t of_whole = s < half || !c->second_s ? c->start_s + s : c->second_s + s - half;
        const int64_t from = (b * whole->c->s + of_whole) * row + at % row;
        memcpy((char *)run->device.ptr[i] + (size_t)at * bytes,
               (const char *)whole->device.ptr[i] + (size_t)from * bytes, bytes);
        ((double *)run->cpu.ptr[i])[at] = ((const double *)whole->cpu.ptr[i])[from];
    }
}

static double tolerance(const AttentionCase *c)
{
    return c->dtype == DT_bf16 ? 8e-3 : c->dtype == DT_f16 ? 1.2e-3 : 3e-6;
}

bool attention_is_near(const AttentionRun *run, uint32_t i, char why[ATTENTION_WHY])
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
    if (sqrt(difference) <= limit * sqrt(size) && worst <= 12 * limit * (rms + 0.05)) return true;
    snprintf(why, ATTENTION_WHY, "output %u: norm of the difference %g, worst %g at %d (rms %g)",
             i - run->n_in, sqrt(difference / size), worst, (int)at, rms);
    return false;
}
