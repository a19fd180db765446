/* Attention (forward) for one dtype and one head size. A block holds ROWS queries of one head in
 * shared memory. It reads the keys and values in tiles of COLUMNS keys. While it computes with one
 * tile, the copy of the next tile is running. */
#define F(name) NAME(name##_forward)
/* A warp computes 16 TILES rows and loads each tile of keys and values once for all of them. With
 * heads of 256 numbers, there are only enough registers for 16 rows. */
#define TILES   (HEAD < 256 ? 2 : 1)
#define COLUMNS (HEAD < 128 ? 64 : 32)
#define BLOCKS  2
#define TURNED  0
#define ROWS    (ATTENTION_WARPS * 16 * TILES)
#include "kernels/cuda/attention/attention_tile.cuh"

typedef struct F(State) {
    float out[TILES][HEAD / 8][4];
    float top[TILES][2], total[TILES][2]; /* of rows lane / 4 and lane / 4 + 8 of each tile: the
                                             largest score so far, and the sum of exponentials */
} F(State);

/* Sets a score to minus infinity if its query may not see its key. */
DEVICE void F(hide)(const AttentionArgs *a, float s[TILES][COLUMNS / 8][4], int64_t query,
                    int64_t key)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL for (int i = 0; i < 2 * TILES; i++)
    {
        int64_t seen = attention_visible(a, query + i * 8 + lane / 4) - key;
        UNROLL for (int n = 0; n < COLUMNS / 8; n++)
            UNROLL for (int c = 0; c < 2; c++) if (n * 8 + lane % 4 * 2 + c >= seen)
                s[i / 2][n][i % 2 * 2 + c] = -INFINITY;
    }
}

/* Replaces the scores by exp(score - largest score so far), which still must be divided by their
 * sum. If the largest score has grown, it also rescales the sums computed so far. */
DEVICE void F(fold)(F(State) * state, float s[TILES][COLUMNS / 8][4], float scale)
{
    UNROLL for (int i = 0; i < 2 * TILES; i++)
    {
        int m = i / 2, half = i % 2 * 2;
        float top = state->top[m][i % 2], sum = 0;
        UNROLL for (int n = 0; n < COLUMNS / 8; n++) top =
            fmaxf(top, fmaxf(s[m][n][half], s[m][n][half + 1]));
        top = row_max(top);
        float base = top == -INFINITY ? 0 : top * scale;
        float shrink = device_exp2(fmaf(state->top[m][i % 2], scale, -base));
        UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int c = half; c < half + 2; c++)
        {
            s[m][n][c] = device_exp2(fmaf(s[m][n][c], scale, -base));
            sum += s[m][n][c];
        }
        state->top[m][i % 2] = top;
        state->total[m][i % 2] = fmaf(state->total[m][i % 2], shrink, sum);
        UNROLL for (int n = 0; n < HEAD / 8; n++)
        {
            state->out[m][n][half] *= shrink;
            state->out[m][n][half + 1] *= shrink;
        }
    }
}

DEVICE void F(finish)(const AttentionArgs *a, F(State) * state, const AttentionPlace *at,
                      Shared tile, int row)
{
    int lane = (int)threadIdx.x % WARP;
    int64_t heads = a->G * a->R, first = (at->b * a->S + at->first) * heads + at->head;
    UNROLL for (int i = 0; i < 2 * TILES; i++)
    {
        int m = i / 2, half = i % 2 * 2;
        float total = row_sum(state->total[m][i % 2]), inverse = total > 0 ? 1 / total : 0;
        int64_t query = row + i * 8 + lane / 4;
        if (lane % 4 == 0 && at->first + query < a->S)
            a->to_lse[first + query * heads] =
                total > 0 ? fmaf(state->top[m][i % 2], a->scale, logf(total)) : -INFINITY;
        UNROLL for (int n = 0; n < HEAD / 8; n++)
        {
            state->out[m][n][half] *= inverse;
            state->out[m][n][half + 1] *= inverse;
        }
    }
    F(store)
    (state->out, tile, row, (uint16_t *)a->to_out + first * a->E, heads * a->E, a->S - at->first,
     a->E, false);
}

