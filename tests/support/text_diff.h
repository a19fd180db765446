/* The difference of two texts, in a form that is committed: a change to one line stays a change to
 * one line, wherever the line is. */
#ifndef TANDEM_TESTS_SUPPORT_TEXT_DIFF_H
#define TANDEM_TESTS_SUPPORT_TEXT_DIFF_H

#include "planner/base/str.h"

/* The lines that differ, in order; equal lines are left out:
 *     - text       a line that is gone
 *     + text       a line that is new
 *     ~ WORD: -a +b    a line that begins with the same word (WORD) and differs in others
 * A line "@" parts changes that are not next to each other. Lines are compared as they are; the
 * longest common subsequence is kept. Up to some 2,000 lines each: it takes their product in time.
 */
void text_diff(const char *before, const char *after, Str *out);

#endif
