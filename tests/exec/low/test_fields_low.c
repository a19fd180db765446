/* Plans of fields in 16 bits, with domains divided in one and two directions, pass all proofs and
 * run. In such plans, a buffer of values and the buffer of its halo strips can have different
 * dtypes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/command.h"

/* Fields are read in fp32, and convolutions compute in bf16. The halo strips of the first
 * convolution then have another dtype than its output. The run's kernels use the scratch that the
 * plan reserves. */
static void plans_in_16_bits_are_proven_and_run(void **state)
{
    (void)state;
    static const char *const sizes[][2] = {{"mesh.domain=2", "mesh.domain_w=1"},
                                           {"mesh.domain=1", "mesh.domain_w=2"},
                                           {"mesh.domain=2", "mesh.domain_w=2"}};
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/unet_domain.lua";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Arena *arena = arena_new();
        CommandResult r =
            COMMAND(arena, 60, "run", plan, "--set", sizes[i][0], "--set", sizes[i][1], "--set",
                    "precision.compute=bf16", "--backend", "loopback", "--steps", "3", "-q");
        if (r.exit_code != 0) fail_msg("%s %s:\n%s%s", sizes[i][0], sizes[i][1], r.out, r.err);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_in_16_bits_are_proven_and_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
