/* Compares the choice of offsets for large buffers with slow and obvious methods. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "planner/lower/memory/large.h"
#include "tests/support/plans/tiny.h"

enum { PLANS = 40, SEED = 7, BOTTOM = 512, UNIT = 256 };

static uint32_t below(uint64_t index, uint64_t field, uint32_t n)
{
    return (uint32_t)rng_below(SEED, index, field, n);
}

/* Fills `l` with the lives of a random plan. */
static void draw_lives(uint64_t i, Lives *l, Arena *arena)
{
    Tiny t = tiny_default();
    t.gpt2 = below(i, 0, 2);
    t.layers = 2 + below(i, 1, 3);
    t.tp = 1 + below(i, 2, 2);
    t.dp_shard = 1 + below(i, 3, 3);
    t.hidden = 4 * (3 + below(i, 4, 3));
    t.ac = (AcMode)below(i, 5, 3);
    t.fsdp2.prefetch = below(i, 6, 3);
    t.microbatches = 1 + below(i, 7, 4);
    if (below(i, 8, 3) == 0) t.pp = 2;
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    if (plan == NULL) fail_msg("%s", d.items.at[0].text);
    lives_read(l, &plan->programs.at[below(i, 9, plan->programs.n)], arena);
    lives_of_space(l, SPACE_device);
}

static LargeWanted draw_wanted(uint64_t i)
{
    return (LargeWanted){.least = 256 << below(i, 10, 4), .n_microbatches = UINT32_MAX};
}

static bool in_use_together(const LargeBuffer *a, const LargeBuffer *b)
{
    const LargeBuffer *first = a->begins < b->begins ? a : b, *second = first == a ? b : a;
    return !knows_passed(&second->knows, &first->end);
}

/* Returns the largest buffer that is not placed yet; the first one, if several are as large. */
static uint32_t next_largest(const LargeBuffers *r, const bool *is_placed)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < r->list.n; i++)
        if (!is_placed[i] && (best == UINT32_MAX || r->list.at[i].size > r->list.at[best].size))
            best = i;
    return best;
}

static bool is_clear(const LargeBuffers *r, const bool *is_placed, uint32_t of, uint64_t offset)
{
    const LargeBuffer *a = &r->list.at[of];
    for (uint32_t i = 0; i < r->list.n; i++) {
        const LargeBuffer *b = &r->list.at[i];
        const bool overlaps = offset < b->offset + b->size && b->offset < offset + a->size;
        if (is_placed[i] && overlaps && in_use_together(a, b)) return false;
    }
    return true;
}

/* Returns the lowest offset at which the buffer overlaps no placed one that is in use at the same
 * time. It is the bottom, or the end of a placed buffer. */
static uint64_t lowest(const LargeBuffers *r, const bool *is_placed, uint32_t of)
{
    if (is_clear(r, is_placed, of, BOTTOM)) return BOTTOM;
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < r->list.n; i++) {
        const uint64_t end = r->list.at[i].offset + r->list.at[i].size;
        if (is_placed[i] && end < best && is_clear(r, is_placed, of, end)) best = end;
    }
    return best;
}

static void the_largest_buffer_gets_the_lowest_offset_first(void **state)
{
    (void)state;
    uint32_t n_large = 0;
    for (uint64_t i = 0; i < PLANS; i++) {
        Arena *arena = arena_new();
        Lives l;
        LargeBuffers r;
        const LargeWanted wanted = draw_wanted(i);
        draw_lives(i, &l, arena);
        if (large_find(&r, &l, &wanted, BOTTOM)) {
            bool *is_placed = arena_array(arena, r.list.n, sizeof *is_placed);
            for (uint32_t k = 0; k < r.list.n; k++) {
                const uint32_t of = next_largest(&r, is_placed);
                assert_int_equal(r.list.at[of].offset, lowest(&r, is_placed, of));
                is_placed[of] = true;
            }
            n_large += r.list.n;
        }
        arena_free(arena);
    }
    assert_true(n_large > 40 * PLANS);
}

typedef enum Cover { COVER_no, COVER_maybe, COVER_yes } Cover;

/* States for each unit of memory whether a large buffer that begins after `b` needs it while b is
 * in use. If the large buffer begins after the last use of b, it may be left out. */
