/* Computes dK = scale dS^T Q and dV = (P m)^T dO for one dtype and one head size, where m is the
 * mask of dropout divided by 1 - drop. A block holds ROWS keys and values of one group. It reads
 * the queries of all heads of that group in order. So the sums over heads and queries have a fixed
 * order, and each number is written by one block only. Scores are kept transposed, [keys, queries],
 * because both products need them as their left factor. WANT_K and WANT_V say which of the two
 * gradients the kernel computes. */
#define F(name) PART(name)
#define TILES   (HEAD < 128 ? 2 : 1)
#define COLUMNS (HEAD < 256 ? 32 : 16)
#define BLOCKS  (HEAD < 256 ? 2 : 1)
#define TURNED  1
#define ROWS    (ATTENTION_WARPS * 16 * TILES)
#include "kernels/cuda/attention/attention_tile.cuh"

/* One tile of queries in shared memory: its head in the group, its first query, and the address of
 * its queries, dout, lse (for base 2) and delta. There are two such stages: while the block
 * computes with one, the other is being filled. */
typedef struct F(Stage) {
    int r, query;
    Shared at;
} F(Stage);

/* Returns stage i. Stages are numbered like the tiles of queries: first the tiles of the group's
 * first head, then those of the next head, and so on. */
DEVICE F(Stage) F(stage)(Shared shared, int i, int r, int query)
{
    F(Stage) t;
    t.at = shared + 2 * ROWS * HEAD * 2 + i % 2 * (COLUMNS * HEAD * 4 + COLUMNS * 8);
    t.r = r;
    t.query = query;
    return t;
}

/* Returns the lse and the delta of a stage's queries: [2, COLUMNS]. */
DEVICE float *F(rows_of)(const F(Stage) * t)
{
    return (float *)shared_pointer(t->at + COLUMNS * HEAD * 4);
}

DEVICE void F(load_queries)(const AttentionArgs *a, const AttentionPlace *at, const F(Stage) * t)
{
    int64_t heads = a->G * a->R, stride = heads * a->E;
    int64_t first = (at->b * a->S + t->query) * heads + at->g * a->R + t->r;
    const int64_t n_rows = attention_end(a, t->query) - t->query;
    tile_load(t->at, HEAD, COLUMNS, (const uint16_t *)a->q + first * a->E, stride, n_rows, a->E);
    tile_load(t->at + COLUMNS * HEAD * 2, HEAD, COLUMNS, (const uint16_t *)a->dout + first * a->E,
              stride, n_rows, a->E);
    copies_commit();
    float *const rows = F(rows_of)(t);
    for (int i = (int)threadIdx.x; i < COLUMNS; i += ATTENTION_THREADS) {
        bool is = i < n_rows; /* rows without a query get an lse that makes P zero */
        rows[i] = is ? a->lse[first + i * heads] * LOG2_E : INFINITY;
        rows[COLUMNS + i] = is ? a->delta[first + i * heads] : 0;
    }
}

/* Replaces the scores s by P m, which dV needs, and the gradients dp of P by dS, which dK needs. */
DEVICE void F(differentiate)(const AttentionArgs *a, const AttentionPlace *at, const F(Stage) * t,
                             float s[TILES][COLUMNS / 8][4], float dp[TILES][COLUMNS / 8][4],
                             int row, uint64_t kept)
{
    const int lane = (int)threadIdx.x % WARP;
    const float *const rows = F(rows_of)(t);
    const int64_t limit =
        a->causal ? a->position + attention_behind(a, t->query) + 1 - at->first : ROWS;
    const int seen_by_first = limit < -COLUMNS ? -COLUMNS : limit < ROWS ? (int)limit : ROWS;
    const int n_keys = a->T - at->first < ROWS ? (int)(a->T - at->first) : ROWS;
    UNROLL for (int i = 0; i < 2 * TILES; i++) UNROLL for (int n = 0; n < COLUMNS / 8; n++)
        UNROLL for (int c = 0; c < 2; c++)
    {
        int m = i / 2, k = i % 2 * 2 + c, column = n * 8 + lane % 4 * 2 + c;
        int of_tile = row + i * 8 + lane / 4;
        bool seen = of_tile < n_keys && of_tile < seen_by_first + (a->causal ? column : 0);
        float p = device_exp2(fmaf(s[m][n][k], a->scale * LOG2_E, -rows[column])), mask = 1;
        if (a->drops) mask = F(mask)(a, kept, m, n, k);
        if (WANT_K) dp[m][n][k] = seen ? p * (dp[m][n][k] * mask - rows[COLUMNS + column]) : 0;
        if (WANT_V) s[m][n][k] = seen ? p * mask : 0;
    }
}

