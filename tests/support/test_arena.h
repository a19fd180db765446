/* Gives each test its own arena, which is made before the test and freed after it. */
#ifndef TANDEM_TESTS_SUPPORT_TEST_ARENA_H
#define TANDEM_TESTS_SUPPORT_TEST_ARENA_H

#include "planner/base/arena.h"

extern Arena *arena;
int test_arena_setup(void **state);
int test_arena_teardown(void **state);

#endif
