/* Changes any field that a script can set. The fields come from the table by which scripts are
 * read, so a test that walks over the table misses no field. */
#ifndef TANDEM_TESTS_SUPPORT_CHANGE_FIELD_H
#define TANDEM_TESTS_SUPPORT_CHANGE_FIELD_H

#include "planner/front/keys/fields.h"

/* Replaces the value at `at` by another one of the field's kind. Returns false for a table, which
 * has no value. */
bool change_field(const Field *f, void *at);

#endif