static void cover(const LargeBuffers *r, const Lives *l, BufferId b, Cover *all, uint32_t n)
{
    const BufferId heir = l->heir[b];
    for (uint32_t u = 0; u < n; u++) all[u] = COVER_no;
    for (uint32_t i = 0; i < r->list.n; i++) {
        const LargeBuffer *a = &r->list.at[i];
        if (a->begins < lives_first(l, b)) continue;
        const bool sure = a->begins <= lives_last(l, heir);
        if (!sure && lives_passed(l, heir, &a->knows)) continue;
        const Cover value = sure ? COVER_yes : COVER_maybe;
        for (uint64_t u = a->offset / UNIT; u < (a->offset + a->size) / UNIT; u++)
            if (all[u] < value) all[u] = value;
    }
}

static void check_ahead(LargeBuffers *r, const Lives *l, BufferId b, Cover *all, uint32_t n)
{
    cover(r, l, b, all, n);
    large_ahead(r, b);
    uint32_t unit = 0;
    for (uint32_t k = 0; k < r->ahead.n; k++) {
        const Extent *at = &r->ahead.at[k];
        assert_true(at->lo < at->hi && (k == 0 || at->lo >= r->ahead.at[k - 1].hi));
        for (; unit < at->lo / UNIT; unit++) assert_int_not_equal(all[unit], COVER_yes);
        for (; unit < at->hi / UNIT; unit++) assert_int_not_equal(all[unit], COVER_no);
    }
    for (; unit < n; unit++) assert_int_not_equal(all[unit], COVER_yes);
}

static void bytes_that_large_buffers_will_need_equal_those_of_a_slow_method(void **state)
{
    (void)state;
    uint32_t n_asked = 0;
    for (uint64_t i = 0; i < PLANS; i++) {
        Arena *arena = arena_new();
        Lives l;
        LargeBuffers r;
        const LargeWanted wanted = draw_wanted(i);
        draw_lives(i, &l, arena);
        if (large_find(&r, &l, &wanted, BOTTOM)) {
            uint64_t top = 0;
            for (uint32_t k = 0; k < r.list.n; k++)
                if (r.list.at[k].offset + r.list.at[k].size > top)
                    top = r.list.at[k].offset + r.list.at[k].size;
            const uint32_t n = (uint32_t)(top / UNIT);
            Cover *all = arena_array(arena, n, sizeof *all);
            for (Pc pc = 1; pc < l.p->code.n; pc++)
                for (BufferId b = l.starts[pc]; b; b = l.next_start[b], n_asked++)
                    if (l.p->buffers.at[b].bytes > 0) check_ahead(&r, &l, b, all, n);
        }
        arena_free(arena);
    }
    assert_true(n_asked > 100 * PLANS);
}

static void a_list_is_refused_only_if_an_earlier_one_is_equal(void **state)
{
    (void)state;
    uint32_t n_refused = 0, n_new = 0;
    for (uint64_t i = 0; i < PLANS; i++) {
        Arena *arena = arena_new();
        Lives l;
        LargeBuffers earlier, alone, later;
        LargeWanted wanted = draw_wanted(i);
        draw_lives(i, &l, arena);
        if (large_find(&earlier, &l, &wanted, BOTTOM)) {
            wanted.least = wanted.least * 3 / 2;
            const bool any = large_find(&alone, &l, &wanted, BOTTOM);
            bool equal = any && alone.list.n == earlier.list.n;
            for (uint32_t k = 0; equal && k < alone.list.n; k++)
                equal = alone.list.at[k].first == earlier.list.at[k].first &&
                        alone.list.at[k].offset == earlier.list.at[k].offset;
            wanted.earlier = &earlier;
            wanted.n_earlier = 1;
            assert_int_equal(large_find(&later, &l, &wanted, BOTTOM), any && !equal);
            n_refused += equal;
            n_new += any && !equal;
        }
        arena_free(arena);
    }
    print_message("%u lists are equal to an earlier one, %u are not\n", n_refused, n_new);
    assert_true(n_refused > 0 && n_new > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_buffer_gets_the_lowest_offset_first),
        cmocka_unit_test(bytes_that_large_buffers_will_need_equal_those_of_a_slow_method),
        cmocka_unit_test(a_list_is_refused_only_if_an_earlier_one_is_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
