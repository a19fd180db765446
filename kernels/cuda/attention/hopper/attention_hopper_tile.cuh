/* Products of tiles, where a warpgroup computes 64 rows. A kernel includes this file after it has
 * defined HEAD (the head size), TYPE (bf16 or f16), COLUMNS (64 or 128: the columns of a tile of
 * scores) and F (which makes function names). A result lies in registers as tiles of 8 columns,
 * each laid out as C of mma in mma.cuh. This file has no include guard, because several kernels
 * include it. */
#define PASTE_3(name, n, type) name##_##n##_##type
#define PASTE(name, n, type)   PASTE_3(name, n, type)
#define PAIR_OF(type)          round_##type##_pair
#define PAIR_1(type)           PAIR_OF(type)
#define PAIR                   PAIR_1(TYPE)
#define WIDEN_OF(type)         widen_##type
#define WIDEN_1(type)          WIDEN_OF(type)
#define WIDEN                  WIDEN_1(TYPE)

/* own_bytes: bytes of a permanent tile; tile_bytes: bytes of a tile that passes through the
 * ring. */
enum { F(own_bytes) = HOPPER_ROWS * HEAD * 2, F(tile_bytes) = COLUMNS * HEAD * 2 };

/* Starts to copy a tile of `rows` rows to shared memory. The copied boxes that `map` describes must
 * have this many rows. */
DEVICE void F(fetch)(Shared to, const TensorMap *map, Shared barrier, const AttentionPlace *at,
                     int rows, int64_t head, int row)
{
    UNROLL for (int half = 0; half < HEAD / SWIZZLE_COLUMNS; half++) box_fetch(
        to + half * rows * 128, map, barrier, half * SWIZZLE_COLUMNS, (int)head, row, (int)at->b);
}

/* Issues s = x y^T for 64 rows of the permanent tile x and all rows of tile y. */
DEVICE void F(rows_by_rows)(float s[COLUMNS / 2], Shared x, Shared y)
{
    products_fence();
    UNROLL for (int step = 0; step < HEAD / 16; step++)
    {
        int x_far = step / 4 * HOPPER_ROWS * 128 + step % 4 * 32;
        int y_far = step / 4 * COLUMNS * 128 + step % 4 * 32;
        PASTE(product_rows, COLUMNS, TYPE)
        (s, matrix_of(x + x_far, 16, SWIZZLE_BYTES), matrix_of(y + y_far, 16, SWIZZLE_BYTES),
         step > 0);
    }
    products_commit();
}

/* Issues sum += p y, where p [64, COLUMNS] lies in registers and y is a tile [COLUMNS, HEAD]. */
DEVICE void F(times)(float sum[HEAD / 2], uint32_t p[COLUMNS / 16][4], Shared y)
{
    products_fence();
    UNROLL for (int step = 0; step < COLUMNS / 16; step++) PASTE(product_columns, HEAD, TYPE)(
        sum, p[step], matrix_of(y + step * 16 * 128, COLUMNS * 128, SWIZZLE_BYTES));
    products_commit();
}

/* Rounds a result to the layout A of mma, in which it can be the left factor of a product. */
DEVICE void F(round)(uint32_t p[COLUMNS / 16][4], const float s[COLUMNS / 2])
{
    UNROLL for (int n = 0; n < COLUMNS / 16; n++) UNROLL for (int c = 0; c < 4; c++) p[n][c] =
        PAIR(s[n * 8 + c * 2], s[n * 8 + c * 2 + 1]);
}

/* Sets a score to `hidden` if its query may not see its key. The scores' first key is `key`. */
DEVICE void F(hide)(float s[COLUMNS / 2], const HopperRows *rows, int key, float hidden)
{
    if (key + COLUMNS <= rows->by_all) return;
    const int column = key + (int)threadIdx.x % WARP % 4 * 2;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++)
        UNROLL for (int c = 0; c < 4; c++) if (column + n * 8 + c % 2 >= rows->seen[c / 2])
            s[n * 4 + c] = hidden;
}

DEVICE void F(scale_rows)(float x[HEAD / 2], const float by[2])
{
    UNROLL for (int n = 0; n < HEAD / 8; n++) UNROLL for (int c = 0; c < 4; c++) x[n * 4 + c] *=
        by[c / 2];
}

/* Writes the warpgroup's 64 rows to `to` [n_rows, E], whose first row is row 0 of the tile. The
 * rows pass through the rows of the permanent tile from `row` on, which no other warpgroup reads.
 * If `accumulate` is true, the rows are added to `to`. Before the call, all warps of the warpgroup
 * must have waited for their products. */
DEVICE void F(store)(const float x[HEAD / 2], Shared tile, int row, uint16_t *to, int64_t stride,
                     int64_t n_rows, int64_t E, bool accumulate)
{
    const int lane = (int)threadIdx.x % WARP, mine = row + (int)threadIdx.x / WARP % 4 * 16;
    const int here = n_rows < HOPPER_ROWS ? (int)n_rows : HOPPER_ROWS, width = (int)E;
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < HEAD / 8; n++)
    {
        const int at = mine + i * 8 + lane / 4, column = n * 8 + lane % 4 * 2;
        if (n % 4 == 0)
            __syncwarp(); /* so that ptxas loads only four old words at a time into
                             registers */
        float low = x[n * 4 + i * 2], high = x[n * 4 + i * 2 + 1];
        if (accumulate && at < here && column < width) {
            uint32_t old = *ALIGNED(const uint32_t, to + at * stride + column);
            low += WIDEN(old & 0xffff);
            high += WIDEN(old >> 16);
        }
        *ALIGNED(uint32_t, shared_pointer(swizzled_chunk(tile, HOPPER_ROWS, at, n) +
                                          lane % 4 * 4)) = PAIR(low, high);
    }
    __syncwarp();
    for (int i = lane; i < 16 * (HEAD / 8); i += WARP) {
        int at = mine + i / (HEAD / 8), chunk = i % (HEAD / 8);
        if (at < here && chunk * 8 < width)
            *ALIGNED(uint4, to + at * stride + chunk * 8) =
                *ALIGNED(const uint4, shared_pointer(swizzled_chunk(tile, HOPPER_ROWS, at, chunk)));
    }
}
