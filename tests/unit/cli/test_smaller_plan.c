/* A plan that keeps less must not need more memory. One plan gives weights back after the forward
 * pass, another fetches fewer units ahead. The memory pass packs buffers by a rule, not by search,
 * so fetching less may need up to 1 % more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include "tests/support/command.h"

/* Returns the peak memory of the worst rank, in bytes. */
static double peak_bytes(Arena *arena, const char *plan, const char *setting)
{
    const char *file = arena_print(arena, "%s/scripts/plans/%s.lua", TANDEM_SOURCE_DIR, plan);
    const char *set = arena_print(arena, "parallel.fsdp2.%s", setting);
    CommandResult r = COMMAND(arena, 120, "sim", file, "--set", set, "--db", "none", "--json");
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    const double bytes = json_number_value(json_object_get(root, "peak_bytes"));
    json_decref(root);
    assert_true(bytes > 0);
    return bytes;
}

static const char *const plans[] = {"kempnerforge_13b", "mixtral_8x7b"};
enum { N_PLANS = sizeof plans / sizeof *plans };

static void giving_weights_back_needs_less_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int i = 0; i < N_PLANS; i++)
        assert_true(peak_bytes(arena, plans[i], "reshard_after_forward=true") <
                    peak_bytes(arena, plans[i], "reshard_after_forward=false"));
    arena_free(arena);
}

static void fetching_fewer_units_ahead_needs_hardly_more_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const ahead[] = {"prefetch=0", "prefetch=1", "prefetch=2"};
    for (int i = 0; i < N_PLANS; i++) {
        double less = peak_bytes(arena, plans[i], ahead[0]);
        for (int k = 1; k < 3; k++) {
            const double more = peak_bytes(arena, plans[i], ahead[k]);
            assert_true(less < 1.01 * more);
            less = more;
        }
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(giving_weights_back_needs_less_memory),
        cmocka_unit_test(fetching_fewer_units_ahead_needs_hardly_more_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
