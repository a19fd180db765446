/* A sweep over clusters and runtimes compiles a plan once and uses it for several points. Each
 * point must still give the result of `sim`, whatever the number of processes and the order in
 * which they decide points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "tests/support/document.h"
#include "tests/support/test_arena.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
static const char *const keys[] = {"cluster", "mesh.tp", "runtime"};
enum { POINTS = 3 * 2 * 3 };

static json_t *sweep(const char *jobs)
{
    const CommandResult r = COMMAND(
        arena, 120, "sweep", llama, "--set", "model=llama:3.2-1b", "--set", "mesh.dp_shard=-1",
        "--try", "cluster=dgx_h100,dgx_a100,hgx_h200", "--try", "mesh.tp=1,2", "--try",
        "runtime=none,torchtitan,megatron", "--exact", "-j", jobs, "--db", "none", "--json");
    return document_of(r, 0);
}

static const char *setting(const json_t *row, const char *key)
{
    const char *value = json_string_value(json_object_get(json_object_get(row, "settings"), key));
    assert_non_null(value);
    return arena_print(arena, "%s=%s", key, value);
}

static void each_point_has_the_result_of_sim(void **state)
{
    (void)state;
    static const char *const same[] = {"step_ps", "tokens_per_s", "mfu", "plan_id"};
    json_t *one = sweep("1"), *two = sweep("2");
    const json_t *rows = json_object_get(one, "rows");
    assert_int_equal(json_array_size(rows), POINTS);
    assert_true(json_equal(rows, json_object_get(two, "rows")));
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        json_t *alone =
            document_of(COMMAND(arena, 120, "sim", llama, "--set", "model=llama:3.2-1b", "--set",
                                "mesh.dp_shard=-1", "--set", setting(row, keys[0]), "--set",
                                setting(row, keys[1]), "--set", setting(row, keys[2]), "--db",
                                "none", "--json"),
                        0);
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            if (!json_equal(json_object_get(row, same[k]), json_object_get(alone, same[k])))
                fail_msg("%s of %s %s %s", same[k], setting(row, keys[0]), setting(row, keys[1]),
                         setting(row, keys[2]));
        json_decref(alone);
    }
    json_decref(one);
    json_decref(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_point_has_the_result_of_sim, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
