/* Attention with values of another size than the keys, with a window, a cap, sinks or a table of
 * biases. kernels/cpu/attention_kinds.c defines these ops. A warp computes one query, one key (for
 * the gradients of keys and values), or one number of the table. Each of its lanes computes one of
 * 32 scores at a time. Sums are in fp32 and have a fixed order. */
#include "kernels/buckets.h"
#include "kernels/cuda/attention/row.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { KINDS_WARPS = 4, KINDS_THREADS = KINDS_WARPS * WARP };

typedef struct KindsArgs {
    Array q, k, v, more, out, dout, dq, dk, dv, dmore; /* more: the sinks, or the table of biases */
    const float *lse;
    float *to_lse;
    int64_t B, S, T, G, R, E, V, N;
    /* position: the position of query 0. From local query `half` on, positions are larger by
     * `jump`, because a rank's queries may be two separate chunks of the sequence. */
    int64_t position, half, jump;
    int64_t window;
    float scale, cap;
    uint32_t causal, accumulate, sinks, tables;
    Buckets buckets;
} KindsArgs;

/* One query. The members have the same meaning as in Query of kernels/cpu/attention_kinds.c. */
typedef struct KindsQuery {
    int64_t row, key, head, position, from, end;
} KindsQuery;

DEVICE int64_t kinds_position(const KindsArgs *a, int64_t s)
{
    return a->position + s + (s < a->half ? 0 : a->jump);
}

DEVICE KindsQuery kinds_query(const KindsArgs *a, int64_t i)
{
    KindsQuery y;
    int64_t heads = a->G * a->R, b = i / (a->S * heads);
    y.row = i;
    y.head = i % heads;
    y.key = b * a->T * a->G + y.head / a->R;
    y.position = kinds_position(a, i / heads % a->S);
    y.end = a->causal && y.position + 1 < a->T ? y.position + 1 : a->T;
    y.from = a->window && y.position + 1 > a->window ? y.position + 1 - a->window : 0;
    return y;
}

DEVICE int64_t kinds_bucket(const KindsArgs *a, const KindsQuery *y, int64_t key)
{
    int64_t distance = key - y->position;
    int i = 0;
    const int behind = a->buckets.both && distance > 0 ? a->buckets.n : 0;
    if (distance < 0)
        distance = -distance;
    else if (!a->buckets.both)
        distance = 0;
    while (i + 1 < a->buckets.n && a->buckets.first[i + 1] <= distance) i++;
    return (behind + i) * a->G * a->R + y->head;
}

DEVICE float kinds_score(const KindsArgs *a, const KindsQuery *y, int64_t key, float *slope)
{
    float s = a->scale * row_dot(a->q, y->row * a->E, a->k, (y->key + key * a->G) * a->E, a->E);
    *slope = 1;
    if (a->cap > 0) {
        float t = tanhf(s / a->cap);
        *slope = 1 - t * t;
        s = a->cap * t;
    }
    return a->tables ? s + read_one(a->more, kinds_bucket(a, y, key)) : s;
}

/* For one query and one key: the probability P, the gradient of the score, and the gradient of the
 * product q k. */
typedef struct KindsGrad {
    float p, ds, dx;
} KindsGrad;

DEVICE KindsGrad kinds_grad(const KindsArgs *a, const KindsQuery *y, int64_t key, float delta)
{
    KindsGrad g;
    float slope;
    g.p = device_exp(kinds_score(a, y, key, &slope) - a->lse[y->row]);
    g.ds =
        g.p * (row_dot(a->dout, y->row * a->V, a->v, (y->key + key * a->G) * a->V, a->V) - delta);
    g.dx = a->scale * slope * g.ds;
    return g;
}

DEVICE float kinds_delta(const KindsArgs *a, int64_t row)
{
    return row_dot(a->dout, row * a->V, a->out, row * a->V, a->V);
}

/* ---- kernels ---- */

KERNEL(attention_kinds_forward, KindsArgs, KINDS_THREADS, 4)
{
    SHARED(float, shared);
    const int64_t i = (int64_t)blockIdx.x * KINDS_WARPS + threadIdx.x / WARP, V = a.V;
    float *const sum = shared + threadIdx.x / WARP * V, slope;
    if (i >= a.B * a.S * a.G * a.R) return;
    const KindsQuery y = kinds_query(&a, i);
    float top = a.sinks ? read_one(a.more, y.head) : -INFINITY, total = a.sinks ? 1 : 0;
    row_scale(sum, 0, V);
    for (int64_t first = y.from; first < y.end; first += WARP) {
        int64_t key = first + threadIdx.x % WARP;
        float s = key < y.end ? kinds_score(&a, &y, key, &slope) : -INFINITY;
        float new_top = warp_max(s), shrink;
        new_top = new_top > top ? new_top : top;
        shrink = top == -INFINITY ? 0 : device_exp(top - new_top);
        float w = key < y.end ? device_exp(s - new_top) : 0;
        total = fmaf(total, shrink, warp_sum(w));
        top = new_top;
        row_scale(sum, shrink, V);
        row_add(sum, w, a.v, (y.key + first * a.G) * V, a.G * V, y.end - first, V);
    }
    row_write(a.out, i * V, sum, total > 0 ? 1 / total : 0, V, false);
    if (threadIdx.x % WARP == 0) a.to_lse[i] = top + logf(total);
}

