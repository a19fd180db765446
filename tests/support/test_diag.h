/* Gives each test its own arena and its own diagnostics. test_arena_teardown frees both. */
#ifndef TANDEM_TESTS_SUPPORT_TEST_DIAG_H
#define TANDEM_TESTS_SUPPORT_TEST_DIAG_H

#include "planner/base/diag.h"
#include "tests/support/test_arena.h"

extern Diag diag;
int test_diag_setup(void **state);

#endif
