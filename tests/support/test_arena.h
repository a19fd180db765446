/* Gives each test its own arena, which is made before the test and freed after it. With the other
 * set-up, each test also gets its own diagnostics. */
#ifndef TANDEM_TESTS_SUPPORT_TEST_ARENA_H
#define TANDEM_TESTS_SUPPORT_TEST_ARENA_H

#include "planner/base/diag.h"

extern Arena *arena;
extern Diag diag;
int test_arena_setup(void **state);
int test_diag_setup(void **state); /* makes the arena and the diagnostics */
int test_arena_teardown(void **state);

#endif
