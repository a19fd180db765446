/* Attention within windows of a field: q, k, v [b,(g E),H,W], bias [b,X,Y,L,M]. The points of a
 * window lie side by side or, in strided attention, u rows and t columns apart. Each window is
 * copied to matrices of E rows, so that scores and sums are matrix products. This file also makes
 * the tables of biases. */
#ifndef REAL
#include "planner/ir/window.h"
#include "kernels/cpu/cpu.h"

/* The sizes of the heads and windows that this rank has. It may have only some of the windows, or
 * only some of the heads. */
typedef struct Windows {
    int64_t batch, heads, features, n; /* n: points of a window */
    int64_t across, points_w;          /* across: windows side by side; points_w: columns of a
                                          window */
    int64_t windows, width, plane;
    int64_t down;
    bool strided;
} Windows;

static Windows windows_of(const KernelArgs *a, bool strided)
{
    const int64_t *s = a->size;
    return (Windows){.batch = s['b'],
                     .heads = s['g'],
                     .features = s['E'],
                     .n = s['X'] * s['Y'],
                     .across = s['t'],
                     .points_w = s['Y'],
                     .windows = s['u'] * s['t'],
                     .width = s['t'] * s['Y'],
                     .plane = s['u'] * s['X'] * s['t'] * s['Y'],
                     .down = s['u'],
                     .strided = strided};
}

/* Returns the index in a plane of point i of window w. */
static int64_t point_at(const Windows *v, int64_t w, int64_t i)
{
    const int64_t x = i / v->points_w, y = i % v->points_w;
    const int64_t p = w / v->across, q = w % v->across;
    if (v->strided) return (x * v->down + p) * v->width + y * v->across + q;
    return (p * (v->n / v->points_w) + x) * v->width + q * v->points_w + y;
}

#define KERNEL_FILE "kernels/cpu/field/window.c"
#include "kernels/cpu/real.h"

BOTH(sum_features)
BOTH(sum_features_grad)
BOTH(window_bias)
BOTH(window_bias_grad)
BOTH(window_attention)
BOTH(window_attention_grad)
BOTH(strided_attention)
BOTH(strided_attention_grad)
BOTH(offsets)
BOTH(channels)
BOTH(channels_grad)

#else

/* writes [b,R,K]: for each pair of relative positions in a window, the difference in rows and the
 * difference in columns */
static void F(offsets)(const KernelArgs *a)
{
    const int64_t rows = a->attrs.h_kernel, columns = a->attrs.w_kernel, across = 2 * columns - 1;
    REAL *y = a->ptr[0];
    assert(a->size['K'] == 2);
    for (int64_t i = 0; i < a->size['b'] * a->size['R']; i++) {
        int64_t at = i % a->size['R'];
        y[2 * i] = (REAL)(at / across - (rows - 1));
        y[2 * i + 1] = (REAL)(at % across - (columns - 1));
    }
}

static void F(sum_features)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    int64_t k = a->size['k'];
    for (int64_t i = 0; i < a->size['b'] * a->size['s']; i++) y[i] = F(sum)(x + i * k, k);
}

static void F(sum_features_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    int64_t n = a->size['b'] * a->size['s'], k = a->size['k'];
    REAL *dx = F(summed)(a, 0, n * k);
    for (int64_t i = 0; i < n * k; i++) dx[i] += dy[i / k];
}

/* Returns the index of the difference between the points (x,y) and (l,m), among the R differences
 * that two points of a window can have. `i` is the index of element [x,y,l,m]. */
static int64_t F(difference)(const KernelArgs *a, int64_t i)
{
    const int64_t Y = a->size['Y'], L = a->size['L'], M = a->size['M'];
    int64_t m = i % M, l = i / M % L, y = i / M / L % Y, x = i / M / L / Y;
    return (x - l + L - 1) * (2 * M - 1) + y - m + M - 1;
}

/* table [b,R] -> bias [b,X,Y,L,M] */
static void F(window_bias)(const KernelArgs *a)
{
    const REAL *table = a->ptr[0];
    REAL *bias = a->ptr[1];
    int64_t n = a->elements[1] / a->size['b'];
    for (int64_t b = 0; b < a->size['b']; b++)
        for (int64_t i = 0; i < n; i++)
            bias[b * n + i] = table[b * a->size['R'] + F(difference)(a, i)];
}

