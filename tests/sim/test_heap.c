/* The queue of events returns the earliest event first, and of several events at one time the one
 * that was added first. A slow list checks this over random additions and removals, both with many
 * events at few times and with few events at many times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "sim/heap.h"

typedef struct Known {
    Ps time;
    uint32_t added; /* counts up with each addition */
    bool taken;
} Known;

/* Returns the earliest remaining event; of events at one time, the one that was added first. */
static const Known *first_of(const Known *known, uint32_t n)
{
    const Known *first = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (!known[i].taken && (first == NULL || known[i].time < first->time)) first = &known[i];
    return first;
}

static void run(uint64_t seed, uint32_t n_times)
{
    enum { ACTIONS = 3000 };
    Arena *arena = arena_new();
    Heap heap = {0};
    Known *known = arena_array(arena, ACTIONS, sizeof *known);
    uint32_t n = 0, left = 0;
    Ps now = 0;
    for (uint32_t i = 0; i < ACTIONS; i++) {
        const uint64_t drawn = rng_u64(seed, 0, i);
        const bool fills = (i / 500) % 2 == 0;
        if (drawn % 8 < (fills ? 6U : 2U) || left == 0) {
            known[n] = (Known){now + (Ps)((drawn >> 8) % n_times), n, false};
            heap_add(&heap, arena, known[n].time, n, n + 7);
            n++;
            left++;
        }
        const Event *top = heap_top(&heap);
        const Known *first = first_of(known, n);
        assert_non_null(top);
        assert_int_equal(top->time, first->time);
        assert_int_equal(top->a, first->added);
        assert_int_equal(top->b, first->added + 7);
        if ((drawn >> 40) % 8 >= (fills ? 2U : 5U)) continue;
        now = top->time;
        known[top->a].taken = true;
        heap_take(&heap);
        left--;
    }
    while (left-- > 0) {
        const Event *top = heap_top(&heap);
        assert_int_equal(top->a, first_of(known, n)->added);
        known[top->a].taken = true;
        heap_take(&heap);
    }
    assert_null(heap_top(&heap));
    arena_free(arena);
}

static void events_come_out_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        run(seed, 1);
        run(seed, 4);
        run(seed, 100);
        run(seed, 1000000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(events_come_out_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
