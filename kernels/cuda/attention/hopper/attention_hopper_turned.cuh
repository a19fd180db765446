/* Computes P and dS from transposed scores [keys, queries], for a warpgroup that holds 64 keys. The
 * gradient's kernels whose blocks hold keys include this file after attention_hopper_tile.cuh, once
 * for each dtype and head size. So it has no include guard. */

/* Replaces the scores s by P. This thread has rows `row` and row + 8 of the block's keys. Query q
 * of the tile sees the block's first `limit` + q keys. */
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

/* Replaces the gradients dp of P by dS = P (dP - delta), where s holds P. */
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
