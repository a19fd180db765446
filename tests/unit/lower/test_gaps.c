/* Compares the record of an arena's free bytes with a slow and obvious method: an array that states
 * for each unit of 256 bytes whether it is in use, free, or free only later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/lower/memory/gaps.h"

enum { UNITS = 64, UNIT = 256, ROUNDS = 400, NOW = 5 };
typedef enum Use { USE_unused, USE_taken, USE_free, USE_later } Use;

typedef struct Model {
    Use use[UNITS];
    uint32_t top; /* no unit from this number on was ever used */
    uint64_t seed;
} Model;

static uint32_t below(Model *m, uint32_t n)
{
    m->seed = m->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(m->seed >> 33) % n;
}

static bool fits(const Model *m, uint32_t at, uint32_t n)
{
    for (uint32_t i = at; i < at + n; i++)
        if (i < m->top && m->use[i] != USE_free) return false;
    return true;
}

/* Returns the lowest place for n units that does not touch units [lo, hi). */
static uint32_t lowest(const Model *m, uint32_t n, uint32_t lo, uint32_t hi)
{
    for (uint32_t at = 0;; at++)
        if (fits(m, at, n) && (lo == hi || at + n <= lo || at >= hi)) return at;
}

/* Takes n units. A place above the top leaves free units below it. */
static void take(Model *m, uint32_t at, uint32_t n)
{
    for (uint32_t i = m->top; i < at; i++) m->use[i] = USE_free;
    for (uint32_t i = at; i < at + n; i++) m->use[i] = USE_taken;
    if (at + n > m->top) m->top = at + n;
}

static void check(const Model *m, const Gaps *gaps)
{
    Use has[UNITS];
    for (uint32_t i = 0; i < UNITS; i++) has[i] = i < m->top ? USE_taken : USE_unused;
    for (uint32_t g = 0; g < gaps->list.n; g++) {
        const Gap *gap = &gaps->list.at[g];
        assert_int_equal(gap->offset % UNIT + gap->size % UNIT, 0);
        for (uint64_t i = gap->offset / UNIT; i < (gap->offset + gap->size) / UNIT; i++) {
            assert_true(i < m->top && has[i] == USE_taken); /* no unit is in two gaps */
            has[i] = gap->end.known > NOW ? USE_later : USE_free;
        }
    }
    for (uint32_t i = 0; i < m->top; i++) assert_int_equal(has[i], m->use[i]);
    assert_int_equal(gaps->top, m->top * UNIT);
}

static void give_some(Model *m, Gaps *gaps, const Knowledge *now)
{
    static const Clock busy = {{NOW + 1}};
    const uint32_t at = below(m, UNITS), most = 1 + below(m, 6);
    uint32_t n = 0;
    while (n < most && at + n < m->top && m->use[at + n] == USE_taken) n++;
    if (n == 0) return;
    const bool later = below(m, 4) == 0;
    gaps_give(gaps, (uint64_t)at * UNIT, (uint64_t)n * UNIT, (End){&busy, later ? NOW + 1 : NOW},
              now);
    for (uint32_t i = at; i < at + n; i++) m->use[i] = later ? USE_later : USE_free;
}

static void free_bytes_equal_those_of_a_slow_method(void **state)
{
    (void)state;
    static const Clock clock = {{NOW}};
    const Knowledge now = {&clock, NOW, true};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        Arena *arena = arena_new();
        Model m = {.seed = seed};
        Gaps gaps = {0};
        gaps_init(&gaps, 0, arena);
        if (seed % 2) gaps.many = UINT32_MAX;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const uint32_t n = 1 + below(&m, 5), kind = below(&m, 8);
            if (kind < 5 || m.top > UNITS / 2) {
                give_some(&m, &gaps, &now);
            } else if (kind == 5) {
                const uint32_t at = below(&m, m.top + 3);
                const bool free = fits(&m, at, n);
                assert_int_equal(gaps_take_at(&gaps, (uint64_t)at * UNIT, n * UNIT, &now), free);
                if (free) take(&m, at, n);
            } else {
                const uint32_t lo = below(&m, UNITS / 2), hi = lo + below(&m, 4);
                const Extent other = {(uint64_t)lo * UNIT, (uint64_t)hi * UNIT};
                const uint32_t at = lowest(&m, n, lo, hi);
                assert_int_equal(gaps_take(&gaps, n * UNIT, &now, &other, lo < hi), at * UNIT);
                take(&m, at, n);
            }
            check(&m, &gaps);
        }
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_bytes_equal_those_of_a_slow_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
