/* Moves an error to the command-line setting that caused it. For example, --set mesh.tp=3 can make
 * the mesh larger than the cluster. The error mesh-product then points at this setting, not at the
 * script's line of `mesh`, which is correct without the setting. */
#ifndef TANDEM_FRONT_BLAME_H
#define TANDEM_FRONT_BLAME_H

#include "planner/base/diag.h"

/* Looks at the diagnostics d->items[first], d->items[first + 1], ... For an error whose rule is in
 * the table of blame.c, looks for a setting in `set` [n], such as "mesh.tp=4", that gave a value
 * which the rule compares. The last such setting becomes the error's location. Other errors keep
 * their location. */
void front_blame_settings(const char *const *set, uint32_t n, uint32_t first, Diag *d);

/* Returns the values that rule i of the table in blame.c compares, such as "batch.global
 * batch.micro", and sets *rule to the rule's id, such as "divides-batch". Returns NULL if i is past
 * the last row. */
const char *front_blame_values(uint32_t i, const char **rule);

#endif
