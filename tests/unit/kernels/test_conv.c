/* Convolutions and maximum pooling are compared with the sums and maxima that define them, written
 * as loops. The fields are larger than the tiles in which the kernels work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/kernel.h"
#include "planner/base/arena.h"
#include "planner/base/rng.h"
#include "planner/ir/window.h"

/* One convolution of x [b,c,H,W] to y [b,n,h,w]. */
typedef struct Conv {
    Attrs attrs;
    int64_t b, c, n, H, W, h, w;
    Binding binding;
    double *x, *weight, *y;
} Conv;

static double *numbers(Arena *arena, uint64_t stream, int64_t n)
{
    double *at = arena_array(arena, (size_t)n, sizeof *at);
    for (int64_t i = 0; i < n; i++) at[i] = rng_normal(17, stream, (uint64_t)i);
    return at;
}

static Conv conv_of(Arena *arena, int64_t channels, int64_t height, int64_t width, int64_t kernel,
                    int64_t stride, int64_t dilation, WindowMode mode)
{
    Conv v = {.b = 2, .c = channels, .n = 5, .H = height, .W = width};
    const int64_t extent = (kernel - 1) * dilation + 1, before = extent / 2;
    Attrs *a = &v.attrs;
    a->h_kernel = a->w_kernel = kernel, a->h_stride = a->w_stride = stride;
    a->h_dilation = a->w_dilation = dilation, a->h_before = a->w_before = before;
    a->h_mode = a->w_mode = mode;
    v.h = (height + 2 * before - extent) / stride + 1;
    v.w = (width + 2 * before - extent) / stride + 1;
    a->h_after = (v.h - 1) * stride + extent - height - before;
    a->w_after = (v.w - 1) * stride + extent - width - before;
    v.x = numbers(arena, 1, v.b * v.c * v.H * v.W);
    v.weight = numbers(arena, 2, v.n * v.c * kernel * kernel);
    v.y = numbers(arena, 3, v.b * v.n * v.h * v.w);
    int64_t *size = v.binding.size;
    size['b'] = v.b, size['c'] = v.c, size['n'] = v.n, size['I'] = size['J'] = kernel;
    size['h'] = v.h, size['w'] = v.w, size['H'] = v.H, size['W'] = v.W;
    return v;
}

static void run(const Conv *v, OpKind op, double *first, double *second, double *out)
{
    KernelArgs a = {.n_in = second ? 2 : 1, .n_args = second ? 3 : 2, .rows = 1};
    a.attrs = v->attrs, a.binding = &v->binding;
    memcpy(a.size, v->binding.size, sizeof a.size);
    memcpy(a.valid, v->binding.size, sizeof a.valid);
    a.ptr[0] = first, a.ptr[1] = second ? second : out, a.ptr[2] = out;
    for (uint32_t i = 0; i < a.n_args; i++) a.dtype[i] = DT_f64;
    kernel_cpu(op)(&a);
}

/* Returns the place in a plane of x that point [i,j] of the window of y[h,w] reads, or -1 for
 * padding. */
static int64_t place(const Conv *v, int64_t h, int64_t w, int64_t i, int64_t j)
{
    const Window rows = window_of(&v->attrs, 'h'), columns = window_of(&v->attrs, 'w');
    const int64_t r = window_row(&rows, v->H, h * rows.stride - rows.before + i * rows.dilation);
    const int64_t k =
        window_row(&columns, v->W, w * columns.stride - columns.before + j * columns.dilation);
    return r < 0 || k < 0 ? -1 : r * v->W + k;
}

/* Computes y, dx and dweight by their definitions: each product of an input and a weight is added
 * to y, each of dy and a weight to dx, and each of dy and x to dweight. */
static void define(const Conv *v, double *y, double *dx, double *dweight)
{
    const int64_t k = v->attrs.h_kernel;
    for (int64_t b = 0; b < v->b; b++)
        for (int64_t n = 0; n < v->n; n++)
            for (int64_t p = 0; p < v->h * v->w; p++)
                for (int64_t t = 0; t < v->c * k * k; t++) {
                    const int64_t to = (b * v->n + n) * v->h * v->w + p, tap = n * v->c * k * k + t;
                    const int64_t at = place(v, p / v->w, p % v->w, t / k % k, t % k);
                    const int64_t from = (b * v->c + t / (k * k)) * v->H * v->W + at;
                    if (at < 0) continue;
                    y[to] += v->x[from] * v->weight[tap];
                    dx[from] += v->y[to] * v->weight[tap];
                    dweight[tap] += v->y[to] * v->x[from];
                }
}

static void assert_near(const double *is, const double *should, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(is[i] - should[i]) <= tolerance))
            fail_msg("element %lld is %.17g, not %.17g", (long long)i, is[i], should[i]);
}

