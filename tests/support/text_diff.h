/* The difference of two texts, in a form for the repository: a change of one line gives one line of
 * difference, wherever it is. */
#ifndef TANDEM_TESTS_SUPPORT_TEXT_DIFF_H
#define TANDEM_TESTS_SUPPORT_TEXT_DIFF_H

#include "planner/base/str.h"

/* The lines that differ, in order; equal lines are left out:
 *     - text a removed line
 *     + text an added line
 *     ~ WORD: -a +b a line whose first word (WORD) is the same but whose other words differ
 * A line "@" separates changes that are not adjacent. Lines are compared without normalisation, and
 * the longest common subsequence is kept. Texts should have at most about 2,000 lines each: the
 * time is proportional to the product of their lengths.
 */
void text_diff(const char *before, const char *after, Str *out);

#endif
