/* Attention with additions (see ops.def): values whose size differs from that of keys, a window, a
 * soft cap, a score without a value (sink), or a table of biases for distances. The code computes
 * query by query and is written for clarity.
 *   forward:   x = scale q k; s = cap tanh(x / cap) + table; P = exp(s - lse); O = P V
 *   backward:  delta = dO O, dV = P^T dO, ds = P (dO V - delta), dtable = sum of ds by bucket,
 *              dx = ds (1 - tanh(x / cap)^2), dQ = scale dx K, dK = scale dx^T Q */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/attention_kinds.c"
#include <stdint.h>

#include "kernels/buckets.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/real.h"

BOTH(attention_wide)
BOTH(attention_wide_grad)
BOTH(attention_sink)
BOTH(sink_grad)
BOTH(attention_table)
BOTH(attention_table_grad)

#else

typedef struct F(Kinds) {
    const KernelArgs *a;
    const REAL *q, *k, *v, *sink, *table; /* sink, table: NULL if there is none */
    int64_t S, T, G, R, E, V, heads;
    Buckets buckets;
} F(Kinds);

/* One query. row: its index in [b,s,g,r]; head: g R + r; key: index of its first key in [b,T,g];
 * position: its global position; it sees keys `from` to end - 1. */
typedef struct F(Query) {
    int64_t row, head, key, position, from, end;
} F(Query);

static F(Kinds) F(kinds_of)(const KernelArgs *a, uint32_t q, bool has_sink, bool has_table)
{
    const int64_t *n = a->size;
    const REAL *more = a->ptr[q + 3];
    F(Kinds)
    x = {.a = a, .q = a->ptr[q], .k = a->ptr[q + 1], .v = a->ptr[q + 2]};
    x.S = n['s'], x.T = n['T'], x.G = n['g'], x.R = n['r'], x.E = n['E'], x.V = n['V'];
    x.heads = x.G * x.R;
    x.sink = has_sink ? more : NULL;
    x.table = has_table ? more : NULL;
    if (has_table) x.buckets = buckets_of(n['N'], a->attrs.distance, a->attrs.causal != 0);
    return x;
}

static F(Query) F(query_of)(const F(Kinds) * x, int64_t i)
{
    const Attrs *attrs = &x->a->attrs;
    const int64_t b = i / (x->S * x->heads), s = i / x->heads % x->S, head = i % x->heads;
    F(Query)
    y = {.row = i, .head = head, .key = b * x->T * x->G + head / x->R};
    y.position = cpu_whole_index(x->a, 's', s);
    y.end = attrs->causal && y.position + 1 < x->T ? y.position + 1 : x->T;
    y.from = attrs->window && y.position + 1 > attrs->window ? y.position + 1 - attrs->window : 0;
    return y;
}

/* Returns the index in the table [N,g,r] of the bias for the query's head and for the distance from
 * the query to the key. */
static int64_t F(bucket)(const F(Kinds) * x, const F(Query) * y, int64_t key)
{
    int64_t distance = key - y->position;
    int32_t i = 0;
    const int32_t behind = x->buckets.both && distance > 0 ? x->buckets.n : 0;
    if (distance < 0)
        distance = -distance;
    else if (!x->buckets.both)
        distance = 0;
    while (i + 1 < x->buckets.n && x->buckets.first[i + 1] <= distance) i++;
    return (behind + i) * x->heads + y->head;
}

/* Returns the score of a key. Sets *slope to the derivative of the score by scale q k. */
static REAL F(score)(const F(Kinds) * x, const F(Query) * y, int64_t key, REAL *slope)
{
    const REAL cap = (REAL)x->a->attrs.cap;
    REAL s = F(dot)(x->q + y->row * x->E, x->k + (y->key + key * x->G) * x->E, x->E);
    s *= (REAL)x->a->attrs.scale;
    *slope = 1;
    if (cap > 0) {
        const REAL t = tanh(s / cap);
        *slope = 1 - t * t;
        s = cap * t;
    }
    return x->table ? s + x->table[F(bucket)(x, y, key)] : s;
}

static void F(attend)(const F(Kinds) * x, REAL *out, REAL *lse)
{
    for (int64_t i = 0; i < x->a->size['b'] * x->S * x->heads; i++) {
        const F(Query) y = F(query_of)(x, i);
        REAL *o = out + i * x->V, slope;
        REAL top = x->sink ? x->sink[y.head] : -(REAL)INFINITY;
        for (int64_t key = y.from; key < y.end; key++) {
            const REAL s = F(score)(x, &y, key, &slope);
            top = s > top ? s : top;
        }
        REAL total = x->sink ? F(exponential)(x->sink[y.head] - top) : 0;
        memset(o, 0, (size_t)x->V * sizeof *o);
        for (int64_t key = y.from; key < y.end; key++) {
            const REAL p = F(exponential)(F(score)(x, &y, key, &slope) - top);
            const REAL *v = x->v + (y.key + key * x->G) * x->V;
            total += p;
            for (int64_t e = 0; e < x->V; e++) o[e] += p * v[e];
        }
        for (int64_t e = 0; e < x->V; e++) o[e] /= total;
        lse[i] = top + log(total);
    }
}

