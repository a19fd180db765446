/* Attention within windows of a field, by simple kernels. One thread or one block computes each
 * output number from the inputs alone. */
#include "kernels/cuda/field/field.cuh"

/* Where an element lies. In this file, FieldArgs has these meanings: `groups` heads of c features
 * each; `taps` points in a window, w.kernel of them in a row; h.n x w.n windows; `points` points of
 * a plane. If `nearest` is true, the points of a window do not lie side by side but at regular
 * distances. */

typedef struct WindowPlace {
    int64_t head, window, point; /* head: index of the head among the heads of all samples */
} WindowPlace;

DEVICE int64_t window_point(const FieldArgs *a, int64_t window, int64_t i)
{
    int64_t x = i / a->w.kernel, y = i % a->w.kernel, p = window / a->w.n, q = window % a->w.n;
    int64_t width = a->w.n * a->w.kernel;
    if (a->nearest) return (x * a->h.n + p) * width + y * a->w.n + q;
    return (p * (a->taps / a->w.kernel) + x) * width + q * a->w.kernel + y;
}

/* Returns where element i of [b,g,...,points of the plane] lies. `above` is the product of the
 * sizes between g and the points. */
DEVICE WindowPlace window_place(const FieldArgs *a, int64_t i, int64_t above)
{
    WindowPlace at;
    int64_t width = a->w.n * a->w.kernel, row = i % a->points / width,
            column = i % a->points % width;
    int64_t x_size = a->taps / a->w.kernel, p, q, x, y;
    if (a->nearest)
        p = row % a->h.n, x = row / a->h.n, q = column % a->w.n, y = column / a->w.n;
    else
        p = row / x_size, x = row % x_size, q = column / a->w.kernel, y = column % a->w.kernel;
    at.head = i / a->points / above;
    at.window = p * a->w.n + q;
    at.point = x * a->w.kernel + y;
    return at;
}

/* Returns the index of feature 0 at point i of the window. */
DEVICE int64_t window_first(const FieldArgs *a, WindowPlace at, int64_t i)
{
    return at.head * a->c * a->points + window_point(a, at.window, i);
}

/* Returns the dot product over features of x at point i and y at point j. */
DEVICE float window_inner(const FieldArgs *a, const Array x, const Array y, WindowPlace at,
                          int64_t i, int64_t j)
{
    float sum = 0;
    int64_t of_x = window_first(a, at, i), of_y = window_first(a, at, j);
    for (int64_t e = 0; e < a->c; e++)
        sum += read_one(x, of_x + e * a->points) * read_one(y, of_y + e * a->points);
    return sum;
}

DEVICE float window_score(const FieldArgs *a, const Array q, const Array k, const Array bias,
                          WindowPlace at, int64_t i, int64_t j)
{
    int64_t b = at.head / a->groups;
    return (float)a->scale * window_inner(a, q, k, at, i, j) +
           read_one(bias, (b * a->taps + i) * a->taps + j);
}

/* inputs: q, k, v, bias. Returns the log-sum-exp of the scores of one point of one head. */
DEVICE float window_lse(const FieldArgs *a, int64_t i, int64_t t)
{
    WindowPlace at = window_place(a, i, 1);
    float most = 0, sum = 0;
    for (int64_t j = 0; j < a->taps; j++) {
        float s = window_score(a, a->in[0], a->in[1], a->in[3], at, at.point, j);
        if (j == 0 || s > most) sum = j == 0 ? 0 : sum * expf(most - s), most = s;
        sum += expf(s - most);
    }
    (void)t;
    return most + logf(sum);
}
FIELD_SUM(window_lse)

/* inputs: q, k, v, bias, and the log-sum-exp in in[4]. Returns the term of key j. */
DEVICE float window_sum(const FieldArgs *a, int64_t i, int64_t j)
{
    WindowPlace at = window_place(a, i, a->c);
    int64_t e = i / a->points % a->c;
    float lse = read_one(a->in[4], at.head * a->points + i % a->points);
    float s = window_score(a, a->in[0], a->in[1], a->in[3], at, at.point, j);
    return expf(s - lse) * read_one(a->in[2], window_first(a, at, j) + e * a->points);
}
FIELD_SUM(window_sum)

/* ---- gradients: the inputs are dy, q, k, v, bias; y and the log-sum-exp are separate ---- */

typedef struct WindowGrad {
    FieldArgs of;
    Array y, lse;
    int64_t which; /* 0 dq, 1 dk, 2 dv, 3 dbias */
} WindowGrad;

DEVICE float window_p(const WindowGrad *g, WindowPlace at, int64_t i, int64_t j)
{
    const FieldArgs *a = &g->of;
    float lse = read_one(g->lse, at.head * a->points + window_point(a, at.window, i));
    return expf(window_score(a, a->in[1], a->in[2], a->in[4], at, i, j) - lse);
}

/* Returns the gradient of the score of query i and key j. */
DEVICE float window_ds(const WindowGrad *g, WindowPlace at, int64_t i, int64_t j)
{
    const FieldArgs *a = &g->of;
    float slope =
        window_inner(a, a->in[0], a->in[3], at, i, j) - window_inner(a, a->in[0], g->y, at, i, i);
    return window_p(g, at, i, j) * slope;
}