DEVICE void F(one_stage)(const AttentionArgs *a, const AttentionPlace *at, const F(Stage) * t,
                         Shared keys, int row, const CudaDrawKey *draw, float (*dk)[HEAD / 8][4],
                         float (*dv)[HEAD / 8][4])
{
    float s[TILES][COLUMNS / 8][4], dp[TILES][COLUMNS / 8][4];
    AttentionPlace of_head = *at;
    of_head.r = t->r;
    uint64_t kept = a->drops ? F(draw)(a, draw, &of_head, at->first + row, t->query) : 0;
    F(rows_by_rows)(s, keys, row, t->at);
    if (WANT_K) F(rows_by_rows)(dp, keys + ROWS * HEAD * 2, row, t->at + COLUMNS * HEAD * 2);
    F(differentiate)(a, at, t, s, dp, row, kept);
    if (WANT_V) F(times)(dv, s, t->at + COLUMNS * HEAD * 2);
    if (WANT_K) F(times)(dk, dp, t->at);
}

/* One block for each tile of keys, group and sequence. Shared memory holds the keys, the values and
 * two stages of queries. */
KERNEL_OF(F(attention), AttentionArgs, ATTENTION_THREADS, BLOCKS)
{
    SHARED(unsigned char, shared);
    const Shared keys = shared_of(shared);
    const AttentionPlace at = attention_place(&a, a.T, ROWS, 1, a.beside_keys, false);
    const int row = (int)threadIdx.x / WARP * 16 * TILES;
    const int64_t offset = ((at.b * a.T + at.first) * a.G + at.g) * a.E, stride = a.G * a.E;
    const AttentionWalk walk = attention_walk(&a, &at, COLUMNS);
    const CudaDrawKey draw = attention_draw_key(&a);
    float dk[WANT_K ? TILES : 1][HEAD / 8][4], dv[WANT_V ? TILES : 1][HEAD / 8][4];
    UNROLL for (int i = 0; i < TILES * (HEAD / 8) * 4; i++)
    {
        if (WANT_K) dk[i / 4 / (HEAD / 8)][i / 4 % (HEAD / 8)][i % 4] = 0;
        if (WANT_V) dv[i / 4 / (HEAD / 8)][i / 4 % (HEAD / 8)][i % 4] = 0;
    }
    tile_load(keys, HEAD, ROWS, (const uint16_t *)a.k + offset, stride, a.T - at.first, a.E);
    tile_load(keys + ROWS * HEAD * 2, HEAD, ROWS, (const uint16_t *)a.v + offset, stride,
              a.T - at.first, a.E);
    copies_commit();
    F(Stage) now, next = F(stage)(keys, 0, 0, walk.first);
    if (walk.n > 0) F(load_queries)(&a, &at, &next);
    for (int i = 0; i < walk.n; i++) {
        now = next;
        if (i + 1 < walk.n) {
            const int query = attention_next(&walk, &a, now.query, COLUMNS);
            next = F(stage)(keys, i + 1, now.r + (query == walk.first), query);
            F(load_queries)(&a, &at, &next);
            copies_wait(1);
        } else {
            copies_wait(0);
        }
        __syncthreads();
        F(one_stage)(&a, &at, &now, keys, row, &draw, dk, dv);
        __syncthreads();
    }
    copies_wait(0);
    __syncthreads();
    if (WANT_K) {
        F(scale_all)(dk, a.scale);
        F(store)
        (dk, keys, row, (uint16_t *)a.dk + offset, stride, a.T - at.first, a.E,
         (a.accumulate & 2) != 0);
    }
    if (WANT_V) F(store)
    (dv, keys + ROWS * HEAD * 2, row, (uint16_t *)a.dv + offset, stride, a.T - at.first, a.E,
     (a.accumulate & 4) != 0);
}

static bool F(launch)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    int64_t blocks = ceil_div(a->T, ROWS) * a->G * a->B;
    size_t shared_bytes = (2 * ROWS + 4 * COLUMNS) * HEAD * 2 + COLUMNS * 16;
    return LAUNCH_OF(F(attention), blocks, ATTENTION_THREADS, shared_bytes, *a, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
#undef PART
#undef WANT_K
#undef WANT_V
