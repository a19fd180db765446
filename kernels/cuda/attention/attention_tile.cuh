/* Products of tiles, where each warp computes 16 TILES rows. A kernel includes this file after it
 * has defined HEAD (the head size), TYPE (bf16 or f16), TILES, COLUMNS (the columns of a tile of
 * scores) and F (which makes function names). A result is an array [tile of 16 rows][tile of 8
 * columns][4]; the last four numbers are laid out as C of mma in mma.cuh. This file has no include
 * guard, because several kernels include it. */

#define MMA_OF(type)   mma_##type
#define PAIR_OF(type)  round_##type##_pair
#define WIDEN_OF(type) widen_##type
#define MMA_1(type)    MMA_OF(type)
#define PAIR_1(type)   PAIR_OF(type)
#define WIDEN_1(type)  WIDEN_OF(type)
#define MMA            MMA_1(TYPE)
#define PAIR           PAIR_1(TYPE)
#define WIDEN          WIDEN_1(TYPE)

/* Computes s = x y^T from 16 TILES rows of tile x, beginning at row `row`, and all rows of tile
 * y. */
DEVICE void F(rows_by_rows)(float (*s)[COLUMNS / 8][4], Shared x, int row, Shared y)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL for (int m = 0; m < TILES; m++) UNROLL for (int n = 0; n < COLUMNS / 8; n++) s[m][n][0] =
        s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
    UNROLL_4 for (int step = 0; step < HEAD / 16; step++)
    {
        uint32_t a[TILES][4];
        UNROLL for (int m = 0; m < TILES; m++)
            load_matrices(a[m], tile_pair(x, HEAD, row + m * 16 + lane % 16, step * 2, lane / 16));
        UNROLL for (int n = 0; n < COLUMNS / 16; n++)
        {
            uint32_t b[4];
            load_matrices(
                b, tile_pair(y, HEAD, n * 16 + lane % 8 + lane / 16 * 8, step * 2, lane / 8 % 2));
            UNROLL for (int m = 0; m < TILES; m++)
            {
                MMA(s[m][2 * n], a[m], b);
                MMA(s[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* Computes sum += p y. p [rows, COLUMNS] is an earlier result, which is rounded to TYPE; y is a
 * tile [COLUMNS, HEAD]. */
DEVICE void F(times)(float (*sum)[HEAD / 8][4], float (*p)[COLUMNS / 8][4], Shared y)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL for (int n = 0; n < COLUMNS / 16; n++)
    {
        uint32_t a[TILES][4];
        UNROLL for (int m = 0; m < TILES; m++)
        {
            a[m][0] = PAIR(p[m][2 * n][0], p[m][2 * n][1]);
            a[m][1] = PAIR(p[m][2 * n][2], p[m][2 * n][3]);
            a[m][2] = PAIR(p[m][2 * n + 1][0], p[m][2 * n + 1][1]);
            a[m][3] = PAIR(p[m][2 * n + 1][2], p[m][2 * n + 1][3]);
        }
        UNROLL for (int d = 0; d < HEAD / 16; d++)
        {
            uint32_t b[4];
            load_matrices_transposed(b, tile_pair(y, HEAD, n * 16 + lane % 16, d * 2, lane / 16));
            UNROLL for (int m = 0; m < TILES; m++)
            {
                MMA(sum[m][2 * d], a[m], b);
                MMA(sum[m][2 * d + 1], a[m], b + 2);
            }
        }
    }
}

/* Returns which of this thread's scores dropout keeps. Bit (m COLUMNS / 8 + n) 4 + c belongs to
 * number c of tile (m, n). Scores are [queries, keys], or [keys, queries] if TURNED is 1. */
DEVICE uint64_t F(draw)(const AttentionArgs *a, const CudaDrawKey *key, const AttentionPlace *at,
                        int64_t row, int64_t column)
{
    const int lane = (int)threadIdx.x % WARP;
    uint64_t bits = 0;
    assert(TILES * COLUMNS / 8 * 4 <= 64);
    UNROLL_1 for (int i = 0; i < TILES * COLUMNS / 8 * 4; i++)
    {
        int64_t x = row + i / 4 / (COLUMNS / 8) * 16 + i % 4 / 2 * 8 + lane / 4;
        int64_t y = column + i / 4 % (COLUMNS / 8) * 8 + lane % 4 * 2 + i % 2;
        bits |= (uint64_t)attention_keeps(a, key, at, TURNED ? y : x, TURNED ? x : y) << i;
    }
    return bits;
}

/* Returns 1 / (1 - drop) if dropout keeps the score, and 0 if not. */
DEVICE float F(mask)(const AttentionArgs *a, uint64_t bits, int m, int n, int c)
{
    return bits >> ((m * (COLUMNS / 8) + n) * 4 + c) & 1 ? a->grow : 0;
}

DEVICE void F(scale_all)(float (*x)[HEAD / 8][4], float factor)
{
    UNROLL for (int m = 0; m < TILES; m++) UNROLL for (int n = 0; n < HEAD / 8; n++)
        UNROLL for (int c = 0; c < 4; c++) x[m][n][c] *= factor;
}

/* Writes this warp's rows to `to` [n_rows, E], whose first row is row 0 of the tile. The rows pass
 * through the rows of `tile` from `row` on, which no other warp may use then. If `accumulate` is
 * true, the rows are added to `to`. */
DEVICE void F(store)(float (*x)[HEAD / 8][4], Shared tile, int row, uint16_t *to, int64_t stride,
                     int64_t n_rows, int64_t E, bool accumulate)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL for (int i = 0; i < 2 * TILES; i++)
    { /* lane / 4 is the index of the row in each group of 8 rows */
        int at = row + i * 8 + lane / 4, m = i / 2, half = i % 2 * 2;
        UNROLL for (int n = 0; n < HEAD / 8; n++)
        {
            int column = n * 8 + lane % 4 * 2;
            if (n % 4 == 0)
                __syncwarp(); /* so that ptxas loads only four old words at a time into
                                 registers */
            float low = x[m][n][half], high = x[m][n][half + 1];
            if (accumulate && at < n_rows && column < E) {
                uint32_t old = *ALIGNED(const uint32_t, to + at * stride + column);
                low += WIDEN(old & 0xffff);
                high += WIDEN(old >> 16);
            }
            *ALIGNED(uint32_t, shared_pointer(tile_chunk(tile, HEAD, at, n) + lane % 4 * 4)) =
                PAIR(low, high);
        }
    }
    __syncwarp();
    for (int i = lane; i < TILES * 16 * (HEAD / 8); i += WARP) {
        int at = row + i / (HEAD / 8), chunk = i % (HEAD / 8);
        if (at < n_rows && chunk * 8 < E)
            *ALIGNED(uint4, to + at * stride + chunk * 8) =
                *ALIGNED(const uint4, shared_pointer(tile_chunk(tile, HEAD, at, chunk)));
    }
}
