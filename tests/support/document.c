/* See document.h. */
#include "tests/support/document.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

json_t *document_of(CommandResult r, int code)
{
    if (r.exit_code != code)
        fail_msg("code %d, wanted %d\n%s\n%s", r.exit_code, code, r.err, r.out);
    json_error_t error;
    json_t *root = json_loads(r.out, 0, &error);
    if (root == NULL) fail_msg("no JSON: %s\n%s", error.text, r.out);
    return root;
}

double document_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number '%s'", key);
    return json_number_value(value);
}
