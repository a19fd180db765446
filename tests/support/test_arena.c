/* See test_arena.h and test_diag.h. */
#include "tests/support/test_diag.h"

Arena *arena;
Diag diag;

int test_arena_setup(void **state)
{
    (void)state;
    arena = arena_new();
    return 0;
}

int test_diag_setup(void **state)
{
    test_arena_setup(state);
    diag = diag_in(arena);
    return 0;
}

int test_arena_teardown(void **state)
{
    (void)state;
    arena_free(arena);
    arena = NULL;
    return 0;
}
