/* Finds the --set of the command line that caused an error between several values. */
#ifndef TANDEM_FRONT_BLAME_H
#define TANDEM_FRONT_BLAME_H

#include "planner/base/diag.h"

/* Looks at the errors in `d` from item `first` on. If a setting gave a value that the error's rule
 * compares, moves the error to the last such setting. Other errors keep their location. set [n]
 * holds the settings as texts, such as "mesh.tp=4". */
void front_blame_settings(const char *const *set, uint32_t n, uint32_t first, Diag *d);

/* Returns row i of the table of rules: the values that the rule compares, separated by spaces. NULL
 * after the last row. */
const char *front_blame_values(uint32_t i, const char **rule);

#endif
