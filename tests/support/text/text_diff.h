/* The difference of two texts, for a file in the repository: if one line changes, the difference
 * has one line, which does not depend on where the change is. */
#ifndef TANDEM_TESTS_SUPPORT_TEXT_DIFF_H
#define TANDEM_TESTS_SUPPORT_TEXT_DIFF_H

#include "planner/base/str.h"

/* Appends the lines that differ, in order. Equal lines are left out.
 *     - TEXT           a removed line
 *     + TEXT           an added line
 *     ~ WORD: -a +b    a line whose first word stays, but whose other words differ
 * A line "@" separates changes that are not adjacent. Lines are compared without normalisation, and
 * the longest common subsequence is kept. Texts should have at most about 2,000 lines each, because
 * the time is proportional to the product of their lengths. */
void text_diff(const char *before, const char *after, Str *out);

#endif
