/* One row of a table of published runs, and its prediction by `tandem accuracy`. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_PUBLISHED_ROW_H
#define TANDEM_TESTS_SUPPORT_PUBLISHED_ROW_H

#include <jansson.h>
#include <stddef.h>

#include "planner/base/arena.h"

/* Returns the document of `tandem accuracy --runs` for a plain row of 8 H100 with these changes, as
 * in "tp=2;pp=4". The caller releases it. Ends the test if the command fails. */
json_t *published_row_scored(Arena *arena, const char *changes);
/* Returns the same for a table of `n` such rows. Changes to `id` name the rows in the document. */
json_t *published_rows_scored(Arena *arena, const char *const *changes, size_t n);
/* Returns the row's prediction of `what`, as in "step time"; 0: there is none. */
double published_row_predicted(Arena *arena, const char *changes, const char *what);

#endif
