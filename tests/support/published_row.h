/* Rows of a table of published runs, and their predictions by `tandem accuracy`. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_PUBLISHED_ROW_H
#define TANDEM_TESTS_SUPPORT_PUBLISHED_ROW_H

#include <jansson.h>
#include <stddef.h>

#include "planner/base/arena.h"

/* Returns the document of `tandem accuracy --runs` for a plain row of 8 H100 with these changes,
 * such as "tp=2;pp=4". The caller releases it. Ends the test if the command fails. */
json_t *published_row_scored(Arena *arena, const char *changes);
/* Returns the same for a table of `n` rows. Each row is the plain row with one of the changes.
 * Changes to `id` name the rows in the document. */
json_t *published_rows_scored(Arena *arena, const char *const *changes, size_t n);
/* Returns the prediction of `what`, such as "step time", for a row. Returns 0 if there is none. */
double published_row_predicted(Arena *arena, const char *changes, const char *what);

enum { SPELLED_ROW_OTHERS = 24 };

/* A row in the usual words of the tables, and other spellings that mean the same. A spelling
 * without "=" replaces the cell of the first column that `usual` names. NULL ends the list. */
typedef struct SpelledRow {
    const char *usual, *others[SPELLED_ROW_OTHERS];
} SpelledRow;

/* Ends the test unless all spellings of a row get the same prediction. */
void spelled_rows_agree(const SpelledRow *rows, size_t n);
/* Ends the test unless the two rows of each pair are both predicted, with different results. */
void spelled_rows_differ(const char *const (*pairs)[2], size_t n);
/* Ends the test unless each row (the first text of a pair) is refused for a reason that contains
 * the second text. */
void spelled_rows_are_refused(const char *const (*rows)[2], size_t n);

#endif
