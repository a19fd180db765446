/* Ops that move fields to other grids: pooling, resizing, turning rows around the poles, pixel
 * shuffle and its inverse, and concatenation of channels. */
#ifndef REAL
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/field/field.h"

/* Returns the index in a plane of the element that tap `tap` of output point `point` reads; -1:
 * padding. */
static int64_t tap_at(const Along *h, const Along *w, int64_t point, int64_t tap)
{
    int64_t row = field_row(h, point / w->n, tap / w->window.kernel);
    int64_t column = field_row(w, point % w->n, tap % w->window.kernel);
    return row < 0 || column < 0 ? -1 : row * w->rows + column;
}

enum { POOL_COLUMNS = 256 }; /* columns of a row that are pooled at a time */

/* Returns by how many columns local row r is shifted to the east. Rows beyond a pole are shifted by
 * half of the columns, because the grid goes on at the opposite longitude there. */
static int64_t turn_of(const KernelArgs *a, int64_t r)
{
    const int64_t row = a->start['h'] + r, last = a->binding->size['h'] - a->attrs.h_after;
    return row < a->attrs.h_before || row >= last ? a->size['W'] / 2 : 0;
}

#define KERNEL_FILE "kernels/cpu/field/sample.c"
#include "kernels/cpu/real.h"

BOTH(avg_pool2d)
BOTH(avg_pool2d_grad)
BOTH(turn_poles)
BOTH(turn_poles_grad)
BOTH(max_pool2d)
BOTH(max_pool2d_grad)
BOTH(resize)
BOTH(resize_grad)
BOTH(pixel_shuffle)
BOTH(pixel_unshuffle)
BOTH(concat)
BOTH(concat_first)
BOTH(concat_last)

#else

static void F(avg_pool2d)(const KernelArgs *a)
{
    const Along h = field_along(OP_avg_pool2d, a, 'h'), w = field_along(OP_avg_pool2d, a, 'w');
    const int64_t taps = h.window.kernel * w.window.kernel, points = h.n * w.n;
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    for (int64_t i = 0; i < a->size['b'] * a->size['c']; i++, x += h.rows * w.rows)
        for (int64_t p = 0; p < points; p++) {
            REAL sum = 0;
            for (int64_t t = 0; t < taps; t++) {
                int64_t at = tap_at(&h, &w, p, t);
                if (at >= 0) sum += x[at];
            }
            y[i * points + p] = sum / (REAL)taps;
        }
}

static void F(avg_pool2d_grad)(const KernelArgs *a)
{
    const Along h = field_along(OP_avg_pool2d_grad, a, 'h');
    const Along w = field_along(OP_avg_pool2d_grad, a, 'w');
    const int64_t taps = h.window.kernel * w.window.kernel, points = h.n * w.n;
    const int64_t planes = a->size['b'] * a->size['c'];
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, planes * h.rows * w.rows);
    for (int64_t i = 0; i < planes; i++, dx += h.rows * w.rows)
        for (int64_t p = 0; p < points; p++)
            for (int64_t t = 0; t < taps; t++) {
                int64_t at = tap_at(&h, &w, p, t);
                if (at >= 0) dx[at] += dy[i * points + p] / (REAL)taps;
            }
}

static void F(turn_poles)(const KernelArgs *a)
{
    const int64_t rows = a->size['h'], columns = a->size['W'];
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    for (int64_t i = 0; i < a->size['b'] * a->size['c'] * rows; i++, x += columns, y += columns) {
        const int64_t by = turn_of(a, i % rows);
        for (int64_t k = 0; k < columns; k++) y[(k + by) % columns] = x[k];
    }
}

static void F(turn_poles_grad)(const KernelArgs *a)
{
    const int64_t rows = a->size['h'], columns = a->size['W'];
    const int64_t lines = a->size['b'] * a->size['c'] * rows;
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, lines * columns);
    for (int64_t i = 0; i < lines; i++, dy += columns, dx += columns) {
        const int64_t by = turn_of(a, i % rows);
        for (int64_t k = 0; k < columns; k++) dx[k] += dy[(k + by) % columns];
    }
}

/* Finds the index in plane x of the largest element of each window, for output columns `at` of row
 * o. Of equal elements, or of NaNs, the first one counts. The index is -1 if the whole window is
 * padding, which is never the maximum. */
static void F(largest)(const Along *h, const Along *w, const REAL *x, int64_t o, Interval at,
                       int64_t *place)
{
    for (int64_t k = 0; k < at.hi - at.lo; k++) place[k] = -1;
    for (int64_t t = 0; t < h->window.kernel * w->window.kernel; t++) {
        const int64_t row = field_row(h, o, t / w->window.kernel), j = t % w->window.kernel;
        const Interval inside = field_inside(w, j);
        const int64_t first = field_place(w, 0, j);
        for (int64_t p = at.lo; row >= 0 && p < at.hi; p++) {
            const bool plain = p >= inside.lo && p < inside.hi;
            const int64_t column = plain ? first + p * w->window.stride : field_row(w, p, j);
            if (column < 0) continue;
            const int64_t now = row * w->rows + column, best = place[p - at.lo];
            if (best < 0 || x[now] > x[best] || (x[now] != x[now] && x[best] == x[best]))
                place[p - at.lo] = now;
        }
    }
}

static void F(max_pool2d)(const KernelArgs *a)
{
    const Along h = field_along(OP_max_pool2d, a, 'h'), w = field_along(OP_max_pool2d, a, 'w');
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    int64_t place[POOL_COLUMNS];
    for (int64_t i = 0; i < a->size['b'] * a->size['c']; i++, x += h.rows * w.rows)
        for (int64_t o = 0; o < h.n; o++)
            for (Interval at = {0, 0}; at.lo < w.n; at.lo = at.hi) {
                at.hi = at.lo + POOL_COLUMNS < w.n ? at.lo + POOL_COLUMNS : w.n;
                F(largest)(&h, &w, x, o, at, place);
                for (int64_t k = 0; k < at.hi - at.lo; k++) *y++ = place[k] < 0 ? 0 : x[place[k]];
            }
}

