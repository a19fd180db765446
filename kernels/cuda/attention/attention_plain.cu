/* Attention and its gradient in fp32, for dtypes and sizes that the kernels with tiles of 16-bit
 * numbers cannot compute. A warp computes one query or, for the gradients of keys and values, one
 * key. Each of its lanes computes one of 32 scores at a time. Each warp keeps sums of E numbers in
 * shared memory. */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/row.cuh"

enum { PLAIN_WARPS = 4, PLAIN_THREADS = PLAIN_WARPS * WARP };

typedef struct PlainArgs {
    AttentionArgs at;
    Array q, k, v, out, dout, dq, dk, dv;
} PlainArgs;

/* ---- one score ---- */

/* These two functions return the index of the row of a tensor that belongs to a query and its head,
 * or to a key and its group. */
DEVICE int64_t plain_query(const AttentionArgs *a, const AttentionPlace *p, int64_t query,
                           int64_t r)
{
    return ((p->b * a->S + query) * a->G + p->g) * a->R + r;
}

DEVICE int64_t plain_key(const AttentionArgs *a, const AttentionPlace *p, int64_t key)
{
    return (p->b * a->T + key) * a->G + p->g;
}

/* Returns 1 / (1 - drop) if dropout keeps the score, and 0 if not. Returns 1 if there is no
 * dropout. */
DEVICE float plain_mask(const AttentionArgs *a, const CudaDrawKey *draw, const AttentionPlace *p,
                        int64_t query, int64_t r, int64_t key)
{
    if (!a->drops) return 1;
    AttentionPlace of_head = *p;
    of_head.r = r;
    return attention_keeps(a, draw, &of_head, query, key) ? a->grow : 0;
}

/* For one query and one key: the probability P, P after dropout (pm), and the gradient of the score
 * (ds). */
typedef struct PlainScore {
    float p, pm, ds;
} PlainScore;

DEVICE PlainScore plain_score(const PlainArgs *x, const CudaDrawKey *draw, const AttentionPlace *p,
                              int64_t query, int64_t r, int64_t key)
{
    const AttentionArgs *a = &x->at;
    int64_t row = plain_query(a, p, query, r), of_key = plain_key(a, p, key) * a->E;
    float s = row_dot(x->q, row * a->E, x->k, of_key, a->E) * a->scale;
    float dp = row_dot(x->dout, row * a->E, x->v, of_key, a->E);
    float mask = plain_mask(a, draw, p, query, r, key);
    PlainScore score;
    score.p = device_exp(s - a->lse[row]);
    score.pm = score.p * mask;
    score.ds = a->scale * score.p * (dp * mask - a->delta[row]);
    return score;
}

/* ---- kernels ---- */

/* One block for each four queries of a head and sequence. */
KERNEL(attention_plain_forward, PlainArgs, PLAIN_THREADS, 4)
{
    SHARED(float, shared);
    const AttentionArgs *const at = &a.at;
    const AttentionPlace p =
        attention_place(at, at->S, PLAIN_WARPS, at->R, at->beside_queries, true);
    const CudaDrawKey draw = attention_draw_key(at);
    const int64_t query = p.first + threadIdx.x / WARP, E = at->E;
    float *const sum = shared + threadIdx.x / WARP * E, total = 0, top = -INFINITY;
    if (query >= at->S) return;
    const int64_t row = plain_query(at, &p, query, p.r), n = attention_visible(at, query);
    row_scale(sum, 0, E);
    for (int64_t first = 0; first < n; first += WARP) {
        int64_t key = first + threadIdx.x % WARP;
        float s = -INFINITY;
        if (key < n) s = row_dot(a.q, row * E, a.k, plain_key(at, &p, key) * E, E) * at->scale;
        float new_top = warp_max(s), w;
        new_top = new_top > top ? new_top : top;
        float shrink = top == -INFINITY ? 0 : device_exp(top - new_top);
        w = key < n ? device_exp(s - new_top) : 0;
        total = fmaf(total, shrink, warp_sum(w));
        top = new_top;
        if (key < n) w *= plain_mask(at, &draw, &p, query, p.r, key);
        for (int64_t e = threadIdx.x % WARP; e < E; e += WARP) sum[e] *= shrink;
        row_add(sum, w, a.v, plain_key(at, &p, first) * E, at->G * E, n - first, E);
    }
    row_write(a.out, row * E, sum, total > 0 ? 1 / total : 0, E, false);
    if (threadIdx.x % WARP == 0) at->to_lse[row] = total > 0 ? top + logf(total) : -INFINITY;
}