static void F(window_bias_grad)(const KernelArgs *a)
{
    const REAL *dbias = a->ptr[0];
    REAL *table = F(summed)(a, 0, a->size['b'] * a->size['R']);
    int64_t n = a->elements[0] / a->size['b'];
    for (int64_t b = 0; b < a->size['b']; b++)
        for (int64_t i = 0; i < n; i++)
            table[b * a->size['R'] + F(difference)(a, i)] += dbias[b * n + i];
}

/* Copies window w of one head's planes x [E,H,W] to tile [E,n]. If `back` is true, adds the tile to
 * the planes instead. */
static void F(move_window)(const Windows *v, int64_t w, REAL *x, REAL *tile, bool back)
{
    for (int64_t i = 0; i < v->n; i++) {
        REAL *point = x + point_at(v, w, i);
        for (int64_t e = 0; e < v->features; e++) {
            if (back)
                point[e * v->plane] += tile[e * v->n + i];
            else
                tile[e * v->n + i] = point[e * v->plane];
        }
    }
}

static void F(take_window)(const Windows *v, int64_t w, const REAL *x, REAL *tile)
{
    F(move_window)(v, w, (REAL *)(uintptr_t)x, tile, false);
}

/* scores [n,n] = scale q^T k + bias */
static void F(scores)(const KernelArgs *a, const Windows *v, REAL *q, REAL *k, const REAL *bias,
                      REAL *scores)
{
    memcpy(scores, bias, (size_t)(v->n * v->n) * sizeof *scores);
    F(gemm)
    (true, false, v->n, v->n, v->features, (REAL)a->attrs.scale, q, v->n, k, v->n, 1, scores, v->n);
}

/* Replaces a row of scores by their softmax. Returns the logarithm of the sum of exponentials. */
static REAL F(softmax)(REAL *row, int64_t n)
{
    REAL most = row[0], sum = 0;
    for (int64_t i = 1; i < n; i++) most = row[i] > most ? row[i] : most;
    for (int64_t i = 0; i < n; i++) row[i] = exp(row[i] - most), sum += row[i];
    for (int64_t i = 0; i < n; i++) row[i] /= sum;
    return most + log(sum);
}

static void F(attend)(const KernelArgs *a, bool strided)
{
    const Windows v = windows_of(a, strided);
    const int64_t head = v.features * v.plane, bias = v.n * v.n;
    REAL q[WINDOW_MOST_FEATURES], k[WINDOW_MOST_FEATURES],
        s[WINDOW_MOST_POINTS * WINDOW_MOST_POINTS];
    assert(v.n <= WINDOW_MOST_POINTS && v.n * v.features <= WINDOW_MOST_FEATURES);
    for (int64_t h = 0; h < v.batch * v.heads; h++)
        for (int64_t w = 0; w < v.windows; w++) {
            const REAL *of_bias = (const REAL *)a->ptr[3] + h / v.heads * bias;
            REAL *y = (REAL *)a->ptr[4] + h * head, *lse = (REAL *)a->ptr[5] + h * v.plane;
            F(take_window)(&v, w, (const REAL *)a->ptr[0] + h * head, q);
            F(take_window)(&v, w, (const REAL *)a->ptr[1] + h * head, k);
            F(scores)(a, &v, q, k, of_bias, s);
            for (int64_t i = 0; i < v.n; i++)
                lse[point_at(&v, w, i)] = F(softmax)(s + i * v.n, v.n);
            F(take_window)(&v, w, (const REAL *)a->ptr[2] + h * head, k);
            F(gemm)(false, true, v.features, v.n, v.n, 1, k, v.n, s, v.n, 0, q, v.n);
            for (int64_t i = 0; i < v.n; i++)
                for (int64_t e = 0; e < v.features; e++)
                    y[e * v.plane + point_at(&v, w, i)] = q[e * v.n + i];
        }
}

/* Adds the contributions of one window to dq, dk, dv [E,H,W] of its head and to dbias [n,n]. `at`
 * has the head's dy, q, k, v, y and log-sum-exp. */
