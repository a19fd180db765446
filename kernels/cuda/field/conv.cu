/* Convolutions and their gradients. An output number of the forward pass is a sum over the taps of
 * a window. In the input's gradient, it is a sum over the output points whose windows read an input
 * point. In the weight's gradient, it is a sum over all points. */
#include "kernels/cuda/field/field.cuh"

/* Output element [b,(g n),h,w] of a convolution is a sum over taps [c,I,J]. Returns the term of tap
 * t: an element of x [b,(g c),H,W] times an element of weight [g,n,c,I,J]. */
DEVICE float conv(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t y = field_place(a, i), p = y % a->points, plane = y / a->points;
    int64_t g = plane / a->n % a->groups;
    int64_t at = field_tap(a, p, t % a->taps), b = plane / a->n / a->groups;
    if (at < 0 || !field_computes(a, p)) return 0;
    return field_read(a, (b * a->groups + g) * a->c + t / a->taps, at) *
           read_one(a->in[1], plane % (a->groups * a->n) * a->terms + t);
}
FIELD_SUM(conv)

/* The gradient of element [b,(g c),H,W] of x is a sum over [n,I,J]. Returns term t: the sum over
 * the points of y [b,(g n),h,w] whose tap reads that element. */
DEVICE float conv_back(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t plane = i / (a->h.rows * a->w.rows), at = i % (a->h.rows * a->w.rows);
    int64_t c = plane % a->c, g = plane / a->c % a->groups, b = plane / a->c / a->groups;
    int64_t tap = t % a->taps, n = t / a->taps;
    float y = field_back(a, a->in[0], ((b * a->groups + g) * a->n + n) * a->points, at, tap);
    return y * read_one(a->in[1], ((g * a->n + n) * a->c + c) * a->taps + tap);
}
FIELD_SUM(conv_back)

/* The gradient of weight [g,n,c,I,J] is a sum over the points of all samples. Returns the term of
 * point t. */
DEVICE float conv_weight(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t tap = i % a->taps, c = i / a->taps % a->c, n = i / a->taps / a->c % a->n;
    int64_t g = i / a->taps / a->c / a->n, here = a->n_rows * a->w.n;
    int64_t p = field_point(a, t % here), b = t / here;
    int64_t at = field_tap(a, p, tap);
    if (at < 0 || !field_computes(a, p)) return 0;
    return field_read(a, (b * a->groups + g) * a->c + c, at) *
           read_one(a->in[1], ((b * a->groups + g) * a->n + n) * a->points + p);
}
FIELD_SUM(conv_weight)

static bool forward(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FieldArgs p = field_args(args, 0);
    field_windows(op, args, &p);
    p.terms = p.c * p.taps;
    p.some =
        p.adds && op_of_rows(op) != OP_none; /* if this is false, all rows are written, and the rows
                                                that this op does not compute become zero */
    if (p.some) p.outputs = p.batch * p.groups * p.n * p.n_rows * p.w.n;
    return p.outputs == 0 || conv_launch(p, cuda, error);
}

static bool transposed(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FieldArgs p = field_args(args, 0);
    field_windows(op, args, &p);
    p.terms = p.n * p.taps;
    return conv_back_launch(p, cuda, error);
}

static bool of_weight(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    FieldArgs p = field_args(args, 0);
    field_windows(op, args, &p);
    p.terms = p.batch * p.n_rows * p.w.n;
    return conv_weight_launch(p, cuda, error);
}

#define CONV(op, how)                                                                              \
    bool cuda_##op(const KernelArgs *args, const CudaContext *cuda, CudaError *error)              \
    {                                                                                              \
        return how(OP_##op, args, cuda, error);                                                    \
    }
CONV(conv2d, forward)
CONV(conv2d_groups, forward)
CONV(conv_transpose2d, transposed)
CONV(conv_transpose2d_groups, transposed)
CONV(conv2d_weight, of_weight)
CONV(conv2d_groups_weight, of_weight)
CONV(conv2d_inner, forward)
CONV(conv2d_border, forward)
CONV(conv2d_groups_inner, forward)
CONV(conv2d_groups_border, forward)
CONV(conv2d_weight_inner, of_weight)
CONV(conv2d_weight_border, of_weight)
CONV(conv2d_groups_weight_inner, of_weight)
CONV(conv2d_groups_weight_border, of_weight)