DEVICE float window_grad_term(const WindowGrad *g, int64_t i, int64_t t)
{
    const FieldArgs *a = &g->of;
    if (g->which == 3) { /* the terms are the windows of one head */
        WindowPlace at;
        int64_t b = i / (a->taps * a->taps), n = a->h.n * a->w.n;
        at.head = b * a->groups + t / n;
        at.window = t % n;
        at.point = 0;
        return window_ds(g, at, i / a->taps % a->taps, i % a->taps);
    }
    WindowPlace at = window_place(a, i, a->c);
    int64_t other = window_first(a, at, t) + i / a->points % a->c * a->points;
    if (g->which == 0)
        return (float)a->scale * window_ds(g, at, at.point, t) * read_one(a->in[2], other);
    if (g->which == 1)
        return (float)a->scale * window_ds(g, at, t, at.point) * read_one(a->in[1], other);
    return window_p(g, at, t, at.point) * read_one(a->in[0], other);
}

KERNEL(window_grad_kernel, WindowGrad, FIELD_THREADS, 1)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    if (i >= a.of.outputs) return;
    for (int64_t t = 0; t < a.of.terms; t++) sum += window_grad_term(&a, i, t);
    field_put(&a.of, i, sum);
}

/* ---- tables of bias ---- */

/* Returns the index of the table's number that element [x,y,l,m] of the bias uses. It depends only
 * on the difference of the two points' positions. A window has `taps` points, w.kernel of them in a
 * row. */
DEVICE int64_t bias_place(const FieldArgs *a, int64_t i)
{
    int64_t Y = a->w.kernel, X = a->taps / Y, t = i % Y, s = i / Y % X;
    int64_t y = i / Y / X % Y, x = i / Y / X / Y % X;
    return (x - s + X - 1) * (2 * Y - 1) + y - t + Y - 1;
}

DEVICE float bias_of(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t each = a->taps * a->taps;
    (void)t;
    return read_one(a->in[0], i / each * a->n + bias_place(a, i % each));
}
FIELD_SUM(bias_of)

DEVICE float bias_back(const FieldArgs *a, int64_t i, int64_t t)
{
    return bias_place(a, t) == i % a->n ? read_one(a->in[0], i / a->n * a->terms + t) : 0;
}
FIELD_SUM(bias_back)

DEVICE float features_sum(const FieldArgs *a, int64_t i, int64_t t)
{
    return read_one(a->in[0], i * a->terms + t);
}
FIELD_SUM(features_sum)

DEVICE float features_same(const FieldArgs *a, int64_t i, int64_t t)
{
    (void)t;
    return read_one(a->in[0], i / a->n);
}
FIELD_SUM(features_same)

/* ---- the ops ---- */

#define OP(name) bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)

static FieldArgs windowed(const KernelArgs *args, uint32_t j, bool strided)
{
    FieldArgs p = field_args(args, j);
    p.c = args->size['E'];
    p.taps = args->size['X'] * args->size['Y'];
    p.w.kernel = args->size['Y'];
    p.h.n = args->size['u'], p.w.n = args->size['t'];
    p.points = p.taps * p.h.n * p.w.n;
    p.nearest = strided;
    p.terms = p.taps;
    return p;
}

static bool attend(const KernelArgs *args, bool strided, const CudaContext *cuda, CudaError *error)
{
    FieldArgs lse = windowed(args, 1, strided), y = windowed(args, 0, strided);
    lse.terms = 1;
    y.in[4] = lse.out;
    return window_lse_launch(lse, cuda, error) && window_sum_launch(y, cuda, error);
}

static bool attend_grad(const KernelArgs *args, bool strided, const CudaContext *cuda,
                        CudaError *error)
{
    WindowGrad p;
    memset(&p, 0, sizeof p);
    p.y = array_of(args, 5, 1), p.lse = array_of(args, 6, 1);
    for (uint32_t j = 0; j < 4; j++) {
        p.of = windowed(args, j, strided);
        p.which = j;
        if (j == 3) p.of.terms = p.of.groups * p.of.h.n * p.of.w.n;
        if (!LAUNCH(window_grad_kernel, ceil_div(p.of.outputs, FIELD_THREADS), FIELD_THREADS, 0, p,
                    cuda, error))
            return false;
    }
    return true;
}

OP(window_attention)
{
    return attend(args, false, cuda, error);
}

OP(window_attention_grad)
{
    return attend_grad(args, false, cuda, error);
}

OP(strided_attention)
{
    return attend(args, true, cuda, error);
}

OP(strided_attention_grad)
{
    return attend_grad(args, true, cuda, error);
}

static FieldArgs of_bias(const KernelArgs *args)
{
    FieldArgs p = windowed(args, 0, false);
    p.n = args->size['R'];
    return p;
}

OP(window_bias)
{
    FieldArgs p = of_bias(args);
    p.terms = 1;
    return bias_of_launch(p, cuda, error);
}

OP(window_bias_grad)
{
    FieldArgs p = of_bias(args);
    p.terms = p.taps * p.taps;
    return bias_back_launch(p, cuda, error);
}

OP(sum_features)
{
    FieldArgs p = field_args(args, 0);
    p.terms = args->size['k'];
    return features_sum_launch(p, cuda, error);
}

OP(sum_features_grad)
{
    FieldArgs p = field_args(args, 0);
    p.n = args->size['k'];
    return features_same_launch(p, cuda, error);
}

OP(offsets)
{
    (void)args, (void)cuda;
    snprintf(error->text, sizeof error->text, "offsets: data comes from the host, by a copy");
    return false;
}