static void F(window_grad)(const KernelArgs *a, const Windows *v, int64_t w,
                           const REAL *const at[6], const REAL *bias, REAL *const d[3], REAL *dbias)
{
    REAL x[4][WINDOW_MOST_FEATURES], tile[WINDOW_MOST_FEATURES];
    REAL p[WINDOW_MOST_POINTS * WINDOW_MOST_POINTS], dp[WINDOW_MOST_POINTS * WINDOW_MOST_POINTS];
    const int64_t n = v->n, E = v->features;
    const REAL scale = (REAL)a->attrs.scale;
    for (int k = 0; k < 4; k++) F(take_window)(v, w, at[k], x[k]);
    F(scores)(a, v, x[1], x[2], bias, p);
    F(gemm)(true, false, n, n, E, 1, x[0], n, x[3], n, 0, dp, n); /* dy^T v */
    for (int64_t i = 0; i < n; i++) {
        REAL lse = at[5][point_at(v, w, i)], inner = 0;
        for (int64_t j = 0; j < n; j++) p[i * n + j] = exp(p[i * n + j] - lse);
        for (int64_t e = 0; e < E; e++)
            inner += x[0][e * n + i] * at[4][e * v->plane + point_at(v, w, i)];
        for (int64_t j = 0; j < n; j++) {
            dp[i * n + j] = p[i * n + j] * (dp[i * n + j] - inner);
            dbias[i * n + j] += dp[i * n + j];
        }
    }
    F(gemm)(false, true, E, n, n, scale, x[2], n, dp, n, 0, tile, n); /* k ds^T */
    F(move_window)(v, w, d[0], tile, true);
    F(gemm)(false, false, E, n, n, scale, x[1], n, dp, n, 0, tile, n); /* q ds */
    F(move_window)(v, w, d[1], tile, true);
    F(gemm)(false, false, E, n, n, 1, x[0], n, p, n, 0, tile, n); /* dy p */
    F(move_window)(v, w, d[2], tile, true);
}

/* dy, q, k, v, bias, y, lse -> dq, dk, dv, dbias */
static void F(attend_grad)(const KernelArgs *a, bool strided)
{
    const Windows v = windows_of(a, strided);
    const int64_t head = v.features * v.plane, bias = v.n * v.n;
    REAL *d[3], *dbias = F(summed)(a, 3, v.batch * bias);
    assert(v.n <= WINDOW_MOST_POINTS && v.n * v.features <= WINDOW_MOST_FEATURES);
    for (uint32_t k = 0; k < 3; k++) d[k] = F(summed)(a, k, v.batch * v.heads * head);
    for (int64_t h = 0; h < v.batch * v.heads; h++) {
        const REAL *at[6] = {
            (const REAL *)a->ptr[0] + h * head, (const REAL *)a->ptr[1] + h * head,
            (const REAL *)a->ptr[2] + h * head, (const REAL *)a->ptr[3] + h * head,
            (const REAL *)a->ptr[5] + h * head, (const REAL *)a->ptr[6] + h * v.plane};
        REAL *to[3] = {d[0] + h * head, d[1] + h * head, d[2] + h * head};
        for (int64_t w = 0; w < v.windows; w++) F(window_grad)
        (a, &v, w, at, (const REAL *)a->ptr[4] + h / v.heads * bias, to,
         dbias + h / v.heads * bias);
    }
}

static void F(window_attention)(const KernelArgs *a)
{
    F(attend)(a, false);
}

static void F(window_attention_grad)(const KernelArgs *a)
{
    F(attend_grad)(a, false);
}

static void F(strided_attention)(const KernelArgs *a)
{
    F(attend)(a, true);
}

static void F(strided_attention_grad)(const KernelArgs *a)
{
    F(attend_grad)(a, true);
}

/* x [b,F,h,w] -> y [b,X,h,w] */
static void F(channels)(const KernelArgs *a)
{
    const int64_t points = a->size['h'] * a->size['w'], n = a->size['X'] * points;
    const REAL *x = (const REAL *)a->ptr[0] + a->attrs.first * points;
    REAL *y = a->ptr[1];
    for (int64_t b = 0; b < a->size['b']; b++)
        memcpy(y + b * n, x + b * a->size['F'] * points, (size_t)n * sizeof *y);
}

static void F(channels_grad)(const KernelArgs *a)
{
    const int64_t points = a->size['h'] * a->size['w'], n = a->size['X'] * points;
    const int64_t all = a->size['F'] * points;
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, a->size['b'] * all);
    for (int64_t b = 0; b < a->size['b']; b++)
        for (int64_t i = 0; i < n; i++) dx[b * all + a->attrs.first * points + i] += dy[b * n + i];
}

#endif
