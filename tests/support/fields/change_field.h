/* Changes any field that a script can set. The fields come from the table that reads scripts, so a
 * test of all rows misses no field. */
#ifndef TANDEM_TESTS_SUPPORT_CHANGE_FIELD_H
#define TANDEM_TESTS_SUPPORT_CHANGE_FIELD_H

#include "planner/front/keys/fields.h"

/* Sets the value at `at` to another one of the field's kind. Returns false for a table, which has
 * no value. */
bool change_field(const Field *f, void *at);

#endif
