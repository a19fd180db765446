/* The model of PyTorch's caching allocator must reserve the bytes that PyTorch reserves. The traces
 * are short enough to compute by hand, and each tests one rule of rounding, splitting, merging or
 * freeing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "sim/memory/torch_allocator.h"

#define MIB (UINT64_C(1) << 20)

static void expect(const TorchAllocator *a, uint64_t allocated, uint64_t reserved)
{
    TorchStats s = torch_stats(a);
    assert_int_equal(s.allocated, allocated);
    assert_int_equal(s.reserved, reserved);
}

static void sizes_are_rounded_by_pool(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(1000 * MIB, false, arena);
    torch_allocate(a, 1, 0); /* needs a new small segment of 2 MiB */
    expect(a, 512, 2 * MIB);
    /* 1 MiB still belongs to the small pool: it comes out of the same segment */
    torch_allocate(a, MIB, 0);
    expect(a, 512 + MIB, 2 * MIB);
    torch_allocate(a, MIB + 1, 0); /* needs a new large segment of 20 MiB */
    expect(a, 512 + MIB + MIB + 512, 22 * MIB);
    torch_allocate(a, 9 * MIB, 0); /* fits into the rest of that segment; 20 - 1 - 9 MiB remain */
    expect(a, 2 * 512 + 11 * MIB, 22 * MIB);
    /* the remaining bytes are too few, so 10 MiB get their own segment */
    torch_allocate(a, 10 * MIB, 0);
    expect(a, 2 * 512 + 21 * MIB, 32 * MIB);
    torch_allocate(
        a, 11 * MIB + 1,
        /* large requests are rounded up to 2 MiB; a rest below 1 MiB stays in the block */
        0);
    expect(a, 2 * 512 + 21 * MIB + 12 * MIB, 44 * MIB);
    arena_free(arena);
}

/* A block is split if more than 1 MiB would remain. If exactly 1 MiB remains, it is not. */
static void large_blocks_are_split_if_over_1_mib_remains(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(1000 * MIB, false, arena);
    uint32_t whole = torch_allocate(a, 40 * MIB, 0);
    torch_release(a, whole);
    uint32_t part = torch_allocate(a, 39 * MIB, 0); /* 1 MiB remains: not split */
    expect(a, 40 * MIB, 40 * MIB);
    torch_release(a, part);
    torch_allocate(a, 39 * MIB - 512, 0); /* 1 MiB + 512 remain: split */
    expect(a, 39 * MIB - 512, 40 * MIB);
    arena_free(arena);
}

static void the_smallest_block_that_fits_is_taken(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(1000 * MIB, false, arena);
    uint32_t big = torch_allocate(a, 100 * MIB, 0), fit = torch_allocate(a, 30 * MIB, 0);
    torch_release(a, big);
    torch_release(a, fit);
    uint32_t again = torch_allocate(a, 30 * MIB, 0);
    assert_int_equal(again, fit);
    torch_allocate(a, 60 * MIB, 0); /* comes out of the block of 100 MiB */
    expect(a, 90 * MIB, 130 * MIB);
    torch_allocate(a, 40 * MIB, 0); /* fits into the rest of that block */
    expect(a, 130 * MIB, 130 * MIB);
    arena_free(arena);
}

static void free_neighbours_are_merged(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(1000 * MIB, false, arena);
    torch_release(a, torch_allocate(a, 90 * MIB, 0));
    uint32_t b[3];
    for (int i = 0; i < 3; i++) b[i] = torch_allocate(a, 30 * MIB, 0);
    expect(a, 90 * MIB, 90 * MIB);
    torch_release(a, b[0]);
    torch_release(a, b[2]);
    /* the two holes of 30 MiB are too small, because a block lies between them */
    torch_allocate(a, 40 * MIB, 0);
    expect(a, 70 * MIB, 130 * MIB);
    torch_release(a, b[1]);
    torch_allocate(a, 90 * MIB, 0); /* the three blocks were merged */
    expect(a, 130 * MIB, 130 * MIB);
    arena_free(arena);
}

static void a_stream_does_not_take_what_another_freed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(1000 * MIB, false, arena);
    torch_release(a, torch_allocate(a, 50 * MIB, 1));
    torch_allocate(a, 50 * MIB, 2);
    expect(a, 50 * MIB, 100 * MIB);
    torch_allocate(a, 50 * MIB, 1);
    expect(a, 100 * MIB, 100 * MIB);
    arena_free(arena);
}

static void free_segments_make_room_before_it_fails(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(100 * MIB, false, arena);
    torch_release(a, torch_allocate(a, 60 * MIB, 0));
    /* 60 + 70 exceed 100 MiB, so the 60 are first given back to the device */
    uint32_t kept = torch_allocate(a, 70 * MIB, 0);
    expect(a, 70 * MIB, 70 * MIB);
    assert_int_equal(torch_stats(a).n_retries, 1);
    assert_false(torch_stats(a).failed);
    torch_allocate(a, 40 * MIB, 0);
    assert_true(torch_stats(a).failed);
    torch_release(a, kept);
    arena_free(arena);
}

