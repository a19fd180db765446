/* Changes values of a plan by the table that reads them, for tests that must cover every field. */
#ifndef TANDEM_TESTS_SUPPORT_CHANGE_FIELD_H
#define TANDEM_TESTS_SUPPORT_CHANGE_FIELD_H

#include "planner/front/keys/fields.h"

/* Sets another value of this kind, whatever the value was. Returns false for a table, which has no
 * value. */
bool change_field(const Field *f, void *at);

#endif
