/* Scores held transposed, [keys, queries], by a warpgroup with 64 keys: P and dS of the gradient's
 * kernels that hold keys. It is included after attention_hopper_tile.cuh, once for each kernel,
 * type and head size. No include guard. */

/* Turns scores into P. This thread has rows `row` and row + 8 of the block's keys. The first query
 * sees the keys before `limit`. */
DEVICE void F(exponentials)(float s[COLUMNS / 2], const float *lse, float scale, int row, int limit)
{
    const int column = (int)threadIdx.x % WARP % 4 * 2, hidden = row - limit - column;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++)
    {
        const float2 of = *ALIGNED(const float2, lse + n * 8 + column);
        UNROLL for (int c = 0; c < 4; c++) s[n * 4 + c] =
            device_exp2(fmaf(s[n * 4 + c], scale, c % 2 ? -of.y : -of.x));
    }
    if (limit >= HOPPER_ROWS) return;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++)
        UNROLL for (int c = 0; c < 4; c++) if (n * 8 + c % 2 - c / 2 * 8 <= hidden) s[n * 4 + c] =
            0;
}

/* Turns dp into dS. */
DEVICE void F(differentiate)(float dp[COLUMNS / 2], const float s[COLUMNS / 2], const float *delta)
{
    const int column = (int)threadIdx.x % WARP % 4 * 2;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++)
    {
        const float2 of = *ALIGNED(const float2, delta + n * 8 + column);
        UNROLL for (int c = 0; c < 4; c++) dp[n * 4 + c] =
            s[n * 4 + c] * (dp[n * 4 + c] - (c % 2 ? of.y : of.x));
    }
}
