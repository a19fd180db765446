/* Visits the elements that a rank's slice of a tensor and a stored box of the same tensor have in
 * common. It visits them in runs; a run is a sequence of elements that are contiguous in both. */
#include <assert.h>

#include "exec/checkpoint/private.h"

typedef struct BoxWalk {
    const StateSlice *slice;
    int64_t from[MAX_DIMS], n[MAX_DIMS]; /* n: size of the common part; from: where it begins,
                                            counted from the slice's first element */
    int64_t shift[MAX_DIMS];             /* where the common part begins in the stored box */
    int64_t stride[MAX_DIMS];            /* strides of the stored box */
    int n_dims;     /* number of outer dimensions, which are not part of a run */
    int64_t length; /* elements of a run, unless the end of a group ends the run
                       earlier */
    bool groups;    /* a run ends where a group of the slice ends (StateSlice.group_size) */
} BoxWalk;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Computes the common part. Returns false if it is empty. */
static bool intersect(BoxWalk *w, const int64_t *offset, const int64_t *size)
{
    const StateSlice *s = w->slice;
    int64_t stride = 1;
    for (int d = s->n_dims - 1; d >= 0; d--) {
        const int64_t lo = s->offset[d] > offset[d] ? s->offset[d] : offset[d];
        const int64_t hi = least(s->offset[d] + s->size[d], offset[d] + size[d]);
        if (lo >= hi) return false;
        w->from[d] = lo - s->offset[d];
        w->shift[d] = lo - offset[d];
        w->n[d] = hi - lo;
        w->stride[d] = stride;
        stride *= size[d];
    }
    return true;
}

/* Joins the innermost dimensions into one run, as long as each of them is contiguous both in the
 * slice and in the stored box. */
static void join(BoxWalk *w)
{
    const StateSlice *s = w->slice;
    w->n_dims = s->n_dims;
    w->length = 1;
    while (w->n_dims > 0 && !w->groups) {
        const int d = w->n_dims - 1;
        if (w->stride[d] != w->length || s->stride[d] != w->length) return;
        w->groups = s->group_size > 0 && s->group_dim == d;
        /* the run may contain several groups; visit() cuts it at their ends */
        w->length *= w->n[d];
        w->n_dims--;
    }
}

static uint64_t in_buffer(const StateSlice *s, int d, int64_t x)
{
    if (s->group_size == 0 || s->group_dim != d) return (uint64_t)(x * s->stride[d]);
    return (uint64_t)(x / s->group_size * s->group_stride + x % s->group_size * s->stride[d]);
}

/* Calls `run` for the run at these indices, one group at a time. */
static bool visit(const BoxWalk *w, uint64_t file, uint64_t buffer,
                  bool (*run)(void *self, const BoxRun *run), void *self)
{
    const StateSlice *s = w->slice;
    if (!w->groups) {
        const BoxRun one = {file, buffer, (uint64_t)w->length};
        return run(self, &one);
    }
    const int d = w->n_dims; /* the dimension with groups is the outermost one of the run */
    const int64_t inner = w->length / w->n[d];
    for (int64_t x = 0, n; x < w->n[d]; x += n) {
        const int64_t at = w->from[d] + x;
        n = least(s->group_size - at % s->group_size, w->n[d] - x);
        const BoxRun one = {file + (uint64_t)(x * inner),
                            buffer + in_buffer(s, d, at) - in_buffer(s, d, w->from[d]),
                            (uint64_t)(n * inner)};
        if (!run(self, &one)) return false;
    }
    return true;
}

bool box_runs(const StateSlice *slice, const int64_t *offset, const int64_t *size,
              bool (*run)(void *self, const BoxRun *run), void *self)
{
    BoxWalk w = {.slice = slice};
    int64_t index[MAX_DIMS] = {0};
    if (!intersect(&w, offset, size)) return true;
    join(&w);
    for (;;) {
        uint64_t file = 0, buffer = slice->first;
        for (int d = 0; d < slice->n_dims; d++) {
            const int64_t x = d < w.n_dims ? index[d] : 0;
            file += (uint64_t)((w.shift[d] + x) * w.stride[d]);
            buffer += in_buffer(slice, d, w.from[d] + x);
        }
        if (!visit(&w, file, buffer, run, self)) return false;
        int d = w.n_dims - 1;
        while (d >= 0 && ++index[d] == w.n[d]) index[d--] = 0;
        if (d < 0) return true;
    }
}