KERNEL(attention_plain_dq, PlainArgs, PLAIN_THREADS, 4)
{
    SHARED(float, shared);
    const AttentionArgs *const at = &a.at;
    const AttentionPlace p =
        attention_place(at, at->S, PLAIN_WARPS, at->R, at->beside_queries, true);
    const CudaDrawKey draw = attention_draw_key(at);
    const int64_t query = p.first + threadIdx.x / WARP, E = at->E;
    float *const sum = shared + threadIdx.x / WARP * E;
    if (query >= at->S) return;
    const int64_t row = plain_query(at, &p, query, p.r), n = attention_visible(at, query);
    row_scale(sum, 0, E);
    for (int64_t first = 0; first < n; first += WARP) {
        int64_t key = first + threadIdx.x % WARP;
        float w = key < n ? plain_score(&a, &draw, &p, query, p.r, key).ds : 0;
        row_add(sum, w, a.k, plain_key(at, &p, first) * E, at->G * E, n - first, E);
    }
    row_write(a.dq, row * E, sum, 1, E, (at->accumulate & 1) != 0);
}

/* One block for each four keys of a group and sequence. */
KERNEL(attention_plain_dkv, PlainArgs, PLAIN_THREADS, 4)
{
    SHARED(float, shared);
    const AttentionArgs *const at = &a.at;
    const AttentionPlace p = attention_place(at, at->T, PLAIN_WARPS, 1, at->beside_keys, false);
    const CudaDrawKey draw = attention_draw_key(at);
    const int64_t key = p.first + threadIdx.x / WARP, E = at->E;
    float *const dk = shared + threadIdx.x / WARP * 2 * E, *const dv = dk + E;
    if (key >= at->T) return;
    const int64_t begin = attention_first(at, key);
    row_scale(dk, 0, 2 * E);
    for (int64_t r = 0; r < at->R; r++)
        for (int64_t first = begin; first < at->S; first += WARP) {
            int64_t query = first + threadIdx.x % WARP, n = at->S - first;
            int64_t row = plain_query(at, &p, first, r) * E, step = at->G * at->R * E;
            PlainScore score;
            score.pm = score.ds = 0;
            if (query < at->S) score = plain_score(&a, &draw, &p, query, r, key);
            row_add(dv, score.pm, a.dout, row, step, n, E);
            row_add(dk, score.ds, a.q, row, step, n, E);
        }
    int64_t to = plain_key(at, &p, key) * E;
    row_write(a.dk, to, dk, 1, E, (at->accumulate & 2) != 0);
    row_write(a.dv, to, dv, 1, E, (at->accumulate & 4) != 0);
}

/* ---- launches ---- */

static Array array_at(const void *at, DType dtype)
{
    Array x;
    x.at = (char *)(uintptr_t)at;
    x.dtype = (int32_t)dtype;
    x.wide = false;
    return x;
}

static PlainArgs plain_args(const AttentionArgs *a, const AttentionTypes *t)
{
    PlainArgs x;
    x.at = *a;
    x.q = array_at(a->q, t->q), x.k = array_at(a->k, t->k), x.v = array_at(a->v, t->v);
    x.out = array_at(a->to_out, t->out), x.dout = array_at(a->dout, t->dout);
    x.dq = array_at(a->dq, t->dq), x.dk = array_at(a->dk, t->dk), x.dv = array_at(a->dv, t->dv);
    return x;
}

bool attention_plain(const AttentionArgs *a, const AttentionTypes *types, const CudaContext *cuda,
                     CudaError *error)
{
    PlainArgs x = plain_args(a, types);
    int64_t blocks = ceil_div(a->S, PLAIN_WARPS) * a->G * a->R * a->B;
    size_t bytes = (size_t)(PLAIN_WARPS * a->E) * sizeof(float);
    return LAUNCH(attention_plain_forward, blocks, PLAIN_THREADS, bytes, x, cuda, error);
}

bool attention_grad_plain(const AttentionArgs *a, const AttentionTypes *types,
                          const CudaContext *cuda, CudaError *error)
{
    PlainArgs x = plain_args(a, types);
    int64_t of_queries = ceil_div(a->S, PLAIN_WARPS) * a->G * a->R * a->B;
    int64_t of_keys = ceil_div(a->T, PLAIN_WARPS) * a->G * a->B;
    size_t bytes = (size_t)(PLAIN_WARPS * a->E) * sizeof(float);
    return LAUNCH(attention_plain_dq, of_queries, PLAIN_THREADS, bytes, x, cuda, error) &&
           LAUNCH(attention_plain_dkv, of_keys, PLAIN_THREADS, 2 * bytes, x, cuda, error);
}