static void expandable_segments_grow_at_their_end(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(200 * MIB, true, arena);
    uint32_t one = torch_allocate(a, 30 * MIB, 0); /* maps two pages of 20 MiB */
    expect(a, 30 * MIB, 40 * MIB);
    /* 10 MiB of the second page are free; maps one more page */
    uint32_t two = torch_allocate(a, 15 * MIB, 0);
    expect(a, 45 * MIB, 60 * MIB);
    torch_release(a, one);
    torch_release(a, two);
    /* takes all of the pages as one block, so no bytes are lost at their borders */
    torch_allocate(a, 60 * MIB, 0);
    expect(a, 60 * MIB, 60 * MIB);
    assert_int_equal(torch_stats(a).n_segments, 1);
    torch_allocate(a, 100, 0); /* small requests use pages of 2 MiB */
    expect(a, 60 * MIB + 512, 62 * MIB);
    arena_free(arena);
}

/* An expandable segment splits off any remainder, even one below 1 MiB. */
static void expandable_blocks_are_split_to_the_last_piece(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(200 * MIB, true, arena);
    torch_release(a, torch_allocate(a, 40 * MIB, 0));
    torch_allocate(a, 39 * MIB, 0);
    expect(a, 39 * MIB, 40 * MIB);
    torch_allocate(a, 20 * MIB + 512, 0); /* starts in the free 1 MiB and maps one more page */
    expect(a, 59 * MIB + 512, 60 * MIB);
    torch_allocate(a, 80 * MIB, 0); /* starts in the free bytes, 1 MiB less 512 B */
    expect(a, 139 * MIB + 512, 140 * MIB);
    arena_free(arena);
}

/* The free end of a segment that can still grow counts as large as it may become. So a smaller hole
 * is preferred to it. */
static void the_end_of_an_expandable_segment_is_taken_last(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(200 * MIB, true, arena);
    uint32_t hole = torch_allocate(a, 30 * MIB, 0);
    torch_allocate(a, 5 * MIB, 0); /* 5 MiB remain free at the end */
    torch_release(a, hole);
    torch_allocate(a, 4 * MIB, 0); /* fits into both; takes the hole, which keeps 26 MiB */
    torch_allocate(a, 28 * MIB, 0);
    expect(a, 37 * MIB, 80 * MIB); /* takes the 5 MiB and maps two more pages */
    arena_free(arena);
}

static void expandable_pages_are_given_back_and_taken_again(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    TorchAllocator *a = torch_allocator_new(100 * MIB, true, arena);
    uint32_t one = torch_allocate(a, 60 * MIB, 1);
    torch_release(a, one);
    /* for another stream: unmaps the 60 free MiB of the first one */
    torch_allocate(a, 80 * MIB, 2);
    expect(a, 80 * MIB, 80 * MIB);
    torch_allocate(a, 20 * MIB, 1); /* maps a part of them again */
    expect(a, 100 * MIB, 100 * MIB);
    assert_false(torch_stats(a).failed);
    arena_free(arena);
}

/* For any trace of requests and frees: reserved is never below allocated, everything is given back
 * at the end, and the same trace again takes no more memory. */
static void any_trace_keeps_the_allocators_invariants(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        Arena *arena = arena_new();
        TorchAllocator *a = torch_allocator_new(UINT64_MAX / 2, seed % 2 == 0, arena);
        uint64_t reserved = 0;
        for (int round = 0; round < 3; round++) {
            uint32_t live[64] = {0};
            for (int i = 0; i < 2000; i++) {
                uint32_t at = (uint32_t)rng_below(seed, 1, (uint64_t)i, 64);
                if (live[at]) torch_release(a, live[at]);
                live[at] = 0;
                if (rng_below(seed, 2, (uint64_t)i, 3) == 0) continue;
                uint64_t bytes = UINT64_C(1) << rng_below(seed, 3, (uint64_t)i, 28);
                live[at] = torch_allocate(a, bytes + rng_below(seed, 4, (uint64_t)i, bytes),
                                          (uint32_t)(i % 3));
                assert_true(torch_stats(a).reserved >= torch_stats(a).allocated);
            }
            for (int i = 0; i < 64; i++)
                if (live[i]) torch_release(a, live[i]);
            assert_int_equal(torch_stats(a).allocated, 0);
            if (round == 1) reserved = torch_stats(a).reserved;
            if (round == 2) assert_int_equal(torch_stats(a).reserved, reserved);
        }
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded_by_pool),
        cmocka_unit_test(large_blocks_are_split_if_over_1_mib_remains),
        cmocka_unit_test(the_smallest_block_that_fits_is_taken),
        cmocka_unit_test(free_neighbours_are_merged),
        cmocka_unit_test(a_stream_does_not_take_what_another_freed),
        cmocka_unit_test(free_segments_make_room_before_it_fails),
        cmocka_unit_test(expandable_segments_grow_at_their_end),
        cmocka_unit_test(expandable_blocks_are_split_to_the_last_piece),
        cmocka_unit_test(the_end_of_an_expandable_segment_is_taken_last),
        cmocka_unit_test(expandable_pages_are_given_back_and_taken_again),
        cmocka_unit_test(any_trace_keeps_the_allocators_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