DEVICE void F(load_keys)(const AttentionArgs *a, const AttentionPlace *at, Shared pair, int64_t key)
{
    int64_t offset = ((at->b * a->T + key) * a->G + at->g) * a->E, stride = a->G * a->E;
    tile_load(pair, HEAD, COLUMNS, (const uint16_t *)a->k + offset, stride, a->T - key, a->E);
    tile_load(pair + COLUMNS * HEAD * 2, HEAD, COLUMNS, (const uint16_t *)a->v + offset, stride,
              a->T - key, a->E);
    copies_commit();
}

DEVICE void F(drop)(const AttentionArgs *a, float p[TILES][COLUMNS / 8][4], uint64_t kept)
{
    UNROLL for (int m = 0; m < TILES; m++) UNROLL for (int n = 0; n < COLUMNS / 8; n++)
        UNROLL for (int c = 0; c < 4; c++) p[m][n][c] *= F(mask)(a, kept, m, n, c);
}

/* One block for each tile of queries, head and sequence. Shared memory holds the queries and two
 * pairs of tiles, each of keys and values. */
KERNEL_OF(F(attention), AttentionArgs, ATTENTION_THREADS, BLOCKS)
{
    SHARED(unsigned char, shared);
    const Shared queries = shared_of(shared);
    const Shared pairs = queries + ROWS * HEAD * 2;
    const AttentionPlace at = attention_place(&a, a.S, ROWS, a.R, a.beside_queries, true);
    const int row = (int)threadIdx.x / WARP * 16 * TILES;
    const int64_t heads = a.G * a.R;
    int64_t last = at.first + ROWS < a.S ? at.first + ROWS - 1 : a.S - 1;
    const int64_t n_keys = attention_visible(&a, last),
                  seen_by_all = attention_visible(&a, at.first);
    const CudaDrawKey draw = attention_draw_key(&a);
    F(State) state;
    UNROLL for (int m = 0; m < TILES; m++)
    {
        state.top[m][0] = state.top[m][1] = -INFINITY;
        state.total[m][0] = state.total[m][1] = 0;
        UNROLL for (int n = 0; n < HEAD / 8; n++) UNROLL for (int c = 0; c < 4; c++)
            state.out[m][n][c] = 0;
    }
    tile_load(queries, HEAD, ROWS,
              (const uint16_t *)a.q + ((at.b * a.S + at.first) * heads + at.head) * a.E,
              heads * a.E, a.S - at.first, a.E);
    copies_commit();
    if (n_keys > 0) F(load_keys)(&a, &at, pairs, 0);
    for (int64_t key = 0; key < n_keys; key += COLUMNS) {
        int stage = (int)(key / COLUMNS % 2);
        Shared pair = pairs + stage * COLUMNS * HEAD * 4;
        float s[TILES][COLUMNS / 8][4];
        if (key + COLUMNS < n_keys) {
            F(load_keys)(&a, &at, pairs + (1 - stage) * COLUMNS * HEAD * 4, key + COLUMNS);
            copies_wait(1);
        } else {
            copies_wait(0);
        }
        __syncthreads();
        F(rows_by_rows)(s, queries, row, pair);
        if (key + COLUMNS > seen_by_all) F(hide)(&a, s, at.first + row, key);
        F(fold)(&state, s, a.scale * LOG2_E);
        if (a.drops) F(drop)(&a, s, F(draw)(&a, &draw, &at, at.first + row, key));
        F(times)(state.out, s, pair + COLUMNS * HEAD * 2);
        __syncthreads();
    }
    copies_wait(0);
    __syncthreads(); /* a block whose queries see no key has not waited for its copies of the
                        queries yet */
    F(finish)(&a, &state, &at, queries, row);
}

static bool NAME(launch_forward)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    int64_t blocks = (a->S + ROWS - 1) / ROWS * a->G * a->R * a->B;
    size_t shared_bytes = (ROWS + 4 * COLUMNS) * HEAD * 2;
    return LAUNCH_OF(F(attention), blocks, ATTENTION_THREADS, shared_bytes, *a, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
