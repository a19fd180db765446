/* Computes dQ = scale dS K for one dtype and one head size. A block holds ROWS queries of one head
 * and the gradients dO of their outputs, and reads the keys and values tile by tile. It computes P
 * again from lse, then dS = P (m dO V^T - delta), where m is the mask of dropout divided by 1 -
 * drop. */
#define F(name) NAME(name##_dq)
#define TILES   (HEAD < 128 ? 2 : 1)
#define COLUMNS (HEAD < 256 ? 32 : 16)
#define BLOCKS  (HEAD < 256 ? 2 : 1)
#define TURNED  0
#define ROWS    (ATTENTION_WARPS * 16 * TILES)
#include "kernels/cuda/attention/attention_tile.cuh"

typedef struct F(Rows) {
    float lse[TILES][2], delta[TILES][2]; /* of rows lane / 4 and lane / 4 + 8 of each tile; lse is
                                             for base 2 */
} F(Rows);

/* Replaces the scores s by dS. dp holds the products dO V^T. */
DEVICE void F(differentiate)(const AttentionArgs *a, const AttentionPlace *at, const F(Rows) * rows,
                             float s[TILES][COLUMNS / 8][4], float dp[TILES][COLUMNS / 8][4],
                             int row, int64_t key, bool all_seen, uint64_t kept)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL for (int i = 0; i < 2 * TILES; i++)
    {
        int m = i / 2;
        int64_t query = at->first + row + i * 8 + lane / 4;
        int64_t seen = all_seen ? COLUMNS : attention_visible(a, query) - key;
        UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int c = 0; c < 2; c++)
        {
            int column = n * 8 + lane % 4 * 2 + c, k = i % 2 * 2 + c;
            float p = device_exp2(fmaf(s[m][n][k], a->scale * LOG2_E, -rows->lse[m][i % 2]));
            if (a->drops) dp[m][n][k] *= F(mask)(a, kept, m, n, k);
            s[m][n][k] = column < seen ? p * (dp[m][n][k] - rows->delta[m][i % 2]) : 0;
        }
    }
}

DEVICE void F(load_keys)(const AttentionArgs *a, const AttentionPlace *at, Shared pair, int64_t key)
{
    int64_t offset = ((at->b * a->T + key) * a->G + at->g) * a->E, stride = a->G * a->E;
    tile_load(pair, HEAD, COLUMNS, (const uint16_t *)a->k + offset, stride, a->T - key, a->E);
    tile_load(pair + COLUMNS * HEAD * 2, HEAD, COLUMNS, (const uint16_t *)a->v + offset, stride,
              a->T - key, a->E);
    copies_commit();
}

/* One block for each tile of queries, head and sequence. Shared memory holds the queries, their
 * output gradients, and two pairs of tiles, each of keys and values. */
KERNEL_OF(F(attention), AttentionArgs, ATTENTION_THREADS, BLOCKS)
{
    SHARED(unsigned char, shared);
    const Shared queries = shared_of(shared);
    const Shared douts = queries + ROWS * HEAD * 2, pairs = douts + ROWS * HEAD * 2;
    const AttentionPlace at = attention_place(&a, a.S, ROWS, a.R, a.beside_queries, true);
    const int row = (int)threadIdx.x / WARP * 16 * TILES, lane = (int)threadIdx.x % WARP;
    const int64_t heads = a.G * a.R, first = (at.b * a.S + at.first) * heads + at.head;
    int64_t last = at.first + ROWS < a.S ? at.first + ROWS - 1 : a.S - 1;
    const int64_t n_keys = attention_visible(&a, last);
    const int64_t seen_by_all = attention_visible(&a, at.first);
    const CudaDrawKey draw = attention_draw_key(&a);
    float dq[TILES][HEAD / 8][4];
    F(Rows) rows;
    UNROLL for (int i = 0; i < 2 * TILES; i++)
    {
        int64_t query = row + i * 8 + lane / 4;
        bool is = at.first + query < a.S;
        rows.lse[i / 2][i % 2] = is ? a.lse[first + query * heads] * LOG2_E : INFINITY;
        rows.delta[i / 2][i % 2] = is ? a.delta[first + query * heads] : 0;
        UNROLL for (int n = 0; n < HEAD / 8; n++) dq[i / 2][n][i % 2 * 2] =
            dq[i / 2][n][i % 2 * 2 + 1] = 0;
    }
    tile_load(queries, HEAD, ROWS, (const uint16_t *)a.q + first * a.E, heads * a.E, a.S - at.first,
              a.E);
    tile_load(douts, HEAD, ROWS, (const uint16_t *)a.dout + first * a.E, heads * a.E,
              a.S - at.first, a.E);
    copies_commit();
    if (n_keys > 0) F(load_keys)(&a, &at, pairs, 0);
    for (int64_t key = 0; key < n_keys; key += COLUMNS) {
        int stage = (int)(key / COLUMNS % 2);
        Shared pair = pairs + stage * COLUMNS * HEAD * 4;
        float s[TILES][COLUMNS / 8][4], dp[TILES][COLUMNS / 8][4];
        if (key + COLUMNS < n_keys) {
            F(load_keys)(&a, &at, pairs + (1 - stage) * COLUMNS * HEAD * 4, key + COLUMNS);
            copies_wait(1);
        } else {
            copies_wait(0);
        }
        __syncthreads();
        F(rows_by_rows)(s, queries, row, pair);
        F(rows_by_rows)(dp, douts, row, pair + COLUMNS * HEAD * 2);
        uint64_t kept = a.drops ? F(draw)(&a, &draw, &at, at.first + row, key) : 0;
        F(differentiate)(&a, &at, &rows, s, dp, row, key, key + COLUMNS <= seen_by_all, kept);
        F(times)(dq, s, pair);
        __syncthreads();
    }
    copies_wait(0);
    __syncthreads(); /* a block whose queries see no key has not waited for its copies of the
                        queries yet */
    F(scale_all)(dq, a.scale);
    F(store)
    (dq, queries, row, (uint16_t *)a.dq + first * a.E, heads * a.E, a.S - at.first, a.E,
     (a.accumulate & 1) != 0);
}

static bool NAME(launch_dq)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    int64_t blocks = ceil_div(a->S, ROWS) * a->G * a->R * a->B;
    size_t shared_bytes = (2 * ROWS + 4 * COLUMNS) * HEAD * 2;
    return LAUNCH_OF(F(attention), blocks, ATTENTION_THREADS, shared_bytes, *a, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
