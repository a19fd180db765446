/* Names the setting of the command line that is behind an error of several values. */
#ifndef TANDEM_FRONT_BLAME_H
#define TANDEM_FRONT_BLAME_H

#include "planner/base/diag.h"

/* Moves errors of `d`, from item `first` on, to the last of the n settings that gave a value of the
 * error's rule. Errors of other rules stay at their place. set[i]: "mesh.tp=4". */
void front_blame_settings(const char *const *set, uint32_t n, uint32_t first, Diag *d);

/* Returns row i of the table of rules: the values that the rule compares, separated by spaces. NULL
 * behind the last row. */
const char *front_blame_values(uint32_t i, const char **rule);

#endif
