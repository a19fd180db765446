/* Ops on fields: pooling, resizing, turning rows around the poles, pixel shuffle and its inverse,
 * concatenation of channels, and the squared error. */
#include "kernels/cuda/field/field.cuh"

/* Returns the index of the element of x [b c,H,W] that tap t of output i [b c,h,w] reads; -1:
 * padding. */
DEVICE int64_t pool_at(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t at = field_tap(a, i % a->points, t);
    return at < 0 ? -1 : i / a->points * a->h.rows * a->w.rows + at;
}

DEVICE float pool_mean(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t at = pool_at(a, i, t);
    return at < 0 ? 0 : read_one(a->in[0], at) / (float)a->taps;
}
FIELD_SUM(pool_mean)

/* The gradient of an element of x is a sum over taps. Returns the term of tap t. */
DEVICE float pool_mean_grad(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t all = a->h.rows * a->w.rows;
    return field_back(a, a->in[0], i / all * a->points, i % all, t) / (float)a->taps;
}
FIELD_SUM(pool_mean_grad)

/* Shifts the rows beyond the poles by half of the columns, because the grid goes on at the opposite
 * longitude there. h.start, h.n and h.all describe the rows. Rows from h.from to h.to - 1 lie
 * between the poles and are not shifted. w.n is the number of columns. `nearest` shifts back (for
 * the gradient). */
DEVICE float turn_rows(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t columns = a->w.n, column = i % columns, row = a->h.start + i / columns % a->h.n;
    bool turns = row < a->h.from || row >= a->h.to;
    int64_t half = columns / 2, by = a->nearest ? half : columns - half;
    (void)t;
    return read_one(a->in[0], i - column + (column + (turns ? by : 0)) % columns);
}
FIELD_SUM(turn_rows)

/* Returns the index of the largest element in a window of x (of several, the first); -1: the window
 * contains only padding. */
DEVICE int64_t pool_largest(const FieldArgs *a, const Array x, int64_t i)
{
    int64_t best = -1;
    float most = 0;
    for (int64_t t = 0; t < a->taps; t++) {
        int64_t at = pool_at(a, i, t);
        if (at < 0) continue;
        float is = read_one(x, at);
        if (best < 0 || is > most || (is != is && most == most)) best = at, most = is;
    }
    return best;
}

DEVICE float pool_max(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t at = pool_largest(a, a->in[0], i);
    (void)t;
    return at < 0 ? 0 : read_one(a->in[0], at);
}
FIELD_SUM(pool_max)

/* inputs: dy, x. Returns the term of tap t. Padding is zero here, so each window reads an element
 * at most once. */
DEVICE float pool_max_grad(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t all = a->h.rows * a->w.rows, row = i % all / a->w.rows, column = i % a->w.rows, o, p;
    if (!field_reader(&a->h, a->h.first + row, t / a->w.kernel, row, &o)) return 0;
    if (!field_reader(&a->w, a->w.first + column, t % a->w.kernel, column, &p)) return 0;
    int64_t output = i / all * a->points + o * a->w.n + p;
    return pool_largest(a, a->in[1], output) == i ? read_one(a->in[0], output) : 0;
}
FIELD_SUM(pool_max_grad)

/* Finds the two rows of x from which output row o is interpolated. Returns the weight of the second
 * row. */
DEVICE float resize_rows(const FieldArgs *a, const FieldAlong *x, int64_t o, int64_t row[2])
{
    int64_t at = x->start + o;
    if (a->nearest) {
        row[0] = row[1] = field_held(x, at * x->from / x->to);
        return 0;
    }
    int64_t twice = (2 * at + 1) * x->from - x->to, lo = twice / (2 * x->to);
    if (twice < 0) lo = -((-twice + 2 * x->to - 1) / (2 * x->to));
    row[0] = field_held(x, lo), row[1] = field_held(x, lo + 1);
    return (float)((double)(twice - lo * 2 * x->to) / (double)(2 * x->to));
}

DEVICE float resize_one(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t row[2], column[2], plane = i / a->points * a->h.rows * a->w.rows;
    if (!field_real(a, i)) return 0;
    float down = resize_rows(a, &a->h, i % a->points / a->w.n, row);
    float across = resize_rows(a, &a->w, i % a->w.n, column);
    float share = (t / 2 ? down : 1 - down) * (t % 2 ? across : 1 - across);
    return share * read_one(a->in[0], plane + row[t / 2] * a->w.rows + column[t % 2]);
}
FIELD_SUM(resize_one)

/* Returns the weight with which row r of x enters output row o. */
DEVICE float resize_share(const FieldArgs *a, const FieldAlong *x, int64_t o, int64_t r)
{
    int64_t row[2];
    float high = resize_rows(a, x, o, row);
    return (row[0] == r ? 1 - high : 0) + (row[1] == r ? high : 0);
}

/* Returns the first output row that may read row r of x. At most `span` output rows can. */
DEVICE int64_t resize_from(const FieldAlong *x, int64_t r)
{
    int64_t o = (2 * (x->first + r) - 1) * x->to;
    return (o >= 0 ? o / (2 * x->from) : -((-o + 2 * x->from - 1) / (2 * x->from))) - 1 - x->start;
}