static void F(max_pool2d_grad)(const KernelArgs *a)
{
    const Along h = field_along(OP_max_pool2d_grad, a, 'h');
    const Along w = field_along(OP_max_pool2d_grad, a, 'w');
    const int64_t planes = a->size['b'] * a->size['c'];
    const REAL *dy = a->ptr[0], *x = a->ptr[1];
    REAL *dx = F(summed)(a, 0, planes * h.rows * w.rows);
    int64_t place[POOL_COLUMNS];
    for (int64_t i = 0; i < planes; i++, x += h.rows * w.rows, dx += h.rows * w.rows)
        for (int64_t o = 0; o < h.n; o++)
            for (Interval at = {0, 0}; at.lo < w.n; at.lo = at.hi) {
                at.hi = at.lo + POOL_COLUMNS < w.n ? at.lo + POOL_COLUMNS : w.n;
                F(largest)(&h, &w, x, o, at, place);
                for (int64_t k = 0; k < at.hi - at.lo; k++, dy++)
                    if (place[k] >= 0) dx[place[k]] += *dy;
            }
}

static void F(resize)(const KernelArgs *a)
{
    const Along h = field_along(OP_resize, a, 'h'), w = field_along(OP_resize, a, 'w');
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    for (int64_t i = 0; i < a->size['b'] * a->size['c']; i++, x += h.rows * w.rows)
        for (int64_t o = 0; o < h.n; o++) {
            if (o >= h.valid) {
                for (int64_t k = 0; k < w.n; k++) *y++ = 0;
                continue;
            }
            const Mix down = field_mix(&h, o);
            const REAL *top = x + down.row[0] * w.rows, *bottom = x + down.row[1] * w.rows;
            for (int64_t k = 0; k < w.n; k++) {
                if (k >= w.valid) {
                    *y++ = 0;
                    continue;
                }
                const Mix across = field_mix(&w, k);
                const REAL left = (REAL)across.share[0], right = (REAL)across.share[1];
                *y++ =
                    (REAL)down.share[0] * (left * top[across.row[0]] + right * top[across.row[1]]) +
                    (REAL)down.share[1] *
                        (left * bottom[across.row[0]] + right * bottom[across.row[1]]);
            }
        }
}

static void F(resize_grad)(const KernelArgs *a)
{
    const Along h = field_along(OP_resize_grad, a, 'h'), w = field_along(OP_resize_grad, a, 'w');
    const int64_t planes = a->size['b'] * a->size['c'];
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, planes * h.rows * w.rows);
    for (int64_t i = 0; i < planes; i++, dx += h.rows * w.rows)
        for (int64_t o = 0; o < h.valid; o++) {
            const Mix down = field_mix(&h, o);
            const REAL *line = dy + (i * h.n + o) * w.n;
            for (int64_t k = 0; k < w.valid; k++) {
                const Mix across = field_mix(&w, k);
                for (int u = 0; u < 4; u++)
                    dx[down.row[u / 2] * w.rows + across.row[u % 2]] +=
                        line[k] * (REAL)(down.share[u / 2] * across.share[u % 2]);
            }
        }
}

/* Returns the index in [b,N I J,h,w] of the element that pixel_shuffle moves to element `at` of
 * [b,N,h I,w J]. */
static int64_t F(unshuffled)(const KernelArgs *a, int64_t at)
{
    const int64_t down = a->size['I'], across = a->size['J'], h = a->size['h'], w = a->size['w'];
    int64_t column = at % (w * across), row = at / (w * across) % (h * down);
    int64_t plane = at / (w * across) / (h * down);
    int64_t channel = (plane * down + row % down) * across + column % across;
    return (channel * h + row / down) * w + column / across;
}

static void F(pixel_shuffle)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    for (int64_t i = 0; i < a->elements[1]; i++) y[i] = x[F(unshuffled)(a, i)];
}

static void F(pixel_unshuffle)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, a->elements[1]);
    for (int64_t i = 0; i < a->elements[0]; i++) dx[F(unshuffled)(a, i)] += dy[i];
}

static void F(concat)(const KernelArgs *a)
{
    const int64_t points = a->size['h'] * a->size['w'];
    const int64_t first = a->size['X'] * points, last = a->size['Y'] * points;
    REAL *y = a->ptr[2];
    for (int64_t b = 0; b < a->size['b']; b++, y += first + last) {
        memcpy(y, (const REAL *)a->ptr[0] + b * first, (size_t)first * sizeof *y);
        memcpy(y + first, (const REAL *)a->ptr[1] + b * last, (size_t)last * sizeof *y);
    }
}

/* Copies channels `from` to from + n - 1 of each sample. */
static void F(take_channels)(const KernelArgs *a, int64_t from, int64_t n)
{
    const int64_t points = a->size['h'] * a->size['w'], all = a->size['Z'] * points;
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, a->size['b'] * n * points);
    for (int64_t b = 0; b < a->size['b']; b++)
        for (int64_t i = 0; i < n * points; i++)
            dx[b * n * points + i] += dy[b * all + from * points + i];
}

static void F(concat_first)(const KernelArgs *a)
{
    F(take_channels)(a, 0, a->size['X']);
}

static void F(concat_last)(const KernelArgs *a)
{
    F(take_channels)(a, a->size['Z'] - a->size['Y'], a->size['Y']);
}

#endif