typedef struct F(KindsGrad) {
    const REAL *dout, *out, *lse;
    REAL *dq, *dk, *dv, *dtable;
} F(KindsGrad);

static void F(attend_grad)(const F(Kinds) * x, const F(KindsGrad) * g)
{
    const REAL scale = (REAL)x->a->attrs.scale;
    for (int64_t i = 0; i < x->a->size['b'] * x->S * x->heads; i++) {
        const F(Query) y = F(query_of)(x, i);
        const REAL *dout = g->dout + i * x->V, *q = x->q + i * x->E;
        const REAL delta = F(dot)(dout, g->out + i * x->V, x->V);
        REAL *dq = g->dq + i * x->E;
        for (int64_t key = y.from; key < y.end; key++) {
            const int64_t at = y.key + key * x->G;
            const REAL *k = x->k + at * x->E, *v = x->v + at * x->V;
            REAL *dk = g->dk + at * x->E, *dv = g->dv + at * x->V, slope;
            const REAL p = F(exponential)(F(score)(x, &y, key, &slope) - g->lse[i]);
            const REAL ds = p * (F(dot)(dout, v, x->V) - delta), dx = scale * slope * ds;
            if (x->table) g->dtable[F(bucket)(x, &y, key)] += ds;
            for (int64_t e = 0; e < x->V; e++) dv[e] += p * dout[e];
            for (int64_t e = 0; e < x->E; e++) dq[e] += dx * k[e];
            for (int64_t e = 0; e < x->E; e++) dk[e] += dx * q[e];
        }
    }
}

/* q [b,s,g,r,E], k [b,T,g,E], v [b,T,g,V] -> out [b,s,g,r,V], lse [b,s,g,r] */
static void F(attention_wide)(const KernelArgs *a)
{
    const F(Kinds) x = F(kinds_of)(a, 0, false, false);
    F(attend)(&x, a->ptr[3], a->ptr[4]);
}

/* q, k, v, sink [g,r] -> out, lse (shapes as above) */
static void F(attention_sink)(const KernelArgs *a)
{
    const F(Kinds) x = F(kinds_of)(a, 0, true, false);
    F(attend)(&x, a->ptr[4], a->ptr[5]);
}

/* q, k, v, table [N,g,r] -> out, lse (shapes as above) */
static void F(attention_table)(const KernelArgs *a)
{
    const F(Kinds) x = F(kinds_of)(a, 0, false, true);
    F(attend)(&x, a->ptr[4], a->ptr[5]);
}

static F(KindsGrad) F(kinds_grad)(const F(Kinds) * x)
{
    const KernelArgs *a = x->a;
    const int64_t B = a->size['b'], keys = B * x->T * x->G;
    const uint32_t out = x->table ? 5 : 4;
    F(KindsGrad)
    g = {.dout = a->ptr[0], .out = a->ptr[out], .lse = a->ptr[out + 1]};
    g.dq = F(summed)(a, 0, B * x->S * x->heads * x->E);
    g.dk = F(summed)(a, 1, keys * x->E);
    g.dv = F(summed)(a, 2, keys * x->V);
    if (x->table) g.dtable = F(summed)(a, 3, a->size['N'] * x->heads);
    return g;
}

/* dout, q, k, v, out, lse -> dq, dk, dv */
static void F(attention_wide_grad)(const KernelArgs *a)
{
    const F(Kinds) x = F(kinds_of)(a, 1, false, false);
    const F(KindsGrad) g = F(kinds_grad)(&x);
    F(attend_grad)(&x, &g);
}

/* dout, q, k, v, table, out, lse -> dq, dk, dv, dtable */
static void F(attention_table_grad)(const KernelArgs *a)
{
    const F(Kinds) x = F(kinds_of)(a, 1, false, true);
    const F(KindsGrad) g = F(kinds_grad)(&x);
    F(attend_grad)(&x, &g);
}

/* dout, out [b,s,g,r,V], lse [b,s,g,r], sink [g,r] -> dsink = -sum of exp(sink - lse) (dout out) */
static void F(sink_grad)(const KernelArgs *a)
{
    const REAL *dout = a->ptr[0], *out = a->ptr[1], *lse = a->ptr[2], *sink = a->ptr[3];
    const int64_t heads = a->size['g'] * a->size['r'], V = a->size['V'];
    REAL *dsink = F(summed)(a, 0, heads);
    for (int64_t i = 0; i < a->size['b'] * a->size['s'] * heads; i++)
        dsink[i % heads] -=
            F(exponential)(sink[i % heads] - lse[i]) * F(dot)(dout + i * V, out + i * V, V);
}

#endif
