/* Rows of experts without a fixed number of slots (see planner/ir/layout/rows.h): memory holds only
 * rows that have a token. Rows are sorted by expert, and within an expert by sequence. counts [e,b]
 * is the number of rows of expert e from sequence b. Memory after the last row is set to zero. */
#ifndef REAL
#include <assert.h>

#include "kernels/cpu/cpu.h"

/* State of a walk over the choices of one sequence after the other, which finds the row of each
 * choice. */
typedef struct Uneven {
    const KernelArgs *a;
    const int32_t *counts;
    /* how many rows of each expert come before its rows of the current sequence */
    int64_t before[MOST_EXPERTS];
} Uneven;

static inline int64_t uneven_rows(const KernelArgs *a, const int32_t *counts, int64_t e)
{
    int64_t n = 0;
    for (int64_t b = 0; b < a->size['b']; b++) n += counts[e * a->size['b'] + b];
    return n;
}

static inline void uneven_begin(Uneven *u, const KernelArgs *a)
{
    int64_t at = 0;
    assert(a->size['e'] <= MOST_EXPERTS);
    u->a = a;
    u->counts = a->ptr[a->n_in - 1];
    for (int64_t e = 0; e < a->size['e']; e++) {
        u->before[e] = at;
        at += uneven_rows(a, u->counts, e);
    }
}

/* Goes on from sequence b to the next one. */
static inline void uneven_next(Uneven *u, int64_t b)
{
    for (int64_t e = 0; e < u->a->size['e']; e++)
        u->before[e] += u->counts[e * u->a->size['b'] + b];
}

/* Returns the row of a slot of the current sequence; -1: the choice was dropped, or its expert
 * belongs to another rank. */
static inline int64_t uneven_row(const Uneven *u, int32_t slot)
{
    const int64_t rooms = u->a->binding->size['O'], e = slot / rooms - u->a->start['e'];
    return slot < 0 || e < 0 || e >= u->a->size['e'] ? -1 : u->before[e] + slot % rooms;
}

#define KERNEL_FILE "kernels/cpu/uneven.c"
#include "kernels/cpu/real.h"

BOTH(dispatch_uneven)
BOTH(dispatch_uneven_grad)
BOTH(combine_uneven)
BOTH(combine_uneven_grad)
BOTH(combine_uneven_weights)
BOTH(linear_uneven)
BOTH(linear_uneven_rows)
BOTH(linear_uneven_weight)
BOTH(bias_uneven)
BOTH(bias_uneven_grad)

/* slots [b,S,K] -> counts [e,b], all i32 */
void cpu_counts(const KernelArgs *a)
{
    const int32_t *slots = a->ptr[0];
    int32_t *counts = a->ptr[1];
    const int64_t n = a->size['S'] * a->size['K'], samples = a->size['b'];
    memset(counts, 0, (size_t)(a->size['e'] * samples) * sizeof *counts);
    for (int64_t i = 0; i < n * samples; i++) {
        const int64_t e = slots[i] / a->attrs.capacity - a->start['e'];
        if (slots[i] >= 0 && e >= 0 && e < a->size['e']) counts[e * samples + i / n]++;
    }
}

#else

/* Sets the memory after the last row to zero. Argument `arg` has rows of `width` numbers. */
static void F(end_rows)(const KernelArgs *a, uint32_t arg, int64_t width)
{
    const int32_t *counts = a->ptr[a->n_in - 1];
    int64_t n = 0;
    for (int64_t e = 0; e < a->size['e']; e++) n += uneven_rows(a, counts, e);
    assert(n * width <= a->elements[arg]);
    if (!cpu_accumulates(a, arg - a->n_in))
        memset((REAL *)a->ptr[arg] + n * width, 0,
               (size_t)(a->elements[arg] - n * width) * sizeof(REAL));
}

/* x [b,S,k] -> rows; if there are weights [b,S,K], each row is multiplied by its own weight */
static void F(spread_uneven)(const KernelArgs *a, const int32_t *slots, const REAL *weights)
{
    const REAL *x = a->ptr[0];
    const int64_t n = a->size['S'] * a->size['K'], k = a->size['K'], width = a->size['k'];
    REAL *rows = a->ptr[a->n_in];
    const bool adds = cpu_accumulates(a, 0);
    Uneven u;
    uneven_begin(&u, a);
    for (int64_t b = 0; b < a->size['b']; uneven_next(&u, b++))
        for (int64_t i = b * n; i < (b + 1) * n; i++) {
            const int64_t row = uneven_row(&u, slots[i]);
            if (row < 0) continue;
            const REAL *from = x + i / k * width, w = weights ? weights[i] : 1;
            REAL *to = rows + row * width;
            for (int64_t d = 0; d < width; d++) to[d] = (adds ? to[d] : 0) + w * from[d];
        }
    F(end_rows)(a, a->n_in, width);
}

/* rows -> y [b,S,k]: the sum of the rows of each token; if there are weights, each row is
 * multiplied by its own weight first */
