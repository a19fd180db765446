/* Common code of the simple kernels for fields [b,c,h,w]. Each output element is a sum of terms,
 * and the including file defines the terms. One thread adds few terms in order; a whole block adds
 * many terms. Each element is written by one thread only, so no sum depends on the order of
 * threads. */
#ifndef TANDEM_KERNELS_CUDA_FIELD_CUH
#define TANDEM_KERNELS_CUDA_FIELD_CUH

#ifdef __CUDACC__
extern "C" {
#endif
#include "kernels/strips.h"
#ifdef __CUDACC__
}
#endif

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/latitude.h"

enum { FIELD_THREADS = 256, FIELD_INPUTS = 5, FIELD_FEW = 4096 };

/* The sizes of x and y along one dimension (h or w). This rank has n rows of y from global row
 * `start` on, of which `valid` are real and the rest is padding. It has `rows` rows of x from
 * global row `first` on, of which `held` are real. The whole dimension of x has `all` rows. */
typedef struct FieldAlong {
    int64_t kernel, stride, dilation, before, from, to;
    int64_t n, valid, start, rows, held, first, all;
    int32_t mode;
} FieldAlong;

typedef struct FieldArgs {
    Array in[FIELD_INPUTS], out;
    FieldAlong h, w;
    int64_t outputs, terms;
    int64_t batch, groups, c, n; /* channels of x and of y; channels in one group */
    int64_t points, taps;        /* points of a plane of y; taps of a window */
    HeldRows held;
    /* The rows of y to compute: n_first rows from row first[0] on, and the remaining ones of n_rows
     * from row first[1] on. */
    int64_t first[2], n_first, n_rows;
    OutputPoints chosen; /* the points to compute in those rows */
    double all;          /* number of elements of a group on all ranks together */
    double scale, eps;
    bool adds, nearest, latitude;
    bool some; /* true: outputs are numbered only over the rows to compute; false: over all of y */
} FieldArgs;

static inline FieldAlong field_along(OpKind op, const KernelArgs *args, char letter)
{
    const int outer = letter, rows = window_reach(letter);
    const Window w = op_window(op, args->binding, &args->attrs, letter);
    FieldAlong x;
    x.kernel = w.kernel, x.stride = w.stride, x.dilation = w.dilation, x.before = w.before;
    x.from = w.from, x.to = w.to, x.mode = (int32_t)w.mode;
    x.n = args->size[outer], x.valid = args->valid[outer], x.start = args->start[outer];
    x.rows = args->size[rows], x.held = args->valid[rows], x.first = args->start[rows],
    x.all = args->binding->size[rows];
    return x;
}

static inline FieldArgs field_args(const KernelArgs *args, uint32_t j)
{
    FieldArgs p;
    memset(&p, 0, sizeof p);
    for (uint32_t i = 0; i < args->n_in && i < FIELD_INPUTS; i++) p.in[i] = array_of(args, i, 1);
    p.out = array_of(args, args->n_in + j, 1);
    p.outputs = args->elements[args->n_in + j];
    p.terms = 1;
    p.batch = args->size['b'];
    p.groups = args->size['g'] ? args->size['g'] : 1;
    p.c = args->size[args->size['C'] ? 'C' : 'c'];
    p.n = args->size['n'];
    p.points = args->size['h'] * args->size['w'];
    p.h.n = args->size['h'], p.h.valid = args->valid['h'];
    p.w.n = args->size['w'], p.w.valid = args->valid['w'];
    p.scale = args->attrs.scale, p.eps = args->attrs.eps;
    p.adds = accumulates(args, j);
    return p;
}

static inline void field_windows(OpKind op, const KernelArgs *args, FieldArgs *p)
{
    p->h = field_along(op, args, 'h');
    p->w = field_along(op, args, 'w');
    p->taps = p->h.kernel * p->w.kernel;
    p->held = strips_held_rows(args);
    p->chosen = strips_output(op, args);
    const Interval *first = &p->chosen.at[0].h, *second = &p->chosen.at[1].h;
    p->first[0] = first->lo, p->first[1] = second->lo;
    p->n_first = first->hi - first->lo;
    p->n_rows = p->n_first + second->hi - second->lo;
    if (op_of_rows(op) != OP_none && args->attrs.parts != ROWS_all) /* the op computes only some of
                                                                       the rows */
        p->first[0] = 0, p->n_first = p->n_rows = p->h.n;
    p->nearest = args->attrs.nearest != 0;
}

