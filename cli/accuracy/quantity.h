/* Measured quantities in cells of published runs, and the words around them. */
#ifndef TANDEM_CLI_ACCURACY_QUANTITY_H
#define TANDEM_CLI_ACCURACY_QUANTITY_H

#include "cli/accuracy/accuracy.h"

/* Returns true if the text is one of the words, a list that ends in NULL. Case does not count. */
bool cell_is_one_of(const char *text, const char *const *words);
/* Returns true if a text begins with words. Case does not count, and "-" and "_" are blanks. */
bool cell_begins(const char *text, const char *words);
/* Returns true if a text contains words, as `cell_begins` compares them. */
bool cell_has(const char *text, const char *words);
/* Skips a word such as "max" or "average" at the beginning of a text: returns "65 GB" for "max 65
 * GB". */
const char *cell_behind_words(const char *text);
/* Ends a cell's text before a remark. A remark is a spread ("1.5 +/- 0.1"), or words in
 * parentheses at the end. These words give a part of the device's memory ("65.3GiB(81%)") or say
 * how steps were counted ("1.5 s (median)"). */
void cell_without_remark(char *text);
/* If a second number follows ("1.41-1.43"), returns the middle of both, and moves *end behind it.
 * NAN: the second number is smaller, or more than a tenth larger. */
double cell_middle(double value, const char **end);
/* Returns the number in a cell, in seconds for step_time_s and in GiB for other columns: "2.84",
 * "2.84 s", "2840 ms", "0.35 it/s", "65.3 GiB", "65,300 MiB". PyTorch's tools write GB for GiB.
 * Returns NAN for other texts, for a unit of another column and for an empty cell. */
double cell_quantity(const Csv *csv, uint32_t row, const char *column);

#endif