static void check(const Conv *v, Arena *arena)
{
    const int64_t n_y = v->b * v->n * v->h * v->w, n_x = v->b * v->c * v->H * v->W;
    const int64_t n_weight = v->n * v->c * v->attrs.h_kernel * v->attrs.w_kernel;
    double *y = arena_array(arena, (size_t)n_y, sizeof *y), *is_y = numbers(arena, 4, n_y);
    double *dx = arena_array(arena, (size_t)n_x, sizeof *dx), *is_x = numbers(arena, 4, n_x);
    double *dw = arena_array(arena, (size_t)n_weight, sizeof *dw);
    double *is_weight = numbers(arena, 4, n_weight);
    define(v, y, dx, dw);
    run(v, OP_conv2d, v->x, v->weight, is_y);
    run(v, OP_conv_transpose2d, v->y, v->weight, is_x);
    run(v, OP_conv2d_weight, v->x, v->y, is_weight);
    assert_near(is_y, y, n_y, 1e-11);
    assert_near(is_x, dx, n_x, 1e-11);
    assert_near(is_weight, dw, n_weight, 1e-10);
}

static void convolutions_over_several_tiles_equal_their_sums(void **state)
{
    (void)state;
    static const WindowMode modes[] = {WINDOW_zero, WINDOW_reflect, WINDOW_periodic,
                                       WINDOW_symmetric};
    /* k runs through each mode with each kernel, stride and dilation. */
    for (int64_t k = 0; k < 64; k++) {
        Arena *arena = arena_new();
        const int64_t kernel = 1 + k % 4, stride = 1 + k / 16 % 2, dilation = 1 + k / 32;
        /* A field that is not wide has more channels, so its window has more points than a tile. */
        const bool wide = k % 3 == 0;
        const Conv v = conv_of(arena, wide ? 2 : 40, wide ? 4 : 9, wide ? 531 : 10, kernel, stride,
                               dilation, modes[k / 4 % 4]);
        check(&v, arena);
        arena_free(arena);
    }
}

/* Tests windows at a pole, rows longer than one strip of columns, equal maxima, and NaN. */
static void maxima_of_long_rows_equal_their_definition(void **state)
{
    (void)state;
    for (int64_t k = 0; k < 8; k++) {
        Arena *arena = arena_new();
        Conv v = conv_of(arena, 2, 7, 300 + k, 2 + k % 2, 1 + k / 4, 1,
                         k % 4 ? WINDOW_periodic : WINDOW_zero);
        v.n = v.c;
        const int64_t n_x = v.b * v.c * v.H * v.W, n_y = v.b * v.c * v.h * v.w;
        for (int64_t i = 0; i < n_x; i++) v.x[i] = i % 97 == 13 ? NAN : round(2 * v.x[i]);
        double *y = numbers(arena, 4, n_y), *dx = numbers(arena, 5, n_x);
        double *dy = numbers(arena, 6, n_y);
        double *should = arena_array(arena, (size_t)n_x, sizeof *should);
        run(&v, OP_max_pool2d, v.x, NULL, y);
        run(&v, OP_max_pool2d_grad, dy, v.x, dx);
        const int64_t side = v.attrs.h_kernel;
        for (int64_t i = 0; i < n_y; i++) {
            const int64_t plane = i / (v.h * v.w), p = i % (v.h * v.w);
            const double *x = v.x + plane * v.H * v.W;
            int64_t best = -1;
            for (int64_t t = 0; t < side * side; t++) {
                const int64_t at = place(&v, p / v.w, p % v.w, t / side, t % side);
                if (at < 0 || (best >= 0 && isnan(x[best]))) continue;
                if (best < 0 || isnan(x[at]) || x[at] > x[best]) best = at;
            }
            assert_true(best >= 0);
            assert_true(y[i] == x[best] || (isnan(y[i]) && isnan(x[best])));
            should[plane * v.H * v.W + best] += dy[i];
        }
        assert_near(dx, should, n_x, 1e-12);
        arena_free(arena);
    }
}

#if defined __x86_64__
/* On a processor with wide vectors, products must use kernels for these vectors. */
static void products_use_the_vectors_of_the_processor(void **state)
{
    (void)state;
    __builtin_cpu_init();
    if (getenv("OPENBLAS_CORETYPE") || !__builtin_cpu_supports("avx2")) skip();
    if (kernel_cpu_blas_is_old()) fail_msg("products use kernels for %s", kernel_cpu_blas());
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_over_several_tiles_equal_their_sums),
        cmocka_unit_test(maxima_of_long_rows_equal_their_definition),
#if defined __x86_64__
        cmocka_unit_test(products_use_the_vectors_of_the_processor),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