/* Returns true if element i of [..,h,w] is a point of the field. On the last rank, a field may be
 * shorter than its buffer; the rest of the buffer is padding, which no sum may include. */
DEVICE bool field_real(const FieldArgs *a, int64_t i)
{
    return i % a->points / a->w.n < a->h.valid && i % a->w.n < a->w.valid;
}

/* Returns the local index of the row of x whose global index is r. Returns -1 if that row is zero
 * padding. */
DEVICE int64_t field_held(const FieldAlong *x, int64_t r)
{
    if (r < x->first || r >= x->first + x->held) {
        if (x->mode == WINDOW_periodic)
            r = (r % x->all + x->all) % x->all;
        else if (x->mode == WINDOW_reflect)
            r = r < 0 ? -r : 2 * (x->all - 1) - r;
        else if (x->mode == WINDOW_symmetric)
            r = r < 0 ? -1 - r : 2 * x->all - 1 - r;
        else if (x->mode == WINDOW_edge)
            r = r < 0 ? 0 : x->all - 1;
        else
            return -1;
    }
    return r - x->first;
}

DEVICE int64_t field_row(const FieldAlong *x, int64_t o, int64_t i)
{
    if (o >= x->valid) return -1;
    return field_held(x, (x->start + o) * x->stride - x->before + i * x->dilation);
}

/* Returns the index, in a plane of x, of the element that tap t of output point p reads. Returns -1
 * if that is padding. */
DEVICE int64_t field_tap(const FieldArgs *a, int64_t p, int64_t t)
{
    int64_t row = field_row(&a->h, p / a->w.n, t / a->w.kernel);
    int64_t column = field_row(&a->w, p % a->w.n, t % a->w.kernel);
    return row < 0 || column < 0 ? -1 : row * a->w.rows + column;
}

/* Returns the index, in a plane of y, of the p-th point to compute. */
DEVICE int64_t field_point(const FieldArgs *a, int64_t p)
{
    int64_t row = p / a->w.n;
    row = row < a->n_first ? a->first[0] + row : a->first[1] + row - a->n_first;
    return row * a->w.n + p % a->w.n;
}

DEVICE bool field_computes(const FieldArgs *a, int64_t p)
{
    int64_t row = p / a->w.n, column = p % a->w.n;
    for (int k = 0; k < MOST_REGIONS; k++) {
        const Region *r = &a->chosen.at[k];
        if (row >= r->h.lo && row < r->h.hi && column >= r->w.lo && column < r->w.hi) return true;
    }
    return false;
}

/* Returns the index in y of the i-th output. */
DEVICE int64_t field_place(const FieldArgs *a, int64_t i)
{
    int64_t here = a->n_rows * a->w.n;
    return a->some ? i / here * a->points + field_point(a, i % here) : i;
}

/* Reads element `at` of plane `plane` of x. The rows before and after the rank's own rows come from
 * its neighbours. They may lie in two strips: first strip 0 of all planes, then strip 1 of all
 * planes. */
DEVICE float field_read(const FieldArgs *a, int64_t plane, int64_t at)
{
    int64_t row = at / a->w.rows - a->held.before, column = at % a->w.rows;
    if (row >= 0 && row < a->held.own)
        return read_one(a->in[0], (plane * a->held.room + row) * a->w.rows + column);
    int64_t line = row < 0 ? row + a->held.before : row - a->held.own;
    if (row >= 0) plane += a->batch * a->groups * a->c;
    return read_one(a->in[2], (plane * a->held.strip + line) * a->w.rows + column);
}

