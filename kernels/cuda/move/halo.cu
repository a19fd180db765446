/* Halos of a split dimension: makes the strips that are sent to neighbours, and puts received
 * strips into place. An output element is the sum of at most three input elements; most output
 * elements are copies of one. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { HALO_THREADS = 256, HALO_BLOCKS_PER_SM = 8, HALO_SOURCES = 3 };

/* One term of the output. Rows `to` to to + n - 1 of the output get the rows of buffer x that begin
 * at `from`. x has `rows` rows. */
typedef struct HaloSource {
    Array x;
    int64_t offset; /* number of elements before the first row; not 0 for the second strip */
    int64_t rows, from, to, n;
    int64_t strip; /* which strip of the output is written, 0 or 1; -1: the output is not made of
                      strips */
} HaloSource;

typedef struct HaloArgs {
    HaloSource source[HALO_SOURCES];
    Array out;
    int64_t outer, rows, inner, n; /* sizes of the output; n: number of all its elements */
} HaloArgs;

DEVICE float halo_element(const HaloArgs *a, int64_t t)
{
    int64_t line = split_row(t, a->inner, a->n), column = t - line * a->inner;
    int64_t block = split_row(line, a->rows, a->n), row = line - block * a->rows;
    int64_t strip = split_row(block, a->outer, a->n), outer = block - strip * a->outer;
    float sum = 0;
    for (int k = 0; k < HALO_SOURCES; k++) {
        const HaloSource *s = &a->source[k];
        int64_t at = row - s->to;
        if (at < 0 || at >= s->n || (s->strip >= 0 && s->strip != strip)) continue;
        sum += read_one(s->x, s->offset + (outer * s->rows + s->from + at) * a->inner + column);
    }
    return sum;
}

KERNEL(halo_elements, HaloArgs, HALO_THREADS, HALO_BLOCKS_PER_SM / 2)
{
    int64_t step = (int64_t)gridDim.x * HALO_THREADS;
    for (int64_t t = (int64_t)blockIdx.x * HALO_THREADS + threadIdx.x; t < a.n; t += step)
        write_one(a.out, t, halo_element(&a, t));
}

static int64_t length(Interval at)
{
    return at.hi - at.lo;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static HaloSource strip_source(const KernelArgs *args, int which)
{
    HaloSource s;
    memset(&s, 0, sizeof s);
    s.x = array_of(args, 1, args->inner);
    s.offset = which * args->outer * args->halo.strip * args->inner;
    s.rows = args->halo.strip;
    s.strip = -1;
    return s;
}

static HaloSource whole_source(const KernelArgs *args, int64_t rows)
{
    HaloSource s;
    memset(&s, 0, sizeof s);
    s.x = array_of(args, 0, args->inner);
    s.rows = rows;
    s.strip = -1;
    return s;
}

static bool halo_launch(const KernelArgs *args, HaloArgs *p, uint32_t out, int64_t rows,
                        const CudaContext *cuda, CudaError *error)
{
    p->out = array_of(args, out, args->inner);
    p->outer = args->outer, p->rows = rows, p->inner = args->inner;
    p->n = args->elements[out];
    if (p->n == 0) return true;
    int64_t blocks = blocks_for(p->n, HALO_THREADS, (int64_t)cuda->n_sms * HALO_BLOCKS_PER_SM);
    return LAUNCH(halo_elements, blocks, HALO_THREADS, 0, *p, cuda, error);
}

bool cuda_halo_pack(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const Halo *h = &args->halo;
    HaloArgs p;
    memset(&p, 0, sizeof p);
    p.source[0] = p.source[1] = whole_source(args, args->middle);
    p.source[0].from = length(h->own) - h->to_next, p.source[0].n = h->to_next;
    p.source[0].strip = 0;
    p.source[1].n = h->to_previous;
    p.source[1].strip = 1;
    return halo_launch(args, &p, 1, h->strip, cuda, error);
}

bool cuda_halo_cut(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const Halo *h = &args->halo;
    const int64_t held = length(h->held), after = least(h->after, held);
    HaloArgs p;
    memset(&p, 0, sizeof p);
    p.source[0] = p.source[1] = whole_source(args, args->part_size);
    p.source[0].from = held - after, p.source[0].to = h->after - after, p.source[0].n = after;
    p.source[0].strip = 0;
    p.source[1].n = least(h->before, held);
    p.source[1].strip = 1;
    return halo_launch(args, &p, 1, h->strip, cuda, error);
}

/* Returns the rows that a rank both owns and holds. */
static Interval common(const Halo *h)
{
    Interval at;
    at.lo = h->own.lo > h->held.lo ? h->own.lo : h->held.lo;
    at.hi = least(h->own.hi, h->held.hi);
    if (at.hi < at.lo) at.hi = at.lo;
    return at;
}

bool cuda_halo_join(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const Halo *h = &args->halo;
    const Interval both = common(h);
    const int64_t held = length(h->held), after = least(h->after, held);
    HaloArgs p;
    memset(&p, 0, sizeof p);
    p.source[0] = whole_source(args, args->middle);
    p.source[0].from = both.lo - h->own.lo, p.source[0].to = both.lo - h->held.lo;
    p.source[0].n = length(both);
    p.source[1] = strip_source(args, 0), p.source[1].n = least(h->before, held);
    p.source[2] = strip_source(args, 1), p.source[2].n = after;
    p.source[2].from = h->after - after, p.source[2].to = held - after;
    return halo_launch(args, &p, 2, args->part_size, cuda, error);
}

bool cuda_halo_fold(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const Halo *h = &args->halo;
    const Interval both = common(h);
    HaloArgs p;
    memset(&p, 0, sizeof p);
    p.source[0] = whole_source(args, args->part_size);
    p.source[0].from = both.lo - h->held.lo, p.source[0].to = both.lo - h->own.lo;
    p.source[0].n = length(both);
    p.source[1] = strip_source(args, 0), p.source[1].n = h->to_previous;
    p.source[2] = strip_source(args, 1), p.source[2].n = h->to_next;
    p.source[2].to = length(h->own) - h->to_next;
    return halo_launch(args, &p, 2, args->middle, cuda, error);
}
