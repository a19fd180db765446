/* If a script uses a key of another system, a hint names the key of Tandem. The test checks that
 * every such key exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "planner/front/draft/draft.h"

static bool is_key(const char *key)
{
    static const char *const keys[] = {
#define DOC(name, unit, text) name,
#include "planner/front/keys/fields_doc.def"
#undef DOC
#define AXIS(name, ...) "mesh." #name,
#include "planner/ir/axes.def"
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

/* If a foreign name stands for several keys, the table has an explanation instead of a key. An
 * explanation contains a space, so the test does not look it up. */
static void each_foreign_name_leads_to_a_key(void **state)
{
    (void)state;
#define ACCUMULATION "batch.global: "
#define DATA_RANKS   "mesh.dp_shard or mesh.dp_replicate"
    static const char *const names[][2] = {
#define OTHER(name, key) {name, key},
#include "planner/front/keys/other_names.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i][0], *key = names[i][1];
        if (strchr(key, ' ') == NULL && !is_key(key)) fail_msg("%s leads to %s", name, key);
        if (front_other_name(name) == NULL) fail_msg("%s is not found", name);
    }
    assert_string_equal(front_other_name("Micro-Batch-Size"), "batch.micro");
    assert_null(front_other_name("wings"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_foreign_name_leads_to_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
