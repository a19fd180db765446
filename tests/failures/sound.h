/* Checks a store from outside, as another process would see it. */
#ifndef TANDEM_TESTS_FAILURES_SOUND_H
#define TANDEM_TESTS_FAILURES_SOUND_H

#include "planner/base/arena.h"

/* Returns NULL if the store is sound: SQLite's check passes, every row has its parent, and every
 * seal holds. Otherwise it returns the first problem. */
const char *sound_fault(Arena *arena, const char *path);
/* Returns the number of rows of a table. Ends the test if they cannot be read. */
uint32_t sound_rows(Arena *arena, const char *path, const char *table);

#endif
