/* Compares the verifier's map from address ranges to values with a plain array of bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/verify/value/map.h"

enum { BYTES = 600, STEPS = 4000 };

static uint32_t payload_at(const RangeMap *m, uint64_t address)
{
    return *(uint32_t *)range_payload(m, range_find(m, address));
}

/* Many small assignments fill and split blocks of the map. A few long ones empty blocks. */
static void the_map_returns_the_last_assigned_value(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    RangeMap m;
    uint32_t is[BYTES] = {0};
    range_map_init(&m, arena, sizeof *is);
    for (uint32_t step = 1; step <= STEPS; step++) {
        const uint64_t lo = rng_below(1, 1, step, BYTES - 1);
        const uint64_t most = step % 500 == 0 ? BYTES : 1 + step % 7;
        uint64_t hi = lo + 1 + rng_below(1, 2, step, most);
        if (hi > BYTES) hi = BYTES;
        range_assign(&m, lo, hi, &step);
        for (uint64_t i = lo; i < hi; i++) is[i] = step;
        for (uint64_t i = 0; i < BYTES; i++) assert_int_equal(payload_at(&m, i), is[i]);
        assert_int_equal(payload_at(&m, BYTES), 0);
    }
    arena_free(arena);
}

/* A cut makes borders and changes no value, even if both borders exist already. */
static void a_cut_makes_borders(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    RangeMap m;
    range_map_init(&m, arena, sizeof(uint32_t));
    const uint32_t one = 1;
    range_assign(&m, 100, 200, &one);
    const uint64_t cuts[][2] = {{100, 200}, {100, 150}, {150, 200},
                                {120, 130}, {90, 210},  {90, 210}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        RangeAt at = range_cut(&m, cuts[i][0], cuts[i][1]);
        assert_int_equal(range_lo(&m, at), cuts[i][0]);
        at = range_find(&m, cuts[i][1]);
        assert_int_equal(range_lo(&m, at), cuts[i][1]);
        for (uint64_t a = 80; a < 220; a++)
            assert_int_equal(payload_at(&m, a), a >= 100 && a < 200);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_map_returns_the_last_assigned_value),
        cmocka_unit_test(a_cut_makes_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