KERNEL(attention_kinds_dq, KindsArgs, KINDS_THREADS, 4)
{
    SHARED(float, shared);
    const int64_t i = (int64_t)blockIdx.x * KINDS_WARPS + threadIdx.x / WARP, E = a.E;
    float *const sum = shared + threadIdx.x / WARP * E;
    if (i >= a.B * a.S * a.G * a.R) return;
    const KindsQuery y = kinds_query(&a, i);
    const float delta = kinds_delta(&a, i);
    row_scale(sum, 0, E);
    for (int64_t first = y.from; first < y.end; first += WARP) {
        int64_t key = first + threadIdx.x % WARP;
        float w = key < y.end ? kinds_grad(&a, &y, key, delta).dx : 0;
        row_add(sum, w, a.k, (y.key + first * a.G) * E, a.G * E, y.end - first, E);
    }
    row_write(a.dq, i * E, sum, 1, E, (a.accumulate & 1) != 0);
}

/* One warp for each key of a group. The warp goes through all queries and skips those that do not
 * see the key. */
KERNEL(attention_kinds_dkv, KindsArgs, KINDS_THREADS, 4)
{
    SHARED(float, shared);
    const int64_t i = (int64_t)blockIdx.x * KINDS_WARPS + threadIdx.x / WARP, E = a.E, V = a.V;
    float *const dk = shared + threadIdx.x / WARP * (E + V), *const dv = dk + E;
    if (i >= a.B * a.T * a.G) return;
    const int64_t g = i % a.G, key = i / a.G % a.T, b = i / (a.G * a.T), heads = a.G * a.R;
    row_scale(dk, 0, E + V);
    for (int64_t r = 0; r < a.R; r++)
        for (int64_t first = 0; first < a.S; first += WARP) {
            const int64_t query = first + threadIdx.x % WARP;
            const int64_t row = (b * a.S + first) * heads + g * a.R + r;
            KindsGrad x;
            x.p = x.ds = x.dx = 0;
            if (query < a.S) {
                const KindsQuery y = kinds_query(&a, row + threadIdx.x % WARP * heads);
                if (key >= y.from && key < y.end)
                    x = kinds_grad(&a, &y, key, kinds_delta(&a, y.row));
            }
            row_add(dv, x.p, a.dout, row * V, heads * V, a.S - first, V);
            row_add(dk, x.dx, a.q, row * E, heads * E, a.S - first, E);
        }
    row_write(a.dk, i * E, dk, 1, E, (a.accumulate & 2) != 0);
    row_write(a.dv, i * V, dv, 1, V, (a.accumulate & 4) != 0);
}

