/* The JSON that a command prints. */
#ifndef TANDEM_TESTS_SUPPORT_DOCUMENT_H
#define TANDEM_TESTS_SUPPORT_DOCUMENT_H

#include <jansson.h>

#include "tests/support/command.h"

/* Returns the document on standard output, for the caller to release. Ends the test if the exit
 * code differs from `code`, or if the output is no JSON. */
json_t *document_of(CommandResult r, int code);
/* Returns the number at `key`; ends the test if there is none. */
double document_number(const json_t *object, const char *key);

#endif