#define RESIZE_SPAN(x) (2 * (x).to / (x).from + 4)

DEVICE float resize_back(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t plane = i / (a->h.rows * a->w.rows), row = i / a->w.rows % a->h.rows;
    int64_t column = i % a->w.rows, across = RESIZE_SPAN(a->w);
    int64_t o = resize_from(&a->h, row) + t / across, k = resize_from(&a->w, column) + t % across;
    if (o < 0 || o >= a->h.valid || k < 0 || k >= a->w.valid) return 0;
    float share = resize_share(a, &a->h, o, row) * resize_share(a, &a->w, k, column);
    return share == 0 ? 0 : share * read_one(a->in[0], plane * a->points + o * a->w.n + k);
}
FIELD_SUM(resize_back)

/* Returns the index in [b,N I J,h,w] of the element that pixel_shuffle moves to element i of [b,N,h
 * I,w J]. I and J are the kernels of h and w. */
DEVICE int64_t shuffle_at(const FieldArgs *a, int64_t i)
{
    int64_t width = a->w.n * a->w.kernel, height = a->h.n * a->h.kernel;
    int64_t column = i % width, row = i / width % height, plane = i / width / height;
    int64_t channel =
        (plane * a->h.kernel + row % a->h.kernel) * a->w.kernel + column % a->w.kernel;
    return (channel * a->h.n + row / a->h.kernel) * a->w.n + column / a->w.kernel;
}

DEVICE float shuffle(const FieldArgs *a, int64_t i, int64_t t)
{
    (void)t;
    return read_one(a->in[0], shuffle_at(a, i));
}
FIELD_SUM(shuffle)

/* Undoes `shuffle`. */
DEVICE float unshuffle(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t column = i % a->w.n, row = i / a->w.n % a->h.n, channel = i / a->points;
    int64_t right = channel % a->w.kernel, down = channel / a->w.kernel % a->h.kernel;
    int64_t plane = channel / a->w.kernel / a->h.kernel;
    (void)t;
    return read_one(a->in[0], ((plane * a->h.n + row) * a->h.kernel + down) * a->w.n * a->w.kernel +
                                  column * a->w.kernel + right);
}
FIELD_SUM(unshuffle)

/* Concatenates c channels of the first input and n channels of the second. */
DEVICE float put_together(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t all = (a->c + a->n) * a->points, b = i / all, at = i % all, first = a->c * a->points;
    (void)t;
    return at < first ? read_one(a->in[0], b * first + at)
                      : read_one(a->in[1], b * a->n * a->points + at - first);
}
FIELD_SUM(put_together)

/* Takes n of c channels, from channel `taps` on. */
DEVICE float take_channels(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t each = a->n * a->points;
    (void)t;
    return read_one(a->in[0], i / each * a->c * a->points + a->taps * a->points + i % each);
}
FIELD_SUM(take_channels)

/* Writes n channels into c channels, from channel `taps` on; the others become zero. (The gradient
 * of take_channels.) */
DEVICE float give_channels(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t each = a->c * a->points, b = i / each, at = i % each - a->taps * a->points;
    (void)t;
    if (at < 0 || at >= a->n * a->points) return 0;
    return read_one(a->in[0], b * a->n * a->points + at);
}
FIELD_SUM(give_channels)

/* Returns the weight of element i in the squared error. h.start, h.n and h.all describe the
 * rows. */
DEVICE float error_weight(const FieldArgs *a, int64_t i)
{
    float share = (float)(a->scale / (double)a->c);
    if (!a->latitude) return share;
    const double pi = 3.14159265358979323846, n = (double)a->h.all;
    double row = (double)(a->h.start + i / a->w.n % a->h.n), sine, end, cosine;
    device_sincos(pi * (row + 0.5) / n, &sine, &cosine);
    device_sincos(pi / (2 * n), &end, &cosine);
    return (float)(a->scale / (double)a->c * (sine * end * n));
}

DEVICE float error_slope(const FieldArgs *a, int64_t i, int64_t t)
{
    (void)t;
    if (!field_real(a, i)) return 0;
    return 2 * (read_one(a->in[0], i) - read_one(a->in[1], i)) * error_weight(a, i);
}
FIELD_SUM(error_slope)

/* Arguments of the kernel that sums the squared error. One block adds all terms in fp64, because
 * losses are compared to many digits. */
typedef struct ErrorArgs {
    FieldArgs of;
    void *loss, *count;
    double points;
    bool wide_loss, wide_count, adds_loss, adds_count;
} ErrorArgs;

DEVICE void error_put(void *at, bool wide, bool adds, double x)
{
    if (wide)
        *(double *)at = adds ? *(double *)at + x : x;
    else
        *(float *)at = adds ? *(float *)at + (float)x : (float)x;
}