static void F(collect_uneven)(const KernelArgs *a, const int32_t *slots, const REAL *weights,
                              const REAL *rows)
{
    const int64_t n = a->size['S'] * a->size['K'], k = a->size['K'], width = a->size['k'];
    REAL *y = F(summed)(a, 0, a->size['b'] * a->size['S'] * width);
    Uneven u;
    uneven_begin(&u, a);
    for (int64_t b = 0; b < a->size['b']; uneven_next(&u, b++))
        for (int64_t i = b * n; i < (b + 1) * n; i++) {
            const int64_t row = uneven_row(&u, slots[i]);
            if (row < 0) continue;
            REAL *to = y + i / k * width;
            const REAL *from = rows + row * width, w = weights ? weights[i] : 1;
            for (int64_t d = 0; d < width; d++) to[d] += w * from[d];
        }
}

/* x [b,S,k], slots [b,S,K], counts -> rows */
static void F(dispatch_uneven)(const KernelArgs *a)
{
    F(spread_uneven)(a, a->ptr[1], NULL);
}

/* drows, slots [b,S,K], counts -> dx [b,S,k] */
static void F(dispatch_uneven_grad)(const KernelArgs *a)
{
    F(collect_uneven)(a, a->ptr[1], NULL, a->ptr[0]);
}

/* slots [b,S,K], weights [b,S,K], rows, counts -> y [b,S,k] */
static void F(combine_uneven)(const KernelArgs *a)
{
    F(collect_uneven)(a, a->ptr[0], a->ptr[1], a->ptr[2]);
}

/* dy [b,S,k], slots [b,S,K], weights [b,S,K], counts -> drows */
static void F(combine_uneven_grad)(const KernelArgs *a)
{
    F(spread_uneven)(a, a->ptr[1], a->ptr[2]);
}

/* dy [b,S,k], slots [b,S,K], rows, counts -> dweights [b,S,K] */
static void F(combine_uneven_weights)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0], *rows = a->ptr[2];
    const int32_t *slots = a->ptr[1];
    const int64_t n = a->size['S'] * a->size['K'], k = a->size['K'], width = a->size['k'];
    REAL *dweights = F(summed)(a, 0, a->size['b'] * n);
    Uneven u;
    uneven_begin(&u, a);
    for (int64_t b = 0; b < a->size['b']; uneven_next(&u, b++))
        for (int64_t i = b * n; i < (b + 1) * n; i++) {
            const int64_t row = uneven_row(&u, slots[i]);
            if (row >= 0) dweights[i] += F(dot)(dy + i / k * width, rows + row * width, width);
        }
}

/* Multiplies the rows of each expert by the expert's matrix w [e,k,f] or, if `turned` is true, by
 * its transpose. */
static void F(rows_times_weights)(const KernelArgs *a, bool turned)
{
    const int64_t k = a->size['k'], f = a->size['f'], in = turned ? f : k, out = turned ? k : f;
    const REAL *x = a->ptr[0], *w = a->ptr[1];
    const REAL beta = cpu_accumulates(a, 0) ? 1 : 0;
    REAL *y = a->ptr[3];
    for (int64_t e = 0, at = 0; e < a->size['e']; e++) {
        const int64_t n = uneven_rows(a, a->ptr[2], e);
        F(gemm)
        (false, turned, n, out, in, 1, x + at * in, in, w + e * k * f, f, beta, y + at * out, out);
        at += n;
    }
    F(end_rows)(a, 3, out);
}

/* rows [.,k], w [e,k,f], counts -> y [.,f] */
static void F(linear_uneven)(const KernelArgs *a)
{
    F(rows_times_weights)(a, false);
}

/* dy [.,f], w [e,k,f], counts -> dx [.,k] */
static void F(linear_uneven_rows)(const KernelArgs *a)
{
    F(rows_times_weights)(a, true);
}

/* rows [.,k], dy [.,f], counts -> dw [e,k,f]; the gradient of an expert without rows is zero */
static void F(linear_uneven_weight)(const KernelArgs *a)
{
    const int64_t k = a->size['k'], f = a->size['f'];
    const REAL *x = a->ptr[0], *dy = a->ptr[1];
    REAL *dw = F(summed)(a, 0, a->size['e'] * k * f);
    for (int64_t e = 0, at = 0; e < a->size['e']; e++) {
        const int64_t n = uneven_rows(a, a->ptr[2], e);
        if (n > 0)
            F(gemm)(true, false, k, f, n, 1, x + at * k, k, dy + at * f, f, 1, dw + e * k * f, f);
        at += n;
    }
}

/* x [.,f], bias [e,f], counts -> y [.,f] */
static void F(bias_uneven)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *bias = a->ptr[1];
    REAL *y = a->ptr[3];
    const int64_t f = a->size['f'];
    for (int64_t e = 0, at = 0; e < a->size['e']; e++)
        for (int64_t n = uneven_rows(a, a->ptr[2], e); n > 0; n--, at++)
            for (int64_t j = 0; j < f; j++) y[at * f + j] = x[at * f + j] + bias[e * f + j];
    F(end_rows)(a, 3, f);
}

/* dy [.,f], counts -> dbias [e,f] */
static void F(bias_uneven_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    const int64_t f = a->size['f'];
    REAL *dbias = F(summed)(a, 0, a->size['e'] * f);
    for (int64_t e = 0, at = 0; e < a->size['e']; e++)
        for (int64_t n = uneven_rows(a, a->ptr[1], e); n > 0; n--, at++)
            for (int64_t j = 0; j < f; j++) dbias[e * f + j] += dy[at * f + j];
}

#endif
