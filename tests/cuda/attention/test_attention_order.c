/* The order in which attention's blocks visit heads and tiles. Every tile of every head is visited
 * once, and tiles with the most keys come first. At one time, only as many heads are visited as fit
 * in half of the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/cuda/emulator/device_on_cpu.h"

#include "kernels/cuda/attention/order.cuh"

enum { MOST = 4096, H100_SMS = 132, MIB = 1 << 20 };

static const CudaContext h100 = {.n_sms = H100_SMS, .l2_bytes = (uint64_t)50 * MIB};

/* Checks one launch. Each pair of a tile and a head is visited once. Heads are visited in chunks of
 * `beside`, one chunk after the other. Within a chunk, all heads visit one tile before the next
 * tile. */
static void check_launch(uint32_t n_tiles, uint32_t heads, uint32_t beside, bool last_first)
{
    static uint8_t seen[MOST];
    const uint32_t n = n_tiles * heads;
    assert_true(n <= MOST && beside > 0);
    memset(seen, 0, n);
    OrderPlace before = {0, 0};
    for (uint32_t block = 0; block < n; block++) {
        const OrderPlace p = order_place(block, heads, n_tiles, beside, last_first);
        assert_true(p.tile < n_tiles && p.head < heads);
        assert_int_equal(seen[p.head * n_tiles + p.tile]++, 0);
        const uint32_t chunk = p.head / beside,
                       of_tile = last_first ? n_tiles - 1 - p.tile : p.tile;
        if (block > 0) {
            const uint32_t chunk_before = before.head / beside;
            const uint32_t tile_before = last_first ? n_tiles - 1 - before.tile : before.tile;
            assert_true(chunk == chunk_before || chunk == chunk_before + 1);
            if (chunk > chunk_before)
                assert_true(tile_before == n_tiles - 1 && of_tile == 0);
            else
                assert_true(of_tile == tile_before ? p.head == before.head + 1
                                                   : of_tile == tile_before + 1);
        }
        before = p;
    }
}

static void each_tile_is_visited_once(void **state)
{
    (void)state;
    static const uint32_t tiles[] = {1, 2, 7, 32}, heads[] = {1, 2, 12, 37, 128};
    for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; t++)
        for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
            for (uint32_t beside = 1; beside <= heads[h] + 3; beside += beside < 9 ? 1 : 8) {
                check_launch(tiles[t], heads[h], beside, true);
                check_launch(tiles[t], heads[h], beside, false);
            }
    check_launch(5, 11, UINT32_MAX, true); /* all heads at one time */
}

/* Checks how many heads are visited at one time, given the bytes of the keys and values of a
 * head. */
static void heads_side_by_side_fit_in_half_of_the_cache(void **state)
{
    (void)state;
    const int64_t half = 25 * MIB, many = INT64_C(100) * H100_SMS;
    uint32_t few = 0;
    for (int64_t bytes = 1 << 10; bytes <= (INT64_C(1) << 31); bytes = bytes * 3 / 2) {
        const int64_t n = order_beside(&h100, bytes, 768, true, many);
        assert_true(n == 1 || n * bytes <= half);
        assert_true(n == 768 || (n + 1) * bytes > half);
        few += n > 1 && n < 768;
    }
    assert_true(few > 5);
    /* 4,096 keys and values of a head of 128, in 16 bits, are 2 MiB */
    assert_int_equal(order_beside(&h100, 2 * MIB, 64, true, many), 12);
    /* With few long blocks, or if the size of the cache is unknown, all heads are visited at
     * once. */
    assert_int_equal(order_beside(&h100, 2 * MIB, 64, true, 5 * H100_SMS), 64);
    assert_int_equal(order_beside(&h100, 2 * MIB, 64, false, 5 * H100_SMS), 12);
    const CudaContext unknown = {.n_sms = H100_SMS};
    assert_int_equal(order_beside(&unknown, 2 * MIB, 64, true, many), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tile_is_visited_once),
        cmocka_unit_test(heads_side_by_side_fit_in_half_of_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