KERNEL(error_sum, ErrorArgs, FIELD_THREADS, 1)
{
    SHARED(double, held);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.of.terms; i += blockDim.x) {
        double away = (double)read_one(a.of.in[0], i) - (double)read_one(a.of.in[1], i);
        if (field_real(&a.of, i)) sum += away * away * (double)error_weight(&a.of, i);
    }
    sum = block_sum_double(sum, held);
    if (threadIdx.x != 0) return;
    error_put(a.loss, a.wide_loss, a.adds_loss, sum);
    error_put(a.count, a.wide_count, a.adds_count, a.points);
}

/* ---- the ops ---- */

#define OP(name) bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)

static FieldArgs sampled(OpKind op, const KernelArgs *args)
{
    FieldArgs p = field_args(args, 0);
    field_windows(op, args, &p);
    p.terms = p.taps;
    return p;
}

OP(avg_pool2d)
{
    return pool_mean_launch(sampled(OP_avg_pool2d, args), cuda, error);
}

OP(avg_pool2d_grad)
{
    return pool_mean_grad_launch(sampled(OP_avg_pool2d_grad, args), cuda, error);
}

static FieldArgs turned(const KernelArgs *args, bool back)
{
    FieldArgs p = field_args(args, 0);
    p.h.start = args->start['h'];
    p.h.from = args->attrs.h_before, p.h.to = args->binding->size['h'] - args->attrs.h_after;
    p.w.n = p.w.valid = args->size['W'];
    p.points = p.h.n * p.w.n;
    p.nearest = back;
    return p;
}

OP(turn_poles)
{
    return turn_rows_launch(turned(args, false), cuda, error);
}

OP(turn_poles_grad)
{
    return turn_rows_launch(turned(args, true), cuda, error);
}

OP(max_pool2d)
{
    FieldArgs p = sampled(OP_max_pool2d, args);
    p.terms = 1;
    return pool_max_launch(p, cuda, error);
}

OP(max_pool2d_grad)
{
    FieldArgs p = sampled(OP_max_pool2d_grad, args);
    assert(p.h.mode == WINDOW_zero && p.w.mode == WINDOW_zero);
    return pool_max_grad_launch(p, cuda, error);
}

OP(resize)
{
    FieldArgs p = sampled(OP_resize, args);
    p.terms = 4;
    return resize_one_launch(p, cuda, error);
}

OP(resize_grad)
{
    FieldArgs p = sampled(OP_resize_grad, args);
    p.terms = RESIZE_SPAN(p.h) * RESIZE_SPAN(p.w);
    return resize_back_launch(p, cuda, error);
}

static FieldArgs shuffled(const KernelArgs *args)
{
    FieldArgs p = field_args(args, 0);
    p.h.n = args->size['h'], p.h.kernel = args->size['I'];
    p.w.n = args->size['w'], p.w.kernel = args->size['J'];
    return p;
}

OP(pixel_shuffle)
{
    return shuffle_launch(shuffled(args), cuda, error);
}

OP(pixel_unshuffle)
{
    return unshuffle_launch(shuffled(args), cuda, error);
}

static FieldArgs of_channels(const KernelArgs *args, int64_t of, int64_t n, int64_t from)
{
    FieldArgs p = field_args(args, 0);
    p.c = of, p.n = n, p.taps = from;
    return p;
}

OP(concat)
{
    return put_together_launch(of_channels(args, args->size['X'], args->size['Y'], 0), cuda, error);
}

OP(concat_first)
{
    return take_channels_launch(of_channels(args, args->size['Z'], args->size['X'], 0), cuda,
                                error);
}

OP(concat_last)
{
    int64_t n = args->size['Y'];
    return take_channels_launch(of_channels(args, args->size['Z'], n, args->size['Z'] - n), cuda,
                                error);
}

OP(channels)
{
    return take_channels_launch(
        of_channels(args, args->size['F'], args->size['X'], args->attrs.first), cuda, error);
}

OP(channels_grad)
{
    return give_channels_launch(
        of_channels(args, args->size['F'], args->size['X'], args->attrs.first), cuda, error);
}

static FieldArgs squared(const KernelArgs *args)
{
    FieldArgs p = field_args(args, 0);
    p.latitude = args->attrs.latitude != 0;
    p.h.start = args->start['h'], p.h.all = args->binding->size['h'];
    return p;
}

OP(mse_loss)
{
    ErrorArgs p;
    memset(&p, 0, sizeof p);
    p.of = squared(args);
    p.of.terms = args->elements[0];
    p.loss = args->ptr[2], p.count = args->ptr[3];
    p.wide_loss = args->dtype[2] == DT_f64, p.wide_count = args->dtype[3] == DT_f64;
    p.adds_loss = accumulates(args, 0), p.adds_count = accumulates(args, 1);
    p.points = (double)(args->size['b'] * args->valid['h'] * args->valid['w']);
    return LAUNCH(error_sum, 1, FIELD_THREADS, MAX_WARPS * sizeof(double), p, cuda, error);
}

OP(mse_loss_grad)
{
    return error_slope_launch(squared(args), cuda, error);
}