/* Finds the output row *o whose tap i reads row v of the field, where this rank holds row v as its
 * local row r. (v may lie beyond an end of the field.) Returns false if there is no such output
 * row. */
DEVICE bool field_reader(const FieldAlong *x, int64_t v, int64_t i, int64_t r, int64_t *o)
{
    int64_t at = v + x->before - i * x->dilation;
    if (at < 0 || at % x->stride != 0) return false;
    *o = at / x->stride - x->start;
    return *o >= 0 && *o < x->n && field_row(x, *o, i) == r;
}

/* Finds image k of row r. Image 0 is the row itself; the other images are the rows beyond the two
 * ends of the field that have the same values as row r. Returns false if there is no image k. */
DEVICE bool field_image(const FieldAlong *x, int64_t r, int k, int64_t *v)
{
    int64_t last = x->all - 1;
    *v = x->first + r;
    if (k == 0) return true;
    if (x->mode == WINDOW_periodic) {
        *v += k == 1 ? x->all : -x->all;
        return true;
    }
    if (x->mode == WINDOW_symmetric) {
        *v = k == 1 ? -1 - *v : 2 * last + 1 - *v;
        return true;
    }
    if (x->mode != WINDOW_reflect || *v == (k == 1 ? 0 : last)) return false;
    *v = k == 1 ? -*v : 2 * last - *v;
    return true;
}

/* Returns the sum over those points of a plane of y whose tap `tap` reads element `at` of a plane
 * of x. */
DEVICE float field_back(const FieldArgs *a, const Array y, int64_t of_y, int64_t at, int64_t tap)
{
    int64_t row = at / a->w.rows, column = at % a->w.rows, v, o, p;
    float sum = 0;
    for (int k = 0; k < 3; k++) {
        if (!field_image(&a->h, row, k, &v)) continue;
        if (!field_reader(&a->h, v, tap / a->w.kernel, row, &o)) continue;
        for (int m = 0; m < 3; m++)
            if (field_image(&a->w, column, m, &v) &&
                field_reader(&a->w, v, tap % a->w.kernel, column, &p))
                sum += read_one(y, of_y + o * a->w.n + p);
    }
    return sum;
}

DEVICE void field_put(const FieldArgs *a, int64_t i, float x)
{
    i = field_place(a, i);
    if (a->adds) x += read_one(a->out, i);
    write_one(a->out, i, x);
}

/* Defines two kernels and their launch from a function `float name(const FieldArgs *a, int64_t
 * output, int64_t term)`. In name_few, each thread computes an output; in name_many, each block
 * does. */
#define FIELD_SUM(name)                                                                            \
    KERNEL(name##_few, FieldArgs, FIELD_THREADS, 1)                                                \
    {                                                                                              \
        int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;                                \
        float sum = 0;                                                                             \
        if (i >= a.outputs) return;                                                                \
        for (int64_t t = 0; t < a.terms; t++) sum += name(&a, i, t);                               \
        field_put(&a, i, sum);                                                                     \
    }                                                                                              \
    KERNEL(name##_many, FieldArgs, FIELD_THREADS, 1)                                               \
    {                                                                                              \
        SHARED(float, held);                                                                       \
        float sum = 0;                                                                             \
        for (int64_t t = threadIdx.x; t < a.terms; t += blockDim.x)                                \
            sum += name(&a, blockIdx.x, t);                                                        \
        sum = block_sum(sum, held);                                                                \
        if (threadIdx.x == 0) field_put(&a, blockIdx.x, sum);                                      \
    }                                                                                              \
    static bool name##_launch(FieldArgs p, const CudaContext *cuda, CudaError *error)              \
    {                                                                                              \
        if (p.outputs >= FIELD_FEW || p.terms <= FIELD_THREADS / 4)                                \
            return LAUNCH(name##_few, ceil_div(p.outputs, FIELD_THREADS), FIELD_THREADS, 0, p,     \
                          cuda, error);                                                            \
        return LAUNCH(name##_many, p.outputs, FIELD_THREADS, MAX_WARPS * sizeof(float), p, cuda,   \
                      error);                                                                      \
    }

#endif