/* One warp for each number of the table, in the order [bucket, head]. */
KERNEL(attention_kinds_dtable, KindsArgs, KINDS_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * KINDS_WARPS + threadIdx.x / WARP, heads = a.G * a.R;
    if (i >= a.N * heads) return;
    float sum = 0;
    for (int64_t row = i % heads; row < a.B * a.S * heads; row += heads) {
        const KindsQuery y = kinds_query(&a, row);
        const float delta = kinds_delta(&a, row);
        for (int64_t key = y.from + threadIdx.x % WARP; key < y.end; key += WARP)
            if (kinds_bucket(&a, &y, key) == i) sum += kinds_grad(&a, &y, key, delta).ds;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        write_one(a.dmore, i, (a.accumulate & 8) != 0 ? read_one(a.dmore, i) + sum : sum);
}

/* One warp for each head. */
KERNEL(sink_grad_heads, KindsArgs, KINDS_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * KINDS_WARPS + threadIdx.x / WARP, heads = a.G * a.R;
    if (i >= heads) return;
    float sum = 0;
    for (int64_t at = threadIdx.x % WARP; at < a.B * a.S; at += WARP) {
        const int64_t row = at * heads + i;
        sum -= device_exp(read_one(a.more, i) - a.lse[row]) * kinds_delta(&a, row);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        write_one(a.dmore, i, (a.accumulate & 1) != 0 ? read_one(a.dmore, i) + sum : sum);
}

/* ---- launches ---- */

static KindsArgs kinds_args(const KernelArgs *args)
{
    KindsArgs a;
    memset(&a, 0, sizeof a);
    a.B = args->size['b'], a.S = args->size['s'], a.T = args->size['T'];
    a.G = args->size['g'], a.R = args->size['r'], a.E = args->size['E'], a.V = args->size['V'];
    a.N = args->size['N'];
    a.position = args->start['s'];
    a.half = a.S / 2;
    a.jump = args->second['s'] - args->start['s'] - a.half;
    a.window = args->attrs.window;
    a.scale = (float)args->attrs.scale, a.cap = (float)args->attrs.cap;
    a.causal = args->attrs.causal != 0;
    a.accumulate = (uint32_t)args->attrs.accumulate;
    return a;
}

static int64_t kinds_blocks(int64_t warps)
{
    return ceil_div(warps, KINDS_WARPS);
}

/* Computes out and lse from q, k, v and, if `more` is true, from the sinks or the table (argument
 * 3). */
static bool kinds_forward(const KernelArgs *args, KindsArgs a, bool more, const CudaContext *cuda,
                          CudaError *error)
{
    const uint32_t out = more ? 4 : 3;
    a.q = array_of(args, 0, a.E), a.k = array_of(args, 1, a.E), a.v = array_of(args, 2, a.V);
    if (more) a.more = array_of(args, 3, 1);
    a.out = array_of(args, out, a.V);
    a.to_lse = (float *)args->ptr[out + 1];
    assert(args->dtype[out + 1] == DT_f32);
    return LAUNCH(attention_kinds_forward, kinds_blocks(a.B * a.S * a.G * a.R), KINDS_THREADS,
                  (size_t)(KINDS_WARPS * a.V) * sizeof(float), a, cuda, error);
}

bool cuda_attention_wide(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return kinds_forward(args, kinds_args(args), false, cuda, error);
}

bool cuda_attention_sink(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    KindsArgs a = kinds_args(args);
    a.sinks = 1;
    return kinds_forward(args, a, true, cuda, error);
}

static void set_table(const KernelArgs *args, KindsArgs *a)
{
    a->tables = 1;
    a->buckets = buckets_of(a->N, args->attrs.distance, (int)a->causal);
}

bool cuda_attention_table(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    KindsArgs a = kinds_args(args);
    set_table(args, &a);
    return kinds_forward(args, a, true, cuda, error);
}

/* Computes dq, dk, dv (and dtable) from dout, q, k, v, (table,) out and lse. */
static bool kinds_backward(const KernelArgs *args, KindsArgs a, const CudaContext *cuda,
                           CudaError *error)
{
    const uint32_t out = a.tables ? 5 : 4;
    const size_t E = (size_t)(KINDS_WARPS * a.E) * sizeof(float);
    const size_t V = (size_t)(KINDS_WARPS * a.V) * sizeof(float);
    a.dout = array_of(args, 0, a.V), a.q = array_of(args, 1, a.E), a.k = array_of(args, 2, a.E);
    a.v = array_of(args, 3, a.V), a.out = array_of(args, out, a.V);
    a.lse = (const float *)args->ptr[out + 1];
    assert(args->dtype[out + 1] == DT_f32);
    a.dq = array_of(args, out + 2, a.E), a.dk = array_of(args, out + 3, a.E);
    a.dv = array_of(args, out + 4, a.V);
    if (a.tables) a.more = array_of(args, 4, 1), a.dmore = array_of(args, out + 5, 1);
    return LAUNCH(attention_kinds_dq, kinds_blocks(a.B * a.S * a.G * a.R), KINDS_THREADS, E, a,
                  cuda, error) &&
           LAUNCH(attention_kinds_dkv, kinds_blocks(a.B * a.T * a.G), KINDS_THREADS, E + V, a, cuda,
                  error) &&
           (!a.tables || LAUNCH(attention_kinds_dtable, kinds_blocks(a.N * a.G * a.R),
                                KINDS_THREADS, 0, a, cuda, error));
}

bool cuda_attention_wide_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return kinds_backward(args, kinds_args(args), cuda, error);
}

bool cuda_attention_table_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    KindsArgs a = kinds_args(args);
    set_table(args, &a);
    return kinds_backward(args, a, cuda, error);
}

/* Computes dsink from dout, out, lse and sink. */
bool cuda_sink_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    KindsArgs a = kinds_args(args);
    a.dout = array_of(args, 0, a.V), a.out = array_of(args, 1, a.V);
    a.lse = (const float *)args->ptr[2];
    assert(args->dtype[2] == DT_f32);
    a.more = array_of(args, 3, 1), a.dmore = array_of(args, 4, 1);
    return LAUNCH(sink_grad_heads, kinds_blocks(a.G * a.R), KINDS_THREADS, 0, a, cuda, error);
}
