/* Lists: new elements are zero even in used memory, growing keeps the elements, and index 0 stands
 * for none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/list.h"

typedef struct Item {
    uint64_t a;
    char b[5];
} Item;

static void an_added_element_is_zero_even_in_used_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    /* Leaves old bytes in the memory that the list will use. */
    memset(arena_alloc(arena, 12000), 0xFF, 12000);
    arena_reset(arena);
    LIST(Item) items = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t at = list_add(arena, &items);
        assert_int_equal(at, i);
        const Item zero = {0};
        assert_memory_equal(&items.at[at], &zero, sizeof zero);
        items.at[at].a = i + 1;
        items.at[at].b[4] = 'x';
    }
    assert_int_equal(items.n, 1000);
    for (uint32_t i = 0; i < 1000; i++) assert_int_equal(items.at[i].a, i + 1);
    arena_free(arena);
}

static void lists_that_grow_in_turn_keep_their_values(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    LIST(uint32_t) one = {0}, two = {0};
    /* Two lists grow in turn: neither may grow into the other. */
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(list_push(arena, &one, i), i);
        assert_int_equal(list_push(arena, &two, 2 * i), i);
    }
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(one.at[i], i);
        assert_int_equal(two.at[i], 2 * i);
    }
    arena_free(arena);
}

static void the_newest_list_grows_in_place(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    LIST(uint64_t) list = {0};
    list_push(arena, &list, (uint64_t)7);
    const uint64_t *before = list.at;
    for (uint32_t i = 1; i < 256; i++) list_push(arena, &list, (uint64_t)i);
    assert_ptr_equal(list.at, before);
    assert_int_equal(list.at[0], 7);
    /* Growing in this way wastes no memory. */
    assert_int_equal(arena_bytes(arena), list.room * sizeof(uint64_t));
    arena_free(arena);
}

static void elements_added_to_reserved_room_are_zero(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    memset(arena_alloc(arena, 9000), 0xFF, 9000);
    arena_reset(arena);
    LIST(uint32_t) list = {0};
    list.at = list_grow(arena, NULL, 0, &list.room, 100, sizeof *list.at);
    assert_true(list.room >= 100);
    for (uint32_t i = 0; i < 100; i++) list_add(arena, &list);
    for (uint32_t i = 0; i < 100; i++) assert_int_equal(list.at[i], 0);
    list.at[99] = 5;
    list.at = list_grow(arena, list.at, list.n, &list.room, 1000, sizeof *list.at);
    assert_true(list.room >= 1100);
    assert_int_equal(list.at[99], 5);
    while (list.n < list.room) list_add(arena, &list);
    for (uint32_t i = 100; i < list.n; i++) assert_int_equal(list.at[i], 0);
    list.n = 99; /* elements that are added again are zero again */
    assert_int_equal(list_add(arena, &list), 99);
    assert_int_equal(list.at[99], 0);
    /* If there is already room, nothing moves. */
    assert_ptr_equal(list_grow(arena, list.at, 100, &list.room, 5, sizeof *list.at), list.at);
    arena_free(arena);
}

static void index_0_is_reserved_once_for_none(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    LIST(Item) items = {0};
    list_reserve_none(arena, &items);
    list_reserve_none(arena, &items);
    assert_int_equal(items.n, 1);
    assert_int_equal(list_add(arena, &items), 1);
    arena_free(arena);
}

static jmp_buf out_of_memory;
static void leave(void *self)
{
    (void)self;
    longjmp(out_of_memory, 1);
}

static void too_many_elements_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    ArenaScope scope;
    arena_scope_open(&scope, leave, NULL);
    uint32_t room = 0;
    char *at = list_grow(arena, NULL, 0, &room, 10, 1);
    if (setjmp(out_of_memory) == 0) {
        list_grow(arena, at, 10, &room, UINT32_MAX, 1);
        fail_msg("2^32 + 9 elements have no 32-bit index");
    }
    arena_scope_close(&scope);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_added_element_is_zero_even_in_used_memory),
        cmocka_unit_test(lists_that_grow_in_turn_keep_their_values),
        cmocka_unit_test(the_newest_list_grows_in_place),
        cmocka_unit_test(elements_added_to_reserved_room_are_zero),
        cmocka_unit_test(index_0_is_reserved_once_for_none),
        cmocka_unit_test(too_many_elements_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
